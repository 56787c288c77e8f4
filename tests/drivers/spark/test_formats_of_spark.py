"""Formats of Spark that need jars, in both directions: Avro, JDBC with PostgreSQL and MariaDB, and MongoDB's own.

A session takes jars only when its JVM starts. So all of it runs in one process of its own, whose `spark.jars` they are:
`python -m tests.drivers.spark.test_formats_of_spark FOLDER POSTGRESQL MARIADB MONGODB` prints what it saw, as JSON.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from tests.servers import spark_jars
from tests.servers.mongodb import mongo_java_server
from tests.servers.mysql import mysql_server
from tests.servers.postgres import postgres_server

from penstock.base.errors import ConfigurationError, JobExecutionError
from penstock.common import Configuration, Row, Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.spark import JdbcEpochWriter
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment

ROOT: Final = Path(__file__).parents[3]
JARS: Final = ("avro", "postgresql", "mariadb", "mongodb")
COLUMNS: Final = "n BIGINT, t STRING, d DECIMAL(20, 4), x DOUBLE, b BOOLEAN, w DATE"
VALUES: Final = (
    "(9223372036854775807, 'it''s \"ü\" \\', CAST('1234567890123456.7891' AS DECIMAL(20, 4)), 0.1, TRUE, "
    "DATE '1969-12-31'), (-9223372036854775808, '', -0.0001, -1e300, FALSE, DATE '2400-02-29'), "
    "(0, CAST(NULL AS STRING), 0.0, 0.0, TRUE, DATE '2026-01-01')"
)
EXPECTED: Final = sorted(
    [
        "(9223372036854775807, 'it\\'s \"ü\" \\\\', Decimal('1234567890123456.7891'), 0.1, True, 1969-12-31)",
        "(-9223372036854775808, '', Decimal('-0.0001'), -1e+300, False, 2400-02-29)",
        "(0, None, Decimal('0.0000'), 0.0, True, 2026-01-01)",
    ]
)


# --- the process with the jars ----------------------------------------------------------------------------------------


def make_settings(folder: str) -> dict[str, str]:
    return {
        "execution.target": "local",
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        "execution.checkpointing.interval": "100 ms",
        "restart-strategy.type": "none",
        "spark.jars": spark_jars.find(*JARS),
        "spark.ui.enabled": "false",
        "spark.master": "local[2]",
        "spark.sql.codegen.wholeStage": "false",
        "table.dml-sync": "true",
    }


def copy_values(folder: str, name: str, options: str, left_out: str = "") -> list[str]:
    """Write the values with the connector `spark` in a streaming job, and read them in another one.

    `left_out` is a column that the format does not take.
    """
    columns = ", ".join(column for column in re.split(r", (?=[a-z] )", COLUMNS) if column[0] != left_out)
    chosen = ", ".join(name for name in "ntdxbw" if name != left_out)
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in make_settings(folder).items():
        tables.get_config().set(key, value)
    tables.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'spark', {options})")
    tables.execute_sql(f"INSERT INTO {name} SELECT {chosen} FROM (VALUES {VALUES}) AS v(n, t, d, x, b, w)")
    with tables.execute_sql(f"SELECT * FROM {name}").collect() as rows:
        return sorted("(" + ", ".join(str(v) if hasattr(v, "year") else repr(v) for v in row) + ")" for row in rows)


def run_page(folder: str, url: str) -> None:
    """Run the statements of docs/spark-sinks.md."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in make_settings(folder).items():
        tables.get_config().set(key, value)
    tables.execute_sql(
        "CREATE TEMPORARY VIEW closed_days AS SELECT * FROM (VALUES (DATE '2026-01-01', CAST(2.50 AS DECIMAL(10, 2)))) "
        "AS v(sold_on, total)"
    )
    (block,) = re.findall("(?s)```sql\n(.*?)```", (ROOT / "docs/spark-sinks.md").read_text())
    for statement in block.split(";\n"):
        if statement.strip():
            tables.execute_sql(statement.replace("jdbc:postgresql://db/shop", url).replace("'shop'", "'postgres'"))


