"""The pattern that an operator looks for, with its conditions, and their evaluation for the matcher.

`PatternSearch` is pickled with the job.

`ConditionsAtWork` evaluates the conditions. A simple condition looks at the event alone, so it is evaluated once for
each event, however many partial matches need it. `Sieve` evaluates it for many events at once, and their answers are
the symbols of the events (`penstock.runtime.patterns.moves`). If it raises for one of them, it is evaluated again when
a partial match needs it, and only then does the error count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.patterns.matcher import SkipStrategy
from penstock.runtime.patterns.memory import NO_LINK, Memory
from penstock.runtime.patterns.pattern import Pattern
from penstock.runtime.ports import Clock

#: How many conditions a symbol has room for: an integer of 64 bits.
_SYMBOL_BITS: Final = 61
#: A column of answers.
Answers = npt.NDArray[np.bool_]


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

    def __init__(self, conditions: Sequence[Asked], operator_name: str, clock: Clock) -> None:
        self._conditions = conditions
        self._functions = [entry.condition.compiled() for entry in conditions]
        self._is_simple = [entry.condition.is_simple for entry in conditions]
        self._operator_name = operator_name
        self._context = ConditionContext(clock)
        #: the event, the memory of its key, its time (None in processing time), and the answers of simple conditions,
        #: which grow as conditions are evaluated
        self.at_hand: tuple[Any, Memory, int | None, dict[int, bool]] = (None, Memory(Memory.empty()), None, {})
        #: conditions that call the same function as an earlier one, with that one
        self.twins: dict[int, int] = {}
        #: the conditions whose answers are in symbols, in the order of their bits
        self.simple: list[int] = []
        first: dict[int, int] = {}
        for number, (function, is_simple) in enumerate(zip(self._functions, self._is_simple, strict=True)):
            if is_simple and id(function) in first:
                self.twins[number] = first[id(function)]
            elif is_simple and len(self.simple) < _SYMBOL_BITS:
                self.simple.append(number)
                first[id(function)] = number

    def evaluate(self, numbers: Sequence[int], events: Sequence[Any]) -> dict[int, Answers] | None:
        """Return the answers of simple conditions for all events.

        None if one raises: then the matcher asks at that event, if a partial match waits for the answer at all.
        """
        try:
            return {
                number: np.fromiter(map(self._functions[number], events), np.bool_, len(events)) for number in numbers
            }
        except Exception:  # noqa: BLE001 - a condition may raise anything, and perhaps nobody waits for the event
            return None

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
