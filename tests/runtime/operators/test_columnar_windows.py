"""Windows over columns: what they aggregate is what the operators say that go record by record (C1, D4)."""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row
from penstock.datastream import ProcessWindowFunction
from penstock.runtime.columns import Aggregate, ColumnBatch, ColumnKey, col, lit
from penstock.runtime.operators.columnar.windows import ColumnarSessionOperator, ColumnarWindowOperator
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.operators.window.aligned import AlignedWindowOperator, SessionWindowOperator
from penstock.runtime.operators.window.base import ListContents, ProcessResult
from penstock.runtime.records import Watermark
from penstock.runtime.windowing import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.state.errors import StateError
from penstock.testing import OneInputOperatorHarness, Record, run_hostile

KEY = ColumnKey(("key",))
AGGREGATES = (
    lit(1).count.alias("n"),
    col("value").sum.alias("total"),
    col("value").max.alias("high"),
    col("value").min.alias("low"),
)
ALIGNED: list[Any] = [
    TumblingEventTimeWindows(10),
    TumblingEventTimeWindows(10, 3),
    SlidingEventTimeWindows(10, 5),
    SlidingEventTimeWindows(9, 6, 2),
    SlidingEventTimeWindows(4, 10),
    CumulativeEventTimeWindows(12, 4),
]


def row(key: str, value: int | None) -> Row:
    return Row(key=key, value=value)


def result(key: str, start: int, end: int, *aggregates: Any) -> Record:
    names = ("n", "total", "high", "low")
    values = dict(zip(names, aggregates, strict=True))
    return Record(Row(key=key, window_start=start, window_end=end, **values), end - 1)


