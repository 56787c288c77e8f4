"""What a statement defines, when the scheduler refreshes, and the errors that Flink 2.3 has for the same statements."""

from __future__ import annotations

import datetime
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.servers.waiting import await_true

from penstock.base.errors import PenstockError, UnsupportedError
from penstock.sql.catalogs.catalog import Catalog, CatalogBaseTable, ObjectPath
from penstock.sql.catalogs.columns import Schema
from penstock.sql.catalogs.file_catalog import build_catalog_table, table_document
from penstock.sql.connectors.built_in import built_in
from penstock.sql.data.errors import ValidationError
from penstock.sql.materialized_tables.definition import Definition, Freshness, define
from penstock.sql.materialized_tables.scheduler import Cron, EmbeddedScheduler
from penstock.sql.parser import parse_statement, statements
from penstock.sql.session.session import TableConfig
from penstock.table import EnvironmentSettings, TableEnvironment

UTC = datetime.UTC


def defined(clauses: str, **options: str) -> Definition:
    statement = parse_statement(f"CREATE MATERIALIZED TABLE m {clauses} AS SELECT 1 AS a")
    assert isinstance(statement, statements.CreateMaterializedTable)
    config = TableConfig()
    for key, value in options.items():
        config.set(key, value)
    return define(statement, ("c", "d"), config)


@pytest.mark.parametrize(
    ("clauses", "refresh_mode", "execution_mode"),
    [
        ("FRESHNESS = INTERVAL '59' SECOND", "CONTINUOUS", "STREAMING"),
        ("FRESHNESS = INTERVAL '1' MINUTE", "CONTINUOUS", "MICRO_BATCH"),
        ("FRESHNESS = INTERVAL '29' MINUTE", "CONTINUOUS", "MICRO_BATCH"),
        ("FRESHNESS = INTERVAL '30' MINUTE", "FULL", "BATCH"),
        ("FRESHNESS = INTERVAL '2' DAY REFRESH_MODE = CONTINUOUS", "CONTINUOUS", "MICRO_BATCH"),
        ("FRESHNESS = INTERVAL '2' SECOND REFRESH_MODE = FULL", "FULL", "BATCH"),
        ("", "CONTINUOUS", "MICRO_BATCH"),
        ("REFRESH_MODE = FULL", "FULL", "BATCH"),
    ],
)
def test_freshness_chooses_the_execution_mode(clauses: str, refresh_mode: str, execution_mode: str) -> None:
    definition = defined(clauses)
    assert (definition.refresh_mode, definition.execution_mode(TableConfig())) == (refresh_mode, execution_mode)


def test_the_thresholds_are_options() -> None:
    options = {
        "materialized-table.refresh-mode.freshness-threshold": "5 s",
        "penstock.materialized-table.micro-batch-threshold": "3 s",
    }
    assert defined("FRESHNESS = INTERVAL '5' SECOND", **options).refresh_mode == "FULL"
    config = TableConfig().set(*options.popitem())
    assert defined("FRESHNESS = INTERVAL '3' SECOND").execution_mode(config) == "MICRO_BATCH"
    assert defined("FRESHNESS = INTERVAL '2' SECOND").execution_mode(config) == "STREAMING"


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        ("FRESHNESS = INTERVAL '-1' SECOND", "only supports positive integer type values. But was: -1"),
        ("FRESHNESS = INTERVAL '0' SECOND", "only supports positive integer type values. But was: 0"),
        ("FRESHNESS = INTERVAL '1' MONTH", "only supports SECOND, MINUTE, HOUR, DAY, WEEK as the time unit."),
        ("FRESHNESS = INTERVAL '1:30' MINUTE TO SECOND", "only supports SECOND, MINUTE, HOUR, DAY, WEEK"),
        ("FRESHNESS = INTERVAL '60' SECOND REFRESH_MODE = FULL", "must be less than 60 when the time unit is SECOND"),
        ("FRESHNESS = INTERVAL '5' HOUR", "only freshness that are factors of 24 are currently supported"),
        ("FRESHNESS = INTERVAL '2' DAY", "freshness must be 1 when the time unit is DAY"),
        ("START_MODE = FROM_NOW", "START_MODE = FROM_NOW is not supported"),
    ],
)
def test_a_freshness_that_cannot_be_kept_is_refused_as_in_flink(clauses: str, message: str) -> None:
    with pytest.raises((ValidationError, UnsupportedError), match=message.replace(".", r"\.")):
        defined(clauses)


def test_a_definition_is_options_that_read_back() -> None:
    definition = defined("FRESHNESS = INTERVAL '1' WEEK REFRESH_MODE = CONTINUOUS")
    table = definition.written(CatalogBaseTable(Schema(), {"connector": "x"}))
    assert table.is_materialized
    assert Definition.read(table) == definition
    assert table.options_for_connector() == table.get_options() == {"connector": "x"}


