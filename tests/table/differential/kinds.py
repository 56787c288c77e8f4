"""The kinds of columns that random tables have: their types, the values that are drawn, and when two values are equal.

Values are those of `penstock.sql.data.arrow`: points in time are whole numbers, a map is a list of pairs, a row a
tuple. The first value of a kind is the simplest one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from penstock.sql.data.types import (
    LENGTH_MAX,
    ArrayType,
    BigIntType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowField,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)

SECOND_NS: Final = 1_000_000_000
_DAY_NS: Final = 86_400 * SECOND_NS
NAN: Final = math.nan
INFINITY: Final = math.inf
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of columns.

    Args:
        name: of the kind.
        type: of its columns in Penstock.
        duckdb: the type in DuckDB.
        values: those that are drawn, besides NULL.
        constants: values as SQL writes them, in both dialects.
        has_order: whether values are sorted, and have a MIN and MAX.
        is_equal_key: whether `=` between two columns is a key of a join.
        has_scalar_equality: whether `=` in an expression is the equality by which rows are grouped. Not for DOUBLE,
            where an expression follows IEEE 754 (NaN is not equal to itself), and not for nested values.
        passing: values of rows that are deleted again: a sum that still has one depends on the order of its rows.
    """

    name: str
    type: DataType
    duckdb: str
    values: tuple[Any, ...]
    constants: tuple[str, ...] = ()
    has_order: bool = True
    is_equal_key: bool = True
    has_scalar_equality: bool = True
    passing: tuple[Any, ...] = ()

    @property
    def null(self) -> str:
        """NULL of the kind, in Flink's SQL and DuckDB's."""
        return f"CAST(NULL AS ⟦{self.type.nullable()}¦{self.duckdb}⟧)"

    def __repr__(self) -> str:
        return self.name


_TEXT_TYPE: Final = VarCharType(LENGTH_MAX)

INT: Final = Kind("INT", IntType(), "BIGINT", (1, 2, 3, 0, -1), ("0", "1", "2"))
TEXT: Final = Kind("TEXT", _TEXT_TYPE, "VARCHAR", ("x", "y", "xy", ""), ("'x'", "'xy'"))
#: points in time that windows and queries compute with
TIME: Final = Kind("TIME", TimestampType(3), "TIMESTAMP", (0, 3 * SECOND_NS), ("TIMESTAMP '1970-01-01 00:00:03.000'",))
#: the event time of rows
ROWTIME: Final = Kind("ROWTIME", TimestampType(3), "TIMESTAMP", (0,))

LONG: Final = Kind("LONG", BigIntType(), "BIGINT", (1, 2**53 + 1, 2**53, -(2**63), 2**63 - 1))
DOUBLE: Final = Kind(
    "DOUBLE",
    DoubleType(),
    "DOUBLE",
    (1.5, 0.0, -0.0, NAN, INFINITY, -INFINITY, -2.5),
    has_scalar_equality=False,
    passing=(1e17,),
)
#: fractions that are not exact: their sums depend on the order
FRACTION: Final = Kind("FRACTION", DoubleType(), "DOUBLE", (0.3, 0.1, 50.7), has_scalar_equality=False)
FLOAT: Final = Kind("FLOAT", FloatType(), "FLOAT", (0.5, 0.1, NAN, -0.0, 0.0, INFINITY), has_scalar_equality=False)
MONEY: Final = Kind(
    "MONEY",
    DecimalType(10, 2),
    "DECIMAL(10, 2)",
    (Decimal("1.50"), Decimal("-0.01"), Decimal("99999999.99"), Decimal("0.00")),
    ("1.50",),
)
#: sums of MONEY
TOTAL: Final = Kind("TOTAL", DecimalType(38, 2), "DECIMAL(38, 2)", (Decimal("1.50"),), ("1.50",))
_HUGE, _LEAST = Decimal("9" * 38), Decimal("-" + "9" * 38)
HUGE: Final = Kind(
    "HUGE", DecimalType(38, 0), "DECIMAL(38, 0)", (Decimal(1), _HUGE, _LEAST, Decimal(9 * 10**37), Decimal(0))
)
BOOLEAN: Final = Kind("BOOLEAN", BooleanType(), "BOOLEAN", (True, False), ("TRUE", "FALSE"))
DATE: Final = Kind(
    "DATE", DateType(), "DATE", (0, -1, 19_782, _FIRST_DAY, _LAST_DAY), ("DATE '2024-02-29'", "DATE '9999-12-31'")
)
CLOCK: Final = Kind("CLOCK", TimeType(0), "TIME", (0, 86_399_000, 43_200_000), ("TIME '12:00:00'",))
#: points in time of every year
STAMP: Final = Kind(
    "STAMP",
    TimestampType(3),
    "TIMESTAMP",
    (0, -1_000_000, _FIRST_DAY * _DAY_NS, (_LAST_DAY + 1) * _DAY_NS - 1_000_000),
    ("TIMESTAMP '1969-12-31 23:59:59.999'",),
)
#: points in time with nanoseconds
MOMENT: Final = Kind(
    "MOMENT", TimestampType(9), "TIMESTAMP_NS", (0, 1, 1_714_564_800_123_456_789, -1, -9_000_000_000_000_000_001)
)
INSTANT: Final = Kind(
    "INSTANT", LocalZonedTimestampType(3), "TIMESTAMP", (0, -1_000_000, 1_714_564_800_123_000_000), ()
)
SMALL: Final = Kind("SMALL", SmallIntType(), "SMALLINT", (1, -32768, 32767, 0), ())
TINY: Final = Kind("TINY", TinyIntType(), "TINYINT", (1, -128, 127), ())
#: text of a fixed length, all of which the values have: Flink pads others, DuckDB does not
CODE: Final = Kind("CODE", CharType(2), "VARCHAR", ("ab", "zz", "AB"), ())
BYTES: Final = Kind("BYTES", VarBinaryType(LENGTH_MAX), "BLOB", (b"a", b"", b"\x00\xff", b"\x00"))
LIST: Final = Kind(
    "LIST",
    ArrayType(DoubleType()),
    "DOUBLE[]",
    ([1.5], [], [NAN, 1.5], [None], [1.5, NAN], [0.0], [-0.0, 1.5]),
    has_order=False,
    is_equal_key=False,
    has_scalar_equality=False,
)
PAIR: Final = Kind(
    "PAIR",
    RowType((RowField("x", DoubleType()), RowField("y", IntType()))),
    "STRUCT(x DOUBLE, y INTEGER)",
    ((1.5, 1), (NAN, 1), (None, 2), (None, None), (-0.0, 1)),
    has_order=False,
    is_equal_key=False,
    has_scalar_equality=False,
)
MAP: Final = Kind(
    "MAP",
    MapType(_TEXT_TYPE, IntType()),
    "MAP(VARCHAR, INTEGER)",
    ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("b", 2)], [], [("a", None)]),
    has_order=False,
    is_equal_key=False,
    has_scalar_equality=False,
)

