"""Rows whose event time is NULL: the error names the message, or the rows leave the stream."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.table.running import Rows, run
from tests.table.streaming.test_split_watermarks import Able, TwoAtOnce, plan_source, polled

from penstock.base.errors import JobExecutionError
from penstock.common import Configuration, Row, Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.operators.watermarks import NULL_TIME_RECORDS
from penstock.runtime.records import MIN_TIMESTAMP
from penstock.sql.data.types import IntType, TimestampType
from penstock.sql.logical.nodes import SHORT
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.stream.rows.watermarks import REJECTED_ROWS, NullTimeError, NullTimes, WatermarkAssignerOperator
from penstock.sql.typed import Field
from penstock.table import EnvironmentSettings, Schema, StreamTableEnvironment, TableEnvironment
from penstock.testing import OneInputOperatorHarness

#: watermarks that are made where the table is read, and those that are made in a step above, which asks for the time
WATERMARKS = {
    "source": "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND",
    "step": "WATERMARK FOR ts AS LEAST(ts, CURRENT_TIMESTAMP)",
}
LINES = "1,2026-01-01 00:00:01\n\n2,\n3,2026-01-01 00:00:03\n"


def table_environment(*statements: str, **options: str) -> TableEnvironment:
    """A session that runs in this process, after some statements."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in {"execution.target": "local", "parallelism.default": "1", **options}.items():
        tables.get_config().set(key, value)
    for statement in statements:
        tables.execute_sql(statement)
    return tables


def files_ddl(path: Path, columns: str, name: str = "t", file_format: str = "csv", **options: str) -> str:
    """A table of files; `__` in names of options stand for `.`, and `_` for `-`."""
    given = {"connector": "filesystem", "path": str(path), "format": file_format}
    given |= {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    text = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({text})"


def collected(tables: TableEnvironment, sql: str) -> list[tuple[Any, ...]]:
    """The changes of a query: the letters of their kinds, and their values."""
    with tables.execute_sql(sql).collect() as rows:
        return [(row.get_row_kind().short_string, *row) for row in rows]


def failure(tables: TableEnvironment, sql: str) -> str:
    """The text of the error with which a query fails."""
    with pytest.raises(JobExecutionError) as raised:
        collected(tables, sql)
    return str(raised.value)


# --- the error --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_error_names_column_table_row_and_line(tmp_path: Path, watermark: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(LINES)
    tables = table_environment(files_ddl(path, f"id INT, text STRING, ts AS TO_TIMESTAMP(text), {watermark}"))
    error = failure(tables, "SELECT id, text, ts FROM t")
    assert "column 'ts' of table default_catalog.default_database.t is NULL" in error
    assert f"in a row at {path}, line 3." in error
    assert "record: {'id': 2, 'text': " in error


def test_error_of_a_table_of_a_stream_names_the_column() -> None:
    streams = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    tables = StreamTableEnvironment.create(streams)
    kind = Types.ROW_NAMED(["id", "ts"], [Types.INT(), Types.SQL_TIMESTAMP()])
    stream = streams.from_collection([Row(1, datetime(2026, 1, 1)), Row(2, None)], kind)
    columns = Schema.new_builder().column_by_expression("moment", "CAST(ts AS TIMESTAMP(3))")
    schema = columns.watermark("moment", "moment - INTERVAL '1' SECOND").build()
    tables.create_temporary_view("t", tables.from_data_stream(stream, schema))
    error = failure(tables, "SELECT * FROM t")
    assert "column 'moment' of table " in error
    assert "record: {'id': 2, 'ts': None, 'moment': None}" in error
    assert "filter such records out of the stream" in error


@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_deletion_by_key_alone_is_no_fault(watermark: str) -> None:
    """K1: wherever watermarks are made."""
    columns = {"k": IntType(), "ts": TimestampType(3)}
    changes = [("+I", (1, 1_000_000)), ("+I", (2, 2_000_000)), ("-D", (1, None))]
    answer = run("SELECT k FROM t", t=Rows(columns, changes, watermark=watermark))
    assert answer.shown() == [("+I", 1), ("+I", 2), ("-D", 1)]


# --- rows that leave the stream ---------------------------------------------------------------------------------------

FAILING = NullTimes("ts", "t", ("ts",), "It needs one")
REJECTING = replace(FAILING, is_rejecting=True)


def create_batch(*rows: tuple[str, int | None]) -> ColumnBatch:
    """Rows of one column, which is their time (ms), with their kinds."""
    times = pa.array([time for _, time in rows], pa.timestamp("ms"))
    return ColumnBatch(pa.record_batch({"c0": times}), None, bytes(SHORT.index(kind) for kind, _ in rows))


def shown(batch: ColumnBatch | None) -> list[tuple[str, int | None]]:
    """The kinds and times of rows; without kinds they are inserts."""
    if batch is None:
        return []
    times = batch.columns.column(0).cast(pa.int64()).to_pylist()
    return [(SHORT[kind], time) for kind, time in zip(batch.kinds or bytes(len(batch)), times, strict=True)]


CHANGES = [("+I", 5), ("+U", None), ("-D", None), ("-U", 7), ("-U", None), ("+I", 9)]


def taken_out(null_times: NullTimes) -> tuple[list[tuple[str, int | None]], list[tuple[str, int | None]]]:
    """Which of the changes stay and which leave. The timestamps of those that stay are their times."""
    batch = create_batch(*CHANGES)
    found = null_times.take_out(batch, batch.columns.column(0))
    stays = shown(found.batch)
    times = [time for _, time in stays]
    assert found.times is not None
    assert found.times.cast(pa.int64()).to_pylist() == times
    assert found.batch.rowtimes.tolist() == [MIN_TIMESTAMP if time is None else time for time in times]
    assert found.rejected is not None
    assert found.rejected.rowtimes is None
    return stays, shown(found.rejected)


def test_all_changes_of_rows_without_time_leave_a_table_that_has_previous_rows() -> None:
    timed = [change for change in CHANGES if change[1] is not None]
    assert taken_out(REJECTING) == (timed, [change for change in CHANGES if change[1] is None])


def test_row_without_time_deletes_the_previous_row_of_a_table_by_key() -> None:
    stays = [("+I", 5), ("-D", None), ("-D", None), ("-U", 7), ("+I", 9)]
    by_key = replace(REJECTING, by_key=True)
    assert taken_out(by_key) == (stays, [change for change in CHANGES if change[1] is None])
    assert taken_out(replace(by_key, as_inserts=True)) == (stays, [("+I", None), ("+I", None)])


def test_deletions_without_time_stay_where_other_rows_fail() -> None:
    batch = create_batch(("+I", 5), ("-D", None))
    found = FAILING.take_out(batch, batch.columns.column(0))
    assert shown(found.batch) == [("+I", 5), ("-D", None)]
    assert found.rejected is None


def test_batch_with_all_times_stays_as_it_is() -> None:
    batch = create_batch(("+I", 5), ("-U", 7))
    found = REJECTING.take_out(batch, batch.columns.column(0))
    assert found.batch.data is batch.data
    assert found.rejected is None


def test_error_survives_pickling() -> None:
    batch = create_batch(("+I", 5), ("+I", None))
    with pytest.raises(NullTimeError) as raised:
        FAILING.take_out(batch, batch.columns.column(0))
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.record) == (str(raised.value), {"ts": None})