def write_epochs(folder: str, url: str, user: str, told: dict[str, Any]) -> None:
    """Let a function fail after it has written, and Spark write rows twice."""
    dialect = url.split(":")[1]
    options = {"url": url, "user": user, "dbtable": "epochs"}
    writer, failures, calls = JdbcEpochWriter("epochs", options), [1, 2], []

    def write(frame: Any, epoch: int) -> None:
        calls.append(epoch)
        writer(frame.repartition(2), epoch)
        if epoch in failures:
            failures.remove(epoch)
            raise ValueError("the program stumbles")

    def run(function: Any, **more: str) -> None:
        settings = make_settings(folder) | {key.replace("_", "."): value for key, value in more.items()}
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
        records = env.from_collection([Row(n) for n in range(1000)])
        records.map(lambda row: row, output_type=Types.ROW_NAMED(["N"], [Types.LONG()])).for_each_batch(function)
        env.execute()

    run(write, **{"restart-strategy_type": "fixed-delay", "restart-strategy_fixed-delay_delay": "10 ms"})
    told[f"{dialect} calls"] = calls
    run(JdbcEpochWriter("others", options))  # counts from 1 again, with other rows
    whole = JdbcEpochWriter("whole", options | {"dbtable": "replaced"}, "overwrite")
    run(whole)
    run(whole)

    class Twice(JdbcEpochWriter):
        def _write(self, frame: Any, table: str) -> None:
            super()._write(frame.union(frame), table)

    for name, function in (
        ("twice", Twice("twice", options)),
        ("lacks", lambda frame, epoch: JdbcEpochWriter("lacks", options)(frame.withColumnRenamed("N", "m"), epoch)),
    ):
        try:
            run(function)
        except JobExecutionError as error:
            told[f"{dialect} {name}"] = str(error)


def main(folder: str, postgres: str, mariadb: str, mongodb: str) -> None:
    told: dict[str, Any] = {"avro": copy_values(folder, "a", f"'format' = 'avro', 'path' = '{folder}/avro'")}
    place = f"'option.connection.uri' = '{mongodb}', 'option.database' = 'shop', 'option.collection' = 'copied'"
    # The server has no statistics of collections, by which other partitioners divide them.
    place += ", 'option.partitioner' = 'com.mongodb.spark.sql.connector.read.partitioner.SinglePartitionPartitioner'"
    told["mongodb"] = copy_values(folder, "documents", f"'format' = 'mongodb', {place}", left_out="w")
    for url, user in ((postgres, "postgres"), (mariadb, "root")):
        options = f"'format' = 'jdbc', 'option.url' = '{url}', 'option.user' = '{user}', 'option.dbtable' = 'copied'"
        dialect = url.split(":")[1]
        told[dialect] = copy_values(folder, dialect, f"{options}, 'sink.transaction-name' = 'copied'")
        write_epochs(f"{folder}/{dialect}", url, user, told)
    run_page(folder, postgres)
    Path(f"{folder}/told.json").write_text(json.dumps(told))


# --- the tests --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, Any]]:
    """What the process saw, and what the databases have at the end."""
    spark_jars.find_or_skip(*JARS)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-formats-"))
        postgres, mariadb = stack.enter_context(postgres_server()), stack.enter_context(mysql_server("mariadb"))
        mongodb = stack.enter_context(mongo_java_server())
        urls = [postgres.jdbc_url(), f"jdbc:mariadb://127.0.0.1:{mariadb.port}/{mariadb.new_database()}"]
        command = [sys.executable, "-m", "tests.drivers.spark.test_formats_of_spark", folder, *urls, mongodb.uri]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        seen: dict[str, Any] = json.loads(Path(f"{folder}/told.json").read_text())
        database = urls[1].rpartition("/")[2]
        for name, execute in (
            ("postgresql", postgres.execute),
            ("mariadb", lambda statement: mariadb.execute(statement, database)),
        ):
            quote = '"' if name == "postgresql" else "`"
            seen[f"{name} counts"] = execute(f"SELECT COUNT(*), COUNT(DISTINCT {quote}N{quote}) FROM epochs")[0]
            seen[f"{name} replaced"] = execute("SELECT COUNT(*) FROM replaced")[0][0]
            seen[f"{name} ledger"] = execute("SELECT DISTINCT name FROM penstock_epochs ORDER BY name")
            seen[f"{name} tables"] = execute(
                "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'penstock_rows%'"
            )
        seen["page"] = [(str(day), str(total)) for day, total in postgres.execute("SELECT * FROM totals")]
        yield seen


pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
DIALECTS = pytest.mark.parametrize("dialect", ["postgresql", "mariadb"])


@pytest.mark.parametrize("kind", ["avro", "postgresql", "mariadb"])
def test_values_go_out_and_come_back_as_they_were(told: dict[str, Any], kind: str) -> None:
    assert told[kind] == EXPECTED


def test_a_format_of_a_third_party(told: dict[str, Any]) -> None:
    """A frame of MongoDB has an `_id`, and its columns in another order; a DATE would come back as a TIMESTAMP."""
    assert told["mongodb"] == [re.sub(r", \d{4}-\d\d-\d\d\)", ")", row) for row in EXPECTED]


def test_the_statements_of_the_page_run(told: dict[str, Any]) -> None:
    assert told["page"] == [("2026-01-01", "2.50")]


@DIALECTS
def test_an_epoch_that_is_passed_again_is_in_the_table_once(told: dict[str, Any], dialect: str) -> None:
    """Two programs wrote 1,000 rows each; the function of the first failed after it had written."""
    calls = told[f"{dialect} calls"]
    assert calls[:2] == [1, 1]
    assert tuple(told[f"{dialect} counts"]) == (2000, 1000)
    assert [row[0] for row in told[f"{dialect} ledger"]] == ["copied", "epochs", "others"] + (
        ["totals"] if dialect == "postgresql" else []
    ) + ["whole"]


@DIALECTS
def test_rows_that_spark_wrote_twice_are_not_moved(told: dict[str, Any], dialect: str) -> None:
    assert "Spark wrote 2000 rows of epoch 1 into penstock_rows_" in told[f"{dialect} twice"]
    assert "and the epoch has 1000: epochs is as before" in told[f"{dialect} twice"]


@DIALECTS
def test_overwriting_replaces_the_rows_in_the_same_transaction(told: dict[str, Any], dialect: str) -> None:
    assert told[f"{dialect} replaced"] == 1000


@DIALECTS
def test_a_column_that_the_table_lacks_is_named(told: dict[str, Any], dialect: str) -> None:
    assert "table epochs has no column 'm'; it has N" in told[f"{dialect} lacks"]


@DIALECTS
def test_only_tables_of_failed_epochs_are_left(told: dict[str, Any], dialect: str) -> None:
    assert len(told[f"{dialect} tables"]) == 1  # that of the program whose rows were written twice


def test_arguments_that_are_wrong_are_refused() -> None:
    good = {"url": "jdbc:postgresql://db/shop", "dbtable": "totals"}
    with pytest.raises(ConfigurationError, match="has 1 to 200 characters, not 0"):
        JdbcEpochWriter("", good)
    with pytest.raises(ConfigurationError, match="has the mode append or overwrite, not 'ignore'"):
        JdbcEpochWriter("t", good, "ignore")
    with pytest.raises(ConfigurationError, match="needs the option 'dbtable' of Spark's jdbc format"):
        JdbcEpochWriter("t", {"url": "jdbc:postgresql://db/shop"})
    with pytest.raises(ConfigurationError, match="names no table"):
        JdbcEpochWriter("t", good | {"dbtable": '(SELECT 1) AS "a"b'})
    with pytest.raises(ConfigurationError, match=r"pass it to for_each_batch\(\)"):
        JdbcEpochWriter("t", good)(None, 1)  # type: ignore[arg-type]
    assert "secret" not in repr(JdbcEpochWriter("t", good | {"password": "secret"}))


def test_other_formats_have_no_transactions() -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.execute_sql(
        "CREATE TABLE t (a BIGINT) WITH ('connector' = 'spark', 'path' = 'x', 'sink.transaction-name' = 't')"
    )
    with pytest.raises(ValidationError, match="only the formats jdbc and delta write an epoch once"):
        tables.execute_sql("INSERT INTO t VALUES (1)")


if __name__ == "__main__":
    main(*sys.argv[1:])
