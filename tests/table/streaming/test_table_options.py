"""Options of tables that belong to no connector: how event time goes on, and parallelism."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest
from tests.table.planned import manager_of, plan_query

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.watermark_strategy import WatermarkAlignment
from penstock.connectors.collect import DiscardingSink
from penstock.connectors.collection import ColumnsSource
from penstock.plan.transformation import Transformation
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import MAX_WATERMARK
from penstock.runtime.task.channels.result_partition import HashPartitioner
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import TimestampType
from penstock.sql.logical.nodes import ALL, INSERTS, Changes, Scan, Write
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.options import PlanOptions, WatermarkOptions, plan_options, watermark_options
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.stream.rows.watermarks import NullTimes, WatermarkAssignerOperator
from penstock.sql.tables.tables import TableReader, TableWriter
from penstock.sql.typed import Field
from penstock.testing import OneInputOperatorHarness

TIME = Field(TimestampType(3), 0)
NULL_TIMES = NullTimes("ts", "t", ("ts",), "")
IDLE_MS = 10


def table(options: str) -> str:
    return f"CREATE TABLE t (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'x', {options})"


def read_options(options: str, sql: str = "SELECT * FROM t", idle_ms: int = 0) -> WatermarkOptions:
    return watermark_options(plan_query(sql, manager_of(table(options))), idle_ms)


def steps(options: str, changes: Changes = INSERTS) -> list[Transformation]:
    """The steps of a plan over a table; what its connector is asked is one of its own options."""
    manager, found = manager_of(table(options)), list[Transformation]()

    def reader(scan: Scan) -> TableReader:
        assert dict(scan.options) == {"connector": "x", "path": "p"}
        return TableReader(ColumnsSource(pa.record_batch({"c0": [1]})), changes, True)

    planner = StreamPlanner(found.append, reader, StreamSession(), manager.calls())
    planner.query(plan_query("SELECT id FROM t", manager), False)
    return found


# --- which options there are ------------------------------------------------------------------------------------------


def test_a_table_says_how_its_event_time_goes_on() -> None:
    assert read_options("'path' = 'p'") == WatermarkOptions()
    assert read_options("'scan.watermark.idle-timeout' = '5 s'") == WatermarkOptions(5000)
    assert read_options("'scan.watermark.emit.strategy' = 'on-periodic'") == WatermarkOptions()
    assert read_options("'scan.watermark.emit.strategy' = 'on-event'") == WatermarkOptions(0, 1)
    every_third = "'scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.emit.on-event.gap' = '3'"
    assert read_options(every_third) == WatermarkOptions(0, 3)


def test_the_session_says_when_tables_are_idle_that_do_not() -> None:
    assert plan_options({"table.exec.source.idle-timeout": "2 s"}) == PlanOptions(idle_ms=2000)
    assert read_options("'path' = 'p'", idle_ms=7) == WatermarkOptions(7)
    assert read_options("'scan.watermark.idle-timeout' = '0'", idle_ms=7) == WatermarkOptions(0)


def test_a_hint_says_it_for_a_query() -> None:
    sql = "SELECT * FROM t /*+ OPTIONS('scan.watermark.idle-timeout' = '1 s') */"
    assert read_options("'scan.watermark.idle-timeout' = '5 s'", sql) == WatermarkOptions(1000)


ALIGNED = "'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '5 s'"


def test_tables_are_aligned_in_groups() -> None:
    assert read_options(ALIGNED).alignment == WatermarkAlignment("g", 5000, 1000)
    every_minute = f"{ALIGNED}, 'scan.watermark.alignment.update-interval' = '1 min'"
    assert read_options(every_minute).alignment == WatermarkAlignment("g", 5000, 60_000)


def test_alignment_is_refused_where_the_connector_makes_no_watermarks() -> None:
    with pytest.raises(UnsupportedError, match=r"scan\.watermark\.alignment\.group.*connector does not do that"):
        steps(f"'path' = 'p', {ALIGNED}")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("'scan.watermark.emit.strategy' = 'never'", "scan.watermark.emit.strategy"),
        ("'scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.emit.on-event.gap' = '0'", "must be above 0"),
        ("'scan.watermark.idle-timeout' = 'soon'", "scan.watermark.idle-timeout"),
        ("'scan.watermark.alignment.group' = 'g'", "needs 'scan.watermark.alignment.max-drift'"),
        ("'scan.watermark.alignment.max-drift' = '1 s'", "needs 'scan.watermark.alignment.group'"),
        (ALIGNED.replace("'g'", "''"), "the group must have a name"),
    ],
)
def test_other_values_are_refused(options: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        read_options(options)


def test_a_table_says_how_many_read_it() -> None:
    assert [step.parallelism for step in steps("'path' = 'p'")] == [None, 1, 1]
    read = steps("'path' = 'p', 'scan.parallelism' = '3', 'scan.watermark.idle-timeout' = '5 s'")
    # Steps without a key see rows in the order in which they are read.
    assert [(step.kind, step.parallelism) for step in read[:2]] == [("Source", 3), ("Watermark Assigner", 3)]


def test_parallelism_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"'scan.parallelism' must be above 0"):
        steps("'path' = 'p', 'scan.parallelism' = '0'")
    with pytest.raises(UnsupportedError, match=r"'scan.parallelism'.*updated or deleted"):
        steps("'path' = 'p', 'scan.parallelism' = '2'", ALL)


def write_steps(query: str, parallelism: str | None, key: tuple[int, ...] = ()) -> list[Transformation]:
    """The steps that write a query into a table: Rows and Sink."""
    manager, found = manager_of(table("'path' = 'p'")), list[Transformation]()
    plan = plan_query(query, manager)
    columns = ColumnsSource(pa.record_batch({"c0": [1]}))

    def reader(scan: Scan) -> TableReader:
        return TableReader(columns)

    planner = StreamPlanner(found.append, reader, StreamSession(), manager.calls())
    path = ("default_catalog", "default_database", "s")
    options = (("connector", "x"), *([] if parallelism is None else [("sink.parallelism", parallelism)]))
    write = Write(schema=plan.schema, input=plan, path=path, options=options, key=key)
    planner.sink(write, TableWriter(DiscardingSink(), ALL))
    return [step for step in found if step.kind in ("Rows", "Sink")]


def test_a_table_says_how_many_write_it() -> None:
    assert [step.parallelism for step in write_steps("SELECT id FROM t", "3")] == [1, 3]
    with pytest.raises(UnsupportedError, match=r"'sink.parallelism'.*updated or deleted.*no primary key"):
        write_steps("SELECT COUNT(*) FROM t", "3")


@pytest.mark.parametrize("query", ["SELECT id FROM t", "SELECT id FROM t GROUP BY id"])
def test_rows_go_by_the_primary_key_to_several_writers(query: str) -> None:
    """K1: one subtask reads; an older row of a key is not written after a newer one."""
    rows, sink = write_steps(query, "3", (0,))
    assert [rows.parallelism, sink.parallelism] == [3, 3]
    assert isinstance(rows.inputs[0].partitioner, HashPartitioner)
    assert sink.inputs[0].partitioner is None


def test_rows_of_inputs_that_differ_in_parallelism_go_by_the_primary_key() -> None:
    """K1: a union of one subtask and of as many as the job has."""
    for key in ((), (0,)):
        rows, sink = write_steps("SELECT id FROM t UNION ALL SELECT DISTINCT id FROM t", None, key)
        assert [isinstance(one.partitioner, HashPartitioner) for one in rows.inputs] == [bool(key)] * 2
        assert sink.inputs[0].partitioner is None


def test_the_session_says_the_parallelism_of_all_steps() -> None:
    assert plan_options({"table.exec.resource.default-parallelism": "3"}).parallelism == 3
    assert plan_options({}).parallelism is None


# --- how event time goes on -------------------------------------------------------------------------------------------


class Assigner:
    """The operator over rows that are times (ms)."""

    def __init__(self, gap: int = 0, idle_ms: int = 0) -> None:
        operator = partial(WatermarkAssignerOperator, 0, TIME, StreamSession(), NULL_TIMES, gap, idle_ms)
        self.harness = OneInputOperatorHarness(operator)
        self.harness.open()

    def rows(self, *times: int) -> list[object]:
        """A batch; what comes out, rows as their times in brackets."""
        columns = pa.record_batch({"c0": pa.array(times, pa.timestamp("ms"))})
        self.harness.operator.process_batch(ColumnBatch(columns))
        return self.taken()

    def taken(self) -> list[object]:
        order = self.harness.captured.order
        found: list[object] = [one if isinstance(one, int) else [one.timestamp] for one in order]
        order.clear()
        return found


def test_a_watermark_comes_after_a_batch() -> None:
    assigner = Assigner()
    assert assigner.rows(3, 5, 4) == [[3], [5], [4], 5]
    assert assigner.rows(1) == [[1]]


def test_a_watermark_comes_after_each_row() -> None:
    assert Assigner(gap=1).rows(3, 5, 4) == [[3], 3, [5], 5, [4]]


def test_a_watermark_comes_after_so_many_rows() -> None:
    """Which are counted through batches."""
    assigner = Assigner(gap=2)
    assert assigner.rows(3, 1, 5) == [[3], [1], 3, [5]]
    assert assigner.rows(4) == [[4], 5]


def test_without_rows_for_so_long_a_stream_is_idle() -> None:
    assigner = Assigner(idle_ms=IDLE_MS)
    assigner.harness.advance_processing_time(IDLE_MS - 1)
    assert assigner.rows(1) == [[1], 1]
    assigner.harness.advance_processing_time(IDLE_MS - 1)
    assert assigner.taken() == []
    assigner.harness.advance_processing_time(1)
    assert assigner.taken() == [True]
    assigner.harness.advance_processing_time(10 * IDLE_MS)
    assert assigner.taken() == []
    assert assigner.rows(2) == [False, [2], 2]


def test_a_stream_may_be_idle_from_the_start() -> None:
    assigner = Assigner(idle_ms=IDLE_MS)
    assigner.harness.advance_processing_time(IDLE_MS)
    assert assigner.taken() == [True]
    assigner.harness.watermark(MAX_WATERMARK)
    assert assigner.taken() == [False, MAX_WATERMARK]
    assert assigner.harness.operator.next_timer_ms() is None
