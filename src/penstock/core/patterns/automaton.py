"""From a pattern to an automaton.

A state has steps. TAKE adds the event to the partial match, IGNORE passes it over, PROCEED goes on to another state
with the same event. Each has a guard: conditions that have to hold, or must not. States are made from the last part to
the first, as a step leads to what is there already.

A repetition without an end is a state that takes events and stays, behind a first one that takes the first event. A
greedy one forbids what follows to use an event that it could take itself, and the way around what follows as well: as
in Flink, a greedy repetition before something optional at the end of a pattern is no match without it.

Where an event may be passed over in front of something optional, a state of its own waits for it, without a way around:
else each event would open that way anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from penstock.core.patterns.pattern import Contiguity, Part, Pattern, Stage


class Action(Enum):
    """What a step does with the event."""

    TAKE = "take"
    IGNORE = "ignore"
    PROCEED = "proceed"


#: numbers of conditions, and whether they have to hold
Guard: TypeAlias = tuple[tuple[int, bool], ...]
#: the state in which a match is complete
FINAL: Final = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A way from one state to another."""

    action: Action
    target: int
    guard: Guard = ()


@dataclass(frozen=True, slots=True)
class Automaton:
    """States by their numbers: the name of the stage of each, and its steps."""

    names: tuple[str, ...]
    steps: tuple[tuple[Step, ...], ...]
    start: int

    def conditions(self) -> tuple[frozenset[int], ...]:
        """For each state the conditions that an event may be asked for there, and in the states that it leads to."""
        return tuple(frozenset(self._asked(state)) for state in range(len(self.steps)))

    def _asked(self, state: int) -> set[int]:
        steps = [step for one in self._onwards({state}) for step in self.steps[one]]
        taken = {step.target for step in steps if step.action is Action.TAKE}
        # Behind an event that is taken, only ways on to the final state are looked at.
        steps += [step for one in self._onwards(taken) for step in self.steps[one] if step.action is Action.PROCEED]
        return {number for step in steps for number, _ in step.guard}

    def _onwards(self, states: set[int]) -> set[int]:
        """These states, and those to which one goes on from them without an event."""
        found, waiting = set(states), list(states)
        while waiting:
            for step in self.steps[waiting.pop()]:
                if step.action is Action.PROCEED and step.target not in found:
                    found.add(step.target)
                    waiting.append(step.target)
        return found


def automaton_of(pattern: Pattern) -> Automaton:
    """The automaton of a pattern."""
    making = _Making()
    start = making.chain(pattern.parts, FINAL, pattern.parts[0].contiguity)
    return Automaton(tuple(making.names), tuple(map(tuple, making.steps)), start)


