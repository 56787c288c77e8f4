"""The options `scan.watermark.null-time`: rows whose event time is NULL are dropped, or go into another table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.table.planned import manager_of, plan_query
from tests.table.streaming.test_null_times import (
    WATERMARKS,
    collected,
    failure,
    files_ddl,
    table_environment,
)

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.plan.transformation import Transformation
from penstock.sql.connectors.built_in import built_in
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import Node, WatermarkAssigner
from penstock.sql.stream.executor import StreamExecutor
from penstock.table import (
    ChangelogMode,
    EnvironmentSettings,
    ExplainDetail,
    Schema,
    StreamTableEnvironment,
    TableDescriptor,
    TableEnvironment,
)
from penstock.table.udf import udf

ROUTE = {"scan__watermark__null_time": "route", "scan__watermark__null_time__table": "bad"}
DROP = {"scan__watermark__null_time": "drop"}
MODES = {
    "STREAMING": {},
    "STREAMING-2": {"parallelism.default": "2"},
    "MICRO_BATCH": {"execution.runtime-mode": "MICRO_BATCH"},
}
TIMED = "id INT, text STRING, twice AS id * 2, ts AS TO_TIMESTAMP(text), {}"
BAD = "id BIGINT, text STRING, twice INT, ts TIMESTAMP(3)"
BAD_ROWS = [{"id": 2, "text": "", "twice": 4, "ts": None}, {"id": 5, "text": "no time", "twice": 10, "ts": None}]


def write_lines(folder: Path) -> Path:
    """Two files whose rows 2 and 5 have no time."""
    folder.mkdir()
    (folder / "a.csv").write_text("1,2026-01-01 00:00:01\n2,\n3,2026-01-01 00:00:03\n")
    (folder / "b.csv").write_text("4,2026-01-01 00:00:02\n5,no time\n")
    return folder


def json_rows(folder: Path) -> list[Any]:
    """The rows that a table of JSON files has, in order."""
    lines = [line for file in folder.rglob("part-*") for line in file.read_text().splitlines()]
    return sorted(map(json.loads, lines), key=lambda row: json.dumps(row))


def routing(tmp_path: Path, watermark: str = WATERMARKS["source"], **more: str) -> TableEnvironment:
    """A session with a table `t` that routes rows into `bad`."""
    source = write_lines(tmp_path / "in")
    return table_environment(
        files_ddl(source, TIMED.format(watermark), **ROUTE),
        files_ddl(tmp_path / "bad", BAD, "bad", "json"),
        **more,
    )


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_rows_are_dropped(tmp_path: Path, watermark: str, mode: dict[str, str]) -> None:
    """K1: in every setting."""
    source = write_lines(tmp_path / "in")
    tables = table_environment(files_ddl(source, TIMED.format(watermark), **DROP), **mode)
    assert sorted(collected(tables, "SELECT id FROM t")) == [("+I", 1), ("+I", 3), ("+I", 4)]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_rows_go_whole_into_the_other_table(tmp_path: Path, watermark: str, mode: dict[str, str]) -> None:
    """K1: in every setting, also the columns that the query does not read; with the casts of INSERT."""
    tables = routing(tmp_path, watermark, **mode)
    assert sorted(collected(tables, "SELECT id FROM t")) == [("+I", 1), ("+I", 3), ("+I", 4)]
    assert json_rows(tmp_path / "bad") == BAD_ROWS


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_windows_come_as_if_the_rows_were_not_there(tmp_path: Path, mode: dict[str, str]) -> None:
    tables = routing(tmp_path, **mode)
    windows = (
        "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end"
    )
    assert collected(tables, windows) == [("+I", 3)]
    assert json_rows(tmp_path / "bad") == BAD_ROWS


@pytest.mark.parametrize("shares", ["true", "false"])
@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_rows_go_once_where_several_queries_read_the_table(tmp_path: Path, watermark: str, shares: str) -> None:
    """Also where the table is read for each query."""
    tables = routing(tmp_path, watermark, **{"table.optimizer.reuse-sub-plan-enabled": shares})
    for name in ("first_sink", "second_sink"):
        tables.execute_sql(files_ddl(tmp_path / name, "id INT", name, "json"))
    statements = tables.create_statement_set()
    statements.add_insert_sql("INSERT INTO first_sink SELECT id FROM t")
    statements.add_insert_sql("INSERT INTO second_sink SELECT a.id FROM t a JOIN t b ON a.id = b.id WHERE a.id > 1")
    statements.execute().wait()
    assert json_rows(tmp_path / "first_sink") == [{"id": 1}, {"id": 3}, {"id": 4}]
    assert json_rows(tmp_path / "second_sink") == [{"id": 3}, {"id": 4}]
    assert json_rows(tmp_path / "bad") == BAD_ROWS


def test_rows_go_once_where_a_column_is_random(tmp_path: Path) -> None:
    """Such a table is computed for each query that reads it."""
    source = write_lines(tmp_path / "in")
    columns = f"id INT, text STRING, r AS RAND(), ts AS TO_TIMESTAMP(text), {WATERMARKS['source']}"
    tables = table_environment(
        files_ddl(source, columns, **ROUTE),
        files_ddl(tmp_path / "bad", "id INT, text STRING, r DOUBLE, ts TIMESTAMP(3)", "bad", "json"),
    )
    found = collected(tables, "SELECT id FROM t UNION ALL SELECT id FROM t WHERE r < 2")
    assert sorted(found) == [("+I", 1), ("+I", 1), ("+I", 3), ("+I", 3), ("+I", 4), ("+I", 4)]
    assert [row["id"] for row in json_rows(tmp_path / "bad")] == [2, 5]


def test_an_insert_may_fill_the_other_table_too(tmp_path: Path) -> None:
    tables = routing(tmp_path)
    tables.execute_sql("INSERT INTO bad SELECT id, text, twice, ts FROM t WHERE id = 1").wait()
    assert [row["id"] for row in json_rows(tmp_path / "bad")] == [1, 2, 5]


def test_columns_of_the_processing_time_and_of_the_file_go_along(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in")
    columns = (
        f"id INT, text STRING, p AS PROCTIME(), f STRING NOT NULL METADATA FROM 'file.name', {WATERMARKS['source']}"
    )
    tables = table_environment(
        files_ddl(source, columns.replace("p AS", "ts AS TO_TIMESTAMP(text), p AS"), **ROUTE),
        files_ddl(
            tmp_path / "bad", "id INT, text STRING, ts TIMESTAMP(3), p TIMESTAMP_LTZ(3), f STRING", "bad", "json"
        ),
    )
    collected(tables, "SELECT id FROM t")
    rows = json_rows(tmp_path / "bad")
    assert [(row["id"], row["f"]) for row in rows] == [(2, "a.csv"), (5, "b.csv")]
    assert all(row["p"] for row in rows)


def test_fields_that_the_query_does_not_read_go_along(tmp_path: Path) -> None:
    """Of Parquet only the fields are read that anybody needs."""
    place = pa.struct([("city", pa.string()), ("zip", pa.int32())])
    times = pa.array([None, 1_000], pa.timestamp("ms"))
    rows = {"place": pa.array([{"city": "a", "zip": 1}, {"city": "b", "zip": 2}], place), "ts": times}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    columns = "place ROW<city STRING, zip INT>, ts TIMESTAMP(3)"
    tables = table_environment(
        files_ddl(tmp_path / "a.parquet", f"{columns}, WATERMARK FOR ts AS ts", "t", "parquet", **ROUTE),
        files_ddl(tmp_path / "bad", columns, "bad", "json"),
    )
    assert collected(tables, "SELECT place.city FROM t") == [("+I", "b")]
    assert json_rows(tmp_path / "bad") == [{"place": {"city": "a", "zip": 1}, "ts": None}]


def test_filters_and_limits_keep_no_row_from_the_other_table(tmp_path: Path) -> None:
    tables = routing(tmp_path)
    assert collected(tables, "SELECT id FROM t WHERE id > 3 AND ts IS NOT NULL") == [("+I", 4)]
    assert json_rows(tmp_path / "bad") == BAD_ROWS


def test_a_hint_sets_it_for_a_query(tmp_path: Path) -> None:
    tables = routing(tmp_path)
    drop = "SELECT id FROM t /*+ OPTIONS('scan.watermark.null-time' = 'drop') */"
    assert sorted(collected(tables, drop)) == [("+I", 1), ("+I", 3), ("+I", 4)]
    assert json_rows(tmp_path / "bad") == []
    assert "record: {'id': " in failure(tables, drop.replace("drop", "fail"))


def test_the_other_table_is_looked_for_next_to_the_table(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in")
    tables = table_environment("CREATE DATABASE other", "USE other")
    tables.execute_sql(files_ddl(source, TIMED.format(WATERMARKS["source"]), **ROUTE))
    tables.execute_sql(files_ddl(tmp_path / "bad", BAD, "bad", "json"))
    tables.use_database("default_database")
    collected(tables, "SELECT id FROM other.t")
    assert json_rows(tmp_path / "bad") == BAD_ROWS


def test_a_descriptor_may_have_the_options(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in")
    tables = table_environment(files_ddl(tmp_path / "bad", BAD.replace("BIGINT", "INT"), "bad", "json"))
    schema = Schema.new_builder().column("id", "INT").column("text", "STRING")
    schema.column_by_expression("twice", "id * 2").column_by_expression("ts", "TO_TIMESTAMP(text)").watermark(
        "ts", "ts"
    )
    descriptor = TableDescriptor.for_connector("filesystem").schema(schema.build()).format("csv")
    descriptor.option("path", str(source)).option("scan.watermark.null-time", "route")
    table = tables.from_descriptor(descriptor.option("scan.watermark.null-time.table", "`bad`").build())
    with table.execute().collect() as rows:
        assert sorted(row[0] for row in rows) == [1, 3, 4]
    assert json_rows(tmp_path / "bad") == BAD_ROWS


def test_a_stream_of_the_table_has_the_other_rows(tmp_path: Path) -> None:
    streams = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local", "parallelism.default": "1"})
    )
    tables = StreamTableEnvironment.create(streams)
    tables.execute_sql(files_ddl(write_lines(tmp_path / "in"), TIMED.format(WATERMARKS["source"]), **ROUTE))
    tables.execute_sql(files_ddl(tmp_path / "bad", BAD, "bad", "json"))
    stream = tables.to_data_stream(tables.sql_query("SELECT id FROM t"))
    assert sorted(row[0] for row in stream.execute_and_collect()) == [1, 3, 4]
    assert json_rows(tmp_path / "bad") == BAD_ROWS


# --- changes ----------------------------------------------------------------------------------------------------------

CHANGED = [
    {"op": "c", "before": None, "after": {"id": 1, "ts": "2026-01-01 00:00:01"}},
    {"op": "c", "before": None, "after": {"id": 2, "ts": None}},
    {"op": "u", "before": {"id": 1, "ts": "2026-01-01 00:00:01"}, "after": {"id": 1, "ts": None}},
    {"op": "u", "before": {"id": 2, "ts": None}, "after": {"id": 2, "ts": "2026-01-01 00:00:02"}},
    {"op": "d", "before": {"id": 1, "ts": None}, "after": None},
]
TWO_COLUMNS = "id INT, ts TIMESTAMP(3)"


def changes_in(folder: Path) -> list[tuple[str, int]]:
    """The changes in files of debezium-json: c or d, and the id of the row."""
    return sorted((row["op"], (row["after"] or row["before"])["id"]) for row in json_rows(folder))


@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_changes_of_rows_without_time_leave_with_them(tmp_path: Path, watermark: str) -> None:
    """Each side has the changes of a table: a row that leaves the stream is deleted there, and inserted here."""
    source = tmp_path / "in.json"
    source.write_text("\n".join(map(json.dumps, CHANGED)))
    tables = table_environment(
        files_ddl(source, f"{TWO_COLUMNS}, {watermark}", "t", "debezium-json", **ROUTE),
        files_ddl(tmp_path / "bad", TWO_COLUMNS, "bad", "debezium-json"),
    )
    assert collected(tables, "SELECT id FROM t") == [("+I", 1), ("-U", 1), ("+U", 2)]
    assert changes_in(tmp_path / "bad") == [("c", 1), ("c", 2), ("d", 1), ("d", 2)]


@pytest.mark.parametrize("action", ["drop", "route"])
@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_a_stream_without_previous_rows_hears_of_rows_that_leave(tmp_path: Path, watermark: str, action: str) -> None:
    source = tmp_path / "in.json"
    source.write_text("\n".join(map(json.dumps, CHANGED)))
    streams = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local", "parallelism.default": "1"})
    )
    tables = StreamTableEnvironment.create(streams)
    columns = f"{TWO_COLUMNS}, PRIMARY KEY (id) NOT ENFORCED, {watermark}"
    options = {**ROUTE, "scan__watermark__null_time": action}
    tables.execute_sql(files_ddl(source, columns, "t", "debezium-json", **options))
    tables.execute_sql(files_ddl(tmp_path / "bad", TWO_COLUMNS, "bad", "debezium-json"))
    schema = Schema.new_builder().column("id", "INT NOT NULL").column("ts", "TIMESTAMP(3)").primary_key("id").build()
    stream = tables.to_changelog_stream(tables.from_path("t"), schema, ChangelogMode.upsert())
    rows = [(row.get_row_kind().short_string, row[0]) for row in stream.execute_and_collect()]
    assert rows == [("+I", 1), ("-D", 1), ("+U", 2)]


def test_changes_do_not_go_into_a_table_of_rows(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    source.write_text("")
    tables = table_environment(
        files_ddl(source, f"{TWO_COLUMNS}, {WATERMARKS['source']}", "t", "debezium-json", **ROUTE),
        files_ddl(tmp_path / "bad", TWO_COLUMNS, "bad", "json"),
    )
    with pytest.raises(
        ValidationError, match=r"null-time.table' of table .*\.t: rows .* table .*\.bad.*update and del"
    ):
        collected(tables, "SELECT id FROM t")


# --- failures and restores --------------------------------------------------------------------------------------------

SEQUENCE = "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{}'"
NUMBERS = (
    "CREATE TABLE t (n BIGINT, ts AS CASE WHEN MOD(n, 3) = 0 THEN CAST(NULL AS TIMESTAMP_LTZ(3)) "
    "ELSE TO_TIMESTAMP_LTZ(n, 3) END, {}) WITH ('connector' = 'datagen', 'rows-per-second' = '{}', {}, "
    "'scan.watermark.null-time' = 'route', 'scan.watermark.null-time.table' = 'bad')"
)


def number_tables(tmp_path: Path, watermark: str, rate: int, end: int, **options: str) -> TableEnvironment:
    """A table of numbers, a third of which has no time and goes into `bad`; and a table `good` for the others."""
    columns = "n BIGINT, ts TIMESTAMP_LTZ(3)"
    return table_environment(
        NUMBERS.format(watermark, rate, SEQUENCE.format(end)),
        files_ddl(tmp_path / "bad", columns, "bad", "parquet"),
        files_ddl(tmp_path / "good", columns, "good", "parquet"),
        **options,
    )


def numbers(folder: Path) -> list[int]:
    """The numbers in finished files."""
    files = [file for file in folder.rglob("part-*") if not file.name.startswith(".")]
    return sorted(number for file in files for number in pq.read_table(file)["n"].to_pylist())


@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_each_row_is_in_the_other_table_once_behind_a_savepoint(tmp_path: Path, watermark: str) -> None:
    """G9: rows of both tables follow those that are there, also at another parallelism."""
    path: str | None = None
    for parallelism in ("1", "2"):
        restored = {} if path is None else {"execution.state-recovery.path": path}
        tables = number_tables(tmp_path, watermark, 20_000, 10**9, **restored, **{"parallelism.default": parallelism})
        job = tables.execute_sql("INSERT INTO good SELECT n, ts FROM t").get_job_client()
        assert job is not None
        path = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(60)
    good, bad = numbers(tmp_path / "good"), numbers(tmp_path / "bad")
    assert bad == [n for n in range(1, len(good) + len(bad) + 1) if n % 3 == 0]
    assert good == [n for n in range(1, len(good) + len(bad) + 1) if n % 3]


class FailsOnce:
    """A function that fails once at a number, when a checkpoint is complete; it lets each number pass."""

    failures = 0

    @classmethod
    def seen(cls, n: int) -> bool:
        if n == 4_000 and not cls.failures:
            cls.failures += 1
            raise RuntimeError("once")
        return True


@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_each_row_is_in_the_other_table_once_after_a_failure(tmp_path: Path, watermark: str) -> None:
    """G9."""
    FailsOnce.failures = 0
    tables = number_tables(
        tmp_path,
        watermark,
        10_000,
        8_000,
        **{
            "execution.checkpointing.interval": "20 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "1 ms",
        },
    )
    tables.create_temporary_function("seen", udf(FailsOnce.seen, result_type="BOOLEAN"))
    tables.execute_sql("INSERT INTO good SELECT n, ts FROM t WHERE seen(n)").wait()
    assert FailsOnce.failures == 1
    assert numbers(tmp_path / "bad") == [n for n in range(1, 8_001) if n % 3 == 0]
    assert numbers(tmp_path / "good") == [n for n in range(1, 8_001) if n % 3]


# --- plans ------------------------------------------------------------------------------------------------------------


def test_explain_shows_the_route(tmp_path: Path) -> None:
    tables = routing(tmp_path)
    text = tables.explain_sql("SELECT a.id FROM t a JOIN t b ON a.id = b.id", ExplainDetail.JSON_EXECUTION_PLAN)
    shown, _, job = text.replace("default_catalog.default_database.", "").partition("== Physical Execution Plan ==")
    streams = shown.partition("== Streams ==")[2]
    assert "nullTime=[route to bad]" in streams
    route = [line for line in streams.splitlines() if "RejectedRows" in line or "Write" in line]
    assert route == [
        "Write(table=[bad])",
        "    RejectedRows(table=[t], where=[ts IS NULL], changelogMode=[I])",
    ]
    assert job.count('"Write(table=[bad])"') >= 1
    drop = tables.explain_sql("SELECT id FROM t /*+ OPTIONS('scan.watermark.null-time' = 'drop') */")
    assert "nullTime=[drop]" in drop
    assert "Write" not in drop


def steps(options: str, *inserts: str, columns: str = "id INT, text STRING") -> list[Transformation]:
    """The steps of INSERTs, with tables of a connector that gives the columns that are asked for."""
    ddl = (
        f"CREATE TABLE t ({columns}, ts AS TO_TIMESTAMP(text), WATERMARK FOR ts AS ts) WITH "
        f"('connector' = 'filesystem', 'path' = '/in', 'format' = 'json'{options})"
    )
    side = "CREATE TABLE bad (id INT, text STRING, ts TIMESTAMP(3)) WITH ('connector' = 'blackhole')"
    tables = TableEnvironment(EnvironmentSettings.in_streaming_mode(), StreamExecutor(built_in()))
    for statement in (ddl, side, side.replace("bad", "good")):
        tables.execute_sql(statement)
    statements = tables.create_statement_set()
    for insert in inserts:
        statements.add_insert_sql(insert)
    found: list[Transformation] = []
    session = tables._session
    executor = session.executor
    planner = executor._planner(  # type: ignore[attr-defined]
        StreamExecutionEnvironment.get_execution_environment(), {}, session.manager.calls().session
    )
    planner.add = found.append
    executor._add_sinks(planner, statements._plans)  # type: ignore[attr-defined]
    return found


def collect_uids(found: list[Transformation]) -> set[str | None]:
    return {step.uid_hash for step in found}


GOOD = "INSERT INTO good SELECT * FROM t"
BOTH = (GOOD, "INSERT INTO bad SELECT * FROM t")
ROUTED = ", 'scan.watermark.null-time' = 'route', 'scan.watermark.null-time.table' = 'bad'"


def test_state_goes_on_when_rows_are_dropped_or_routed_from_now_on() -> None:
    """D2: the steps keep their ids; a route adds its own, also beside an INSERT into the same table."""
    for inserts in ((GOOD,), BOTH):
        plain = collect_uids(steps("", *inserts))
        assert collect_uids(steps(", 'scan.watermark.null-time' = 'drop'", *inserts)) == plain
        routed = collect_uids(steps(ROUTED, *inserts))
        assert plain < routed
        assert None not in routed


def test_dropping_reads_no_more_columns() -> None:
    insert = "INSERT INTO good SELECT 1, text, ts FROM t"
    plain = collect_uids(steps("", insert, columns="id INT, text STRING, other STRING"))
    assert plain == collect_uids(
        steps(", 'scan.watermark.null-time' = 'drop'", insert, columns="id INT, text STRING, other STRING")
    )


# --- what is refused --------------------------------------------------------------------------------------------------

SIDES = (
    "CREATE TABLE narrow (id INT)",
    "CREATE TABLE texts (id INT, ts STRING NOT NULL)",
    "CREATE TABLE needs_time (id INT, ts TIMESTAMP(3) NOT NULL)",
    "CREATE VIEW v AS SELECT 1 AS a",
)


def plan_with(options: str, watermark: str = ", WATERMARK FOR ts AS ts") -> Node:
    ddl = f"CREATE TABLE t (id INT, ts TIMESTAMP(3){watermark}) WITH ('connector' = 'x'{options})"
    return plan_query("SELECT * FROM t", manager_of(ddl, *SIDES))


def routed_to(table: str) -> str:
    return f", 'scan.watermark.null-time' = 'route', 'scan.watermark.null-time.table' = '{table}'"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (", 'scan.watermark.null-time' = 'ignore'", "write one of FAIL, DROP, ROUTE"),
        (", 'scan.watermark.null-time.table' = 'v'", "needs 'scan.watermark.null-time' = 'route'"),
        (", 'scan.watermark.null-time' = 'route'", "needs 'scan.watermark.null-time.table'"),
        (routed_to("missing"), r"names table 'missing', which does not exist: create it"),
        (routed_to("a b"), "is not a valid table name"),
        (routed_to("t"), "names the table itself"),
        (routed_to("v"), r"names view .*\.v"),
        (routed_to("narrow"), r"a column for each of its columns, computed ones included: id, ts.*Different number"),
        (routed_to("needs_time"), r"column 'ts' of table .*\.needs_time is NOT NULL"),
        (routed_to("texts"), r"column 'ts' of table .*\.texts is NOT NULL|Incompatible types"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){sentence}"):
        plan_with(options)


@pytest.mark.parametrize("options", [", 'scan.watermark.null-time' = 'drop'", routed_to("narrow")])
def test_a_table_without_watermark_has_no_event_time(options: str) -> None:
    with pytest.raises(ValidationError, match=r"table .*\.t needs an event time.*declare WATERMARK"):
        plan_with(options, watermark="")


def test_fail_is_the_default() -> None:
    for options in ("", ", 'scan.watermark.null-time' = 'FAIL'"):
        (node,) = plan_with(options).inputs()
        assert isinstance(node, WatermarkAssigner)
        assert (node.drops_null, node.route) == (False, None)
    (node,) = plan_with(", 'scan.watermark.null-time' = 'DROP'").inputs()
    assert isinstance(node, WatermarkAssigner)
    assert (node.drops_null, node.route) == (True, None)


def test_a_table_by_key_takes_no_rows_of_a_table_without_key(tmp_path: Path) -> None:
    """Nothing says which row of a key stays. A sink that only inserts does not care."""
    source = write_lines(tmp_path / "in")
    keyed = BAD.replace("BIGINT", "BIGINT NOT NULL") + ", PRIMARY KEY (id) NOT ENFORCED"
    sink = f"CREATE TABLE bad ({keyed}) WITH ('connector' = 'jdbc', 'url' = 'postgresql://h/d', 'table-name' = 'b')"
    tables = table_environment(files_ddl(source, TIMED.format(WATERMARKS["source"]), **ROUTE), sink)
    with pytest.raises(ValidationError, match=r"(?s)null-time.table'.*ON CONFLICT.*without PRIMARY KEY\.$"):
        collected(tables, "SELECT id FROM t")


def test_a_table_by_key_takes_the_changes_of_a_table_with_the_same_key(tmp_path: Path) -> None:
    """The key of the other table must be the key of the table whose rows are routed."""
    source = tmp_path / "in.json"
    source.write_text("\n".join(map(json.dumps, CHANGED)))
    columns = "id INT NOT NULL, k INT NOT NULL, ts TIMESTAMP(3), PRIMARY KEY ({}) NOT ENFORCED"
    watermark = WATERMARKS["source"]

    def plan_with_key(key: str) -> str:
        sink = f"({columns.format(key)}) WITH ('connector' = 'jdbc', 'url' = 'postgresql://h/d', 'table-name' = 'b')"
        tables = table_environment(
            files_ddl(source, f"{columns.format('id')}, {watermark}", "t", "debezium-json", **ROUTE),
            f"CREATE TABLE bad {sink}",
        )
        return tables.explain_sql("SELECT id FROM t", ExplainDetail.JSON_EXECUTION_PLAN)

    assert "Write(table=[default_catalog.default_database.bad]" in plan_with_key("id")
    with pytest.raises(ValidationError, match=r"(?s)null-time.table'.*ON CONFLICT.*without PRIMARY KEY\.$"):
        plan_with_key("k")


def test_a_table_that_is_only_read_takes_no_rows(tmp_path: Path) -> None:
    tables = table_environment(
        files_ddl(write_lines(tmp_path / "in"), TIMED.format(WATERMARKS["source"]), **ROUTE),
        f"CREATE TABLE bad ({BAD}) WITH ('connector' = 'datagen')",
    )
    for query in (collected, lambda made, sql: made.explain_sql(sql, ExplainDetail.JSON_EXECUTION_PLAN)):
        with pytest.raises(ValidationError, match=r"null-time.table' of table .*\.t: .*cannot be used as a sink"):
            query(tables, "SELECT id FROM t")


# --- in batch ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spark
def test_batch_drops_rows_and_refuses_to_route_them(tmp_path: Path) -> None:
    """K1, K3: the rows are the same as in streams, and nothing is ignored silently."""
    source = write_lines(tmp_path / "in")
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    tables.execute_sql(files_ddl(source, TIMED.format(WATERMARKS["source"]), **ROUTE))
    tables.execute_sql(files_ddl(tmp_path / "bad", BAD, "bad", "json"))
    drop = "t /*+ OPTIONS('scan.watermark.null-time' = 'drop') */"
    for sql in (f"SELECT id FROM {drop}", f"SELECT twice / 2 FROM {drop} WHERE id > 0"):
        with tables.execute_sql(sql).collect() as rows:
            assert sorted(row[0] for row in rows) == [1, 3, 4]
    for sql in ("SELECT id FROM t", "INSERT INTO bad SELECT * FROM t"):
        with pytest.raises(UnsupportedError, match=r"'route' of table .*\.t is not supported in batch.*INSERT INTO"):
            tables.execute_sql(sql)
    tables.execute_sql(
        "INSERT INTO bad SELECT * FROM t /*+ OPTIONS('scan.watermark.null-time' = 'fail') */ WHERE ts IS NULL"
    ).wait()
    assert json_rows(tmp_path / "bad") == BAD_ROWS
