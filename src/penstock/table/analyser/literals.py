"""Literals: the types and values of constants in SQL."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Final

from penstock.base.errors import WrongValueError
from penstock.table.data import temporal_text
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)
from penstock.table.functions.java_text import without_halves
from penstock.table.sql import syntax
from penstock.table.typed.nodes import Constant

_INT: Final = IntType(False)
#: number of digits of the greatest INT
_INT_DIGITS: Final = 10


def number(text: str) -> Constant:
    """Return the value of a numeric literal.

    Whole numbers are INT if they fit, else BIGINT. A literal with a point is a DECIMAL, one with an E a DOUBLE. The
    precision of a DECIMAL counts the digits as written: 2 for `0.5`, and 1 for `.5`.

    Raises:
        ValidationError: if the digits, without the point, do not fit into 64 bits.
    """
    if text.isdecimal() and len(text) < _INT_DIGITS:
        return Constant(_INT, int(text))
    if "e" in text.lower():
        return Constant(DoubleType(False), float(text))
    before, _, after = text.lstrip("+-").partition(".")
    unscaled = int(text.replace(".", ""))
    if not -(2**63) <= unscaled < 2**63:
        raise ValidationError(f"Numeric literal '{text}' out of range")
    if not after:
        return Constant(IntType(False) if -(2**31) <= unscaled < 2**31 else BigIntType(False), unscaled)
    return Constant(_decimal_type(len(before) + len(after), len(after)), Decimal(text))


@cache
def _decimal_type(precision: int, scale: int) -> DecimalType:
    return DecimalType(precision, scale, False)


def constant(node: syntax.Expression) -> Constant | None:
    """Return the constant of a literal, or None for other nodes."""
    match node:
        case syntax.NullLiteral():
            return Constant(NullType(), None)
        case syntax.BooleanLiteral(value):
            return Constant(BooleanType(value is None), value)
        case syntax.NumberLiteral(text):
            return number(text)
        case syntax.TextLiteral(value):
            return Constant(CharType(len(value), False), without_halves(value))
        case syntax.BinaryLiteral(digits):
            raw = bytes.fromhex(digits)
            return Constant(BinaryType(len(raw), False), raw)
        case syntax.TemporalLiteral(root, text):
            return _point_in_time(root, text)
        case syntax.IntervalLiteral(text, qualifier, is_negative):
            return _interval(text, qualifier, is_negative)
        case syntax.TypedLiteral(value, data_type):
            return Constant(data_type, value)
        case _:
            return None


def _point_in_time(root: str, text: str) -> Constant:
    digits = temporal_text.fraction_digits(text)
    value: int | None
    kind: DataType
    if root == "DATE":
        value, kind = temporal_text.parse_date(text), DateType(False)
    elif root == "TIME":
        value, kind = temporal_text.parse_time(text), TimeType(digits, False)
        value = None if value is None else value // 1_000_000
    else:
        value = temporal_text.parse_timestamp(text)
        kind = (LocalZonedTimestampType if "LTZ" in root else TimestampType)(digits, False)
        if value is not None and temporal_text.is_far(value, digits):
            raise ValidationError(f"Illegal {root} literal {text!r}: {temporal_text.FAR_NANOSECONDS}")
    if value is None:
        raise ValidationError(f"Illegal {root} literal {text!r}: it is not of the form {_FORMS[root.split('_')[0]]}")
    return Constant(kind, value)


_FORMS = {"DATE": "2020-01-31", "TIME": "12:34:56", "TIMESTAMP": "2020-01-31 12:34:56"}
#: milliseconds
_UNITS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000}
_ORDER = ("DAY", "HOUR", "MINUTE", "SECOND")


def interval_type(qualifier: syntax.IntervalQualifier) -> DataType:
    """Return the type of an interval with this qualifier."""
    resolution = qualifier.resolution
    precision = qualifier.precision
    if resolution.is_of_months:
        return YearMonthIntervalType(resolution, 2 if precision is None else precision, False)
    fraction = 6 if qualifier.fraction is None else qualifier.fraction
    return DayTimeIntervalType(resolution, 2 if precision is None else precision, fraction, False)


def _interval(text: str, qualifier: syntax.IntervalQualifier, is_negative: bool) -> Constant:
    kind = interval_type(qualifier)
    written = text.strip()
    sign = -1 if is_negative else 1
    if written[:1] in ("-", "+"):
        sign *= -1 if written[0] == "-" else 1
        written = written[1:].strip()
    try:
        if qualifier.resolution.is_of_months:
            value = _months(written, qualifier.resolution.value)
        else:
            value = _milliseconds(written, qualifier.resolution.value)
    except ValueError as error:
        raise ValidationError(f"Illegal interval literal format {text!r} for {kind}") from error
    return Constant(kind, sign * value * qualifier.times)


def _months(text: str, resolution: str) -> int:
    if resolution == "YEAR TO MONTH":
        years, months = text.split("-")
        return int(years) * 12 + int(months)
    return int(text) * (12 if resolution == "YEAR" else 1)


def _milliseconds(text: str, resolution: str) -> int:
    first, _, last = resolution.partition(" TO ")
    names = _ORDER[_ORDER.index(first) : _ORDER.index(last or first) + 1]
    parts: list[str] = []
    if names[0] == "DAY" and len(names) > 1:
        day, text = text.split()
        parts.append(day)
        parts += text.split(":")
    else:
        parts = text.split(":")
    if len(parts) != len(names):
        raise WrongValueError(f"{text!r} has not as many parts as {resolution}")
    total = Decimal(0)
    for name, part in zip(names, parts, strict=True):
        total += Decimal(part) * _UNITS[name] if name == "SECOND" else Decimal(int(part)) * _UNITS[name]
    return int(total)
