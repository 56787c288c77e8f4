"""The window matrix: a window restores from what any of its operators wrote (C1, H4).

A history is cut twice, and at each cut the operator changes to another variant, which begins from a snapshot of the one
before. All variants here fire the same, so the output is that of the history whose operator stays the same at the cuts.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.effort import tries

from penstock.base.time import Time
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.plan.transformation import get_factory
from penstock.runtime.operators.window.aligned import AlignedWindowOperator, SessionWindowOperator
from penstock.runtime.operators.window.general import WindowOperator
from penstock.runtime.records import Watermark
from penstock.state.errors import StateError
from penstock.testing import OneInputOperatorHarness, Record

pytestmark = pytest.mark.slow

LATE = OutputTag("late")
ASSIGNERS: dict[str, Any] = {
    "tumbling": TumblingEventTimeWindows(20),
    "sliding": SlidingEventTimeWindows(30, 10),
    "cumulative": CumulativeEventTimeWindows.of(Time.milliseconds(40), Time.milliseconds(10)),
    "session": EventTimeSessionWindows(7),
}


class Total(AggregateFunction):
    """The sum and the count; the accumulator is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator[0] += value[1]
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> Any:
        return tuple(accumulator)

    def merge(self, one: list[int], other: list[int]) -> list[int]:
        return [one[0] + other[0], one[1] + other[1]]


class Show(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        yield key, context.window().start, context.window().end, sorted(map(str, elements))


class Clearing(Show):
    def clear(self, context: Any) -> None: ...


class SameTrigger(EventTimeTrigger):
    """Fires as the default one does, and is not known to."""


KINDS: dict[str, Callable[[Any, type[Show]], Any]] = {
    "aggregate": lambda windows, show: windows.aggregate(Total(), show()),
    "reduce": lambda windows, show: windows.reduce(lambda one, other: (one[0], one[1] + other[1]), show()),
    "process": lambda windows, show: windows.process(show()),
}
VARIANTS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda windows: windows,
    "trigger": lambda windows: windows.trigger(SameTrigger()),
    "clear": lambda windows: windows,
    "evictor": lambda windows: windows.evictor(CountEvictor(1_000_000)),
}


def timed_environment() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = env.from_collection([("a", 1)])
    return source.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks()).key_by(lambda value: value[0])


def factory(assigner: Any, kind: str, variant: str, lateness_ms: int = 0, **settings: Any) -> Any:
    """What makes the operator that the plan chooses."""
    windows = VARIANTS[variant](timed_environment().window(assigner)).allowed_lateness(lateness_ms)
    for name, value in settings.items():
        windows = getattr(windows, name)(value)
    stream = KINDS[kind](windows.side_output_late_data(LATE), Clearing if variant == "clear" else Show)
    return get_factory(stream.upstreams[0].transformation.node)


def history(seed: int) -> list[list[Any]]:
    """Three parts of records and watermarks."""
    chance = random.Random(seed)
    parts: list[list[Any]] = []
    now = 0
    for part in range(3):
        # Event time begins again after a restore; the sources' first watermark may bring it back at once.
        steps: list[Any] = [now] if part and chance.random() < 0.7 else []
        for _ in range(chance.randint(4, 14)):
            if chance.random() < 0.3:
                now += chance.randint(1, 15)
                steps.append(now)
            else:
                steps.append((chance.choice("abc"), part * 10 + chance.randint(0, 9), now + chance.randint(-25, 20)))
        parts.append(steps)
    return parts


def opened(make: Any, snapshot: bytes | None = None) -> OneInputOperatorHarness:
    """An operator that begins from a snapshot, or from nothing; open as a context."""
    harness = OneInputOperatorHarness(make)
    if snapshot is not None:
        harness.restore(snapshot)
    return harness


def run(factories: list[Any], parts: list[list[Any]]) -> tuple[Counter[Any], Counter[Any]]:
    """All that fires, and all that is late."""
    fired: Counter[Any] = Counter()
    late: Counter[Any] = Counter()
    snapshot: bytes | None = None
    for number, (make, steps) in enumerate(zip(factories, parts, strict=True)):
        with opened(make, snapshot) as harness:
            for step in steps:
                if isinstance(step, int):
                    harness.watermark(step)
                else:
                    key, value, timestamp = step
                    harness.process((key, value), max(timestamp, 0))
            if number == len(parts) - 1:
                harness.end()
            else:
                snapshot = harness.snapshot(number + 1)
            fired += Counter(str(record) for record in harness.output)
            late += Counter(str(record) for record in harness.side_output(LATE))
    return fired, late


