"""`'type' = 'spark'`: what Spark's session knows, by name; read in batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.table.batch.batches import SETTINGS, spark_of_tests

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment

pytestmark = pytest.mark.spark


@pytest.fixture
def spark(tmp_path: Any) -> Iterator[Any]:
    session = spark_of_tests().session
    for one in session.catalog.listTables():  # other tests of this process may have left views
        if one.isTemporary:
            session.catalog.dropTempView(one.name)
    session.sql(f"CREATE DATABASE shop COMMENT 'it\\'s' LOCATION '{tmp_path}/shop'")
    session.sql("CREATE TABLE shop.orders (id BIGINT COMMENT 'which', name STRING, price DECIMAL(6, 2)) USING parquet")
    session.sql("INSERT INTO shop.orders VALUES (1, 'a', 1.50), (2, 'b', NULL)")
    session.sql("SELECT 7 AS seven").createOrReplaceTempView("numbers")
    yield session
    session.sql("DROP DATABASE IF EXISTS shop CASCADE")
    session.sql("DROP DATABASE IF EXISTS others CASCADE")
    session.catalog.dropTempView("numbers")


@pytest.fixture
def tables(spark: Any) -> TableEnvironment:
    made = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for key, value in SETTINGS.items():
        made.get_config().set(key, value)
    made.execute_sql("CREATE CATALOG spark WITH ('type' = 'spark', 'default-database' = 'shop')")
    made.execute_sql("USE CATALOG spark")
    return made


def rows(tables: TableEnvironment, sql: str) -> list[tuple[Any, ...]]:
    with tables.execute_sql(sql).collect() as found:
        return [tuple(row) for row in found]


def test_databases_tables_and_columns_are_those_of_spark(tables: TableEnvironment) -> None:
    assert rows(tables, "SHOW DATABASES") == [("default",), ("shop",)]
    assert rows(tables, "SHOW TABLES") == [("numbers",), ("orders",)]
    assert rows(tables, "SHOW VIEWS") == [("numbers",)]
    described = rows(tables, "DESCRIBE orders")
    assert [(row[0], row[1]) for row in described] == [("id", "BIGINT"), ("name", "STRING"), ("price", "DECIMAL(6, 2)")]
    assert "COMMENT 'it''s'" in rows(tables, "SHOW CREATE DATABASE shop")[0][0]
    assert "'table' = '`spark_catalog`.`shop`.`orders`'" in rows(tables, "SHOW CREATE TABLE orders")[0][0]


def test_tables_and_temporary_views_are_read_where_they_lie(tables: TableEnvironment) -> None:
    assert rows(tables, "SELECT name, price * 2 FROM orders WHERE id = 1") == [("a", pytest.approx(3))]
    assert rows(tables, "SELECT seven FROM numbers") == [(7,)]
    assert rows(tables, "SELECT COUNT(*) FROM spark.shop.orders AS o JOIN numbers ON o.id < seven") == [(2,)]


def test_tables_can_be_changed_as_far_as_it_is_plain(tables: TableEnvironment, spark: Any) -> None:
    tables.execute_sql("ALTER TABLE orders ADD (extra INT COMMENT 'it''s')")
    assert [row[0] for row in rows(tables, "DESCRIBE orders")] == ["id", "name", "price", "extra"]
    assert spark.table("shop.orders").schema["extra"].metadata["comment"] == "it's"
    tables.execute_sql("ALTER TABLE orders RENAME TO sales")
    assert rows(tables, "SELECT COUNT(*) FROM sales") == [(2,)]
    with pytest.raises(UnsupportedError, match="can get more columns behind its others, and a comment"):
        tables.execute_sql("ALTER TABLE sales DROP name")
    tables.execute_sql("DROP TABLE sales")
    assert rows(tables, "SHOW TABLES") == [("numbers",)]


def test_databases_are_made_and_dropped(tables: TableEnvironment) -> None:
    tables.execute_sql("CREATE DATABASE others COMMENT 'one more'")
    with pytest.raises(ValidationError, match="already exists"):
        tables.execute_sql("CREATE DATABASE others")
    tables.execute_sql("ALTER DATABASE others SET ('k' = 'v')")
    tables.execute_sql("DROP DATABASE others")
    assert rows(tables, "SHOW DATABASES") == [("default",), ("shop",)]
    tables.execute_sql("USE `default`")
    with pytest.raises(ValidationError, match=r"is not empty: it has shop\.orders"):
        tables.execute_sql("DROP DATABASE shop")


def test_what_spark_does_not_hold_is_refused(tables: TableEnvironment) -> None:
    with pytest.raises(UnsupportedError, match="cannot be made in catalog spark, which is Spark's"):
        tables.execute_sql("CREATE TABLE t (a INT) WITH ('connector' = 'print')")
    with pytest.raises(UnsupportedError, match="make it TEMPORARY"):
        tables.execute_sql("CREATE FUNCTION f AS 'a.b' LANGUAGE PYTHON")
    with pytest.raises(ValidationError, match="nothing"):
        tables.execute_sql("DESCRIBE nothing")
