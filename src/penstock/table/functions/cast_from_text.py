"""Casts from text to numbers, booleans, dates and times.

Arrow parses columns whose texts all have the usual form; other columns are parsed value by value, with Flink's rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    NumericType,
    TimestampType,
    TimeType,
)
from penstock.table.data.temporal_text import (
    DAY_NS,
    FAR_NANOSECONDS,
    MICROSECOND_DIGITS,
    SECOND_NS,
    days_from_civil,
    days_of_month,
    is_far,
)
from penstock.table.data.values import Datum, Kernel
from penstock.table.data.zones import moment_ns, to_moments
from penstock.table.functions.cast_numbers import decimal_kernel, fitted
from penstock.table.functions.cast_times import cut_time, cut_timestamp_kernel
from penstock.table.functions.definition import Session
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.type_rules import INTEGERS

_TRUE: Final = ("t", "true", "y", "yes", "1")
_FALSE: Final = ("f", "false", "n", "no", "0")
_WHOLE: Final = re.compile(r"([+-]?)(\d*)(\.\d*)?", re.ASCII)
_DOUBLE: Final = re.compile(r"([+-]?)(?:(NaN|Infinity)|((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[dDfF]?)", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_TIME: Final = re.compile(
    r"(\d+)(?::\s*(\d+)\s*(?::\s*(\d+)\s*(?:\.(\d*))?)?)?\s*(?:([+-])\s*(\d+)(?::(\d+))?)?", re.ASCII
)
_TIMESTAMP: Final = re.compile(
    r"(\d{4}|\+\d{5,9})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?)?", re.ASCII
)


def from_text_kernel(source: DataType, to: DataType, session: Session, is_try: bool) -> Kernel:
    """Return the kernel of a cast from text to any type except text and bytes."""
    slow = value_kernel(_or_null(reader(to, session)) if is_try else reader(to, session), [source], to)
    fast = _FAST.get(type(to))
    if fast is None and isinstance(to, IntegralType):
        fast = _fast_integer
    return slow if fast is None else _fast_or(slow, *fast(to, session))


def reader(to: DataType, session: Session) -> Callable[[str], object]:
    """Return a function that parses one text; it raises `TableRuntimeError` for invalid text."""
    match to:
        case BooleanType():
            return _boolean
        case DecimalType(precision=precision, scale=scale):
            return lambda text: _decimal(text, precision, scale)
        case IntegralType():
            bits = 8 * 2 ** INTEGERS.index(type(to)) - 1
            return lambda text: _integer(text, bits)
        case NumericType():
            return _float if isinstance(to, FloatType) else _double
        case DateType():
            return _date
        case TimeType(precision=digits):
            return lambda text: cut_time(_time(text), digits)
        case TimestampType(precision=digits):
            return lambda text: _cut(_timestamp(text), digits)
        case _:
            assert isinstance(to, LocalZonedTimestampType)
            digits = to.precision
            return lambda text: _cut(moment_ns(_timestamp(text), session.zone), digits)


def _or_null(read: Callable[[str], object]) -> Callable[[str], object]:
    def read_or_null(text: str) -> object:
        try:
            return read(text)
        except TableRuntimeError:
            return None

    return read_or_null


def _wrong(text: str, expected: str) -> TableRuntimeError:
    return TableRuntimeError(f"For input string: {text!r}. It cannot be read as {expected}.")


# --- single values ---------------------------------------------------------------------------------------------------


def _boolean(text: str) -> bool:
    word = text.strip(" ").lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise _wrong(text, "BOOLEAN")


def _integer(text: str, bits: int) -> int:
    match = _WHOLE.fullmatch(text.strip(" "))
    if match is None or not (match.group(2) or match.group(3)):
        raise _wrong(text, "a whole number")
    value = int(f"{match.group(1)}{match.group(2) or 0}")
    if not -(2**bits) <= value < 2**bits:
        raise _wrong(text, f"a whole number of {bits + 1} bits")
    return value


def _double(text: str) -> float:
    match = _DOUBLE.fullmatch(text.strip())
    if match is None:
        raise _wrong(text, "a number")
    sign, word, digits = match.groups()
    return float(sign + (word or digits))


def _float(text: str) -> float:
    return float(pa.scalar(_double(text)).cast(pa.float32(), safe=False).as_py())


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    trimmed = text.strip(" ")
    if _DECIMAL.fullmatch(trimmed) is None:
        raise _wrong(text, "a decimal number")
    value = Decimal(trimmed)
    # Do not write out a text such as 1e999999 in full.
    decimal = None if value and value.adjusted() >= precision - scale else fitted(value, precision, scale)
    if decimal is None:
        raise TableRuntimeError(
            f"For input string: {text!r}. Overflow: DECIMAL({precision}, {scale}) has {precision - scale} digits "
            "before the point. TRY_CAST gives NULL."
        )
    return decimal


def _date(text: str) -> int:
    parts = text.strip().partition(" ")[0].split("-")
    if len(parts) > 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise _wrong(text, "DATE")
    year, month, day = [*map(int, parts), 1, 1][:3]
    if year > 9999 or not 1 <= month <= 12 or not 1 <= day <= days_of_month(year, month):
        raise _wrong(text, "DATE")
    return days_from_civil(year, month, day)


def _time(text: str) -> int:
    """Return the milliseconds of the day. The offset of a trailing time zone is subtracted."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise _wrong(text, "TIME")
    hour, minute, second = (int(group or 0) for group in match.groups()[:3])
    if match.group(5):
        sign = 1 if match.group(5) == "-" else -1
        hour, minute = hour + sign * int(match.group(6)), minute + sign * int(match.group(7) or 0)
    if not (0 <= hour < 24 and 0 <= minute < 60 and second < 60):
        raise _wrong(text, "TIME")
    return ((hour * 60 + minute) * 60 + second) * 1000 + int((match.group(4) or "").ljust(3, "0")[:3])