class Whole(ProcessWindowFunction):
    """What the columns' aggregates would be, from the records of the window."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        values = [element.value for element in elements]
        window = context.window()
        yield Row(
            key=key,
            window_start=window.start,
            window_end=window.end,
            n=len(values),
            total=sum(values),
            high=max(values),
            low=min(values),
        )


def columnar(assigner: Any, aggregates: tuple[Aggregate, ...] = AGGREGATES, late_tag: str | None = None) -> Any:
    kind = ColumnarSessionOperator if isinstance(assigner, EventTimeSessionWindows) else ColumnarWindowOperator
    return partial(kind, KEY, assigner, aggregates, late_tag)


def by_record(assigner: Any) -> Any:
    kind: Any = SessionWindowOperator if isinstance(assigner, EventTimeSessionWindows) else AlignedWindowOperator
    return partial(kind, lambda r: r.key, assigner, ListContents(), ProcessResult(Whole(), True))


def in_order(records: list[Record]) -> list[Any]:
    return sorted(((r.timestamp, *r.value) for r in records), key=repr)


RECORDS = st.builds(
    lambda key, value, time: Record(row(key, value), time),
    st.sampled_from("abc"),
    st.integers(-5, 5),
    st.integers(-20, 60),
)
WATERMARKS = st.builds(Watermark, st.integers(-20, 60))


@pytest.mark.parametrize("assigner", ALIGNED, ids=repr)
@settings(deadline=None)
@given(elements=st.lists(RECORDS | WATERMARKS, max_size=40), snapshots=st.sets(st.integers(0, 40), max_size=3))
def test_aligned_windows_are_those_of_the_operator_by_record(
    assigner: Any, elements: list[Any], snapshots: set[int]
) -> None:
    """C1: late records included; and a fresh instance goes on from the snapshot."""
    mine, theirs = OneInputOperatorHarness(columnar(assigner)), OneInputOperatorHarness(by_record(assigner))
    mine.open()
    theirs.open()
    got: list[Record] = []
    late = 0
    watermark = -(2**63)
    for index, element in enumerate(elements):
        if isinstance(element, Watermark):
            if element.timestamp <= watermark:
                continue
            watermark = element.timestamp
        mine.feed(element)
        theirs.feed(element)
        if index in snapshots:
            got += mine.output
            late += mine.counters.get(LATE_RECORDS, 0)
            snapshot = mine.snapshot(index + 1)
            mine = OneInputOperatorHarness(columnar(assigner))
            mine.restore(snapshot)
            mine.open()
            if watermark > -(2**63):
                mine.watermark(watermark)
    mine.end()
    theirs.end()
    assert in_order(got + mine.output) == in_order(theirs.output)
    assert late + mine.counters.get(LATE_RECORDS, 0) == theirs.counters.get(LATE_RECORDS, 0)


@settings(deadline=None)
@given(elements=st.lists(RECORDS | WATERMARKS, max_size=40), gap=st.integers(1, 15))
def test_sessions_are_those_of_the_operator_by_record(elements: list[Any], gap: int) -> None:
    """C1: record by record, late ones included."""
    assigner = EventTimeSessionWindows(gap)
    mine, theirs = OneInputOperatorHarness(columnar(assigner)), OneInputOperatorHarness(by_record(assigner))
    watermark = -(2**63)
    with mine, theirs:
        for element in elements:
            if isinstance(element, Watermark):
                if element.timestamp <= watermark:
                    continue
                watermark = element.timestamp
            mine.feed(element)
            theirs.feed(element)
        mine.end()
        theirs.end()
        assert in_order(mine.output) == in_order(theirs.output)
        assert mine.counters.get(LATE_RECORDS, 0) == theirs.counters.get(LATE_RECORDS, 0)


@settings(deadline=None)
@given(
    batches=st.lists(st.lists(RECORDS, min_size=1, max_size=30), max_size=4),
    gap=st.integers(1, 15),
)
def test_sessions_in_batches_are_those_of_the_operator_by_record(batches: list[list[Record]], gap: int) -> None:
    assigner = EventTimeSessionWindows(gap)
    mine, theirs = OneInputOperatorHarness(columnar(assigner)), OneInputOperatorHarness(by_record(assigner))
    with mine, theirs:
        for batch in batches:
            for harness in (mine, theirs):
                harness.process_batch([r.value for r in batch], [r.timestamp or 0 for r in batch])
        mine.end()
        theirs.end()
        assert in_order(mine.output) == in_order(theirs.output)


@pytest.mark.parametrize("watermark", [9, 10, 11])
def test_a_session_that_touches_the_next_one_does_not_fire_without_it(watermark: int) -> None:
    """C1: the first would be over at 9, but the second begins at 10, where it ends."""
    inputs = [Record(row("a", 1), 0), Record(row("a", 2), 10), Watermark(watermark)]
    with OneInputOperatorHarness(columnar(EventTimeSessionWindows(10))) as harness:
        for element in inputs:
            harness.feed(element)
        assert not harness.values
        harness.feed(Watermark(20))
        assert [(v.window_start, v.window_end, v.total) for v in harness.values] == [(0, 20, 3)]


INPUTS = [
    Record(row("a", 1), 1),
    Record(row("b", 2), 2),
    Record(row("a", 3), 9),
    Record(row("a", 5), 12),
    Watermark(10),
    Record(row("b", 7), 3),
    Record(row("b", 8), 13),
    Record(row("a", 1), 27),
    Watermark(20),
]


def test_tumbling_windows_under_hostile_treatment() -> None:
    expected = [
        result("a", 0, 10, 2, 4, 3, 1),
        result("b", 0, 10, 1, 2, 2, 2),
        result("a", 10, 20, 1, 5, 5, 5),
        result("b", 10, 20, 1, 8, 8, 8),
        result("a", 20, 30, 1, 1, 1, 1),
    ]
    run_hostile(columnar(TumblingEventTimeWindows(10)), INPUTS, expected)


def test_sliding_windows_under_hostile_treatment() -> None:
    expected = [
        result("a", -10, 10, 2, 4, 3, 1),
        result("b", -10, 10, 1, 2, 2, 2),
        result("a", 0, 20, 3, 9, 5, 1),
        result("b", 0, 20, 3, 17, 8, 2),
        result("a", 10, 30, 2, 6, 5, 1),
        result("b", 10, 30, 1, 8, 8, 8),
        result("a", 20, 40, 1, 1, 1, 1),
    ]
    run_hostile(columnar(SlidingEventTimeWindows(20, 10)), INPUTS, expected)


def test_sessions_under_hostile_treatment() -> None:
    inputs = [
        Record(row("a", 1), 1),
        Record(row("b", 2), 2),
        Record(row("a", 3), 9),
        Record(row("a", 5), 5),
        Watermark(8),
        Record(row("b", 7), 30),
        Record(row("a", 9), 31),
        Watermark(20),
        Record(row("a", 2), 36),
    ]
    expected = [
        result("b", 2, 7, 1, 2, 2, 2),
        result("a", 1, 14, 3, 9, 5, 1),
        result("b", 30, 35, 1, 7, 7, 7),
        result("a", 31, 41, 2, 11, 9, 2),
    ]
    run_hostile(columnar(EventTimeSessionWindows(5)), inputs, expected)


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(10), EventTimeSessionWindows(10)], ids=repr)
def test_late_records_go_to_the_side(assigner: Any) -> None:
    harness = OneInputOperatorHarness(columnar(assigner, late_tag="late"))
    with harness:
        harness.process(row("a", 1), 1)
        harness.watermark(50)
        harness.process_batch([row("a", 2), row("b", 3)], [4, 90])
        assert harness.side_output("late") == [Record(row("a", 2), 4)]
        assert harness.counters == {}


@pytest.mark.parametrize(
    "assigner", [TumblingEventTimeWindows(10), SlidingEventTimeWindows(10, 5), EventTimeSessionWindows(10)], ids=repr
)
def test_keys_are_dealt_out_anew_when_the_parallelism_changes(assigner: Any) -> None:
    """D4: each key's partials come to the subtask that owns its key group, once."""
    factory = columnar(assigner)
    snapshots = []
    for subtask in range(2):
        with OneInputOperatorHarness(factory, 2, subtask) as harness:
            keys = [f"k{i}" for i in range(100) if i % 2 == subtask]
            owned = [k for k in keys if owner(k, 2) == subtask]
            harness.process_batch([row(k, 1) for k in owned], [3] * len(owned))
            snapshots.append(harness.snapshot(1))
    found = []
    for subtask in range(3):
        harness = OneInputOperatorHarness(factory, 3, subtask)
        harness.restore(*snapshots)
        with harness:
            harness.end()
            assert all(owner(value.key, 3) == subtask for value in harness.values)
            found += [value.key for value in harness.values]
    everyone = {f"k{i}" for i in range(100) if owner(f"k{i}", 2) == i % 2}
    times = 2 if isinstance(assigner, SlidingEventTimeWindows) else 1
    assert sorted(found) == sorted([*everyone] * times)


