"""The conditions of a pattern at work: what the matcher asks about the event at hand.

A simple condition looks at the event alone, so it is asked once for each event, however many partial matches want to
know, and not at all where none does. Those with which a match may begin are asked for all events of a turn at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.operators.base import UserCodeError
from penstock.core.operators.patterns.search import Asked
from penstock.core.patterns.automaton import Action, Automaton
from penstock.core.patterns.memory import NO_LINK, Memory
from penstock.core.ports import Clock


class ConditionContext:
    """What a condition sees besides the event: the events that the partial match has taken so far, and times."""

    __slots__ = ("_clock", "_timestamp", "link", "memory")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timestamp: int | None = None
        self.memory: Memory | None = None
        self.link = NO_LINK

    def turn_to(self, memory: Memory, timestamp: int | None) -> None:
        """Another event is at hand."""
        self.memory = memory
        self._timestamp = timestamp

    def get_events_for_pattern(self, name: str) -> list[Any]:
        """The events that a stage has taken so far in this partial match, without the one at hand, oldest first."""
        if self.link == NO_LINK:
            return []
        assert self.memory is not None
        return self.memory.events_of(self.link, name)

    def timestamp(self) -> int | None:
        """The event's time in ms; None in processing time."""
        return self._timestamp

    def current_processing_time(self) -> int:
        """Processing time in ms."""
        return self._clock.now_ms()


class ConditionsAtWork:
    """Answers the matcher's questions. Made when the operator opens, with conditions that are open."""

    def __init__(self, conditions: Sequence[Asked], automaton: Automaton, operator_name: str, clock: Clock) -> None:
        self._conditions = conditions
        self._functions = [one.condition.compiled() for one in conditions]
        self._is_simple = [one.condition.is_simple for one in conditions]
        self._operator_name = operator_name
        self._context = ConditionContext(clock)
        self._event: Any = None
        self._known: dict[int, bool] = {}
        self._beginning = self._conditions_to_begin(automaton)

    def _conditions_to_begin(self, automaton: Automaton) -> list[Callable[[Any], Any]] | None:
        """Simple conditions of which one has to hold for an event to begin a match; None if there are no such."""
        found: dict[int, None] = {}
        waiting, seen = [automaton.start], {automaton.start}
        while waiting:
            for step in automaton.steps[waiting.pop()]:
                if step.action is Action.PROCEED and step.target not in seen:
                    seen.add(step.target)
                    waiting.append(step.target)
                elif step.action is Action.TAKE:
                    needed = [number for number, wanted in step.guard if wanted and self._is_simple[number]]
                    if not needed:
                        return None
                    found[needed[0]] = None
        return [self._functions[number] for number in found]

    def may_begin(self, events: Sequence[Any]) -> list[Any] | None:
        """For each event whether it may begin a match; None where only the matcher can tell."""
        if self._beginning is None:
            return None
        try:
            first, *others = self._beginning
            flags = list(map(first, events))
            for function in others:
                flags = [flag or function(event) for flag, event in zip(flags, events, strict=True)]
        except Exception:  # noqa: BLE001 - the matcher asks again, at the event's turn, and says what was raised
            return None
        return flags if len(flags) == len(events) else None

    def turn_to(self, event: Any, memory: Memory, timestamp: int | None) -> None:
        """Another event is at hand."""
        self._event = event
        self._known = {}
        self._context.turn_to(memory, timestamp)

    def holds(self, number: int, link: int) -> bool:
        """Whether a condition holds for the event at hand and the events taken up to a link."""
        if self._is_simple[number]:
            known = self._known.get(number)
            if known is None:
                try:
                    known = self._known[number] = bool(self._functions[number](self._event))
                except Exception as error:
                    raise self._failed(number) from error
            return known
        context = self._context
        context.link = link
        try:
            return bool(self._functions[number](self._event, context))
        except Exception as error:
            raise self._failed(number) from error

    def _failed(self, number: int) -> UserCodeError:
        return UserCodeError(self._operator_name, self._event, self._conditions[number].what)
