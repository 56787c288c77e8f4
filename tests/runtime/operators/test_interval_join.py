"""Interval joins: against a nested loop, with recoveries anywhere, on both backends."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.state.rocks import CanonicalRocks

from penstock.base.output_tag import OutputTag
from penstock.datastream.functions import RuntimeContext
from penstock.datastream.join_functions import ProcessJoinFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.keyed.interval_join import IntervalJoinOperator
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import Batch
from penstock.state.keys import assign_key_group, subtask_of_key_group
from penstock.testing import Record, TwoInputOperatorHarness, operator_harness

LATE_LEFT, LATE_RIGHT, SIDE = OutputTag("late left"), OutputTag("late right"), OutputTag("side")


def first(value: Any) -> Any:
    return value[0]


class Pairs(ProcessJoinFunction):
    """Each pair with all that the context tells of it."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left[1], right[1], ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp()


def join(lower: int, upper: int, function: Any = None, late: bool = True) -> Any:
    tags = (LATE_LEFT.tag_id, LATE_RIGHT.tag_id) if late else (None, None)
    return partial(IntervalJoinOperator, function or Pairs(), (first, first), lower, upper, tags)


def opened(factory: Any, *snapshots: bytes, **options: Any) -> TwoInputOperatorHarness:
    harness = TwoInputOperatorHarness(factory, **options)
    harness.restore(*snapshots)
    harness.open()
    return harness


# --- against a nested loop ------------------------------------------------------------------------------------------

Event = tuple[Any, ...]  # ("record", side, [(key, timestamp)]) or ("watermark", timestamp)
#: any times, or such that records often lie exactly at a bound, at a watermark, or at the end of what is kept together
TIMES = st.one_of(st.integers(-30, 60), st.integers(-6, 12).map(lambda number: number * 5))
RECORDS = st.lists(st.tuples(st.sampled_from("abc"), TIMES), min_size=1, max_size=6)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), st.integers(0, 1), RECORDS),
        st.tuples(st.just("watermark"), TIMES),
        st.tuples(st.just("recover"), st.integers(1, 3)),
    ),
    max_size=25,
)
BOUNDS = st.one_of(
    st.tuples(st.integers(-25, 25), st.integers(0, 30)),
    st.tuples(st.sampled_from([-25, -10, -5, 0, 5, 20]), st.sampled_from([0, 5, 10, 25])),
).map(lambda bounds: (bounds[0], bounds[0] + bounds[1]))


def nested_loop(events: list[Event], lower: int, upper: int) -> tuple[Counter[Any], list[list[Any]]]:
    """All pairs of records that were not late when they came, and the late ones of each side."""
    sides: list[list[Any]] = [[], []]
    late: list[list[Any]] = [[], []]
    watermark, number = -(2**63), 0
    for event in events:
        if event[0] == "watermark":
            watermark = max(watermark, event[1])
        elif event[0] == "records":
            for key, timestamp in event[2]:
                (late if timestamp < watermark else sides)[event[1]].append((key, number, timestamp))
                number += 1
    pairs = [
        (left, right, lt, rt, max(lt, rt))
        for key, left, lt in sides[0]
        for other, right, rt in sides[1]
        if key == other and lt + lower <= rt <= lt + upper
    ]
    return Counter(pairs), late


def subtask_of(key: Any, parallelism: int) -> int:
    return subtask_of_key_group(assign_key_group(key, 128), 128, parallelism)


