"""Casts from text and casts to text.

**From text.** Text becomes numbers, booleans, dates and times. Arrow parses columns whose texts all have the usual
form; other columns are parsed value by value, with Flink's rules.

**To text.** The text of a value is Flink's text for its type, optionally of a fixed or a maximum length. `row_text`
prints rows as Flink and the print connector do: `+I[1, 2020-04-15T08:00, [a, null]]`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.serialization import parse_digits
from penstock.codecs.variant import double_text, float_text
from penstock.sql.data import datetimes, types
from penstock.sql.data.arrow import Datum, Kernel, arrow_type
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import (
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
    NumericType,
    RowType,
    StructuredType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from penstock.sql.functions.bitmaps import bitmap_text
from penstock.sql.functions.definition import Session, ValueKernel, value_kernel
from penstock.sql.functions.type_rules import INTEGERS
from penstock.sql.functions.value_casts import cut_time, cut_timestamp_kernel, decimal_kernel, fitted

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
    return slow if fast is None else slow.made_faster(_fast_or(slow, *fast(to, session)))


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
            return lambda text: _cut(datetimes.moment_ns(_timestamp(text), session.zone), digits)


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
    value = parse_digits(match.group(2) or "0") * (-1 if match.group(1) == "-" else 1)
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
    try:
        value = Decimal(trimmed)
    except InvalidOperation:  # the exponent has more than 18 digits
        value = Decimal(0 if "e-" in trimmed.lower() else "1e999999")
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
    year, month, day = [*map(parse_digits, parts), 1, 1][:3]
    if year > 9999 or not 1 <= month <= 12 or not 1 <= day <= datetimes.days_of_month(year, month):
        raise _wrong(text, "DATE")
    return datetimes.days_from_civil(year, month, day)


def _time(text: str) -> int:
    """Return the milliseconds of the day. The offset of a trailing time zone is subtracted."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise _wrong(text, "TIME")
    hour, minute, second = (parse_digits(group or "0") for group in match.groups()[:3])
    if match.group(5):
        sign = 1 if match.group(5) == "-" else -1
        hour, minute = (
            hour + sign * parse_digits(match.group(6)),
            minute + sign * parse_digits(match.group(7) or "0"),
        )
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
    days = datetimes.days_from_civil(year, month, min(day, datetimes.days_of_month(year, month)))
    of_day = ((hour * 60 + minute) * 60 + second) * datetimes.SECOND_NS
    return days * datetimes.DAY_NS + of_day + int((match.group(7) or "").ljust(9, "0"))


def _cut(nanoseconds: int, digits: int) -> int:
    step: int = 10 ** (9 - digits)
    if datetimes.is_far(nanoseconds, digits):
        raise TableRuntimeError(datetimes.FAR_NANOSECONDS)
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
    microseconds = TimestampType(datetimes.MICROSECOND_DIGITS)
    fit = cut_timestamp_kernel(microseconds, to, is_text=True)
    read = arrow_type(microseconds)
    return _CLOCK, lambda column: fit(pc.cast(column, read))


def _fast_moment(to: DataType, session: Session) -> Fast:
    assert isinstance(to, LocalZonedTimestampType)
    pattern, read = _fast_timestamp(TimestampType(to.precision), session)
    return pattern, lambda column: datetimes.to_moments(read(column), session.zone)