PATHS = [
    ("plain", "trigger", "plain"),
    ("trigger", "plain", "trigger"),
    ("plain", "clear", "plain"),
    ("clear", "plain", "clear"),
    ("trigger", "clear", "plain"),
    ("evictor", "plain", "trigger"),
    ("evictor", "trigger", "plain"),
]
TO_EVICTOR = [("plain", "evictor", "plain"), ("trigger", "evictor", "clear"), ("plain", "trigger", "evictor")]


@pytest.mark.parametrize("lateness_ms", [0, 12])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("assigner", ASSIGNERS.values(), ids=ASSIGNERS)
def test_any_operator_goes_on_with_windows_of_any_other(
    assigner: Any, kind: str, lateness_ms: int, backend: str
) -> None:
    """C1, H4: from fast to general and back, by a trigger, an evictor or `clear` that comes or goes, with lateness."""
    general = factory(assigner, kind, "trigger", lateness_ms)
    assert isinstance(general(), WindowOperator)
    fast = factory(assigner, kind, "plain", lateness_ms)
    assert isinstance(fast(), AlignedWindowOperator | SessionWindowOperator)
    paths = PATHS + (TO_EVICTOR if kind == "process" else [])
    for seed in range(tries(4 if backend == "hashmap" else 1)):
        parts = history(seed)
        expected = run([fast] * 3, parts)
        assert run([general] * 3, parts) == expected, "the two operators differ without any change"
        for path in paths:
            found = run([factory(assigner, kind, variant, lateness_ms) for variant in path], parts)
            assert found == expected, (seed, path)


@pytest.mark.parametrize("first", ["plain", "trigger"])
@pytest.mark.parametrize("kind", ["aggregate", "reduce"])
def test_an_evictor_cannot_be_added_to_what_was_aggregated(kind: str, first: str, backend: str) -> None:
    """C1: the records are gone, and the error says so; nothing is lost, as the former program still restores."""
    tumbling = ASSIGNERS["tumbling"]
    with opened(factory(tumbling, kind, first)) as harness:
        harness.process(("a", 1), 5)
        snapshot = harness.snapshot(1)
    with pytest.raises(StateError, match="an evictor was added, which needs the records"):
        opened(factory(tumbling, kind, "evictor"), snapshot).open()


def test_records_cannot_be_had_from_what_was_aggregated(backend: str) -> None:
    """H4: a function that sees all records does not begin from the result of another one."""
    tumbling = ASSIGNERS["tumbling"]
    for one, other in (("plain", "trigger"), ("trigger", "plain")):
        with pytest.raises(StateError, match=r"snapshot holds only their aggregate .* new uid"):
            go_on(
                factory(tumbling, "reduce", one),
                factory(tumbling, "process", other),
                lambda harness: harness.process(("a", 1), 5),
                lambda harness: None,
            )


def go_on(first: Any, second: Any, before: Callable[[Any], Any], after: Callable[[Any], Any]) -> list[Any]:
    """What an operator emits that begins from a snapshot of another."""
    with opened(first) as harness:
        before(harness)
        snapshot = harness.snapshot(1)
    with opened(second, snapshot) as harness:
        after(harness)
        return [record.value for record in harness.output]


