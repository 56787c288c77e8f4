"""A short query waits for each call of Spark's JVM, so there are few of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.table.batch.batches import SETTINGS, spark_of_tests

from penstock.base.errors import OperationError
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment

pytestmark = pytest.mark.spark

#: to find the session, to begin and to hand over the rows; PySpark's own `sql` and `toArrow` make 29
_CALLS_OF_A_QUERY = 18
#: they are asked for together
_CALLS_OF_ALL_TABLES = 4


@contextmanager
def calls_counted(patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The commands that go to the JVM, without those that let it forget objects."""
    from py4j.java_gateway import GatewayClient

    found: list[str] = []
    send = GatewayClient.send_command

    def counted(client: Any, command: str, *more: Any, **others: Any) -> Any:
        if not command.startswith("m\nd\n"):
            found.append(command)
        return send(client, command, *more, **others)

    with patch.context() as here:
        here.setattr(GatewayClient, "send_command", counted)
        yield found


@pytest.fixture
def tables() -> Iterator[TableEnvironment]:
    spark = spark_of_tests().session
    made = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for key, value in SETTINGS.items():
        made.get_config().set(key, value)
    for name in ("red", "blue"):
        spark.createDataFrame([(1, "a"), (2, "b")], "k BIGINT, v STRING").createOrReplaceTempView(name)
        made.execute_sql(f"CREATE TABLE {name} (k BIGINT, v STRING) WITH ('connector' = 'spark', 'table' = '{name}')")
    yield made
    for name in ("red", "blue"):
        spark.catalog.dropTempView(name)


def _rows(tables: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with tables.sql_query(query).execute().collect() as rows:
        return sorted(tuple(row) for row in rows)


_JOINED = "SELECT red.k, blue.v FROM red JOIN blue ON red.k = blue.k"


@pytest.mark.parametrize("query", ["SELECT k, v FROM red", _JOINED])
def test_a_query_asks_the_jvm_a_few_times(
    query: str, tables: TableEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = _rows(tables, query)
    with calls_counted(monkeypatch) as calls:
        assert _rows(tables, query) == wanted == [(1, "a"), (2, "b")]
    assert len(calls) <= _CALLS_OF_A_QUERY + _CALLS_OF_ALL_TABLES, calls


def test_a_table_that_has_become_another_is_seen(tables: TableEnvironment) -> None:
    """Nothing of a table of Spark is taken from an earlier query."""
    spark = spark_of_tests().session
    assert _rows(tables, "SELECT k FROM red") == [(1,), (2,)]
    spark.createDataFrame([(7, "c")], "other_name INT, v STRING").createOrReplaceTempView("red")
    assert _rows(tables, "SELECT k FROM red") == [(7,)]
    spark.createDataFrame([("x", "c")], "k STRING, v STRING").createOrReplaceTempView("red")
    with pytest.raises(ValidationError, match="is declared as BIGINT, and Spark has STRING"):
        _rows(tables, "SELECT k FROM red")


def test_one_of_several_tables_that_has_become_another_is_seen(tables: TableEnvironment) -> None:
    spark = spark_of_tests().session
    assert _rows(tables, _JOINED) == [(1, "a"), (2, "b")]
    spark.createDataFrame([(2, "c")], "other_name INT, v STRING").createOrReplaceTempView("blue")
    assert _rows(tables, _JOINED) == [(2, "c")]
    # A column more of one and a column less of another are not taken for each other.
    spark.createDataFrame([(2,)], "k BIGINT").createOrReplaceTempView("red")
    spark.createDataFrame([("x", 2, "c")], "v STRING, k BIGINT, more STRING").createOrReplaceTempView("blue")
    with pytest.raises(ValidationError, match=r"red' has 2 columns, and the Spark data frame that it reads has 1: k"):
        _rows(tables, _JOINED)


def test_a_table_that_is_not_there_is_named(tables: TableEnvironment) -> None:
    spark_of_tests().session.catalog.dropTempView("blue")
    with pytest.raises(OperationError, match="`blue` cannot be found"):
        _rows(tables, _JOINED)


def test_an_unbounded_table_among_others_is_named(tables: TableEnvironment) -> None:
    spark = spark_of_tests().session
    stream = spark.readStream.format("rate").load().selectExpr("value AS k", "'x' AS v")
    stream.createOrReplaceTempView("blue")
    with pytest.raises(ValidationError, match=r"Querying an unbounded table .*blue' in batch mode"):
        _rows(tables, _JOINED)


def test_a_name_that_spark_has_to_read_is_asked_for_with_others(tables: TableEnvironment) -> None:
    options = "'connector' = 'spark', 'table' = '`blue`'"
    tables.execute_sql(f"CREATE TABLE quoted (k BIGINT, v STRING) WITH ({options})")
    assert _rows(tables, "SELECT red.k, quoted.v FROM red JOIN quoted ON red.k = quoted.k") == [(1, "a"), (2, "b")]


def test_a_query_without_rows_has_none(tables: TableEnvironment) -> None:
    assert _rows(tables, "SELECT k, v FROM red WHERE k > 5") == []
