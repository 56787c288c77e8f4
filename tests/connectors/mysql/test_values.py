"""Each type of MySQL and MariaDB is read as `SELECT` gives it: NULL, the extremes, and what its Arrow type cannot hold.

The expected values are written down here, and not taken from a client library.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.mysql.conftest import Database
from tests.servers.mysql import MySqlServer

from penstock.base.errors import FormatError, UnsupportedError
from penstock.connectors.mysql import client, values
from penstock.connectors.mysql.scan import Fetch
from penstock.connectors.postgres.scan import ScanSplit
from penstock.datastream.connectors.jdbc import JdbcSource

Case = tuple[str, list[tuple[str, Any]]]

#: the server's type, and literals with what they are read as
CASES: list[Case] = [
    ("TINYINT(1)", [("0", False), ("1", True), ("2", True), ("-128", True)]),
    ("TINYINT", [("-128", -128), ("127", 127)]),
    ("TINYINT UNSIGNED", [("0", 0), ("255", 255)]),
    ("SMALLINT", [("-32768", -32768), ("32767", 32767)]),
    ("SMALLINT UNSIGNED", [("65535", 65535)]),
    ("MEDIUMINT", [("-8388608", -8388608), ("8388607", 8388607)]),
    ("MEDIUMINT UNSIGNED", [("16777215", 16777215)]),
    ("INT", [("-2147483648", -2147483648), ("2147483647", 2147483647)]),
    ("INT UNSIGNED ZEROFILL", [("7", 7), ("4294967295", 4294967295)]),
    ("BIGINT", [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)]),
    ("BIGINT UNSIGNED", [("0", Decimal(0)), ("18446744073709551615", Decimal(2**64 - 1))]),
    ("BIT(1)", [("b'0'", False), ("b'1'", True)]),
    ("BIT(12)", [("b'101'", b"\x00\x05"), ("4095", b"\x0f\xff")]),
    ("BIT(64)", [("18446744073709551615", b"\xff" * 8)]),
    ("YEAR", [("'0'", 2000), ("'0000'", 0), ("1901", 1901), ("2155", 2155)]),
    ("DECIMAL(10,2)", [("-99999999.99", Decimal("-99999999.99")), ("0.01", Decimal("0.01"))]),
    ("DECIMAL(38,10)", [("9" * 28 + "." + "9" * 10, Decimal("9" * 28 + "." + "9" * 10))]),
    ("DECIMAL(65,30)", [("-" + "9" * 35 + "." + "9" * 30, "-" + "9" * 35 + "." + "9" * 30)]),
    ("FLOAT", [("1.23456789", 1.2345678806304932), ("-3.402823466e38", -3.4028234663852886e38), ("0", 0.0)]),
    ("DOUBLE", [("0.1", 0.1), ("-1.7976931348623157e308", -1.7976931348623157e308), ("5e-324", 5e-324)]),
    ("DATE", [("'1000-01-01'", dt.date(1000, 1, 1)), ("'9999-12-31'", dt.date(9999, 12, 31))]),
    ("TIME", [("'00:00:00'", dt.time()), ("'23:59:59'", dt.time(23, 59, 59))]),
    ("TIME(6)", [("'23:59:59.999999'", dt.time(23, 59, 59, 999999)), ("'01:00'", dt.time(1))]),
    ("DATETIME", [("'1000-01-01 00:00:00'", dt.datetime(1000, 1, 1))]),
    ("DATETIME(6)", [("'9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999))]),
    ("TIMESTAMP(3) NULL", [("'1970-01-01 00:00:01.250'", dt.datetime(1970, 1, 1, 0, 0, 1, 250000, dt.UTC))]),
    ("TIMESTAMP NULL", [("'2038-01-19 03:14:07'", dt.datetime(2038, 1, 19, 3, 14, 7, 0, dt.UTC))]),
    ("CHAR(5)", [("'a  '", "a"), ("''", ""), ("'äöü日本'", "äöü日本")]),
    ("VARCHAR(20)", [("'a  '", "a  "), ("'it''s \\\\ \\n'", "it's \\ \n"), ("'😀'", "😀")]),
    ("VARCHAR(20) CHARACTER SET latin1", [("'ÿé'", "ÿé")]),
    ("VARCHAR(20) CHARACTER SET utf16", [("'日本 😀'", "日本 😀")]),
    ("TINYTEXT", [("'t'", "t")]),
    ("LONGTEXT", [("REPEAT('ab', 100000)", "ab" * 100000)]),
    ("ENUM('a','b','ü')", [("'a'", "a"), ("3", "ü")]),
    ("SET('a','b','c')", [("''", ""), ("'c,a'", "a,c")]),
    ("BINARY(4)", [("'ab'", b"ab\x00\x00"), ("''", b"\x00" * 4)]),
    ("VARBINARY(10)", [("x'00ff'", b"\x00\xff"), ("''", b"")]),
    ("LONGBLOB", [("REPEAT(x'00fe', 40000)", b"\x00\xfe" * 40000)]),
]


@pytest.fixture(scope="module")
def all_types(server: MySqlServer) -> Database:
    """A table with a column for each type, and a row of NULL at the end."""
    database = Database(server, server.new_database())
    columns = ", ".join(f"v{number} {kind}" for number, (kind, _) in enumerate(CASES))
    height = max(len(cases) for _, cases in CASES) + 1
    rows = [
        "(" + ", ".join([str(row), *(cases[row][0] if row < len(cases) else "NULL" for _, cases in CASES)]) + ")"
        for row in range(height)
    ]
    database.execute(
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4",
        f"INSERT INTO t VALUES {', '.join(rows)}",
    )
    return database


@pytest.mark.parametrize("number", range(len(CASES)), ids=[kind for kind, _ in CASES])
def test_a_type_is_read(all_types: Database, number: int) -> None:
    expected = [*(value for _, value in CASES[number][1]), None]
    there = read(all_types, f"v{number}")[: len(expected)]
    assert there == expected
    assert list(map(type, there)) == list(map(type, expected))


def test_json_and_geometry_are_text_or_bytes(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v JSON, g POINT)",
        """INSERT INTO t VALUES (1, '{"a": [1, null, "ü"]}', ST_GeomFromText('POINT(1 2)')), (2, NULL, NULL)""",
    )
    assert read(database) == ['{"a": [1, null, "ü"]}', None]
    points = read(database, "g")
    assert points[0][-16:] == b"\x00\x00\x00\x00\x00\x00\xf0?\x00\x00\x00\x00\x00\x00\x00@"


REFUSED = [
    ("DATE", "'0000-00-00'", "0000-00-00"),
    ("DATE", "'2024-00-10'", "2024-00-10"),
    ("DATETIME", "'0000-00-00 00:00:00'", "0000-00-00 00:00:00"),
    ("TIMESTAMP NULL", "'0000-00-00 00:00:00'", "0000-00-00 00:00:00"),
    ("DATE", "'0000-02-03'", "0000-02-03"),
    ("TIME(6)", "'-838:59:59.000000'", "-838:59:59.000000"),
    ("TIME(3)", "'-00:00:00.125'", "-00:00:00.125"),
    ("TIME", "'24:00:00'", "24:00:00"),
]


def test_a_value_without_counterpart_fails_or_is_null(database: Database) -> None:
    columns = ", ".join(f"v{number} {kind}" for number, (kind, _, _) in enumerate(REFUSED))
    literals = ", ".join(literal for _, literal, _ in REFUSED)
    database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", f"INSERT INTO t VALUES (1, {literals})")
    for number, (_, _, shown) in enumerate(REFUSED):
        with pytest.raises(FormatError, match=rf"column 'v{number}'.*'{shown}'.*'unrepresentable-values' = 'null'"):
            read(database, f"v{number}")
        assert read(database, f"v{number}", "null") == [None]


def test_bytes_that_are_no_text_fail_as_text(database: Database) -> None:
    database.execute("CREATE TABLE t (v VARBINARY(5))", "INSERT INTO t VALUES (x'ff'), ('ok')")
    connection = database.server.connect(database.name)
    (column,) = client.read_relation(connection, "t").columns
    reading = values.Reading.of(column, pa.string())
    (raw,) = next(values.fetch_columns(connection, f"SELECT {reading.expression} FROM t", 10))
    connection.close()
    with pytest.raises(FormatError, match="column 'v' has bytes that are no text"):
        reading.read(raw, "fail")
    assert reading.read(raw, "null").to_pylist() == [None, "ok"]
    with pytest.raises(UnsupportedError, match="declare it as STRING"):
        values.Reading.of(column, pa.list_(pa.int32()))


def test_rows_of_any_size_are_split(database: Database) -> None:
    """Values of each form of length, rows of several packets, and batches that end in the middle of a packet."""
    sizes = [0, 250, 251, 255, 256, 65535, 65536, 100, 3_000_000, 1]
    connection = database.server.connect(database.name)
    selects = " UNION ALL ".join(f"SELECT {n}, REPEAT('x', {size}), NULL" for n, size in enumerate(sizes))
    for rows in (1, 3, 100):
        taken: list[tuple[str, int]] = []
        for numbers, texts, nulls in values.fetch_columns(connection, selects, rows):
            assert nulls.null_count == len(nulls) <= rows
            taken += zip(numbers.cast("string").to_pylist(), map(len, texts.to_pylist()), strict=True)
        assert taken == [(str(n), size) for n, size in enumerate(sizes)]
    assert list(values.fetch_columns(connection, "SELECT 1 FROM DUAL WHERE FALSE", 10)) == []
    connection.close()


def test_a_row_of_more_bytes_than_a_packet_is_joined(database: Database) -> None:
    database.execute("SET GLOBAL max_allowed_packet = 67108864")
    connection = database.server.connect(database.name)
    size = (1 << 24) - 10
    rows: list[tuple[Any, ...]] = []
    for batch in values.fetch_columns(connection, f"SELECT 1, REPEAT('y', {size}), 2 UNION ALL SELECT 3, 'z', 4", 10):
        rows += zip(*(column.to_pylist() for column in batch), strict=True)
    connection.close()
    assert [(a, len(text), b) for a, text, b in rows] == [(b"1", size, b"2"), (b"3", 1, b"4")]


def read(database: Database, column: str = "v", unrepresentable: str = "fail") -> list[Any]:
    """What a scan reads."""
    source = (
        JdbcSource.builder()
        .set_db_url(database.url)
        .set_table_name("t")
        .set_columns(column)
        .set_unrepresentable_values(unrepresentable)
        .build()
    )
    fetch = Fetch(source.scanned, ScanSplit(0, "", "t", ("id",)))
    return [value for rows in fetch.rows() for value in rows.columns.column(0).to_pylist()]
