"""Values and types as the files in `flink/` write them, and as tables hold them."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np

from penstock.sql.data import types
from penstock.sql.data.datetimes import parse_date, parse_time, parse_timestamp
from penstock.sql.data.types import DataType
from penstock.sql.functions.variants import parse
from penstock.sql.parser.types import TypeParser

_LEGACY = {
    "Integer": "INT",
    "Long": "BIGINT",
    "Short": "SMALLINT",
    "Byte": "TINYINT",
    "Double": "DOUBLE",
    "Float": "FLOAT",
    "Boolean": "BOOLEAN",
    "String": "STRING",
    "BigDecimal": "DECIMAL(38, 18)",
    "LocalDate": "DATE",
    "LocalTime": "TIME(0)",
    "LocalDateTime": "TIMESTAMP(3)",
    "Instant": "TIMESTAMP_LTZ(3)",
    "TimeIntervalTypeInfo(Long)": "INTERVAL DAY TO SECOND(3)",
    "TimeIntervalTypeInfo(Integer)": "INTERVAL YEAR TO MONTH",
    "GenericType<java.lang.Integer>": "RAW('java.lang.Integer', '?')",
    "byte[]": "BYTES",
    "int[]": "ARRAY<INT NOT NULL>",
    "double[]": "ARRAY<DOUBLE NOT NULL>",
}


class UnknownTypeError(Exception):
    """A type that is none of SQL's."""


def parse_type(text: str) -> DataType:
    """A type by its text, in SQL or as Flink's old types print themselves."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    text = re.sub(r"\[(RAW\(.*?\))\]", r"\1", text)
    old = _old_type(text)
    if old is not None:
        return old
    try:
        parser = TypeParser(text)
        found = parser.data_type()
        parser.finish()
    except Exception as error:
        raise UnknownTypeError(text) from error
    return found


def _old_type(text: str) -> DataType | None:
    if text in _LEGACY:
        return parse_type(_LEGACY[text])
    for pattern, make in (
        (r"(?:ObjectArrayTypeInfo|BasicArrayTypeInfo)<(.*)>", lambda one: types.ArrayType(parse_type(one))),
        (r"Map<(.*)>", _old_map),
        (r"Decimal\((.*)\)", lambda pair: parse_type(f"DECIMAL({pair})")),
        (r"(?s)Row\((.*)\)", _old_row),
    ):
        found = re.fullmatch(pattern, text)
        if found is not None:
            return make(found.group(1))
    return None


def _old_map(text: str) -> DataType:
    key, item = split(text)
    return types.MapType(parse_type(key), parse_type(item))


def _old_row(text: str) -> DataType:
    fields = [one.split(": ", 1) for one in split(text)]
    return types.RowType([types.RowField(name, parse_type(kind)) for name, kind in fields])


def split(text: str) -> list[str]:
    """The parts between commas outside of brackets."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char in "(<[") - (char in ")>]")
        if char == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    return [*parts, current.strip()] if current.strip() else parts


def type_of_value(value: Any) -> DataType:
    """The type that Flink gives a value for which a test names none."""
    match value:
        case bool():
            return types.BooleanType(False)
        case int():
            return types.IntType(False) if abs(value) < 2**31 else types.BigIntType(False)
        case float():
            return types.DoubleType(False)
        case str():
            return types.CharType(len(value), False)
        case None:
            return types.NullType()
        case _:
            raise UnknownTypeError(f"the type of {value!r}")


def held(value: Any, kind: DataType) -> Any:
    """A value of a file as `penstock.sql.data.arrow` holds it."""
    if value is None:
        return None
    if isinstance(value, dict) and "$" not in value:
        value = list(value.values())
    mark, inner = (value["$"], value["v"]) if isinstance(value, dict) else (None, value)
    match kind:
        case types.DecimalType(precision=precision, scale=scale):
            number = Decimal(str(inner)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(prec=80))
            return number if len(number.as_tuple().digits) <= precision else None
        case types.FloatType() | types.DoubleType():
            return float(str(inner).replace("Infinity", "inf"))
        case types.BinaryType() | types.VarBinaryType():
            return bytes.fromhex(inner) if mark == "bytes" else inner.encode()
        case types.BitmapType():
            return _bitmap(inner)
        case types.VariantType():
            return parse(inner)
        case types.DateType():
            return inner if isinstance(inner, int) else parse_date(inner.split("T")[0].split(" ")[0])
        case types.TimeType():
            return inner if isinstance(inner, int) else _not_none(parse_time(inner)) // 1_000_000
        case types.TimestampType():
            return parse_timestamp(inner)
        case types.LocalZonedTimestampType():
            return parse_timestamp(inner.removesuffix("Z"))
        case types.YearMonthIntervalType():
            return inner if isinstance(inner, int) else period(inner)
        case types.DayTimeIntervalType():
            return inner if isinstance(inner, int) else duration(inner)
        case types.MultisetType(element_type=element):
            return [(held(one, element), count) for one, count in inner]
        case types.ArrayType(element_type=element):
            return [held(one, element) for one in inner]
        case types.MapType(key_type=key, value_type=item):
            pairs = inner.items() if isinstance(inner, dict) else inner
            return [(held(one, key), held(other, item)) for one, other in pairs]
        case types.CharType() | types.VarCharType() if not isinstance(inner, str):
            return str(inner)
        case types.RowType():
            return tuple(held(one, field) for one, field in zip(inner, kind.field_types(), strict=True))
        case _:
            return inner