def owner(key: str, parallelism: int) -> int:
    from penstock.state.keys import assign_key_group, subtask_of_key_group

    return subtask_of_key_group(assign_key_group(key, 128), 128, parallelism)


def columns(**arrays: Any) -> ColumnBatch:
    times = np.array(arrays.pop("at"), np.int64)
    return ColumnBatch(pa.RecordBatch.from_pydict(arrays), times)


def test_columns_come_as_they_are_and_go_as_they_are() -> None:
    harness = OneInputOperatorHarness(columnar(TumblingEventTimeWindows(10)))
    with harness:
        harness.operator.process_batch(columns(key=["a", "b", "a"], value=[1, 2, 3], at=[1, 2, 3]))
        harness.end()
        assert [r.value.as_dict() for r in harness.output] == [
            {"key": "a", "window_start": 0, "window_end": 10, "n": 2, "total": 4, "high": 3, "low": 1},
            {"key": "b", "window_start": 0, "window_end": 10, "n": 1, "total": 2, "high": 2, "low": 2},
        ]


def test_what_has_no_value_counts_in_no_aggregate_but_the_count_of_records() -> None:
    aggregates = (
        lit(1).count.alias("records"),
        col("value").count.alias("values"),
        col("value").avg.alias("mean"),
        col("value").first_value.alias("first"),
        col("value").last_value.alias("last"),
        (col("value") * 2).sum.alias("double"),
    )
    harness = OneInputOperatorHarness(columnar(TumblingEventTimeWindows(10), aggregates))
    with harness:
        for value in (None, 4, None, 1):
            harness.operator.process_batch(
                columns(key=["a", None], value=pa.array([value, None], pa.int64()), at=[1, 2])
            )
        harness.end()
        assert [tuple(value)[3:] for value in harness.values] == [
            (4, 2, 2.5, 4, 1, 10),
            (4, 0, None, None, None, None),
        ]


def test_keys_of_several_columns() -> None:
    factory = partial(
        ColumnarWindowOperator, ColumnKey(("shop", "article")), TumblingEventTimeWindows(10), (lit(1).count.alias("n"),)
    )
    harness = OneInputOperatorHarness(factory)
    with harness:
        harness.operator.process_batch(columns(shop=[1, 1, 2], article=["x", "x", "x"], at=[1, 2, 3]))
        snapshot = harness.snapshot(1)
    other = OneInputOperatorHarness(factory)
    other.restore(snapshot)
    with other:
        other.operator.process_batch(columns(shop=[2], article=["x"], at=[4]))
        other.end()
        assert [(v.shop, v.article, v.n) for v in other.values] == [(1, "x", 2), (2, "x", 2)]


