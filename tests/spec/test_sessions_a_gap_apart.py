"""Records exactly a gap apart are in one session, whoever runs the program and how (C1, K1, K2).

Windows that touch become one, as in Flink. There a session ends one millisecond before such a record is late, so that
its answer depends on when watermarks come.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from penstock.base.output_tag import OutputTag
from penstock.base.time import Time
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Configuration, Row, Types
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.window import (
    CountEvictor,
    EventTimeSessionWindows,
    TumblingEventTimeWindows,
)
from penstock.table import Schema, StreamTableEnvironment

GAP_MS = 1_000
#: Of key a a gap apart; of key b one millisecond more, now and then.
RECORDS = sorted(
    [("a", n * GAP_MS) for n in range(6)] + [("b", n * GAP_MS + n // 3) for n in range(6)], key=lambda record: record[1]
)
SESSIONS = [("a", 0, 6_000, 6), ("b", 0, 3_000, 3), ("b", 3_001, 6_001, 3)]
LATE = OutputTag("late")
SETTINGS = [
    (mode, batch, parallelism)
    for (mode, batch), parallelism in itertools.product(
        [("STREAMING", 1), ("STREAMING", 3), ("STREAMING", 4096), ("MICRO_BATCH", 1), ("BATCH", 4096)], [1, 2, 3]
    )
]


def gap_apart(keyed: Any, configure: Callable[[Any], Any] = lambda windows: windows) -> Any:
    windows = keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(GAP_MS)))
    return configure(windows.side_output_late_data(LATE))


def count_in(key: str, window: Any, values: Any) -> list[Any]:
    return [(key, window.start, window.end, len(list(values)))]


def listed(records: DataStream) -> DataStream:
    results: DataStream = gap_apart(records.key_by(lambda record: record[0])).apply(count_in)
    return results.union(results.get_side_output(LATE))


def evicting(records: DataStream) -> DataStream:
    keyed = records.key_by(lambda record: record[0])
    results: DataStream = gap_apart(keyed, lambda windows: windows.evictor(CountEvictor.of(100))).apply(count_in)
    return results


def dynamic(records: DataStream) -> DataStream:
    assigner = EventTimeSessionWindows.with_dynamic_gap(lambda record: GAP_MS)
    return records.key_by(lambda record: record[0]).window(assigner).apply(count_in)


def cascaded(records: DataStream) -> DataStream:
    """The result of a session ends with it, and is late for no window of the same end."""
    hours = TumblingEventTimeWindows.of(Time.milliseconds(6_000))
    results = listed(records).key_by(lambda result: result[0]).window(hours).side_output_late_data(LATE)
    again = results.apply(lambda key, window, values: list(values))
    return again.union(again.get_side_output(LATE).map(lambda result: ("late", *result)))


def query(sql: str) -> Callable[[DataStream], DataStream]:
    def build(records: DataStream) -> DataStream:
        tables = StreamTableEnvironment.create(records.get_execution_environment())
        rows = records.map(lambda record: Row(*record), Types.ROW_NAMED(["k", "t"], [Types.STRING(), Types.LONG()]))
        schema = Schema.new_builder().column("k", "STRING").column("t", "BIGINT")
        schema = schema.column_by_metadata("ts", "TIMESTAMP_LTZ(3)", "rowtime").watermark("ts", "SOURCE_WATERMARK()")
        tables.create_temporary_view("r", rows, schema.build())
        return tables.to_data_stream(tables.sql_query(sql)).map(lambda row: (row[0], row[1], row[2] + GAP_MS, row[3]))

    return build


TVF = "TABLE(SESSION(TABLE r PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND))"
PROGRAMS: dict[str, Callable[[DataStream], DataStream]] = {
    "a list": listed,
    "an evictor": evicting,
    "a gap from the record": dynamic,
    "in a cascade": cascaded,
    "SQL": query(f"SELECT k, MIN(t), MAX(t), COUNT(*) FROM {TVF} GROUP BY k, window_start, window_end"),
    "SQL by row": query(
        f"SELECT k, MIN(t), MAX(t), CARDINALITY(COLLECT(t)) FROM {TVF} GROUP BY k, window_start, window_end"
    ),
    "SQL, GROUP BY": query("SELECT k, MIN(t), MAX(t), COUNT(*) FROM r GROUP BY k, SESSION(ts, INTERVAL '1' SECOND)"),
}
#: Queries over streams are for streams.
OF_STREAMS = {name for name in PROGRAMS if name.startswith("SQL")}


@pytest.mark.parametrize(("mode", "batch", "parallelism"), SETTINGS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_answer(program: str, mode: str, batch: int, parallelism: int) -> None:
    """K1, K2: no setting decides."""
    if mode == "BATCH" and program in OF_STREAMS:
        pytest.skip("in batch mode tables run on Spark: tests/table/batch")
    options = {"execution.target": "local", "execution.runtime-mode": mode, "penstock.source.batch-records": str(batch)}
    options |= {"execution.micro-batch.max-records": "1"} if mode == "MICRO_BATCH" else {}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    env.set_parallelism(parallelism)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record, _: record[1])
    records = env.from_collection(RECORDS).set_parallelism(1).assign_timestamps_and_watermarks(strategy)
    results = PROGRAMS[program](records.set_parallelism(1)).execute_and_collect(limit=100)
    assert sorted(results) == SESSIONS
