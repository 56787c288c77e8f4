"""Casts to text: Flink's text of each type's values, and text of a fixed or a maximum length."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import tzinfo
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.logical_types import (
    LENGTH_MAX,
    ArrayType,
    BinaryType,
    BitmapType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
    StructuredType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from penstock.table.data.temporal_text import DAY_MS, SECOND_NS, format_date, format_time, format_timestamp
from penstock.table.data.values import Datum, Kernel
from penstock.table.data.zones import local_ns, to_local
from penstock.table.functions.definition import Session
from penstock.table.functions.kernels import value_kernel

#: between these, the shortest text has no exponent
_PLAIN_LEAST, _PLAIN_MOST = 1e-3, 1e7
#: up to this scale Arrow writes decimals without an exponent
_PLAIN_SCALE: Final = 6
#: the first and the last day of the years 1 to 9999, which have four digits
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FLOAT: Final = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?")


def text_kernel(source: DataType, to: DataType, session: Session) -> Kernel:
    """Return the kernel of a cast to CHAR, VARCHAR or STRING."""
    convert = _whole_text(source, session)
    fit = fit_text(source, to, session)
    return convert if fit is None else lambda column: fit(convert(column))


def fit_text(source: DataType, to: DataType, session: Session) -> Kernel | None:
    """Return a kernel that pads or truncates text to the length of a type; None if neither is needed."""
    assert isinstance(to, CharType | VarCharType)
    length = to.length
    if session.legacy_cast:
        return None
    if isinstance(source, CharType | VarCharType) and (
        source.not_null() == to.not_null() or (isinstance(to, VarCharType) and source.length <= length)
    ):
        return None

    def cut(column: Datum) -> Datum:
        return pc.utf8_slice_codeunits(column, 0, length)

    def fit(column: Datum) -> Datum:
        return pc.utf8_rpad(cut(column), length)

    return fit if isinstance(to, CharType) else None if length == LENGTH_MAX else cut


def _whole_text(source: DataType, session: Session) -> Kernel:
    slow = value_kernel(build_text_cast(source, session.zone), [source], VarCharType(LENGTH_MAX))
    if isinstance(source, CharType | VarCharType):
        return lambda column: column
    if isinstance(source, BooleanType):
        return lambda column: pc.if_else(column, "TRUE", "FALSE")
    if isinstance(source, IntegralType) or (isinstance(source, DecimalType) and source.scale <= _PLAIN_SCALE):
        return lambda column: pc.cast(column, pa.string())
    if isinstance(source, FloatType | DoubleType):
        return _text_of_floats
    if isinstance(source, BinaryType | VarBinaryType):
        return _or_else(lambda column: pc.cast(column, pa.string()), slow)
    if isinstance(source, DateType):
        return _where_years_are_short(lambda column: pc.cast(column, pa.string()), slow)
    if isinstance(source, TimestampType):
        return _where_years_are_short(_timestamp_text(source.precision), slow)
    if isinstance(source, LocalZonedTimestampType):
        zone, clock = session.zone, TimestampType(source.precision)
        slow = value_kernel(build_text_cast(clock, zone), [clock], VarCharType(LENGTH_MAX))
        timestamp_text = _where_years_are_short(_timestamp_text(source.precision), slow)
        return lambda column: timestamp_text(to_local(column, zone))
    return slow


def _or_else(fast: Kernel, slow: Kernel) -> Kernel:
    def kernel(column: Datum) -> Datum:
        try:
            return fast(column)
        except pa.ArrowInvalid:
            return slow(column)

    return kernel


def _where_years_are_short(fast: Kernel, slow: Kernel) -> Kernel:
    def kernel(column: Datum) -> Datum:
        days = pc.cast(pc.cast(column, pa.date32(), safe=False), pa.int32())
        bounds = pc.min_max(days if isinstance(days, pa.Array) else pa.repeat(days, 1))
        least, most = bounds["min"].as_py(), bounds["max"].as_py()
        if least is None or (least >= _FIRST_DAY and most <= _LAST_DAY):
            return fast(column)
        return slow(column)

    return kernel


def _timestamp_text(digits: int) -> Kernel:
    length = 19 + digits + (digits > 0)
    return lambda column: pc.utf8_slice_codeunits(pc.cast(column, pa.string()), 0, length)


# --- numbers ---------------------------------------------------------------------------------------------------------


def _text_of_floats(column: Datum) -> Datum:
    texts = pc.cast(column, pa.string())
    bits = _FLOAT_BITS if pa.types.is_float32(column.type) else 53
    size = pc.abs(column)
    is_plain = pc.or_(pc.equal(size, 0.0), pc.and_(pc.greater_equal(size, _PLAIN_LEAST), pc.less(size, _PLAIN_MOST)))
    if isinstance(column, pa.Scalar):
        return texts if not texts.is_valid else pa.scalar(java_number(texts.as_py(), bits))
    result = pc.if_else(pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, "0", "."))
    if pc.all(is_plain).as_py() is not False:
        return result
    scientific = pc.fill_null(pc.invert(is_plain), False)
    converted = [java_number(text, bits) for text in texts.filter(scientific).to_pylist()]
    return pc.replace_with_mask(result, scientific, pa.array(converted, pa.string()))


#: numbers with more digits than this before the decimal point are written with an exponent
_PLAIN_DIGITS: Final = 7
_FLOAT_BITS: Final = 24
_LONG_END: Final = 2.0**63


def java_number(text: str, bits: int = 53) -> str:
    """Format a floating-point number with a significand of `bits` bits as Java does, from its shortest text."""
    if "n" in text:
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[text.lstrip("+")]
    match = _FLOAT.fullmatch(text)
    assert match is not None, text
    sign, integer, fraction, power = match.groups()
    digits = (integer + (fraction or "")).lstrip("0")
    if not digits:
        return f"{sign}0.0"
    exponent = int(power or 0) + len(integer) - 1 - (len(integer + (fraction or "")) - len(digits))
    if exponent >= _PLAIN_DIGITS:
        value = abs(float(text if bits > _FLOAT_BITS else np.float32(text)))
        if 2.0 ** (bits + 1) <= value < _LONG_END:
            digits = _whole_digits(value, bits)
    digits = digits.rstrip("0")
    if -3 <= exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    if 0 <= exponent < _PLAIN_DIGITS:
        digits = digits.ljust(exponent + 1, "0")
        return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _whole_digits(value: float, bits: int) -> str:
    """Return the digits of a large integer. Java drops as many digits as the lost bits hold, and no more."""
    step = 10 ** (len(str(2 ** (math.frexp(value)[1] - bits - 2))) - 1)
    return str((int(value) + step // 2) // step * step)


# --- single values ---------------------------------------------------------------------------------------------------


def build_text_cast(data_type: DataType, zone: tzinfo) -> Callable[[Any], str]:
    """Return a function that formats one non-NULL value of a type."""
    match data_type:
        case BooleanType():
            return lambda value: "TRUE" if value else "FALSE"
        case DecimalType():
            return lambda value: format(value, "f")
        case FloatType():
            return lambda value: java_number(pa.scalar(value, pa.float32()).cast(pa.string()).as_py(), _FLOAT_BITS)
        case DoubleType():
            return lambda value: java_number(repr(value).replace("e+", "e"))
        case BinaryType() | VarBinaryType():
            return lambda value: value.decode("utf-8", "replace")
        case DateType():
            return format_date
        case TimeType(precision=digits):
            return lambda value: _time_text(value, digits)
        case TimestampType(precision=digits):
            return lambda value: format_timestamp(value, digits)
        case LocalZonedTimestampType(precision=digits):
            return lambda value: format_timestamp(local_ns(value, zone), digits)
        case YearMonthIntervalType():
            return months_text
        case DayTimeIntervalType():
            return milliseconds_text
        case BitmapType():
            return _bitmap_text
        case MapType() | MultisetType() | ArrayType() | RowType():
            return _nested_text(data_type, zone)
        case _:
            return str


def _nested_text(data_type: DataType, zone: tzinfo) -> Callable[[Any], str]:
    parts = [_or_null(build_text_cast(part, zone)) for part in data_type.children()]
    match data_type:
        case MultisetType():
            (element,) = parts
            return lambda value: f"{{{', '.join(f'{element(member)}={count}' for member, count in value)}}}"
        case ArrayType():
            (element,) = parts
            return lambda value: f"[{', '.join(map(element, value))}]"
        case MapType():
            key, item = parts
            return lambda value: f"{{{', '.join(f'{key(entry_key)}={item(other)}' for entry_key, other in value)}}}"
        case StructuredType(fields=fields):
            names = [field.name for field in fields]
            return lambda value: (
                f"({', '.join(f'{name}={show(item)}' for name, show, item in zip(names, parts, value, strict=True))})"
            )
        case _:
            return lambda value: (
                f"({', '.join(show(field_value) for show, field_value in zip(parts, value, strict=True))})"
            )


def _or_null(show: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "NULL" if value is None else show(value)


def _time_text(milliseconds: int, digits: int) -> str:
    """Format a time of day. Trailing zeros of the fraction are dropped, except for its first digit."""
    text = format_time(milliseconds * 1_000_000, min(digits, 3))
    if not digits:
        return text
    clock_text, _, fraction = text.partition(".")
    return f"{clock_text}.{fraction[0]}{fraction[1:].rstrip('0')}"


def months_text(months: int) -> str:
    """`+2-00`."""
    years, rest = divmod(abs(months), 12)
    return f"{'-' if months < 0 else '+'}{years}-{rest:02}"


def milliseconds_text(milliseconds: int) -> str:
    """Return milliseconds as `+0 00:03:00.000`."""
    days, rest = divmod(abs(milliseconds), DAY_MS)
    return f"{'-' if milliseconds < 0 else '+'}{days} {format_time(rest * (SECOND_NS // 1000), 3)}"


def _bitmap_text(value: bytes) -> str:
    from pyroaring import BitMap

    return f"{{{','.join(map(str, BitMap.deserialize(value)))}}}"