def test_columns_may_become_narrower_but_their_values_must_fit() -> None:
    harness = OneInputOperatorHarness(columnar(TumblingEventTimeWindows(10)))
    with harness:
        harness.operator.process_batch(columns(key=pa.array([1], pa.int64()), value=[1], at=[1]))
        harness.operator.process_batch(columns(key=pa.array([1], pa.int32()), value=[2], at=[2]))
        with pytest.raises(TypeError, match="types of columns changed"):
            harness.operator.process_batch(columns(key=["one"], value=[2], at=[2]))
        harness.end()
        assert [(v.key, v.n) for v in harness.values] == [(1, 2)]


def test_state_of_other_aggregates_is_refused() -> None:
    with OneInputOperatorHarness(columnar(TumblingEventTimeWindows(10)), name="Sums") as harness:
        harness.process(row("a", 1), 1)
        snapshot = harness.snapshot(1)
    other = OneInputOperatorHarness(columnar(TumblingEventTimeWindows(20)), name="Sums")
    other.restore(snapshot)
    with pytest.raises(StateError, match=r"Sums: the snapshot holds TumblingEventTimeWindows\(size=10"):
        other.open()


def test_windows_kept_by_record_are_refused() -> None:
    with OneInputOperatorHarness(by_record(TumblingEventTimeWindows(10))) as harness:
        harness.process(row("a", 1), 1)
        snapshot = harness.snapshot(1)
    other = OneInputOperatorHarness(columnar(TumblingEventTimeWindows(10)))
    other.restore(snapshot)
    with pytest.raises(StateError, match="kept record by record"):
        other.open()


def test_records_without_columns_or_time_are_an_error() -> None:
    with OneInputOperatorHarness(columnar(TumblingEventTimeWindows(10)), name="Sums") as harness:
        with pytest.raises(TypeError, match="Sums works on columns, but a int has none"):
            harness.process(7, 1)
        with pytest.raises(TypeError, match="with_timestamp_column"):
            harness.process(row("a", 1))
        with pytest.raises(TypeError, match="no column 'key' to key by; there are other"):
            harness.process(Row(other=1), 1)


def test_many_keys_are_merged_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.runtime.operators.columnar.windows.PARTIALS_MAX", 4)
    with OneInputOperatorHarness(columnar(TumblingEventTimeWindows(10))) as harness:
        for i in range(20):
            harness.process(row("abc"[i % 3], i), 1)
            operator: Any = harness.operator
            assert sum(part.num_rows for part in operator.parts) <= 7
        harness.end()
        assert [(v.key, v.n, v.total) for v in harness.values] == [("a", 7, 63), ("b", 7, 70), ("c", 6, 57)]


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(10), EventTimeSessionWindows(10)])
def test_what_lies_ahead_of_the_watermark_is_not_merged_with_each_one(assigner: Any) -> None:
    """C1: of two sources one may be far ahead; its partials wait as they came."""
    with OneInputOperatorHarness(columnar(assigner)) as harness:
        operator: Any = harness.operator
        for time in range(0, 100, 20):
            harness.process_batch([row("a", 1), row("b", 2)], [time, 1_000])
            harness.feed(Watermark(time + 15))
            assert harness.values[-1].key == "a"
            ahead = [part for part in operator.parts if part.column("key.0").to_pylist() == ["b"]]
            assert len(ahead) == len(operator.parts) == time // 20 + 1
        harness.end()
        assert (harness.values[-1].key, harness.values[-1].n, harness.values[-1].total) == ("b", 5, 10)


@pytest.mark.parametrize("asks", ["a watermark", "a snapshot"])
def test_a_few_records_wait_for_more_until_somebody_asks(asks: str) -> None:
    with OneInputOperatorHarness(columnar(TumblingEventTimeWindows(10))) as harness:
        operator: Any = harness.operator
        harness.process(row("a", 1), 1)
        for value in range(2, 9):
            harness.process_batch([row("a", value), row("b", -value)], [value, value])
        assert sum(part.num_rows for part in operator._parts) == 1
        if asks == "a watermark":
            harness.feed(Watermark(9))
            values = harness.values
        else:
            other = OneInputOperatorHarness(columnar(TumblingEventTimeWindows(10)))
            other.restore(harness.snapshot(1))
            other.open()
            other.end()
            values = other.values
        assert [(v.key, v.n, v.total, v.high) for v in values] == [("a", 8, 36, 8), ("b", 7, -35, -2)]


def test_many_records_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.runtime.operators.columnar.windows._RECORDS_AT_ONCE", 3)
    with OneInputOperatorHarness(columnar(TumblingEventTimeWindows(10))) as harness:
        operator: Any = harness.operator
        for records, parts in enumerate([1, 1, 1, 2, 2, 2, 3]):
            harness.process(row("a", 1), records)
            assert len(operator._parts) == parts