def shortened(value: Any, kind: DataType) -> Any:
    """A held value whose FLOATs have 32 bits."""
    if value is None:
        return None
    match kind:
        case types.FloatType():
            return float(np.float32(value))
        case types.ArrayType(element_type=element):
            return [shortened(one, element) for one in value]
        case types.MultisetType(element_type=element):
            return [(shortened(one, element), count) for one, count in value]
        case types.MapType(key_type=key, value_type=item):
            return [(shortened(one, key), shortened(other, item)) for one, other in value]
        case types.RowType():
            return tuple(map(shortened, value, kind.field_types()))
        case _:
            return value


def alike(one: Any, other: Any) -> bool:
    """Whether two held values are the same; floating-point numbers but for their last bits, maps in any order."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-300) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return False
        if all(map(alike, one, other)):
            return True
        is_map = all(isinstance(part, tuple) and len(part) == 2 for part in (*one, *other)) and isinstance(one, list)
        return is_map and all(any(alike(part, wanted) for wanted in other) for part in one)
    return type(one) is type(other) and bool(one == other)


def _not_none(value: int | None) -> int:
    assert value is not None
    return value


def _bitmap(text: str) -> bytes:
    from pyroaring import BitMap

    numbers = [one for one in text.strip("{}").split(",") if one.strip()]
    if numbers[-1:] == ["..."]:  # a text too long to be shown: all numbers from the first on
        return bytes(BitMap(range(int(numbers[0]), 2**32)).serialize())
    return bytes(BitMap(map(int, numbers)).serialize())


def period(text: str) -> int:
    """The months of a `java.time.Period` as it prints itself."""
    found = re.fullmatch(r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?", text)
    assert found is not None, text
    years, months = (int(one or 0) for one in found.groups()[:2])
    return years * 12 + months


def duration(text: str) -> int:
    """The milliseconds of a `java.time.Duration` as it prints itself."""
    found = re.fullmatch(r"P(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?", text)
    assert found is not None, text
    days, hours, minutes = (int(one or 0) for one in found.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + int(Decimal(found.group(4) or 0) * 1000)


def calcite_type(kind: DataType) -> str:
    """A type as Calcite prints it."""
    text = _calcite(kind)
    return text if kind.is_nullable else f"{text} NOT NULL"


def _calcite(kind: DataType) -> str:
    match kind:
        case types.CharType(length=length):
            return f'CHAR({length}) CHARACTER SET "UTF-16LE"'
        case types.VarCharType(length=length):
            return f'VARCHAR({length}) CHARACTER SET "UTF-16LE"'
        case types.VarBinaryType(length=length):
            return f"VARBINARY({length})"
        case types.IntType():
            return "INTEGER"
        case types.LocalZonedTimestampType(precision=precision):
            return f"TIMESTAMP_WITH_LOCAL_TIME_ZONE({precision})"
        case types.MultisetType(element_type=element):
            return f"{calcite_type(element)} MULTISET"
        case types.ArrayType(element_type=element):
            return f"{calcite_type(element)} ARRAY"
        case types.MapType(key_type=key, value_type=item):
            return f"({calcite_type(key)}, {calcite_type(item)}) MAP"
        case types.YearMonthIntervalType() | types.DayTimeIntervalType():
            return re.sub(r"(?<=YEAR|.DAY)\(2\)|(?<=SECOND)\(6\)", "", str(kind.nullable()))
        case types.RowType():
            fields = ", ".join(f"{calcite_type(field.data_type)} {field.name}" for field in kind.fields)
            return f"RecordType:peek_no_expand({fields})"
        case types.YearMonthIntervalType() | types.DayTimeIntervalType():
            return re.sub(r"(YEAR|DAY)\(2\)|(SECOND)\(6\)", r"\1\2", str(kind.nullable()))
        case _:
            return str(kind.nullable())
