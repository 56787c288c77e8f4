"""Values of PostgreSQL that a declared type cannot hold: each has a rule, and none needs to fail a job."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.test_cdc import Following, builder
from tests.connectors.postgres.test_tables import collected, ddl, environment

from penstock.base.errors import ConfigurationError, FormatError
from penstock.connectors.postgres.scan import JdbcSource
from penstock.connectors.postgres.text_columns import NULL, parse_column
from penstock.sql.data.errors import ValidationError

DECIMAL = pa.decimal128(38, 18)
MICROSECONDS = pa.timestamp("us")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("NaN", DECIMAL),
        ("Infinity", DECIMAL),
        ("infinity", MICROSECONDS),
        ("-infinity", pa.timestamp("ms", "UTC")),
        ("0044-03-15 00:00:00 BC", MICROSECONDS),
        ("0044-03-15 00:00:00+00 BC", pa.timestamp("us", "UTC")),
        ("10000-01-01 00:00:00", MICROSECONDS),
        ("9999-12-31 00:00:00", pa.timestamp("ns")),
        ("infinity", pa.date32()),
        ("0044-03-15 BC", pa.date32()),
        ("10000-01-01", pa.date32()),
        ("24:00:00", pa.time32("ms")),
        ("{2020-01-01,infinity}", pa.list_(pa.date32())),
    ],
)
def test_an_unrepresentable_value_fails_or_is_null(text: str, kind: pa.DataType) -> None:
    """K4: the error names column and value, and the option that reads on."""
    texts = pa.array([None, text, None])
    with pytest.raises(FormatError, match=r"column 'v' .* '.*' = 'null'"):
        parse_column(texts, kind, "v")
    found = parse_column(texts, kind, "v", NULL).to_pylist()
    assert found == [None, [datetime.date(2020, 1, 1), None] if text.startswith("{") else None, None]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("0.1234567890123456785", DECIMAL, Decimal("0.123456789012345679")),
        ("-0.1234567890123456785", DECIMAL, Decimal("-0.123456789012345679")),
        ("0.00000000000000000049", DECIMAL, Decimal("0e-18")),
        ("9999.995", pa.decimal128(6, 2), None),
        ("1969-12-31 23:59:59.9999", pa.timestamp("ms"), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000)),
        ("1969-12-31 23:59:59.999999", pa.timestamp("s"), datetime.datetime(1969, 12, 31, 23, 59, 59)),
        ("23:59:59.9999", pa.time32("ms"), datetime.time(23, 59, 59, 999_000)),
    ],
)
def test_more_digits_are_rounded_or_cut(text: str, kind: pa.DataType, value: Any) -> None:
    """K2: as Flink does: decimals are rounded half up, and digits of a second are cut off towards the past."""
    assert parse_column(pa.array([text]), kind, "v", NULL).to_pylist() == [value]


VALUES = """
    CREATE TABLE t (id int PRIMARY KEY, n numeric, ts timestamp, d date, tm time, many numeric);
    ALTER TABLE t REPLICA IDENTITY FULL;
    INSERT INTO t VALUES (1, 1.5, '2020-01-01', '2020-01-01', '01:00', 0.12345678901234567891),
                         (2, 'NaN', 'infinity', '0044-03-15 BC', '24:00', NULL)
"""
COLUMNS = "id INT, n DECIMAL(38, 18), ts TIMESTAMP(6), d DATE, tm TIME, many DECIMAL(38, 18)"
READ = [
    (
        1,
        Decimal("1.500000000000000000"),
        datetime.datetime(2020, 1, 1),
        datetime.date(2020, 1, 1),
        datetime.time(1),
        Decimal("0.123456789012345679"),
    ),
    (2, None, None, None, None, None),
]
AS_NULL = ", 'unrepresentable-values' = 'null'"


def test_tables_read_on_if_the_option_says_so(database: Database) -> None:
    database.execute(VALUES)
    tables = environment()
    tables.execute_sql(ddl(database, COLUMNS))
    tables.execute_sql(ddl(database, COLUMNS, more=AS_NULL, name="nulls"))
    tables.execute_sql(ddl(database, "id INT, n STRING, d STRING", name="texts"))
    tables.execute_sql(ddl(database, COLUMNS, more=", 'unrepresentable-values' = 'none'", name="wrong"))
    with pytest.raises(Exception, match=r"column 'n' of PostgreSQL has the value 'NaN'"):
        collected(tables, "SELECT * FROM t")
    assert collected(tables, "SELECT * FROM nulls") == READ
    # What becomes NULL here is none for the server, so conditions stay here.
    assert collected(tables, "SELECT id FROM nulls WHERE ts IS NULL") == [(2,)]
    assert collected(tables, "SELECT id FROM nulls WHERE ts > TIMESTAMP '2019-01-01 00:00:00'") == [(1,)]
    assert collected(tables, "SELECT * FROM texts") == [(1, "1.5", "2020-01-01"), (2, "NaN", "0044-03-15 BC")]
    with pytest.raises(ValidationError, match="fail or become null"):
        collected(tables, "SELECT * FROM wrong")
    source = JdbcSource.builder().set_db_url(database.url).set_table_name("t")
    with pytest.raises(ConfigurationError, match="fail or become null"):
        source.set_unrepresentable_values("skip")


def test_look_ups_read_on(database: Database) -> None:
    database.execute(VALUES)
    tables = environment()
    tables.execute_sql(ddl(database, COLUMNS, more=AS_NULL))
    tables.execute_sql("CREATE VIEW orders AS SELECT id, PROCTIME() AS p FROM (VALUES (1), (2)) AS o (id)")
    query = "SELECT o.id, t.n, t.ts FROM orders AS o JOIN t FOR SYSTEM_TIME AS OF o.p AS t ON o.id = t.id"
    assert collected(tables, query) == [(1, READ[0][1], READ[0][2]), (2, None, None)]


def test_changes_read_on(database: Database) -> None:
    database.execute(VALUES)
    failing = Following(builder(database, "t").build())
    with pytest.raises(FormatError, match="'NaN'"):
        failing.follow(lambda: False)
    failing.close()
    cluster = Following(builder(database, "t").unrepresentable_values("null").build())
    cluster.follow(lambda: len(cluster.rows) == 2)
    database.execute("UPDATE t SET d = 'infinity' WHERE id = 1; UPDATE t SET n = 7 WHERE id = 2")
    cluster.follow(lambda: cluster.rows[2]["n"] == 7)
    assert cluster.rows[1]["d"] is None
    cluster.close()