def run(events: list[Event], lower: int, upper: int, backend: Any = None) -> tuple[Counter[Any], list[list[Any]]]:
    """The operator's answer; a recovery is from a snapshot, over as many subtasks as the event says."""
    harnesses = [opened(join(lower, upper))]
    results: list[Any] = []
    late: list[list[Any]] = [[], []]
    watermark, number = None, 0

    def collect() -> None:
        for harness in harnesses:
            assert all(r.timestamp == r.value[4] for r in harness.output)
            results.extend(r.value for r in harness.take_output())
            for side, tag in enumerate((LATE_LEFT, LATE_RIGHT)):
                late[side] += [(*r.value, r.timestamp) for r in harness.captured.sides.pop(tag.tag_id, [])]

    for checkpoint_id, event in enumerate(events, 1):
        if event[0] == "watermark":
            watermark = event[1] if watermark is None else max(watermark, event[1])
            for harness in harnesses:
                harness.watermark(watermark)
        elif event[0] == "records":
            values = [(key, number + index) for index, (key, _) in enumerate(event[2])]
            number += len(values)
            for subtask, harness in enumerate(harnesses):
                mine = [i for i, v in enumerate(values) if subtask_of(v[0], len(harnesses)) == subtask]
                if mine:
                    batch = Batch([values[i] for i in mine], [event[2][i][1] for i in mine])
                    harness.operator.process_batch(batch, event[1])
                    harness.context.keyed.settle()
        else:
            collect()
            snapshots = [harness.snapshot(checkpoint_id) for harness in harnesses]
            for harness in harnesses:
                harness.close()
            harnesses = [
                opened(join(lower, upper), *snapshots, parallelism=event[1], subtask=n) for n in range(event[1])
            ]
            if watermark is not None:
                for harness in harnesses:
                    harness.watermark(watermark)
    collect()
    for harness in harnesses:
        harness.close()
    return Counter(results), late


@settings(deadline=None, max_examples=200)
@given(EVENTS, BOUNDS)
def test_a_pair_is_found_exactly_when_a_nested_loop_finds_it(events: list[Event], bounds: tuple[int, int]) -> None:
    """A2, D4, G8: whatever the order, the watermarks, the recoveries and the parallelism after them."""
    pairs, late = run(events, *bounds)
    wanted, wanted_late = nested_loop(events, *bounds)
    assert pairs == wanted
    assert [sorted(side) for side in late] == [sorted(side) for side in wanted_late]


@settings(deadline=None, max_examples=25)
@given(EVENTS, BOUNDS)
def test_pairs_are_the_same_on_rocksdb(events: list[Event], bounds: tuple[int, int]) -> None:
    """A2, D3: every settling point puts all out of memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
        pairs, late = run(events, *bounds)
    wanted, wanted_late = nested_loop(events, *bounds)
    assert pairs == wanted
    assert [sorted(side) for side in late] == [sorted(side) for side in wanted_late]


def test_a_record_for_a_bucket_that_left_memory_is_in_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """D1, D3: another bucket came in between, so RocksDB had put the first one out of memory."""
    monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
    left: list[Event] = [("records", 0, [("a", time)]) for time in (0, 1, 0)]
    events: list[Event] = [*left, ("recover", 1), ("records", 1, [("a", 0)])]
    pairs, _ = run(events, 0, 0)
    assert pairs == nested_loop(events, 0, 0)[0]
    assert len(pairs) == 2


# --- one thing at a time --------------------------------------------------------------------------------------------


def kept(harness: TwoInputOperatorHarness) -> int:
    """How many keys' records are in state."""
    keyed = harness.context.keyed
    tables = [keyed.table(f"_penstock_interval_{side}") for side in ("left", "right")]
    return sum(len(entries) for table in tables for entries in table.panes.values())


def test_bounds_are_inclusive_and_results_have_the_later_timestamp() -> None:
    """A2: left at 100, bounds -5 to 10."""
    with closing(opened(join(-5, 10))) as harness:
        harness.process1(("a", "left"), 100)
        for timestamp in (94, 95, 110, 111):
            harness.process2(("a", timestamp), timestamp)
        assert harness.output == [Record(("left", 95, 100, 95, 100), 100), Record(("left", 110, 100, 110, 110), 110)]


def test_other_keys_are_no_partners() -> None:
    """A2, D1: the join is of one key at a time."""
    with closing(opened(join(0, 0))) as harness:
        harness.process1(("a", 1), 5)
        harness.process2(("b", 2), 5)
        assert harness.output == []