@pytest.mark.parametrize("assigner", [ASSIGNERS["tumbling"], ASSIGNERS["session"]], ids=["tumbling", "session"])
@pytest.mark.parametrize("trigger", [CountTrigger(3), ContinuousEventTimeTrigger.of(Time.milliseconds(2))], ids=str)
def test_a_trigger_of_another_kind_leaves_and_the_window_fires_at_its_end(
    trigger: Any, assigner: Any, backend: str
) -> None:
    """C1: what the trigger kept goes with it; when it comes back it begins anew."""
    triggered = factory(assigner, "reduce", "plain", trigger=trigger)
    plain = factory(assigner, "reduce", "plain")
    last = ("a", 1, 8 if assigner is ASSIGNERS["session"] else 20, ["('a', 5)"])
    start = 1 if assigner is ASSIGNERS["session"] else 0

    def two_records(harness: Any) -> None:
        harness.process_batch([("a", 2), ("a", 3)], [1, 1])

    fired = go_on(triggered, plain, two_records, lambda harness: harness.watermark(100))
    assert fired == [(last[0], start, last[2], last[3])]
    with opened(triggered) as harness:
        two_records(harness)
        snapshot = harness.snapshot(1)
    with opened(plain, snapshot) as harness:
        snapshot = harness.snapshot(2)
    with opened(triggered, snapshot) as harness:
        harness.process(("a", 1), 1)
        assert harness.values == [], "the third record fires no trigger that has counted one"
        harness.process_batch([("a", 1), ("a", 1)], [1, 1])
        if isinstance(trigger, CountTrigger):
            assert [value[3] for value in harness.values] == [["('a', 8)"]]


def test_records_kept_without_timestamps_count_as_of_the_start_of_their_window(backend: str) -> None:
    """C1: a time evictor that is added evicts them first."""
    tumbling = ASSIGNERS["tumbling"]
    fired = go_on(
        factory(tumbling, "process", "plain"),
        factory(tumbling, "process", "plain", evictor=TimeEvictor.of(Time.milliseconds(5))),
        lambda harness: harness.process(("a", 1), 18),
        lambda harness: [harness.feed(step) for step in (Record(("a", 2), 19), Watermark(100))],
    )
    assert fired == [("a", 0, 20, ["('a', 2)"])]


@pytest.mark.parametrize("variants", list(itertools.product(["plain", "trigger"], repeat=2)), ids="-".join)
@pytest.mark.parametrize("before_ms", [0, 30])
@pytest.mark.parametrize("after_ms", [0, 30, 60])
@pytest.mark.parametrize("assigner", [ASSIGNERS["tumbling"], ASSIGNERS["session"]], ids=["tumbling", "session"])
def test_windows_are_cleaned_up_when_the_lateness_changes(
    assigner: Any, after_ms: int, before_ms: int, variants: tuple[str, str]
) -> None:
    """C1: longer or shorter, nothing stays behind in the state, and late records fire while they may."""

    def before(harness: Any) -> None:
        harness.process(("a", 1), 5)
        harness.watermark(22)
        harness.process(("b", 1), 30)

    with opened(factory(assigner, "reduce", variants[0], before_ms)) as harness:
        before(harness)
        assert len(harness.output) == 1
        snapshot = harness.snapshot(1)
    with opened(factory(assigner, "reduce", variants[1], after_ms), snapshot) as harness:
        harness.watermark(25)
        harness.watermark(45)
        assert [record.value[0] for record in harness.take_output()] == ["b"], "what has fired does not fire again"
        for timestamp in (60, 70, 90, 110, 200):
            harness.watermark(timestamp)
        assert harness.output == []
        keyed: Any = harness.operator.context.keyed
        left = {name: keyed.table(name).panes for name in keyed._tables}
        assert not any(any(panes.values()) for panes in left.values()), left


def test_windows_of_another_assigner_are_refused(backend: str) -> None:
    """C1, H4: windows that merge and that do not, of event time and of the clock, and such as never end."""
    tumbling, session = ASSIGNERS["tumbling"], ASSIGNERS["session"]
    clock = TumblingProcessingTimeWindows(20)
    changes = [(tumbling, session), (session, tumbling), (clock, tumbling), (clock, session)]
    for first, second in (*changes, (tumbling, GlobalWindows()), (tumbling, clock), (session, GlobalWindows())):
        for variants in itertools.product(("plain", "trigger"), repeat=2):
            makes = factory(first, "reduce", variants[0]), factory(second, "reduce", variants[1])
            if first is clock and variants[0] == "trigger":
                continue  # a trigger by event time, in windows of the clock
            if (first is session) == (second is session) and all(isinstance(make(), WindowOperator) for make in makes):
                continue  # kept alike: the general operator goes on by the timers that there are
            with pytest.raises(StateError, match="windows of another assigner"):
                go_on(makes[0], makes[1], lambda harness: harness.process(("a", 1), 5), lambda harness: None)
