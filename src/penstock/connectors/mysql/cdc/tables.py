"""Definitions of tables as MySQL and MariaDB have them, read from a server, and as `TableSchema`s.

The log has rows without names, signs, character sets and the words of an ENUM, unless the server adds them, which it
does not by default. So rows are decoded by a `TableDefinition`: it is read once, and `ddl` applies the statements of
the log to it.

| type | in Flink's SQL |
| --- | --- |
| TINYINT(1), BOOL, BIT(1) | BOOLEAN |
| TINYINT | TINYINT |
| SMALLINT, TINYINT UNSIGNED | SMALLINT |
| INT, MEDIUMINT, SMALLINT UNSIGNED, YEAR | INT |
| BIGINT, INT UNSIGNED | BIGINT |
| BIGINT UNSIGNED | DECIMAL(20, 0) |
| DECIMAL(p, s) | DECIMAL(p, s); STRING if p is above 38 |
| FLOAT, DOUBLE | FLOAT, DOUBLE |
| DATE, TIME(p), DATETIME(p), TIMESTAMP(p) | DATE, TIME(p), TIMESTAMP(p), TIMESTAMP_LTZ(p) |
| CHAR, VARCHAR, TEXT, ENUM, SET, JSON, UUID, INET4, INET6 | STRING |
| BINARY, VARBINARY, BLOB, BIT(n), GEOMETRY | BYTES; a geometry is its SRID in four bytes and its WKB |
| VECTOR | ARRAY<FLOAT> |

Source: the data type mapping of Flink CDC's MySQL connector.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import FormatError, UnsupportedError
from penstock.connectors.cdc.events import Column, TableId, TableSchema
from penstock.connectors.mysql import client

INTEGERS: Final[Mapping[str, int]] = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
#: the types of text that have a character set
TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
BYTES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
GEOMETRIES: Final = frozenset(
    {
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        "geomcollection",
    }
)
#: other names of types; NATIONAL and the like are for the parser of statements
SYNONYMS: Final[Mapping[str, str]] = {
    "bool": "tinyint",
    "boolean": "tinyint",
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "middleint": "mediumint",
    "int4": "int",
    "integer": "int",
    "int8": "bigint",
    "serial": "bigint",
    "dec": "decimal",
    "numeric": "decimal",
    "fixed": "decimal",
    "number": "decimal",
    "float4": "float",
    "float8": "double",
    "real": "double",
    "character": "char",
    "nchar": "char",
    "nvarchar": "varchar",
    "varchar2": "varchar",
    "long": "mediumtext",
    "clob": "longtext",
    "raw": "varbinary",
    "geometrycollection": "geomcollection",
}
_TYPE: Final = re.compile(r"(\w+)(?:\s*\((.*)\))?(.*)", re.DOTALL)
_WORD: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPES: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of a table of MySQL or MariaDB.

    Attributes:
        name: its name, in the table's spelling.
        kind: the type without lengths, in lower case, such as `bigint`.
        is_unsigned: whether a number has no sign.
        length: the characters of text, the bytes of a binary, the bits of a BIT, the digits of a number, or of the
            fraction of a second; None if the type has no length. The length of an integer is its display width.
        scale: the digits of a number after the point.
        words: the words of an ENUM or SET.
        charset: the character set of text; None for others.
        collation: the collation of text, if it is known.
        is_nullable: whether it may be NULL.
        default: the text of its default; None without a default.
        comment: its comment; may be empty.
    """

    name: str
    kind: str
    is_unsigned: bool = False
    length: int | None = None
    scale: int | None = None
    words: tuple[str, ...] = ()
    charset: str | None = None
    collation: str | None = None
    is_nullable: bool = True
    default: str | None = None
    comment: str = ""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table of MySQL or MariaDB: its columns, its primary key, and the default character set of new columns."""

    table_id: TableId
    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...] = ()
    charset: str | None = None
    collation: str | None = None
    comment: str = ""

    def find(self, name: str) -> int | None:
        """Return the position of a column, regardless of case; None if the table lacks it."""
        wanted = name.lower()
        return next((index for index, column in enumerate(self.columns) if column.name.lower() == wanted), None)

    def key_places(self) -> tuple[int, ...]:
        """Return the positions of the columns of the primary key."""
        return tuple(position for name in self.primary_key if (position := self.find(name)) is not None)


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """The options of the type mapping.

    Attributes:
        tinyint1_is_boolean: whether TINYINT(1) is BOOLEAN; otherwise TINYINT.
    """

    tinyint1_is_boolean: bool = True

    def is_boolean(self, column: ColumnDefinition) -> bool:
        """Return whether a column is BOOLEAN in Flink's SQL."""
        if column.kind == "bit":
            return column.length in (None, 1)
        is_one = column.kind == "tinyint" and column.length == 1 and not column.is_unsigned
        return is_one and self.tinyint1_is_boolean

    def convert(self, column: ColumnDefinition) -> tuple[pa.DataType, str]:
        """Return the type of a column's values in memory, and in Flink's SQL.

        Raises:
            UnsupportedError: for a type that is not known.
        """
        kind, length = column.kind, column.length
        if self.is_boolean(column):
            return pa.bool_(), "BOOLEAN"
        if kind in INTEGERS:
            return _INTEGERS[INTEGERS[kind] + (0 if not column.is_unsigned else 10)]
        if kind == "decimal":
            precision, scale = 10 if length is None else length, column.scale or 0
            if precision > 38:
                return pa.string(), "STRING"
            return pa.decimal128(precision, scale), f"DECIMAL({precision}, {scale})"
        if kind in _TEMPORAL:
            arrow, name = _TEMPORAL[kind]
            return arrow, f"{name}({length or 0})"
        if kind in _PLAIN:
            return _PLAIN[kind]
        if kind in BYTES or kind in GEOMETRIES or kind == "bit":
            return pa.binary(), "BYTES"
        if kind in TEXTS:
            return pa.string(), "STRING"
        raise UnsupportedError(
            f"column {column.name!r} has the type {kind}, which is not supported: leave out its table"
        )

    def describe(self, definition: TableDefinition) -> TableSchema:
        """Return the schema of a table."""
        return TableSchema(
            tuple(self.describe_column(column) for column in definition.columns),
            tuple(definition.columns[position].name for position in definition.key_places()),
            definition.comment or None,
        )

    def describe_column(self, column: ColumnDefinition) -> Column:
        """Return a column of a schema."""
        arrow, name = self.convert(column)
        return Column(column.name, arrow, name, column.is_nullable, column.comment or None, column.default)


