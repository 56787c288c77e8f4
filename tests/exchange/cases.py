"""The types and values that are exchanged, their literals in each dialect of SQL, and values as text to compare.

Programs of all kinds import this module, so it needs nothing but Python.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final


@dataclass(frozen=True)
class Case:
    """A type: its name as a column, in SQL of Flink, of Spark and of DuckDB, and its values."""

    name: str
    flink: str
    spark: str
    duckdb: str
    values: tuple[Any, ...]

    @property
    def title(self) -> str:
        """The type as tables show it."""
        return f"{self.flink} before 1970" if self.name == "tsold" else self.flink

    def type_in(self, dialect: str) -> str:
        """The type in a dialect."""
        found: str = getattr(self, "flink" if dialect == "penstock" else dialect)
        return found


def _case(name: str, kinds: str, *values: Any) -> Case:
    parts = [one.strip() for one in kinds.split("|")]
    flink, spark, duckdb = parts if len(parts) == 3 else parts * 3
    return Case(name, flink, spark, duckdb, (*values, None))


_TIME = dt.datetime(2024, 2, 29, 23, 59, 59, 123_000)
_FINE = dt.datetime(2199, 12, 31, 23, 59, 59, 123_456)
_OLD = dt.datetime(1969, 7, 20, 20, 17, 40, 123_000)
CASES: Final = (
    _case("bool", "BOOLEAN", True, False),
    _case("tiny", "TINYINT", 127, -128),
    _case("small", "SMALLINT", 32767, -32768),
    _case("whole", "INT", 2**31 - 1, -(2**31)),
    _case("big", "BIGINT", 2**63 - 1, -(2**63)),
    _case("single", "FLOAT", 1.5, -0.25),
    _case("twice", "DOUBLE", 0.1, -1e300),
    _case("dec9", "DECIMAL(9, 2)", Decimal("1234567.89"), Decimal("-0.01")),
    _case("dec18", "DECIMAL(18, 4)", Decimal("12345678901234.5678"), Decimal("-1.0000")),
    _case("dec38", "DECIMAL(38, 18)", Decimal("12345678901234567890.123456789012345678"), Decimal("-1.5")),
    _case("txt", "STRING | STRING | VARCHAR", 'a,"b"', "ä€𝄞"),
    _case("bin", "BYTES | BINARY | BLOB", b"\x00\xff", b"ab"),
    _case("dat", "DATE", dt.date(2024, 2, 29), dt.date(1900, 1, 1)),
    _case("clock", "TIME(3) | TIME(3) | TIME", dt.time(23, 59, 59), dt.time(0, 0)),
    _case("ts3", "TIMESTAMP(3) | TIMESTAMP_NTZ | TIMESTAMP", _TIME, _FINE.replace(microsecond=123_000)),
    _case("ts6", "TIMESTAMP(6) | TIMESTAMP_NTZ | TIMESTAMP", _TIME, _FINE),
    _case("tsold", "TIMESTAMP(3) | TIMESTAMP_NTZ | TIMESTAMP", _OLD, _OLD.replace(microsecond=0)),
    _case("ltz3", "TIMESTAMP_LTZ(3) | TIMESTAMP | TIMESTAMPTZ", _TIME.replace(tzinfo=dt.UTC)),
    _case("ltz6", "TIMESTAMP_LTZ(6) | TIMESTAMP | TIMESTAMPTZ", _FINE.replace(tzinfo=dt.UTC)),
    _case("arr", "ARRAY<INT> | ARRAY<INT> | INTEGER[]", [1, None, 3], [7]),
    _case("dict", "MAP<STRING, INT> | MAP<STRING, INT> | MAP(VARCHAR, INTEGER)", {"k": 1, "l": None}),
    _case(
        "rec",
        "ROW<x INT, y STRING> | STRUCT<x: INT, y: STRING> | STRUCT(x INTEGER, y VARCHAR)",
        {"x": 1, "y": "q"},
        {"x": None, "y": None},
    ),
)
BY_NAME: Final = {one.name: one for one in CASES}
#: the types that have no form in CSV which others share
_NOT_IN_CSV: Final = ("arr", "dict", "rec", "bin")
FORMATS: Final = ("parquet", "orc", "avro", "json", "csv")
ROWS: Final = 3


def cases_of(form: str) -> list[Case]:
    """The types that a format is asked for."""
    return [one for one in CASES if form != "csv" or one.name not in _NOT_IN_CSV]


def pick_value(case: Case, row: int) -> Any:
    """The value of a type in a row, from 0; the last row is NULL."""
    return case.values[row] if row < len(case.values) else None


def select(cases: list[Case], dialect: str) -> str:
    """A query of the rows: a column `id` from 0, then a column of each type."""
    queries = [
        f"SELECT {row} AS id, "
        + ", ".join(f"{literal(pick_value(one, row), one, dialect)} AS {one.name}" for one in cases)
        for row in range(ROWS)
    ]
    return " UNION ALL ".join(queries)


def literal(value: Any, case: Case, dialect: str) -> str:
    """A value in SQL."""
    kind = case.type_in(dialect)
    if value is None:
        return f"CAST(NULL AS {kind})"
    return f"CAST({_plain(value, dialect)} AS {kind})"


def _plain(value: Any, dialect: str) -> str:
    match value:
        case None:
            return "NULL"
        case int() if not isinstance(value, bool) and abs(value) < 2**31:
            return str(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            if dialect == "duckdb":
                return "'" + "".join(f"\\x{one:02X}" for one in value) + "'"
            return f"X'{value.hex().upper()}'"
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat(" ")
            zone = "+00" if value.tzinfo is not None and dialect == "duckdb" else ""
            if dialect == "duckdb":
                return f"'{text}{zone}'"
            return f"TIMESTAMP{'_NTZ' if dialect == 'spark' and value.tzinfo is None else ''} '{text}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.time():
            return f"TIME '{value.isoformat()}'"
        case list():
            items = ", ".join("CAST(NULL AS INT)" if one is None else _plain(one, dialect) for one in value)
            if dialect == "duckdb":
                return f"[{items}]"
            if dialect == "spark":
                return f"array({items})"
            return f"ARRAY[{items}]"
        case dict() if set(value) == {"x", "y"}:
            x, y = (_plain(value[one], dialect) for one in "xy")
            x, y = (f"CAST({x} AS INT)", f"CAST({y} AS {'VARCHAR' if dialect == 'duckdb' else 'STRING'})")
            return {"spark": f"named_struct('x', {x}, 'y', {y})", "duckdb": f"{{'x': {x}, 'y': {y}}}"}.get(
                dialect, f"ROW({x}, {y})"
            )
        case dict():
            pairs = [(_plain(key, dialect), f"CAST({_plain(item, dialect)} AS INT)") for key, item in value.items()]
            if dialect == "duckdb":
                return "MAP {" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
            items = ", ".join(f"{key}, {item}" for key, item in pairs)
            return f"map({items})" if dialect == "spark" else f"MAP[{items}]"
    return f"'{value}'" if not isinstance(value, bool) else str(value).upper()


def shown(value: Any, case: Case) -> Any:
    """A value as JSON has it, the same for equal values of a type whatever a program's classes are."""
    if value is None:
        return None
    if case.name in ("arr",):
        return [None if one is None else int(one) for one in value]
    if case.name == "dict":
        pairs = value.items() if isinstance(value, dict) else value
        return {str(key): None if item is None else int(item) for key, item in sorted(pairs)}
    if case.name == "rec":
        parts = [value[one] for one in "xy"] if isinstance(value, dict) else list(value)
        return parts
    if isinstance(value, str) and case.name.startswith(("ts", "ltz")):
        value = dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
    if isinstance(value, dt.datetime):
        if case.name.startswith("ltz") and value.tzinfo is not None:
            value = value.astimezone(dt.UTC)
        return value.replace(tzinfo=None).isoformat(timespec="microseconds")
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value.normalize() + 0)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    return value


def expected(case: Case) -> list[Any]:
    """What a program has to read, in the order of `id`."""
    return json.loads(json.dumps([shown(pick_value(case, row), case) for row in range(ROWS)]))  # type: ignore[no-any-return]