def test_state_is_gone_when_event_time_has_passed_it() -> None:
    """A2: nothing that can find no partner any more is kept."""
    with closing(opened(join(-1, 1))) as harness:
        for timestamp in range(0, 1000, 10):
            harness.process1(("a", 1), timestamp)
            harness.process2(("a", 1), timestamp)
        assert kept(harness) == 200
        harness.watermark(500)
        assert kept(harness) == 100  # 500 may still find a partner
        harness.end()
        assert kept(harness) == 0


def test_with_bounds_far_ahead_only_one_side_waits() -> None:
    """A2: what comes on the right for a left one of 100 ms before need not wait for later left ones."""
    with closing(opened(join(100, 200))) as harness:
        harness.process1(("a", 1), 50)
        harness.process2(("a", 1), 50)
        harness.watermark(101)
        assert kept(harness) == 1
        harness.process2(("a", 2), 250)
        assert [r.value[:2] for r in harness.output] == [(1, 2)]


def test_late_records_are_counted_without_a_tag() -> None:
    """C2: a record behind the watermark is late, one at it is not."""
    with closing(opened(join(-10, 10, late=False))) as harness:
        harness.process1(("a", 1), 100)
        harness.watermark(100)
        harness.process2(("a", 2), 99)
        harness.process2(("a", 3), 100)
        assert [r.value[:2] for r in harness.output] == [(1, 3)]
        assert harness.counters[LATE_RECORDS] == 1


def test_changed_bounds_keep_what_a_savepoint_holds() -> None:
    """H4: a program with another interval goes on with the records of the one before."""
    with closing(opened(join(-1000, 1000))) as before:
        for timestamp in range(0, 1000, 7):
            before.process1(("a", timestamp), timestamp)
        snapshot = before.snapshot(1)
    with closing(opened(join(-3, 3), snapshot)) as after:
        after.process2(("a", "right"), 700)
        assert [r.value[0] for r in after.output] == [700]
        after.watermark(704)
        assert kept(after) == len([t for t in range(0, 1000, 7) if t + 3 >= 704])


class WithSide(ProcessJoinFunction):
    """Opened, writes to a side output, and uses state of the pair's key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield SIDE, count
        if count > 1:
            yield left[0], count


def test_functions_have_the_pairs_key_and_side_outputs() -> None:
    """A1, D1: state of a join function belongs to the pair's key."""
    with closing(opened(join(0, 0, WithSide()))) as harness:
        for key in "aab":
            harness.process1((key, 0), 1)
            harness.process2((key, 0), 1)
        assert harness.side_output(SIDE) == [Record(n, 1) for n in (1, 2, 3, 4, 1)]
        assert harness.output == [Record(("a", n), 1) for n in (2, 3, 4)]


class Raises(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        raise ValueError("no")


def test_an_error_names_the_operator_and_the_pair() -> None:
    """A2: what the function raises tells where."""
    with closing(opened(join(0, 0, Raises()), name="My Join")) as harness:
        harness.process1(("a", 1), 1)
        with pytest.raises(UserCodeError) as raised:
            harness.process2(("a", 2), 1)
        assert (raised.value.operator_name, raised.value.record) == ("My Join", (("a", 1), ("a", 2)))


def test_records_without_timestamps_are_refused() -> None:
    """C2: the error says what to do."""
    with closing(opened(join(0, 0))) as harness, pytest.raises(TypeError, match="assign_timestamps_and_watermarks"):
        harness.process1(("a", 1))


def test_a_record_looks_at_few_others() -> None:
    """A2: the records of a key outside the interval are not scanned, however many are kept."""

    class Counting(dict[Any, Any]):
        looked = 0

        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            Counting.looked += len(found or ())
            return found

    with closing(opened(join(-4, 3))) as harness:
        for timestamp in range(2000):
            harness.process1(("a", timestamp), timestamp)
        side = harness.operator._sides[0]  # type: ignore[attr-defined]
        side._buckets = {number: (Counting(entries), mark) for number, (entries, mark) in side._buckets.items()}
        harness.process2(("a", "right"), 1000)
        assert len(harness.output) == 8
        assert Counting.looked <= 12
