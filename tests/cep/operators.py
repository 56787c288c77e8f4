"""The operator behind `CEP.pattern(…)`, for the harness, and matches as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.cep.oracle.specifications import Event

from penstock.cep import CEP, Pattern, PatternProcessFunction, TimedOutPartialMatchHandler
from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.plan.transformation import get_factory
from penstock.runtime.operators.base import StreamOperator
from penstock.testing import OneInputOperatorHarness

TIMED_OUT = OutputTag("timed out")
LATE = OutputTag("late")


def shown(match: dict[str, list[Event]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """A match as the oracle shows it."""
    return tuple((name, tuple(event.number for event in events)) for name, events in match.items())


class Tell(PatternProcessFunction, TimedOutPartialMatchHandler):
    """Tells all that there is: key, match, time."""

    def process_match(self, match: dict[str, list[Event]], ctx: Any) -> Iterable[Any]:
        key = next(iter(match.values()))[0].key
        yield key, shown(match), ctx.timestamp()

    def process_timed_out_match(self, match: dict[str, list[Event]], ctx: Any) -> Iterable[Any]:
        key = next(iter(match.values()))[0].key
        yield TIMED_OUT, (key, shown(match), ctx.timestamp())


def select_key(event: Event) -> str:
    return event.key


def operator_factory(
    pattern: Pattern,
    function: Any = None,
    *,
    is_keyed: bool = True,
    comparator: Any = None,
    in_processing_time: bool = False,
) -> Callable[[], StreamOperator]:
    """What makes the operator of a pattern."""
    stream: Any = StreamExecutionEnvironment.get_execution_environment().from_collection([Event("k", "a", 0, 0)])
    stream = stream.key_by(select_key) if is_keyed else stream
    found: Any = CEP.pattern(stream, pattern, comparator) if comparator is not None else CEP.pattern(stream, pattern)
    found = found.in_processing_time() if in_processing_time else found.in_event_time()
    made = found.side_output_late_data(LATE).process(function or Tell())
    return get_factory(made._transformation.node)


def parse_events(text: str, key: str = "k") -> list[tuple[int, Event]]:
    """`a b1 c@5`: events of these kinds, at these times, or one ms after another."""
    events: list[tuple[int, Event]] = []
    time = -1
    for number, word in enumerate(text.split()):
        name, _, at = word.partition("@")
        time = int(at) if at else time + 1
        digits = "".join(filter(str.isdigit, name))
        events.append((time, Event(key, name.rstrip("0123456789"), int(digits or 0), number)))
    return events


def run(pattern: Pattern, text: str, **options: Any) -> OneInputOperatorHarness:
    """The harness after these events, at the end of the input."""
    harness = OneInputOperatorHarness(operator_factory(pattern, **options))
    harness.open()
    for time, event in parse_events(text):
        harness.process(event, time)
    harness.end()
    return harness


def matches(pattern: Pattern, text: str, **options: Any) -> list[str]:
    """The matches that a pattern finds, as the words of their events, in the order in which they are told."""
    return [as_words(record.value[1], text) for record in run(pattern, text, **options).output]


def time_outs(pattern: Pattern, text: str, **options: Any) -> set[str]:
    """The partial matches whose time was over."""
    return {as_words(record.value[1], text) for record in run(pattern, text, **options).side_output(TIMED_OUT)}


def as_words(match: tuple[tuple[str, tuple[int, ...]], ...], text: str) -> str:
    words = [word.partition("@")[0] for word in text.split()]
    return " ".join(words[number] for number in sorted(number for _, numbers in match for number in numbers))