_INTEGERS: Final[Mapping[int, tuple[pa.DataType, str]]] = {
    1: (pa.int8(), "TINYINT"),
    2: (pa.int16(), "SMALLINT"),
    3: (pa.int32(), "INT"),
    4: (pa.int32(), "INT"),
    8: (pa.int64(), "BIGINT"),
    11: (pa.int16(), "SMALLINT"),
    12: (pa.int32(), "INT"),
    13: (pa.int32(), "INT"),
    14: (pa.int64(), "BIGINT"),
    18: (pa.decimal128(20, 0), "DECIMAL(20, 0)"),
}
_TEMPORAL: Final[Mapping[str, tuple[pa.DataType, str]]] = {
    "time": (pa.time64("us"), "TIME"),
    "datetime": (pa.timestamp("us"), "TIMESTAMP"),
    "timestamp": (pa.timestamp("us", "UTC"), "TIMESTAMP_LTZ"),
}
_PLAIN: Final[Mapping[str, tuple[pa.DataType, str]]] = {
    "date": (pa.date32(), "DATE"),
    "year": (pa.int32(), "INT"),
    "float": (pa.float32(), "FLOAT"),
    "double": (pa.float64(), "DOUBLE"),
    "json": (pa.string(), "STRING"),
    "uuid": (pa.string(), "STRING"),
    "inet4": (pa.string(), "STRING"),
    "inet6": (pa.string(), "STRING"),
    "vector": (pa.list_(pa.float32()), "ARRAY<FLOAT>"),
}


def parse_words(text: str) -> tuple[str, ...]:
    """Return the words of an ENUM or SET, from the text within the brackets of its type."""
    return tuple(
        re.sub(r"''|\\(.)", lambda match: "'" if match[1] is None else _ESCAPES.get(match[1], match[1]), word)
        for word in _WORD.findall(text)
    )


