"""The pattern that an operator looks for, with its conditions, and their evaluation for the matcher.

`PatternSearch` is pickled with the job.

`ConditionsAtWork` evaluates the conditions. A simple condition looks at the event alone, so it is evaluated once for
each event, however many partial matches need it, and not at all if none does. Simple conditions that can begin a match
are evaluated for all events of a turn at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.patterns.automaton import Action, Automaton
from penstock.runtime.patterns.matcher import NO_LINK, Memory, SkipStrategy
from penstock.runtime.patterns.pattern import Pattern
from penstock.runtime.ports import Clock


class Condition(Protocol):
    """A user-defined condition. `is_simple`: whether it looks only at the event itself."""

    @property
    def is_simple(self) -> bool: ...

    def compiled(self) -> Callable[..., Any]:
        """Return a callable that takes the event, and also a `ConditionContext` unless the condition is simple."""

    def start(self, runtime_context: Any) -> None:
        """Called before the first event."""

    def stop(self) -> None:
        """Called when the operator closes, after `start`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A condition and its name in errors, such as `the condition of stage 'a'`."""

    condition: Condition
    what: str


@dataclass(frozen=True, slots=True)
class PatternSearch:
    """A pattern, with its conditions by number.

    `compare`: the order of events of the same time, negative if the first of two comes first; None for the order of
    arrival. `late_tag`: the side output for late events; None to count and drop them.
    """

    pattern: Pattern
    strategy: SkipStrategy
    conditions: tuple[Asked, ...]
    compare: Callable[[Any, Any], int] | None = None
    late_tag: str | None = None


@dataclass(frozen=True, slots=True)
class PatternSettings:
    """Settings from the options.

    `allows_change`: whether state of a changed pattern is accepted. `partials_max`: how many partial matches a key may
    have; None for any number. `drops_oldest`: whether to drop the oldest ones beyond that, instead of failing the job.
    """

    allows_change: bool = False
    partials_max: int | None = None
    drops_oldest: bool = False


class ConditionContext:
    """A condition's view besides the event: the events that the partial match has taken so far, and times."""

    __slots__ = ("_clock", "_link", "_memory", "_timestamp")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timestamp: int | None = None
        self._memory: Memory | None = None
        self._link = NO_LINK

    def set_match(self, memory: Memory, link: int, timestamp: int | None) -> None:
        """Switch to another partial match or another event."""
        self._memory = memory
        self._link = link
        self._timestamp = timestamp

    def get_events_for_pattern(self, name: str) -> list[Any]:
        """Return the events of a stage in this partial match so far, without the current one, oldest first."""
        if self._link == NO_LINK:
            return []
        assert self._memory is not None
        return self._memory.collect_events(self._link, name)

    def timestamp(self) -> int | None:
        """Return the event's time in ms; None in processing time."""
        return self._timestamp

    def current_processing_time(self) -> int:
        """Return processing time in ms."""
        return self._clock.now_ms()


class ConditionsAtWork:
    """Answers the matcher's questions. Created when the operator opens, with opened conditions."""

    def __init__(self, conditions: Sequence[Asked], automaton: Automaton, operator_name: str, clock: Clock) -> None:
        self._conditions = conditions
        self._functions = [entry.condition.compiled() for entry in conditions]
        self._is_simple = [entry.condition.is_simple for entry in conditions]
        self._operator_name = operator_name
        self._context = ConditionContext(clock)
        #: the event, the memory of its key, its time (None in processing time), and the answers of simple conditions,
        #: which grow as conditions are evaluated
        self.at_hand: tuple[Any, Memory, int | None, dict[int, bool]] = (None, Memory(Memory.empty()), None, {})
        self._beginning = self._conditions_to_begin(automaton)

    def _conditions_to_begin(self, automaton: Automaton) -> list[int] | None:
        """Return simple conditions; an event begins a match only if one of them holds. None if it may begin without."""
        numbers: dict[int, None] = {}
        waiting, seen = [automaton.start], {automaton.start}
        while waiting:
            for step in automaton.steps[waiting.pop()]:
                if step.action is Action.PROCEED and step.target not in seen:
                    seen.add(step.target)
                    waiting.append(step.target)
                elif step.action is Action.TAKE:
                    needed = [number for number, expected in step.guard if expected and self._is_simple[number]]
                    if not needed:
                        return None
                    numbers[needed[0]] = None
        return list(numbers)

    @property
    def simple(self) -> list[int]:
        """The numbers of the conditions that look only at the event."""
        return [number for number, is_simple in enumerate(self._is_simple) if is_simple]

    def may_begin(self, events: Sequence[Any]) -> list[Any] | None:
        """Return for each event whether it may begin a match; None if only the matcher can decide."""
        if self._beginning is None:
            return None
        columns = self._answers(self._beginning, events)
        return (
            None if columns is None else columns[0] if len(columns) == 1 else list(map(any, zip(*columns, strict=True)))
        )

    def answers(self, events: Sequence[Any], begins: Sequence[Any] | None) -> list[dict[int, bool] | None] | None:
        """Return for each event the answers of all simple conditions, or None if none of them holds.

        The whole result is None if a condition raises or if no condition is simple. `begins`: the result of
        `may_begin`.
        """
        known = self._beginning if begins is not None and self._beginning and len(self._beginning) == 1 else []
        numbers = [number for number in self.simple if number not in known]
        columns = self._answers(numbers, events)
        if columns is None or not self.simple:
            return None
        if known and begins is not None:
            numbers, columns = [*known, *numbers], [list(begins), *columns]
        return [
            {number: bool(answer) for number, answer in zip(numbers, answers, strict=True)} if any(answers) else None
            for answers in zip(*columns, strict=True)
        ]

    def _answers(self, numbers: Sequence[int], events: Sequence[Any]) -> list[list[Any]] | None:
        """Return the answers of conditions for all events; None if one raises: the matcher asks again at that event."""
        try:
            columns = [list(map(self._functions[number], events)) for number in numbers]
        except Exception:  # noqa: BLE001 - a condition may raise anything, and perhaps nobody waits for the event
            return None
        return columns if all(len(column) == len(events) for column in columns) else None

    def holds(self, number: int, link: int) -> bool:
        """Return whether a condition holds for the current event and the events taken up to a link."""
        event, memory, timestamp, known = self.at_hand
        if not self._is_simple[number]:
            self._context.set_match(memory, link, timestamp)
            try:
                return bool(self._functions[number](event, self._context))
            except Exception as error:
                raise self._failed(number) from error
        answer = known.get(number)
        if answer is None:
            try:
                answer = known[number] = bool(self._functions[number](event))
            except Exception as error:
                raise self._failed(number) from error
        return answer

    def _failed(self, number: int) -> UserCodeError:
        return UserCodeError(self._operator_name, self.at_hand[0], self._conditions[number].what)