def _timestamp(text: str) -> int:
    """Return nanoseconds since 1970. Days up to 31 that a month lacks become its last day, as in Java."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise _wrong(text, "TIMESTAMP")
    year, month, day, hour, minute, second = (int(group or 0) for group in match.groups()[:6])
    if not (year and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60):
        raise _wrong(text, "TIMESTAMP")
    days = days_from_civil(year, month, min(day, days_of_month(year, month)))
    of_day = ((hour * 60 + minute) * 60 + second) * SECOND_NS
    return days * DAY_NS + of_day + int((match.group(7) or "").ljust(9, "0"))


def _cut(nanoseconds: int, digits: int) -> int:
    step: int = 10 ** (9 - digits)
    if is_far(nanoseconds, digits):
        raise TableRuntimeError(FAR_NANOSECONDS)
    return nanoseconds // step * step


# --- whole columns ---------------------------------------------------------------------------------------------------

#: a pattern that all texts of a column must match, and the kernel that parses them
Fast = tuple[str, Kernel]


def _fast_or(slow: Kernel, pattern: str, fast: Kernel) -> Kernel:
    def kernel(column: Datum) -> Datum:
        if isinstance(column, pa.Array) and pc.all(pc.match_substring_regex(column, pattern)).as_py():
            try:
                return fast(column)
            except (pa.ArrowInvalid, TableRuntimeError):
                pass  # a number out of range, or an invalid date: the slow path names it
        return slow(column)

    return kernel


def _fast_cast(pattern: str) -> Callable[[DataType, Session], Fast]:
    return lambda to, session: (pattern, lambda column: pc.cast(column, arrow_type(to)))


_fast_integer = _fast_cast(r"^-?[0-9]{1,19}$")
_fast_float = _fast_cast(r"^-?[0-9]+(\.[0-9]+)?$")


def _fast_decimal(to: DataType, session: Session) -> Fast:
    assert isinstance(to, DecimalType)
    wide = DecimalType(36, 18)
    fit = decimal_kernel(wide, to)

    def read(column: Datum) -> Datum:
        decimals = fit(pc.cast(column, arrow_type(wide)))
        if decimals.null_count > column.null_count:
            raise pa.ArrowInvalid("a decimal has too many digits")
        return decimals

    return r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$", read


#: Flink's timestamps have no year 0, but Arrow parses it
_YEAR: Final = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_CLOCK: Final = rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?$"


def _fast_timestamp(to: DataType, session: Session) -> Fast:
    assert isinstance(to, TimestampType)
    microseconds = TimestampType(MICROSECOND_DIGITS)
    fit = cut_timestamp_kernel(microseconds, to)
    read = arrow_type(microseconds)
    return _CLOCK, lambda column: fit(pc.cast(column, read))


def _fast_moment(to: DataType, session: Session) -> Fast:
    assert isinstance(to, LocalZonedTimestampType)
    pattern, read = _fast_timestamp(TimestampType(to.precision), session)
    return pattern, lambda column: to_moments(read(column), session.zone)


_FAST: Final[dict[type[DataType], Callable[[DataType, Session], Fast]]] = {
    DecimalType: _fast_decimal,
    DateType: _fast_cast(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    FloatType: _fast_float,
    DoubleType: _fast_float,
    TimestampType: _fast_timestamp,
    LocalZonedTimestampType: _fast_moment,
}