#: results of COLLECT, of which nothing else is made
BAG_OF_INT: Final = Kind(
    "BAG_OF_INT",
    MultisetType(BigIntType()),
    "MAP(BIGINT, INTEGER)",
    (),
    has_order=False,
    is_equal_key=False,
    has_scalar_equality=False,
)
BAG_OF_TEXT: Final = replace(
    BAG_OF_INT, name="BAG_OF_TEXT", type=MultisetType(_TEXT_TYPE), duckdb="MAP(VARCHAR, INTEGER)"
)

#: kinds that each world may give its tables besides INT and TEXT
MORE_KINDS: Final = (
    DOUBLE,
    LONG,
    MAP,
    LIST,
    PAIR,
    MONEY,
    HUGE,
    FRACTION,
    FLOAT,
    BOOLEAN,
    DATE,
    CLOCK,
    STAMP,
    MOMENT,
    INSTANT,
    BYTES,
    SMALL,
    TINY,
    CODE,
)

Canonical = Callable[[Any], Any]


def comparable(kind: DataType) -> Canonical:
    """A function from values of a type to hashable ones that are equal where the values are, by SQL's grouping.

    NaN is equal to itself, 0.0 to -0.0, and a map to one with the same entries in any order.
    """
    return _canonical(kind, _number)


def identity(kind: DataType) -> Canonical:
    """The same, but with 0.0 and -0.0 apart: a row that is retracted has to be the row that was sent."""
    return _canonical(kind, _bits)


def _number(value: float) -> Any:
    return "NaN" if math.isnan(value) else value + 0.0


def _bits(value: float) -> Any:
    return "NaN" if math.isnan(value) else struct.pack(">d", value)


def _canonical(kind: DataType, of_float: Callable[[float], Any]) -> Canonical:
    convert = _converter(kind, of_float)
    return lambda value: None if value is None else convert(value)


def _converter(kind: DataType, of_float: Callable[[float], Any]) -> Canonical:
    match kind:
        case FloatType():
            return lambda value: of_float(struct.unpack("f", struct.pack("f", value))[0])
        case DoubleType():
            return lambda value: of_float(float(value))
        case MultisetType():
            element = _canonical(kind.element_type, of_float)
            return lambda value: frozenset((element(one), count) for one, count in value)
        case MapType():
            of_key, of_item = _canonical(kind.key_type, of_float), _canonical(kind.value_type, of_float)
            return lambda value: frozenset((of_key(key), of_item(item)) for key, item in value)
        case ArrayType():
            element = _canonical(kind.element_type, of_float)
            return lambda value: tuple(map(element, value))
        case RowType():
            fields = [_canonical(one, of_float) for one in kind.field_types()]
            return lambda value: tuple(convert(one) for convert, one in zip(fields, value, strict=True))
        case _:
            return lambda value: value