class _Making:
    def __init__(self) -> None:
        self.names = [""]
        self.steps: list[list[Step]] = [[]]

    def chain(self, parts: tuple[Part, ...], sink: int, lead: Contiguity, waits: bool = False) -> int:
        """The first state of parts in a row. `lead`, `waits`: for the first part, see `_once`."""
        for part in reversed(parts[1:]):
            sink = self._part(part, sink, part.contiguity, False)
        return self._part(parts[0], sink, lead, waits)

    def _part(self, part: Part, sink: int, lead: Contiguity, waits: bool) -> int:
        times, after = part.times, sink
        if times.most is None:
            until = times.until
            before_greedy = self._copy(sink) if times.is_greedy and until is not None else sink
            after = self._loop(part, sink, before_greedy)
            stopped = None if before_greedy == sink else before_greedy
            return self._times(part, times.least, after, sink, lead, waits, stopped)
        if times.is_greedy and times.least != times.most:
            self._keep_from(sink, part)
        for _ in range(times.least, times.most):
            after = self._once(part, after, sink, times.inner, True)
        return self._times(part, times.least, after, sink, lead, waits)

    def _times(
        self, part: Part, least: int, after: int, sink: int, lead: Contiguity, waits: bool, stopped: int | None = None
    ) -> int:
        """So many events that have to be there, the first of them with what leads to it."""
        for _ in range(least - 1):
            after = self._once(part, after, sink, part.times.inner, False)
        return self._once(part, after, sink, lead, part.times.is_optional, waits, stopped)

    def _once(
        self,
        part: Part,
        after: int,
        around: int,
        contiguity: Contiguity,
        is_optional: bool,
        waits: bool = False,
        stopped: int | None = None,
    ) -> int:
        """A state that takes one event and leads to `after`; or around it, where that is optional.

        `waits`: whether a way around is made by whoever asks. `stopped`: where the way leads once UNTIL holds.
        """
        if not isinstance(part, Stage):
            first = self.chain(part.parts, after, contiguity, is_optional or waits)
            if is_optional:
                self.steps[first].append(Step(Action.PROCEED, around))
            return first
        take = self._take(part)
        state = self._state(part.name)
        steps = self.steps[state]
        steps.append(Step(Action.TAKE, after, take))
        if is_optional:
            until = part.times.until
            if stopped is not None and until is not None:
                steps.append(Step(Action.PROCEED, stopped, ((until, True),)))
                steps.append(Step(Action.PROCEED, around, ((until, False),)))
            else:
                steps.append(Step(Action.PROCEED, around))
        ignore = self._ignore(part, contiguity)
        if ignore is not None:
            waiting = state
            if is_optional or waits:
                waiting = self._state(part.name)
                self.steps[waiting] += [Step(Action.TAKE, after, take), Step(Action.IGNORE, waiting, ignore)]
            steps.append(Step(Action.IGNORE, waiting, ignore))
        return state

    def _loop(self, part: Part, sink: int, before_greedy: int) -> int:
        """A state that takes any number of events, and then leads to `sink`."""
        if not isinstance(part, Stage):
            again = self._state("")
            first = self.chain(part.parts, again, part.times.inner, True)
            self.steps[first].append(Step(Action.PROCEED, sink))
            self.steps[again].append(Step(Action.PROCEED, first))
            return first
        times, state = part.times, self._state(part.name)
        steps = self.steps[state]
        if before_greedy != sink and times.until is not None:
            steps.append(Step(Action.PROCEED, before_greedy, ((times.until, True),)))
            steps.append(Step(Action.PROCEED, sink, ((times.until, False),)))
        else:
            steps.append(Step(Action.PROCEED, sink))
        if times.is_greedy:
            self._keep_from(sink, part)
        take = self._take(part)
        steps.append(Step(Action.TAKE, state, take))
        ignore = self._ignore(part, times.inner)
        if ignore is not None:
            waiting = self._state(part.name)
            self.steps[waiting] += [Step(Action.TAKE, state, take), Step(Action.IGNORE, waiting, ignore)]
            steps.append(Step(Action.IGNORE, waiting, ignore))
        return state

    def _take(self, stage: Stage) -> Guard:
        until = stage.times.until
        return ((stage.condition, True),) if until is None else ((until, False), (stage.condition, True))

    def _ignore(self, stage: Stage, contiguity: Contiguity) -> Guard | None:
        if contiguity is Contiguity.STRICT:
            return None
        until = stage.times.until
        stop: Guard = () if until is None else ((until, False),)
        return (*stop, (stage.condition, False)) if contiguity is Contiguity.RELAXED else stop

    def _keep_from(self, sink: int, part: Part) -> None:
        """Let no step of a state use an event that a greedy stage takes."""
        assert isinstance(part, Stage), "a group cannot be greedy"
        kept = ((part.condition, False),)
        self.steps[sink] = [replace(step, guard=(*step.guard, *kept)) for step in self.steps[sink]]

    def _copy(self, state: int) -> int:
        found = self._state(self.names[state])
        self.steps[found] = [
            replace(step, target=found) if step.target == state else step for step in self.steps[state]
        ]
        return found

    def _state(self, name: str) -> int:
        self.names.append(name)
        self.steps.append([])
        return len(self.steps) - 1
