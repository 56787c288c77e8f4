"""Where an event leads a partial match, as a decision tree for each state.

The allowed steps depend on conditions, which are evaluated one after the other, and only as many as needed. Their order
and the consequences of their answers are the same for each event. So each state has a tree: an inner node tests a
condition, a leaf is the list of possible transitions. A tree grows as answers occur, and an event descends the tree
instead of examining steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.patterns.automaton import FINAL, Action, Automaton, Step


@dataclass(frozen=True, slots=True)
class Way:
    """A transition to a state. `stage`: the stage of the event taken; None if the event is ignored.

    `ends`: whether it also completes a match at once.
    """

    target: int
    stage: str | None = None
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Ways:
    """All transitions. `stays`: whether the event is ignored and nothing else; `takes`: whether any takes it.

    `stops`: the forbidden stage, if the event belongs to one.
    """

    ways: tuple[Way, ...]
    stays: bool
    takes: bool
    stops: str | None = None


class Question:
    """Tests a condition; the nodes for the answers are None until they are needed."""

    __slots__ = ("known", "no", "number", "yes")

    def __init__(self, number: int, known: dict[int, bool]) -> None:
        self.number = number
        self.known = known
        self.yes: Node | None = None
        self.no: Node | None = None


Node: TypeAlias = "Question | Ways"


class _AskedError(Exception):
    """Raised when the answer to a condition is not known."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Trees:
    """The decision trees of an automaton."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self.roots = [self._node(state, {}) for state in range(len(automaton.steps))]

    def answered(self, state: int, question: Question, answer: bool) -> Node:
        """Add the node for an answer that occurs for the first time."""
        node = self._node(state, {**question.known, question.number: answer})
        if answer:
            question.yes = node
        else:
            question.no = node
        return node

    def _node(self, state: int, known: dict[int, bool]) -> Node:
        try:
            return self._ways(state, known)
        except _AskedError as error:
            return Question(error.number, known)

    def _ways(self, state: int, known: dict[int, bool]) -> Ways:
        automaton = self._automaton
        ways: list[Way] = []
        stops: str | None = None
        for source, step in self._allowed(state, known):
            if step.target in automaton.stops:
                stops = automaton.names[step.target]
            elif step.action is Action.IGNORE:
                ways.append(Way(step.target))
            else:
                ends = step.target != FINAL and self._may_end(step.target, known)
                ways.append(Way(step.target, automaton.names[source], ends))
        if stops is not None:
            # Matches completed with this event remain.
            ways = [Way(FINAL, way.stage) for way in ways if way.target == FINAL or way.ends]
        return Ways(tuple(ways), ways == [Way(state)], any(way.stage is not None for way in ways), stops)

    def _allowed(self, state: int, known: dict[int, bool]) -> list[tuple[int, Step]]:
        """Return the steps allowed for an event in a state, with the states that they start from."""
        waiting, steps = [state], []
        while waiting:
            source = waiting.pop()
            for step in self._automaton.steps[source]:
                if not _passes(step, known):
                    continue
                if step.action is Action.PROCEED:
                    waiting.append(step.target)
                else:
                    steps.append((source, step))
        return steps

    def _may_end(self, state: int, known: dict[int, bool]) -> bool:
        """Return whether the final state is reachable from a state without another event."""
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
    if not all(_answer(number, known) is expected for number, expected in step.guard):
        return False
    return not any(all(_answer(number, known) is expected for number, expected in guard) for guard in step.unless)


def _answer(number: int, known: dict[int, bool]) -> bool:
    if number not in known:
        raise _AskedError(number)
    return known[number]