def open_harness(null_times: NullTimes, idle_ms: int = 0) -> OneInputOperatorHarness:
    time = Field(TimestampType(3), 0)
    operator = partial(WatermarkAssignerOperator, 0, time, StreamSession(), null_times, 0, idle_ms)
    harness = OneInputOperatorHarness(operator)
    harness.open()
    return harness


def test_step_counts_rows_without_time_and_sends_them_aside() -> None:
    harness = open_harness(REJECTING)
    assert harness.counters == {NULL_TIME_RECORDS: 0}
    harness.operator.process_batch(create_batch(("+I", 5), ("+I", None), ("+I", 8)))
    harness.operator.process_batch(create_batch(("+I", None)))
    assert [record.timestamp for record in harness.output] == [5, 8]
    assert harness.watermarks == [8]
    assert [record.timestamp for record in harness.side_output(REJECTED_ROWS)] == [None, None]
    assert harness.counters == {NULL_TIME_RECORDS: 2}


def test_step_without_other_rows_becomes_idle() -> None:
    harness = open_harness(REJECTING, idle_ms=100)
    harness.operator.process_batch(create_batch(("+I", 5)))
    harness.advance_processing_time(60)
    harness.operator.process_batch(create_batch(("+I", None)))
    harness.advance_processing_time(60)
    assert harness.idle_changes == [True]


def source_operator(splits: dict[str, list[Any]], idle_ms: int = 0, **options: Any) -> SourceOperator:
    """The source of a table whose rows without time leave it."""
    idle = f", 'scan.watermark.idle-timeout' = '{idle_ms} ms'" if idle_ms else ""
    drop = ", 'scan.watermark.null-time' = 'drop'"
    return plan_source(options=idle + drop, scan=Able(TwoAtOnce(splits)), **options)[1]


def test_source_counts_rows_without_time_and_sends_them_aside() -> None:
    harness = polled(source_operator({"a": [1, None, 3], "b": [None, None]}))
    assert [record.timestamp for record in harness.output] == [1_000, 3_000]
    assert [tuple(record.value) for record in harness.side_output(REJECTED_ROWS)] == [
        ("a", None),
        ("b", None),
        ("b", None),
    ]
    assert harness.counters[NULL_TIME_RECORDS] == 3
    # Nothing is known of the other split.
    assert harness.watermarks == []


def test_split_without_other_rows_becomes_idle() -> None:
    operator = source_operator({"ahead": [1, 11], "silent": [None], "again": [None]}, idle_ms=100)
    harness = OneInputOperatorHarness(lambda: operator)
    harness.open()
    operator.reader.add_splits(["all"])
    operator.emit_next(100)
    assert harness.watermarks == []
    harness.advance_processing_time(60)
    operator.watermarks.of_split("ahead").saw_records(60)
    operator.emit_next(100)
    harness.advance_processing_time(60)
    operator.emit_next(100)
    assert harness.watermarks == [10_000]