def complete_type(
    name: str, arguments: str | None, modifiers: str
) -> tuple[str, bool, int | None, int | None, tuple[str, ...]]:
    """Return kind, sign, length, scale and words of a type, from its name, the text in its brackets and modifiers.

    Defaults are filled in, as the server does: INT is `int`, DECIMAL is `decimal(10,0)`, BOOL is `tinyint(1)`.
    """
    given = name.lower()
    kind = SYNONYMS.get(given, given)
    is_unsigned = given == "serial" or bool(re.search(r"\b(unsigned|zerofill)\b", modifiers, re.IGNORECASE))
    if kind in ("enum", "set"):
        return kind, False, None, None, parse_words(arguments or "")
    numbers = [int(part) for part in re.findall(r"\d+", arguments or "")]
    length, scale = (*numbers, None, None)[:2]
    if given in ("bool", "boolean"):
        length = 1
    if kind == "decimal":
        length, scale = length or 10, scale or 0
    elif kind in ("char", "binary", "bit"):
        length = 1 if length is None else length
    elif kind in ("datetime", "timestamp", "time"):
        length = length or 0
    elif kind == "float" and scale is None and length is not None:
        kind, length = ("double" if length > 24 else "float"), None
    elif kind in ("float", "double"):
        length, scale = None, None
    elif kind == "vector":
        length = 2048 if length is None else length
    elif kind in INTEGERS and not (kind == "tinyint" and length == 1):
        length = None  # a display width has no meaning, and only some servers report it
    elif kind in ("year", "json", "date") or kind.endswith(("text", "blob")):
        length = None
    return kind, is_unsigned, length, scale, ()


def parse_column_type(text: str) -> tuple[str, bool, int | None, int | None, tuple[str, ...]]:
    """Return the same for a type in the notation of information_schema, such as `bigint(20) unsigned`."""
    match = _TYPE.fullmatch(text.strip())
    if match is None:
        raise FormatError(f"the type {text!r} cannot be read")
    return complete_type(match[1], match[2], match[3])


_COLUMNS: Final = """
    SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE, COLUMN_DEFAULT,
           COLUMN_COMMENT
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s {} ORDER BY TABLE_NAME, ORDINAL_POSITION
"""
_KEYS: Final = """
    SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = %s AND INDEX_NAME = 'PRIMARY' {} ORDER BY TABLE_NAME, SEQ_IN_INDEX
"""
_TABLES: Final = """
    SELECT TABLE_NAME, TABLE_COLLATION, TABLE_COMMENT FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'BASE TABLE' {} ORDER BY TABLE_NAME
"""


def read_definitions(connection: Any, schema: str, names: Iterable[str]) -> dict[TableId, TableDefinition]:
    """Read the definitions of tables of a database; missing tables are left out."""
    wanted = ", ".join(map(client.literal, names))
    if not wanted:
        return {}
    filtered = f"AND TABLE_NAME IN ({wanted})"
    columns: dict[str, list[ColumnDefinition]] = {}
    for row in client.query(connection, _COLUMNS.format(filtered.replace("%", "%%")), (schema,)):
        table, name, sql_type, charset, collation, nullable, default, comment = map(_text, row)
        kind, is_unsigned, length, scale, words = parse_column_type(sql_type or "")
        columns.setdefault(table or "", []).append(
            ColumnDefinition(
                name or "",
                kind,
                is_unsigned,
                length,
                scale,
                words,
                charset if kind in TEXTS else None,
                collation if kind in TEXTS else None,
                nullable == "YES",
                None if default == "NULL" else default,
                comment or "",
            )
        )
    keys: dict[str, list[str]] = {}
    for table, name in client.query(connection, _KEYS.format(filtered.replace("%", "%%")), (schema,)):
        keys.setdefault(table, []).append(name)
    definitions = {}
    for table, collation, comment in client.query(connection, _TABLES.format(filtered.replace("%", "%%")), (schema,)):
        table_id = TableId(schema, table)
        charset = None if collation is None else collation.partition("_")[0]
        definitions[table_id] = TableDefinition(
            table_id, tuple(columns.get(table, ())), tuple(keys.get(table, ())), charset, collation, comment or ""
        )
    return definitions


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def list_tables(connection: Any) -> list[TableId]:
    """Return all tables that the user may see, except the system tables."""
    rows = client.query(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' "
        "AND TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') "
        "ORDER BY TABLE_SCHEMA, TABLE_NAME",
    )
    return [TableId(*map(str, row)) for row in rows]


def read_charset(connection: Any, schema: str) -> tuple[str | None, str | None]:
    """Return the character set and the collation of a database; None if it does not exist."""
    sql = (
        "SELECT DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA "
        "WHERE SCHEMA_NAME = %s"
    )
    rows = client.query(connection, sql, (schema,))
    return (rows[0][0], rows[0][1]) if rows else (None, None)
