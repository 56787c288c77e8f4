"""Where an event leads a partial match, as a tree of questions for each state.

Which steps may be gone depends on conditions, which are asked one after the other, and no more of them than it takes.
The order of questions and where their answers lead are the same for each event. So a state has a tree: each node asks a
condition, each leaf is the ways that there are. A tree grows with the answers that come, and an event goes down a tree
instead of looking at steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.patterns.automaton import FINAL, Action, Automaton, Step


@dataclass(frozen=True, slots=True)
class Way:
    """To a state. `stage`: of which the event is that is taken; None where it is passed over.

    `ends`: whether there is a match at once, beside what goes on.
    """

    target: int
    stage: str | None = None
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Ways:
    """All ways. `stays`: whether the event is passed over and nothing else; `takes`: whether any way takes it.

    `stops`: the stage that must not be met, where the event is one of it.
    """

    ways: tuple[Way, ...]
    stays: bool
    takes: bool
    stops: str | None = None


class Question:
    """Asks a condition; what follows from the answers is None until it was needed."""

    __slots__ = ("known", "no", "number", "yes")

    def __init__(self, number: int, known: dict[int, bool]) -> None:
        self.number = number
        self.known = known
        self.yes: Node | None = None
        self.no: Node | None = None


Node: TypeAlias = "Question | Ways"


class _AskedError(Exception):
    """The answer to a condition is not known."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Trees:
    """The trees of an automaton."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self.roots = [self._node(state, {}) for state in range(len(automaton.steps))]

    def answered(self, state: int, question: Question, answer: bool) -> Node:
        """What follows from an answer for the first time."""
        found = self._node(state, {**question.known, question.number: answer})
        if answer:
            question.yes = found
        else:
            question.no = found
        return found

    def _node(self, state: int, known: dict[int, bool]) -> Node:
        try:
            return self._ways(state, known)
        except _AskedError as error:
            return Question(error.number, known)

    def _ways(self, state: int, known: dict[int, bool]) -> Ways:
        automaton = self._automaton
        found: list[Way] = []
        stops: str | None = None
        for source, step in self._allowed(state, known):
            if step.target in automaton.stops:
                stops = automaton.names[step.target]
            elif step.action is Action.IGNORE:
                found.append(Way(step.target))
            else:
                ends = step.target != FINAL and self._may_end(step.target, known)
                found.append(Way(step.target, automaton.names[source], ends))
        if stops is not None:
            # What was complete with this event stays.
            found = [Way(FINAL, way.stage) for way in found if way.target == FINAL or way.ends]
        return Ways(tuple(found), found == [Way(state)], any(way.stage is not None for way in found), stops)

    def _allowed(self, state: int, known: dict[int, bool]) -> list[tuple[int, Step]]:
        """The steps that an event may go from a state, and the states that they begin in."""
        waiting, found = [state], []
        while waiting:
            one = waiting.pop()
            for step in self._automaton.steps[one]:
                if not _passes(step, known):
                    continue
                if step.action is Action.PROCEED:
                    waiting.append(step.target)
                else:
                    found.append((one, step))
        return found

    def _may_end(self, state: int, known: dict[int, bool]) -> bool:
        """Whether the final state is reached from a state without another event."""
        waiting, seen = [state], {state}
        while waiting:
            for step in self._automaton.steps[waiting.pop()]:
                if step.action is Action.PROCEED and step.target not in seen and _passes(step, known):
                    if step.target == FINAL:
                        return True
                    seen.add(step.target)
                    waiting.append(step.target)
        return False


def _passes(step: Step, known: dict[int, bool]) -> bool:
    if not all(_answer(number, known) is wanted for number, wanted in step.guard):
        return False
    return not any(all(_answer(number, known) is wanted for number, wanted in one) for one in step.unless)


def _answer(number: int, known: dict[int, bool]) -> bool:
    if number not in known:
        raise _AskedError(number)
    return known[number]