def test_a_catalog_of_files_keeps_a_definition() -> None:
    definition = defined("FRESHNESS = INTERVAL '5' MINUTE")
    table = definition.written(CatalogBaseTable(Schema(), {"connector": "x"}))
    assert Definition.read(build_catalog_table(table_document(table))) == definition


class Forgetful(Catalog):
    """A catalog that keeps no options, as that of a database."""

    def create_table(self, table_path: ObjectPath, table: CatalogBaseTable, ignore_if_exists: bool = False) -> None:
        super().create_table(table_path, replace(table, options={}, connector_options=table.get_options()))


def test_a_catalog_without_options_has_no_materialized_tables(tables: TableEnvironment) -> None:
    tables.register_catalog("forgetful", catalog := Forgetful("forgetful", "d"))
    with pytest.raises(UnsupportedError, match="catalog forgetful keeps no options of tables"):
        tables.execute_sql(f"CREATE MATERIALIZED TABLE forgetful.d.n {FILES} AS SELECT k, v FROM src")
    assert catalog.list_tables("d") == []


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        (Freshness(10, "SECOND").schedule(), "2024-02-29 23:58:50"),
        (Freshness(1, "MINUTE").schedule(), "2024-02-29 23:59:00"),
        (Freshness(6, "HOUR").schedule(), "2024-03-01 00:00:00"),
        (Freshness(1, "DAY").schedule(), "2024-03-01 00:00:00"),
        ("30 15 10 29 2 ? *", "2028-02-29 10:15:30"),
        ("0 0 12 ? * 2-6", "2024-03-01 12:00:00"),
        ("0 0 12 ? * 1", "2024-03-03 12:00:00"),
    ],
)
def test_the_next_time_of_a_schedule(cron: str, expected: str) -> None:
    after = datetime.datetime(2024, 2, 29, 23, 58, 44, 5, tzinfo=UTC)
    assert Cron(cron).next_time(after) == datetime.datetime.fromisoformat(f"{expected}+00:00")


