"""TO_TIMESTAMP_LTZ: instants from numbers since 1970 or from strings."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_types import DIGITS
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError, ValidationError
from penstock.table.data.logical_types import (
    DataType,
    IntegralType,
    IntType,
    LocalZonedTimestampType,
    TimestampType,
)
from penstock.table.data.values import Datum, Kernel
from penstock.table.data.zone_names import zone_by_id
from penstock.table.data.zones import moment_ns, to_moments, view
from penstock.table.functions.definition import UNKNOWN, Call, Operands, ScalarFunction, scalar
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.signatures import NUMERIC, STRING, TEXT, family, takes
from penstock.table.functions.temporal_texts import clocks_of_text, read_modern
from penstock.table.functions.type_rules import is_text
from penstock.table.time_patterns.parsing import modern_parser
from penstock.table.time_patterns.tokens import UnusablePatternError, fraction_digits

_LEAST_DIGITS: Final = 3
_MOST_DIGITS: Final = 9
#: nanoseconds at 0000-01-01 00:00:00 and at the end of 9999
_FIRST: Final = -62_167_219_200 * 10**9
_LAST: Final = 253_402_300_800 * 10**9 - 1
_INT64: Final = 2**63
_TEXTS: Final = takes(TEXT, TEXT, TEXT, optional=2)
_NUMBERS: Final = takes(NUMERIC, family("INTEGER", IntType, IntType()), optional=1)


def _result(call: Operands) -> DataType:
    zone = call.value(2) if len(call) > 2 else UNKNOWN
    if isinstance(zone, str) and zone_by_id(zone) is None:
        raise ValidationError(f"Invalid timezone for parsing TIMESTAMP_LTZ: {zone!r} is none")
    pattern = call.value(1) if len(call) > 1 and is_text(call.types[0]) else UNKNOWN
    if isinstance(pattern, str):
        try:
            modern_parser(pattern)
        except UnusablePatternError as error:
            raise ValidationError(f"Invalid pattern for parsing TIMESTAMP_LTZ: {error}") from error
    return LocalZonedTimestampType(_digits(call))


def _digits(call: Operands) -> int:
    """Return the precision of fractional seconds: from the constant operand, but at least 3."""
    value = call.value(1)
    if len(call) < 2 or value is UNKNOWN or value is None:
        return _LEAST_DIGITS
    if isinstance(value, int):
        if not 0 <= value <= _MOST_DIGITS:
            raise ValidationError(f"Precision for TO_TIMESTAMP_LTZ must be between 0 and 9 but was {value}.")
        return max(value, _LEAST_DIGITS)
    return min(max(fraction_digits(str(value)), _LEAST_DIGITS), _MOST_DIGITS)


def _bind(call: Call) -> Kernel:
    if is_text(call.types[0]):
        return _of_text(call) if len(call.types) < 3 else _of_text_in_zone(call)
    digits = call.value(1) if len(call.types) > 1 else _LEAST_DIGITS
    assert isinstance(call.result, LocalZonedTimestampType)
    if isinstance(call.types[0], IntegralType) and isinstance(digits, int):
        return _of_whole_numbers(digits, call.result)
    limit = _INT64 if call.result.precision > 6 else _LAST + 1
    types = [*call.types, IntType()][:2]

    def moment(number: float | Decimal, digits: int) -> int | None:
        nanoseconds = _nanoseconds(number, digits)
        return nanoseconds if nanoseconds is not None and abs(nanoseconds) < limit else None

    kernel = value_kernel(moment, types, call.result)
    given = pa.scalar(_LEAST_DIGITS, pa.int32())
    return lambda number, precision=given: kernel(number, precision)


def _of_whole_numbers(digits: int, result: DataType) -> Kernel:
    kind = arrow_type(result)
    factor = 10 ** (DIGITS[kind.unit] - digits)
    first, last = _FIRST // 10 ** (_MOST_DIGITS - digits), _LAST // 10 ** (_MOST_DIGITS - digits)
    low, high = max(first, -(_INT64 // factor)), min(last, (_INT64 - 1) // factor)

    def kernel(number: Datum, precision: Datum | None = None) -> Datum:
        wide = number.cast(pa.int64())
        is_held = pc.and_(pc.greater_equal(wide, low), pc.less_equal(wide, high))
        in_range = pc.if_else(is_held, wide, pa.scalar(None, pa.int64()))
        return view(pc.multiply(in_range, factor) if factor > 1 else in_range, kind)

    return kernel


def _nanoseconds(number: float | Decimal, digits: int) -> int | None:
    """Return the nanoseconds since 1970, or None outside the years that a timestamp supports."""
    if not 0 <= digits <= _MOST_DIGITS:
        raise TableRuntimeError(f"the precision of TO_TIMESTAMP_LTZ must be between 0 and 9, and was {digits}")
    size = 10 ** (_MOST_DIGITS - digits)
    if isinstance(number, float):
        if not abs(number) < 1e30:
            return None
        integer = int(number // 1)
        nanoseconds = integer * size + int((number - integer) * size)
    else:
        nanoseconds = int(number) * size
    return nanoseconds if _FIRST <= nanoseconds <= _LAST else None


def _of_text(call: Call) -> Kernel:
    """Return the kernel for strings without a time zone, which are in UTC."""
    assert isinstance(call.result, LocalZonedTimestampType)
    read = clocks_of_text(TimestampType(call.result.precision), len(call.types))

    def kernel(*operands: Datum) -> Datum:
        moments = to_moments(read(*operands), UTC)
        if len(operands) == 1:
            _check_read(operands[0], moments)
        return moments

    return kernel


def _check_read(texts: Datum, moments: Datum) -> None:
    """Raise `TableRuntimeError` for strings that do not parse. Flink does so only without a pattern."""
    wrong = pc.and_(pc.is_valid(texts), pc.is_null(moments))
    if isinstance(wrong, pa.Scalar):
        if wrong.as_py():
            raise TableRuntimeError(f"Text {texts.as_py()!r} could not be parsed as a TIMESTAMP_LTZ")
    elif pc.any(wrong).as_py():
        text = texts if isinstance(texts, pa.Scalar) else texts.filter(wrong)[0]
        raise TableRuntimeError(f"Text {text.as_py()!r} could not be parsed as a TIMESTAMP_LTZ")


def _of_text_in_zone(call: Call) -> Kernel:
    def moment(text: str, pattern: str, name: str) -> int | None:
        clock, zone = read_modern(text, pattern), zone_by_id(name)
        return None if clock is None or zone is None else moment_ns(clock, zone)

    return value_kernel(moment, [STRING] * 3, call.result)


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "TO_TIMESTAMP_LTZ",
        (_NUMBERS, _TEXTS),
        _result,
        _bind,
        "Converts a number of milliseconds since 1970, or of the unit given by a precision from 0 to 9, to a "
        "timestamp; or parses a string with a pattern in a time zone, by default UTC.",
        usage="TO_TIMESTAMP_LTZ(number[, precision]) or TO_TIMESTAMP_LTZ(text[, pattern[, zone]])",
        section="time",
        python_name="toTimestampLtz",
        can_fail=True,
    ),
)