_FAST: Final[dict[type[DataType], Callable[[DataType, Session], Fast]]] = {
    DecimalType: _fast_decimal,
    DateType: _fast_cast(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    FloatType: _fast_float,
    DoubleType: _fast_float,
    TimestampType: _fast_timestamp,
    LocalZonedTimestampType: _fast_moment,
}


#: between these, the shortest text has no exponent
_PLAIN_LEAST, _PLAIN_MOST = 1e-3, 1e7
#: up to this scale Arrow writes decimals without an exponent
_PLAIN_SCALE: Final = 6
#: the first and the last day of the years 1 to 9999, which have four digits
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FLOAT: Final = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?")


def text_kernel(source: DataType, to: DataType, session: Session) -> Kernel:
    """Return the kernel of a cast to CHAR, VARCHAR or STRING."""
    convert, convert_value = _whole_text(source, session), build_text_cast(source, session.zone)
    fit = fit_text(source, to, session)
    if fit is None:
        return ValueKernel(convert, convert_value)
    assert isinstance(to, CharType | VarCharType)
    length, width = to.length, to.length if isinstance(to, CharType) else 0
    return ValueKernel(lambda column: fit(convert(column)), lambda value: convert_value(value)[:length].ljust(width))


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
        return lambda column: timestamp_text(datetimes.to_local(column, zone))
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
            return datetimes.format_date
        case TimeType(precision=digits):
            return lambda value: _time_text(value, digits)
        case TimestampType(precision=digits):
            return lambda value: datetimes.format_timestamp(value, digits)
        case LocalZonedTimestampType(precision=digits):
            return lambda value: datetimes.format_timestamp(datetimes.local_ns(value, zone), digits)
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
    parts = [_null_as_text(build_text_cast(part, zone)) for part in data_type.children()]
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


def _null_as_text(show: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "NULL" if value is None else show(value)


def _time_text(milliseconds: int, digits: int) -> str:
    """Format a time of day. Trailing zeros of the fraction are dropped, except for its first digit."""
    text = datetimes.format_time(milliseconds * 1_000_000, min(digits, 3))
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
    days, rest = divmod(abs(milliseconds), datetimes.DAY_MS)
    return f"{'-' if milliseconds < 0 else '+'}{days} {datetimes.format_time(rest * (datetimes.SECOND_NS // 1000), 3)}"


def _bitmap_text(value: bytes) -> str:
    from pyroaring import BitMap

    return f"{{{','.join(map(str, BitMap.deserialize(value)))}}}"


Text = Callable[[Any], str]


def row_text(kinds: Sequence[DataType]) -> Callable[[str, tuple[Any, ...]], str]:
    """Return a function that formats a row from its kind (`+I`, …) and its internal values."""
    texts = list(map(build_text_converter, kinds))

    def text(kind: str, values: tuple[Any, ...]) -> str:
        return f"{kind}[{', '.join([to_text(value) for to_text, value in zip(texts, values, strict=True)])}]"

    return text


def build_text_converter(kind: DataType) -> Text:
    """Return a function that formats internal values of a type."""
    convert = _of_type(kind)
    return lambda value: "null" if value is None else convert(value)


def _of_type(kind: DataType) -> Text:
    match kind:
        case types.BooleanType():
            return lambda value: "true" if value else "false"
        case types.FloatType():
            return float_text
        case types.DoubleType():
            return double_text
        case types.DecimalType():
            return lambda value: format(value, "f")
        case types.BitmapType():
            return bitmap_text
        case types.BinaryType() | types.VarBinaryType():
            return lambda value: "[" + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in value) + "]"
        case types.DateType():
            return datetimes.format_date
        case types.TimeType():
            return lambda value: _clock(value * 1_000_000, False)
        case types.TimestampType():
            return lambda value: (
                f"{datetimes.format_date(value // datetimes.DAY_NS)}T{_clock(value % datetimes.DAY_NS, False)}"
            )
        case types.LocalZonedTimestampType():
            return lambda value: (
                f"{datetimes.format_date(value // datetimes.DAY_NS)}T{_clock(value % datetimes.DAY_NS, True)}Z"
            )
        case types.YearMonthIntervalType():
            return _period
        case types.DayTimeIntervalType():
            return _duration
        case types.MultisetType(element_type=element):
            of_one = build_text_converter(element)
            return lambda value: "{" + ", ".join(f"{of_one(member)}={count}" for member, count in value) + "}"
        case types.ArrayType(element_type=element):
            of_element = build_text_converter(element)
            return lambda value: f"[{', '.join(map(of_element, value))}]"
        case types.MapType(key_type=key, value_type=item):
            of_key, of_item = build_text_converter(key), build_text_converter(item)
            return lambda value: (
                "{" + ", ".join(f"{of_key(entry_key)}={of_item(other)}" for entry_key, other in value) + "}"
            )
        case types.RowType():
            of_row = row_text(kind.field_types())
            return lambda value: of_row("+I", value)
        case _:
            return str


def _clock(nanoseconds: int, with_seconds: bool) -> str:
    """Format a time of day. Zero seconds are omitted unless `with_seconds` is set; fractions have 3, 6 or 9 digits."""
    seconds, fraction = divmod(nanoseconds, datetimes.SECOND_NS)
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    if not second and not fraction and not with_seconds:
        return text
    digits = f"{fraction:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}:{second:02}" + (f".{digits}" if digits else "")


def _period(months: int) -> str:
    years, rest = divmod(abs(months), 12)
    sign = "-" if months < 0 else ""
    parts = [f"{sign}{years}Y"] if years else []
    parts += [f"{sign}{rest}M"] if rest else []
    return f"P{''.join(parts)}" if parts else "P0D"


def _duration(milliseconds: int) -> str:
    sign = "-" if milliseconds < 0 else ""
    seconds, fraction = divmod(abs(milliseconds), 1_000)
    hours, rest = divmod(seconds, 3_600)
    minutes, second = divmod(rest, 60)
    parts = [f"{sign}{hours}H"] if hours else []
    parts += [f"{sign}{minutes}M"] if minutes else []
    if second or fraction:
        seconds_text = f"{second}.{fraction:03}".rstrip("0").rstrip(".") if fraction else str(second)
        parts.append(f"{sign}{seconds_text}S")
    return f"PT{''.join(parts)}" if parts else "PT0S"
