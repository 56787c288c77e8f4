"""Traces a pattern over events: the partial matches alive after each event, and why others died.

>>> from penstock.cep import Pattern
>>> from penstock.testing import trace_pattern
>>> pattern = Pattern.begin("small").where(lambda event: event < 10).next("big").where(lambda event: event >= 10)
>>> print(trace_pattern(pattern, [3, 12, 5, 7]))
0 ms: 3
    lives: small: 3 -> big
1 ms: 12
    match: small: 3, big: 12
2 ms: 5
    lives: small: 5 -> big
3 ms: 7
    lives: small: 7 -> big
    dies:  small: 5 -> big (the event fits nowhere)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import short_repr
from penstock.cep.pattern import Pattern
from penstock.cep.pattern_stream import build_search
from penstock.runtime.operators.function_context import RuntimeContext
from penstock.runtime.operators.patterns.conditions import ConditionsAtWork
from penstock.runtime.patterns.automaton import FINAL
from penstock.runtime.patterns.matcher import Found, Matcher
from penstock.runtime.patterns.memory import Memory, Partial
from penstock.testing.operator_harness import OneInputOperatorHarness, VirtualClock, operator_factory_for

_EVENT_CHARS_MAX = 60


@dataclass
class TraceStep:
    """The effects of an event. A partial match is shown as its events by stage, and the stage that it waits for.

    Attributes:
        event: the event; None at the end of time.
        time_ms: its time; None at the end of time.
        living: the partial matches after the event.
        died: the partial matches that the event ended, each with the reason.
        matches: the matches that the event completed, as dicts from stages to events.
        timed_out: partial matches that had timed out by this time.

    Examples:
        >>> from penstock.cep import Pattern
        >>> from penstock.testing import trace_pattern
        >>> pair = Pattern.begin("first").where(lambda n: n < 10).next("second").where(lambda n: n > 10)
        >>> step = trace_pattern(pair, [5, 6, 20]).steps[1]
        >>> step.event, step.died
        (6, [('first: 5 -> second', 'the event fits nowhere')])
    """

    event: Any
    time_ms: int | None
    living: list[str] = field(default_factory=list)
    died: list[tuple[str, str]] = field(default_factory=list)
    matches: list[dict[str, list[Any]]] = field(default_factory=list)
    timed_out: list[dict[str, list[Any]]] = field(default_factory=list)

    def __str__(self) -> str:
        head = "the end" if self.time_ms is None else f"{self.time_ms} ms: {short_repr(self.event, _EVENT_CHARS_MAX)}"
        lines = [f"    match: {_shown(match)}" for match in self.matches]
        lines += [f"    late:  {_shown(match)} (it took too long)" for match in self.timed_out]
        lines += [f"    lives: {text}" for text in self.living]
        lines += [f"    dies:  {text} ({reason})" for text, reason in self.died]
        return "\n".join([head, *lines])


@dataclass
class PatternTrace:
    """The steps: one for each event, and one for the end of time if any match waits for it. `str()` renders them.

    Examples:
        >>> from penstock.cep import Pattern
        >>> from penstock.testing import trace_pattern
        >>> pair = Pattern.begin("first").where(lambda n: n < 10).next("second").where(lambda n: n > 10)
        >>> print(trace_pattern(pair, [5, 6, 20]))
        0 ms: 5
            lives: first: 5 -> second
        1 ms: 6
            lives: first: 6 -> second
            dies:  first: 5 -> second (the event fits nowhere)
        2 ms: 20
            match: first: 6, second: 20
    """

    steps: list[TraceStep]

    @property
    def matches(self) -> list[dict[str, list[Any]]]:
        """All matches."""
        return [match for step in self.steps for match in step.matches]

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


def trace_pattern(pattern: Pattern, events: Sequence[Any], timestamps: Iterable[int] | None = None) -> PatternTrace:
    """Match a pattern against the events of one key, and trace each partial match.

    Args:
        pattern: the pattern.
        events: the events, in order.
        timestamps: their times in ms, in order; by default 0, 1, 2 and so on.

    Raises:
        MalformedPatternException: if the parts of the pattern do not fit together.

    Examples:
        >>> from penstock.cep import Pattern
        >>> from penstock.testing import trace_pattern
        >>> trace_pattern(Pattern.begin("large").where(lambda euros: euros > 500), [5, 900]).matches
        [{'large': [900]}]
    """
    tracing = _Tracing(pattern)
    times = range(len(events)) if timestamps is None else list(timestamps)
    tracing.open_conditions()
    try:
        steps = [tracing.event(event, time_ms) for event, time_ms in zip(events, times, strict=True)]
        return PatternTrace([*steps, *tracing.end()])
    finally:
        tracing.close_conditions()


class _Tracing:
    def __init__(self, pattern: Pattern) -> None:
        search = build_search(pattern)
        self._rich = [entry.condition for entry in search.conditions]
        self._matcher = Matcher(search.pattern, search.strategy)
        self._conditions = ConditionsAtWork(search.conditions, "trace", VirtualClock())
        self._memory = Memory(Memory.empty())

    def open_conditions(self) -> None:
        """Open the conditions as a task does, with the context of a single subtask."""
        context = OneInputOperatorHarness(operator_factory_for(str), name="trace").context
        for condition in self._rich:
            condition.start(RuntimeContext(context))

    def close_conditions(self) -> None:
        """Close the conditions."""
        for condition in self._rich:
            condition.stop()

    def event(self, event: Any, time_ms: int) -> TraceStep:
        step = TraceStep(event, time_ms)
        self._note(step, self._matcher.advance(self._memory, time_ms))
        known: dict[int, bool] = {}
        self._conditions.at_hand = event, self._memory, time_ms, known
        before = self._matcher.find_transitions(self._memory, self._conditions.holds, known)
        descriptions = [self._told(partial) for partial, _ in before]
        self._note(step, self._matcher.process(self._memory, event, time_ms, self._conditions.holds, known))
        firsts = {partial.first for partial in (*self._memory.partials, *self._memory.waiting)}
        for text, (partial_match, ways) in zip(descriptions, before, strict=True):
            if ways.stops is not None:
                step.died.append((text, f"stage {ways.stops!r} was met"))
            elif not ways.ways:
                step.died.append((text, "the event fits nowhere"))
            elif partial_match.first not in firsts and any(way.target != FINAL for way in ways.ways):
                step.died.append((text, "a match skips it"))
        step.living = [self._told(partial) for partial in self._memory.partials]
        step.living += [
            f"{_shown(self._memory.events(waiting.link))} (a match, which waits)" for waiting in self._memory.waiting
        ]
        return step

    def end(self) -> list[TraceStep]:
        step = TraceStep(None, None)
        self._note(step, self._matcher.advance(self._memory, 2**63 - 1))
        return [step] if step.matches or step.timed_out else []

    def _note(self, step: TraceStep, result: Found) -> None:
        step.matches += result.matches
        step.timed_out += [match.events for match in result.timed_out]

    def _told(self, partial: Partial) -> str:
        automaton = self._matcher.automaton
        waits = "the end of its time" if partial.state in automaton.pending else automaton.names[partial.state]
        return f"{_shown(self._memory.events(partial.link))} -> {waits}"


def _shown(match: dict[str, list[Any]]) -> str:
    return ", ".join(
        f"{name}: {' '.join(short_repr(event, _EVENT_CHARS_MAX) for event in events)}" for name, events in match.items()
    )