def test_the_next_time_is_the_first_that_fits() -> None:
    """Random schedules against a walk over all seconds."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(20):
        steps = [chance.choice((1, 2, 5, 10, 15, 30)) for _ in range(2)]
        begins = [chance.randrange(60) for _ in range(2)]
        cron = Cron(f"{begins[0]}/{steps[0]} {begins[1]}/{steps[1]} * * * ? *")
        after = datetime.datetime(2024, 1, 1, tzinfo=UTC) + datetime.timedelta(seconds=chance.randrange(10**7))
        time = after + datetime.timedelta(seconds=1)
        fits = [set(range(begin, 60, step)) for begin, step in zip(begins, steps, strict=True)]
        while time.second not in fits[0] or time.minute not in fits[1]:
            time += datetime.timedelta(seconds=1)
        assert cron.next_time(after) == time


@pytest.mark.parametrize("text", ["bogus", "0 0 24 * * ?", "0/0 * * * * ?", "5-1 * * * * ?", "* * *"])
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(ValidationError, match="is invalid"):
        Cron(text)


def test_the_scheduler_runs_what_is_due_and_nothing_that_is_suspended() -> None:
    base = datetime.datetime(2024, 1, 1, tzinfo=UTC)
    now = [base]
    scheduler = EmbeddedScheduler(lambda: now[0])
    times: list[datetime.datetime] = []
    scheduler.create("at once", Cron("0 0 0 * * ? *"), times.append, UTC, is_due=True)
    await_true(lambda: times == [base], "the first refresh runs at once")
    with pytest.raises(ValidationError, match="already exist"):
        scheduler.create("at once", Cron("0 0 0 * * ? *"), times.append, UTC)
    scheduler.suspend("at once")
    now[0] = base + datetime.timedelta(days=3)
    scheduler.create("other", Cron("0 0 0 * * ? *"), lambda time: None, UTC)  # wakes the scheduler
    scheduler.resume("at once")
    assert times == [base]
    scheduler.delete("at once")
    scheduler.delete("other")
    with pytest.raises(ValidationError, match="Failed to suspend a non-existent"):
        scheduler.suspend("at once")


def test_a_deleted_workflow_has_ended_its_refresh() -> None:
    scheduler = EmbeddedScheduler()
    begun, may_end = threading.Event(), threading.Event()
    ended: list[bool] = []

    def refresh(time: datetime.datetime) -> None:
        begun.set()
        may_end.wait()
        ended.append(True)

    scheduler.create("slow", Cron("0 0 0 * * ? *"), refresh, UTC, is_due=True)
    begun.wait()
    deletion = threading.Thread(target=scheduler.delete, args=("slow",))
    deletion.start()
    may_end.set()
    deletion.join()
    assert ended == [True]


@pytest.mark.parametrize(
    ("options", "up_to_now"),
    [
        ({"connector": "filesystem", "source.monitor-interval": "1 s", "path": "x"}, {"path": "x"}),
        ({"connector": "kafka"}, {"scan.bounded.mode": "latest-offset"}),
        ({"connector": "kafka", "scan.bounded.mode": "timestamp"}, {"scan.bounded.mode": "timestamp"}),
        ({"connector": "iceberg", "streaming": "true", "branch": "b"}, {"branch": "b"}),
        ({"connector": "delta", "mode": "streaming", "table-path": "x"}, {"table-path": "x"}),
        ({"connector": "datagen", "number-of-rows": "1"}, {"number-of-rows": "1"}),
        ({"connector": "nosuch", "x": "y"}, {"x": "y"}),
    ],
)
def test_a_full_refresh_reads_tables_up_to_their_present_end(
    options: dict[str, str], up_to_now: dict[str, str]
) -> None:
    assert built_in().options_up_to_now(options) == {"connector": options["connector"], **up_to_now}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> TableEnvironment:
    return create_tables(tmp_path_factory.mktemp("files"))


def create_tables(here: Path) -> TableEnvironment:
    """An environment with a table `src`, and a materialized table `m` that reads it."""
    settings = EnvironmentSettings.in_streaming_mode()
    settings.get_configuration().set_string("execution.target", "local")
    made = TableEnvironment.create(settings)
    (here / "in").mkdir()
    files = f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{here}"
    made.execute_sql(f"CREATE TABLE src (k INT, v STRING) WITH ({files}/in', 'source.monitor-interval' = '1s')")
    made.execute_sql(f"CREATE MATERIALIZED TABLE m WITH ({files}/m') AS SELECT k, v FROM src")
    return made


FILES = "WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '/nowhere')"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            f"CREATE MATERIALIZED TABLE m {FILES} AS SELECT k FROM src",
            "Could not execute CreateTable in path `default_",
        ),
        (
            f"CREATE MATERIALIZED TABLE n PARTITIONED BY (x) {FILES} AS SELECT k, v FROM src",
            "Partition column 'x' not defined",
        ),
        (
            "CREATE MATERIALIZED TABLE n PARTITIONED BY (v) WITH ('partition.fields.k.date-formatter' = 'yyyy') AS "
            "SELECT k, v FROM src",
            "isn't a partition column. Available partition columns: ['v'].",
        ),
        (
            "CREATE MATERIALIZED TABLE n PARTITIONED BY (k) WITH ('partition.fields.k.date-formatter' = 'yyyy') AS "
            "SELECT k, v FROM src",
            "Column `k` type is INT.",
        ),
        (
            f"CREATE MATERIALIZED TABLE n {FILES} FRESHNESS = INTERVAL '1' DAY AS SELECT k FROM src",
            "which connector 'filesystem' of table `default_catalog`.`default_database`.`n` cannot do: declare "
            "REFRESH_MODE = CONTINUOUS",
        ),
        (
            f"CREATE MATERIALIZED TABLE n {FILES} AS SELECT k, COUNT(*) AS n FROM src GROUP BY k",
            "give the table a PRIMARY KEY and a connector",
        ),
        ("ALTER MATERIALIZED TABLE src SUSPEND", "`src` is not a materialized table, does not support materialized"),
        ("ALTER MATERIALIZED TABLE nosuch SUSPEND", "Cannot find table"),
        ("ALTER MATERIALIZED TABLE m SUSPEND", "Savepoint directory is not configured, can't stop job with savepoint."),
        ("ALTER MATERIALIZED TABLE m RESUME", "continuous refresh job has been resumed, jobId is"),
        ("ALTER MATERIALIZED TABLE m REFRESH", "would append rows that the refresh has written already"),
        (
            "ALTER MATERIALIZED TABLE m REFRESH PARTITION (k = '1')",
            "The partition spec contains unknown partition keys",
        ),
        ("ALTER MATERIALIZED TABLE m AS SELECT k FROM src", "The original schema has 2 columns, but the newly derived"),
        ("ALTER MATERIALIZED TABLE m AS SELECT v, k FROM src", "Original column is [`k` INT], but new column is [`v`"),
        (
            "ALTER MATERIALIZED TABLE m SET FRESHNESS = INTERVAL '1' HOUR",
            "cannot do: declare REFRESH_MODE = CONTINUOUS",
        ),
        ("ALTER MATERIALIZED TABLE m ADD (w AS k + 1)", "ADD COLUMN is not supported"),
        (
            "CREATE OR ALTER MATERIALIZED TABLE m WITH ('format' = 'csv') AS SELECT k, v FROM src",
            "but option 'format'",
        ),
        (
            "CREATE OR ALTER MATERIALIZED TABLE src AS SELECT k, v FROM m",
            "Only materialized table support create or alter",
        ),
        ("ALTER TABLE m SET ('a' = 'b')", "ALTER TABLE for a materialized table is not allowed"),
        ("DROP TABLE m", "Table with identifier 'default_catalog.default_database.m' does not exist"),
        ("DROP MATERIALIZED TABLE src", "is not a materialized table"),
        ("DROP MATERIALIZED TABLE IF EXISTS src", "is not a materialized table"),
        ("DROP MATERIALIZED TABLE nosuch", "Materialized table with identifier `default_catalog`.`default_database`."),
        ("SHOW CREATE TABLE m", "`m` is a materialized table. Please use SHOW CREATE MATERIALIZED TABLE instead."),
        ("SHOW CREATE MATERIALIZED TABLE src", "Please use SHOW CREATE TABLE instead"),
        ("SHOW CREATE MATERIALIZED TABLE nosuch", "Could not execute SHOW CREATE MATERIALIZED TABLE"),
        ("CREATE MATERIALIZED TABLE IF NOT EXISTS m AS SELECT 1 AS a", "NOT"),
        ("CREATE TEMPORARY MATERIALIZED TABLE n AS SELECT 1 AS a", "neither temporary nor replaced"),
        (f"CREATE MATERIALIZED TABLE n {FILES} REFRESH_MODE = AUTO AS SELECT 1 AS a", "expected FULL or CONTINUOUS"),
    ],
)
def test_errors_are_flinks(tables: TableEnvironment, sql: str, message: str) -> None:
    """Where Flink refuses, so does Penstock, in its words; and what a connector cannot do is said, with a remedy."""
    with pytest.raises(PenstockError) as caught:
        tables.execute_sql(sql)
    assert message in str(caught.value)


def test_what_is_shown(tables: TableEnvironment) -> None:
    def column(sql: str) -> list[object]:
        with tables.execute_sql(sql).collect() as found:
            return [row[0] for row in found]

    assert column("SHOW MATERIALIZED TABLES") == ["m"]
    assert column("SHOW TABLES") == ["m", "src"]
    assert column("DESCRIBE m") == ["k", "v"]
    (text,) = column("SHOW CREATE MATERIALIZED TABLE m")
    assert str(text).splitlines()[-4:] == [
        "START_MODE = FROM_BEGINNING",
        "FRESHNESS = INTERVAL '3' MINUTE",
        "REFRESH_MODE = CONTINUOUS",
        "AS SELECT `k`, `v` FROM `src`",
    ]
    tables.execute_sql("CREATE TABLE copied LIKE m")
    assert column("SHOW MATERIALIZED TABLES") == ["m"]
    tables.execute_sql("DROP MATERIALIZED TABLE m")
    assert column("SHOW TABLES") == ["copied", "src"]


def test_lineage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a table reads, through views, and who reads it; a table that a refresh reads is not dropped in silence."""
    tables = create_tables(tmp_path)

    def described(sql: str) -> list[tuple[object, ...]]:
        with tables.execute_sql(sql).collect() as found:
            return [tuple(row)[:2] for row in found]

    columns = [("k", "INT"), ("v", "STRING")]
    assert described("DESCRIBE m") == columns
    assert described("DESCRIBE EXTENDED m") == [*columns, ("# reads", "`default_catalog`.`default_database`.`src`")]
    assert described("DESCRIBE EXTENDED src") == [*columns, ("# read by", "`default_catalog`.`default_database`.`m`")]
    tables.execute_sql("CREATE VIEW big AS SELECT k, v FROM src WHERE k > 1")
    files = f"WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{tmp_path}/n')"
    tables.execute_sql(f"CREATE MATERIALIZED TABLE n {files} AS SELECT k, v FROM big")
    assert described("DESCRIBE EXTENDED n")[2:] == [("# reads", "`default_catalog`.`default_database`.`src`")]
    assert [row[1] for row in described("DESCRIBE EXTENDED src")[2:]] == [
        "`default_catalog`.`default_database`.`m`",
        "`default_catalog`.`default_database`.`n`",
    ]
    tables.execute_sql("DROP MATERIALIZED TABLE n")
    tables.execute_sql("CREATE TABLE other LIKE src")
    tables.execute_sql("DROP TABLE other")
    assert "is dropped" not in caplog.text
    tables.execute_sql("DROP TABLE src")
    assert (
        "`src` is dropped, and the materialized table `default_catalog`.`default_database`.`m` reads it" in caplog.text
    )
    ((mark, reason),) = described("DESCRIBE EXTENDED m")[2:]
    assert mark == "# reads"
    assert str(reason).startswith("the query cannot be planned: Object 'src' not found")
    tables.execute_sql("DROP MATERIALIZED TABLE m")
