"""Every type of MySQL and MariaDB: a value is the same in the snapshot, in the log, and in what the server shows."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.servers.mysql import MARIADB, MYSQL, MySqlServer, mysql_server

from penstock.base.errors import FormatError
from penstock.connectors.cdc.events import TableId
from penstock.connectors.mysql import client
from penstock.connectors.mysql.cdc.database import CdcSettings, Chunk, MySqlDatabase, RowChanges
from penstock.connectors.mysql.cdc.packed_values import format_double
from penstock.connectors.mysql.cdc.tables import TypeMapping
from penstock.connectors.mysql.cdc.values import NULL, ValueSettings, make_text

INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64}
TEXT = ["''", "'tea'", "'a,b'", "'ends with spaces  '", "'quote '' and \\\\ backslash'", "'line\\nend'"]
WIDE = ["'åéîøü'", "'日本語'", "'😀'"]
#: The literals of each type.
TYPES: dict[str, list[str]] = {
    **{name: [f"{-(1 << bits - 1)}", "-1", "0", f"{(1 << bits - 1) - 1}"] for name, bits in INTEGERS.items()},
    **{f"{name} UNSIGNED": ["0", "1", f"{1 << bits - 1}", f"{(1 << bits) - 1}"] for name, bits in INTEGERS.items()},
    "INT(1) ZEROFILL": ["0", "42"],
    "BOOL": ["0", "1"],
    "YEAR": ["0", "1901", "2155"],
    "FLOAT": ["0", "-0e0", "0.1", "-1.17549e-38", "3.40282e38", "1e20"],
    "DOUBLE": ["0", "0.1", "-2.2250738585072014e-308", "1.7976931348623157e308", "123456789.123456789"],
    **{
        f"DECIMAL({p}, {s})": ["0", f"{'9' * (p - s) or '0'}.{'9' * s}", f"-{'9' * (p - s) or '0'}.{'9' * s}", "-0.5"]
        for p, s in ((1, 0), (5, 5), (10, 2), (18, 9), (20, 0), (38, 30), (38, 10), (65, 30))
    },
    "CHAR(10)": ["''", "'tea'", "'  a'"],
    "VARCHAR(100)": [*TEXT, *WIDE],
    "VARCHAR(300)": [*TEXT, *WIDE],
    "TEXT": [*TEXT, *WIDE],
    "LONGTEXT": ["REPEAT('long', 20000)", *TEXT],
    "TINYTEXT": TEXT,
    **{
        f"VARCHAR(100) CHARACTER SET {charset}": [*TEXT, *more]
        for charset, more in {
            "latin1": ["'åéîøü'", "'€'", "UNHEX('818D8F909D')"],
            "latin2": ["'ąćę'"],
            "cp1251": ["'чай'"],
            "koi8r": ["'чай'"],
            "greek": ["'τσάι'"],
            "hebrew": ["'תה'"],
            "tis620": ["'ชา'"],
            "cp850": ["'åé'"],
            "ascii": [],
            "ucs2": ["'日本語'", "'åé'"],
            "utf16": WIDE,
            "utf16le": WIDE,
            "utf32": WIDE,
            "gbk": ["'茶'"],
            "big5": ["'茶'"],
            "cp932": ["'お茶'"],
            "euckr": ["'차'"],
            "ujis": ["'お茶'"],
        }.items()
    },
    "CHAR(10) CHARACTER SET utf16": ["''", "'tea'", "'日本'"],
    "CHAR(100) CHARACTER SET utf8mb4": ["''", "'tea'", "'😀'"],
    "TEXT CHARACTER SET utf32": WIDE,
    "BINARY(8)": ["''", "'tea'", "UNHEX('0001FF00')", "UNHEX('0000000000000000')"],
    "BINARY(255)": ["''", "UNHEX('FF00')"],
    "VARBINARY(300)": ["''", "UNHEX('00FF0000')", "REPEAT(UNHEX('FE'), 300)"],
    "BLOB": ["''", "UNHEX('00FF0000')"],
    "MEDIUMBLOB": ["REPEAT(UNHEX('FE00'), 100000)"],
    "BIT(1)": ["b'0'", "b'1'"],
    "BIT(9)": ["b'0'", "b'100000001'"],
    "BIT(64)": ["0", "0xFFFFFFFFFFFFFFFF", "0x8000000000000001"],
    "ENUM('', 'a', 'it''s', 'ä,b')": ["''", "'a'", "'it''s'", "'ä,b'"],
    "SET('a', 'b c', 'ü')": ["''", "'a'", "'a,ü'", "'a,b c,ü'"],
    "ENUM(" + ", ".join(f"'e{n}'" for n in range(300)) + ")": ["'e0'", "'e299'"],
    "SET(" + ", ".join(f"'s{n}'" for n in range(64)) + ")": ["''", "'s0,s63'", "'s8,s31,s32'"],
    "DATE": ["'1000-01-01'", "'9999-12-31'", "'1970-01-01'", "'2024-02-29'"],
    **{f"TIME({n})": ["'00:00:00'", f"'23:59:59.{'9' * n}'", "'12:34:56.123456'"] for n in (0, 1, 2, 3, 5, 6)},
    **{
        f"DATETIME({n})": ["'1000-01-01 00:00:00'", f"'9999-12-31 23:59:59.{'9' * n}'", "'2024-02-29 12:34:56.123456'"]
        for n in (0, 1, 3, 4, 6)
    },
    **{
        f"TIMESTAMP({n}) NULL": ["'1970-01-01 00:00:01'", f"'2038-01-19 03:14:07.{'9' * n}'", "'2024-02-29 12:34:56.5'"]
        for n in (0, 2, 3, 6)
    },
    "GEOMETRY": ["ST_GeomFromText('POINT(1 -2)')", "ST_GeomFromText('LINESTRING(0 0, 1 1, 2 0)')"],
    "POINT": ["ST_GeomFromText('POINT(1.5 2.5)')"],
}
JSON = [
    "null", "true", "0", "-1", "65535", "4294967295", "18446744073709551615", "-9223372036854775808", "1.5", "1e300",
    '"tea"', '""', '"quote \\" \\\\ \\n \\t \\u0001 /"', '"日本 😀"', "[]", "{}", '[1, "a", null, {"b": [true]}]',
    '{"a": {"b": {"c": []}}, "long": "' + "x" * 300 + '"}', "[" + ", ".join(str(n * 1000) for n in range(2000)) + "]",
    '{"' + "k" * 200 + '": 1, "z": 70000, "zz": -70000}', '["' + "y" * 70000 + '", 100000, -100000]',
]  # fmt: skip
OF_MYSQL = {
    "JSON": [
        *map(client.literal, JSON),
        "CAST(1.10 AS JSON)",
        "CAST(CAST('-12345678901234567890.1234' AS DECIMAL(30, 4)) AS JSON)",
        "CAST(CAST('2024-02-29 12:34:56.5' AS DATETIME(6)) AS JSON)",
        "CAST(CAST('2024-02-29' AS DATE) AS JSON)",
        "CAST(CAST('-12:34:56.5' AS TIME(6)) AS JSON)",
        "JSON_ARRAY(UNHEX('00FF'), REPEAT(UNHEX('AB'), 100))",
    ],
    "VECTOR(3)": ["TO_VECTOR('[1, -2.5, 3e10]')"],
}
OF_MARIADB = {
    "JSON": ["'{\"a\": 1}'", "'[]'"],
    "UUID": ["'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'",
             "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'01890000-0000-7000-8000-000000000001'"],
    "INET6": ["'::'", "'2001:db8::ff00:42:8329'", "'::ffff:192.168.0.1'", "'::1.2.3.4'", "'fe80::1'"],
    "INET4": ["'0.0.0.0'", "'255.255.255.255'", "'10.0.0.1'"],
}  # fmt: skip


@pytest.fixture(scope="module", params=[MYSQL, MARIADB])
def server(request: pytest.FixtureRequest) -> Iterator[MySqlServer]:
    with mysql_server(request.param) as started:
        yield started


def is_binary(column: Any) -> bool:
    return column.kind in ("binary", "varbinary", "bit") or column.kind.endswith("blob") or column.kind == "point"


class Reading:
    """The rows of a table by both ways."""

    def __init__(self, server: MySqlServer, table: TableId, values: ValueSettings) -> None:
        self.database = MySqlDatabase(
            CdcSettings(server.address(), (f"{table.schema}\\.{table.table}",), values=values)
        )
        with self.database.session() as connection:
            self.start = self.database.read_position(connection)
        self.known, _ = self.database.read_tables([table])
        self.table = table

    def of_log(self) -> list[tuple[Any, ...]]:
        with self.database.session() as connection:
            stop = self.database.read_position(connection)
        known = {key: value._replace(since=self.start) for key, value in self.known.items()}
        rows = []
        for item in self.database.read_log(self.start, stop, known):
            if isinstance(item, RowChanges):
                rows += [change.after for change in item.rows if change.after is not None]
        return rows

    def of_snapshot(self) -> list[tuple[Any, ...]]:
        chunk = self.database.read_chunk(Chunk(self.table))
        assert chunk is not None
        return chunk.rows


def types_of(server: MySqlServer) -> dict[str, list[str]]:
    return {**TYPES, **(OF_MARIADB if server.dialect == MARIADB else OF_MYSQL)}


def test_values_are_the_same_in_snapshot_log_and_query(server: MySqlServer) -> None:
    database = server.new_database()
    types = types_of(server)
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(types))
    server.execute(
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4 ROW_FORMAT = DYNAMIC", database
    )
    values = ValueSettings(TypeMapping(tinyint1_is_boolean=False))
    reading = Reading(server, TableId(database, "t"), values)
    longest = max(map(len, types.values()))
    with closing(server.connect(database)) as connection:
        client.execute(connection, "SET SESSION sql_mode = ''")
        client.execute(connection, "INSERT INTO t (id) VALUES (0)")
        for row in range(longest):
            literals = ", ".join(kinds[row] if row < len(kinds) else "NULL" for kinds in types.values())
            client.execute(connection, f"INSERT INTO t VALUES ({row + 1}, {literals})")
        logged = reading.of_log()
        read = reading.of_snapshot()
        definition = reading.known[TableId(database, "t")].definition
        kinds = ["id", *types]
        wrong = []
        for place, column in enumerate(definition.columns):
            in_log = [row[place] for row in logged]
            name = client.quoted(column.name)
            how = (
                f"HEX({name})"
                if is_binary(column) or column.kind in ("geometry", "vector")
                else f"CAST({name} AS CHAR)"
            )
            shown = [row[0] for row in client.query(connection, f"SELECT {how} FROM t ORDER BY id")]
            logged_texts = [None if value is None else show(column, value) for value in in_log]
            if in_log != [row[place] for row in read]:
                wrong.append((kinds[place], "in the snapshot", in_log, [row[place] for row in read]))
            if shown != logged_texts:
                wrong.append((kinds[place], "in a query", logged_texts, shown))
        assert not wrong, "\n".join(map(str, wrong))


def show(column: Any, value: Any) -> str:
    """A value as the server shows it."""
    if column.kind == "bit":
        return f"{int.from_bytes(value) if isinstance(value, bytes) else int(value):X}"
    if isinstance(value, bytes):
        return value.hex().upper()
    if column.kind == "vector":
        return struct.pack(f"<{len(value)}f", *value).hex().upper()
    if column.kind == "year":
        return f"{value:04}"
    if column.kind == "float":
        return show_float(value)
    if column.kind == "double":
        return show_double(value)
    return str(make_text(column)(value))


def show_float(value: float) -> str:
    text = f"{value:.6g}"
    return text.replace("e+", "e").replace("e-0", "e-")


def show_double(value: float) -> str:
    text = format_double(value)
    return text.removesuffix(".0")


def test_unrepresentable_values_fail_or_become_null_or_text(server: MySqlServer) -> None:
    database = server.new_database()
    server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, d DATE, t TIME(2), dt DATETIME(3), ts TIMESTAMP NULL)", database
    )
    table = TableId(database, "t")
    texts = ValueSettings(as_text=frozenset({"d", "t", "dt", "ts"}))
    readings = {name: Reading(server, table, values) for name, values in (
        ("text", texts), ("null", ValueSettings(unrepresentable=NULL)), ("fail", ValueSettings()),
    )}  # fmt: skip
    rows = [
        ("0000-00-00", "-838:59:59.00", "0000-00-00 00:00:00.000", "0000-00-00 00:00:00"),
        ("2024-00-10", "838:59:59.00", "2024-00-00 01:02:03.400", None),
        ("2023-02-00", "-00:00:00.01", None, None),
        (None, "24:00:00.00", None, None),
        (None, "-01:00:00.50", None, None),
    ]
    with closing(server.connect(database)) as connection:
        client.execute(connection, "SET SESSION sql_mode = ''")
        for number, row in enumerate(rows):
            client.query(connection, "INSERT INTO t VALUES (%s, %s, %s, %s, %s)", (number, *row))
    for read in (readings["text"].of_log(), readings["text"].of_snapshot()):
        assert [row[1:] for row in read] == rows
    for read in (readings["null"].of_log(), readings["null"].of_snapshot()):
        assert [row[1:] for row in read] == [(None,) * 4] * len(rows)
    for call in (readings["fail"].of_log, readings["fail"].of_snapshot):
        with pytest.raises(FormatError, match="unrepresentable-values"):
            call()


def test_doubles_of_json_are_written_as_the_server_writes_them(server: MySqlServer) -> None:
    if server.dialect != MYSQL:
        pytest.skip("MariaDB has no JSON of its own")
    chance = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    numbers = [
        value for value in struct.unpack("<300d", chance.randbytes(2400)) if value == value and abs(value) < 1e308
    ]
    numbers += [chance.uniform(-1, 1) * 10.0 ** chance.randrange(-25, 25) for _ in range(300)]
    numbers += [float(chance.randrange(10 ** chance.randrange(1, 20))) for _ in range(100)]
    with closing(server.connect()) as connection:
        for number in numbers:
            ((shown,),) = client.query(connection, f"SELECT CAST(JSON_EXTRACT('[{number!r}]', '$[0]') AS CHAR)")
            assert shown == format_double(number)
