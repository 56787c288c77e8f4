"""PRINTF with the format strings of Java's `Formatter`, such as `%08.2f`, and functions of characters.

The functions of characters test the characters of a string, or convert characters to numbers and back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError, short_repr
from penstock.codecs.serialization import parse_digits
from penstock.sql.data import types
from penstock.sql.data.arrow import Datum, Kernel
from penstock.sql.data.datetimes import DAY_NS, civil_from_days
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.functions import definition
from penstock.sql.functions.type_rules import is_text


class FormatError(TableRuntimeError):
    """Raised for invalid format strings and for values that do not fit their directive."""


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer and its width in bits."""

    value: int
    bits: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A value that can only be formatted as its text."""

    text: str


class Single(float):
    """A 4-byte floating-point number."""


#: the values that can be formatted
Argument = bool | float | Whole | Shown | None

_DIRECTIVE: Final = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(<]*)(\d+)?(?:\.(\d+))?([tT])?([a-zA-Z%])")
_CONVERSIONS: Final = frozenset("bBhHsScCdoxXeEfgGaA%n")
_DIGITS: Final = Context(prec=400, rounding=ROUND_HALF_UP)
_DEFAULT_PRECISION: Final = 6


def formatted(pattern: str, arguments: Sequence[Argument]) -> str:
    """Format arguments. Raises `FormatError`."""
    parts: list[str] = []
    at = ordinary = 0
    last = -1
    while at < len(pattern):
        position = pattern.find("%", at)
        if position < 0:
            parts.append(pattern[at:])
            break
        parts.append(pattern[at:position])
        directive = _DIRECTIVE.match(pattern, position)
        if directive is None:
            raise FormatError(f"an unknown directive at character {position}")
        at = directive.end()
        number, flags, width, precision, is_date, conversion = directive.groups()
        if is_date:
            raise UnsupportedError("PRINTF does not format dates with %t")
        if conversion not in _CONVERSIONS:
            raise FormatError(f"an unknown conversion {conversion}")
        spec = _Spec(conversion, flags, _read_length(width), _read_length(precision))
        if conversion in "%n":
            parts.append(spec.fixed())
            continue
        if "<" in flags:
            index = last
        elif number is not None and parse_digits(number) > 0:
            index = parse_digits(number) - 1
        else:
            index, ordinary = ordinary, ordinary + 1
        if not 0 <= index < len(arguments):
            raise FormatError(f"there is no value for {directive.group()}")
        last = index
        parts.append(spec.of(arguments[index]))
    return "".join(parts)


#: Java's widths are 32-bit integers.
_LENGTHS_END: Final = 2**31


def _read_length(text: str | None) -> int | None:
    length = None if text is None else parse_digits(text)
    if length is not None and length >= _LENGTHS_END:
        raise FormatError(f"a width or precision is too large: {short_repr(text)}")
    return length


@dataclass(frozen=True, slots=True)
class _Spec:
    conversion: str
    flags: str
    width: int | None
    precision: int | None

    def fixed(self) -> str:
        """Return a percent sign or a line separator."""
        if self.conversion == "n":
            if self.width is not None or self.precision is not None or self.flags:
                raise FormatError("%n has neither flags nor a width")
            return "\n"
        self._check_flags("-")
        return self._wide("%")

    def of(self, value: Argument) -> str:
        """Format one value."""
        if len(set(self.flags)) < len(self.flags):
            raise FormatError("a flag is there twice")
        if self.width is None and ("-" in self.flags or "0" in self.flags):
            raise FormatError("- and 0 need a width")
        kind = self.conversion.lower()
        if kind in "bhs":
            self._check_flags("-")
            text = self._general(value, kind)
            result = self._wide(text if self.precision is None else text[: self.precision])
        elif kind == "c":
            self._check_flags("-")
            result = self._wide(self._character(value))
        elif value is None:
            result = self._wide("null")
        elif kind in "dox":
            result = self._whole_number(value, kind)
        else:
            result = self._fraction(value, kind)
        return result.upper() if self.conversion.isupper() else result

    def _check_flags(self, allowed: str) -> None:
        if set(self.flags) - set(allowed) - {"<"}:
            raise FormatError(f"%{self.conversion} does not take the flags {self.flags}")

    def _wide(self, text: str) -> str:
        if self.width is None:
            return text
        return text.ljust(self.width) if "-" in self.flags else text.rjust(self.width)

    def _general(self, value: Argument, kind: str) -> str:
        if kind == "b":
            return "false" if value is None or value is False else "true"
        if kind == "h" and value is not None:
            return self._hash(value)
        return plain_text(value)

    def _hash(self, value: Argument) -> str:
        if isinstance(value, bool):
            return f"{1231 if value else 1237:x}"
        if isinstance(value, Whole):
            folded = value.value ^ (value.value >> 32) if value.bits == 64 else value.value
            return f"{folded & 0xFFFFFFFF:x}"
        raise UnsupportedError("PRINTF shows the hash of whole numbers and booleans alone")

    def _character(self, value: Argument) -> str:
        if value is None:
            return "null"
        if not isinstance(value, Whole) or value.bits == 64 or not 0 <= value.value <= 0x10FFFF:
            raise FormatError("%c takes the code of a character")
        return chr(value.value)

    def _whole_number(self, value: Argument, kind: str) -> str:
        if not isinstance(value, Whole) or self.precision is not None:
            raise FormatError(f"%{kind} takes whole numbers, without a precision")
        if kind == "d":
            self._check_flags("-+ 0,(")
            return self._signed(str(abs(value.value)), value.value < 0)
        self._check_flags("-#0")
        bits = value.value & ((1 << value.bits) - 1)
        text = f"{bits:{kind}}"
        if "#" in self.flags:
            text = ("0x" if kind == "x" else "0") + text
        prefix = "0x" if kind == "x" and "#" in self.flags else ""
        return self._zeros(text.removeprefix(prefix), prefix)

    def _zeros(self, text: str, before: str = "", behind: str = "") -> str:
        """Pad with zeros between the sign and the digits, up to the width, if the flag 0 is set."""
        if "0" in self.flags and self.width is not None:
            return before + text.rjust(self.width - len(before) - len(behind), "0") + behind
        return self._wide(before + text + behind)

    def _signed(self, digits: str, is_negative: bool, takes_zeros: bool = True) -> str:
        if "," in self.flags:
            integer, point, fraction = digits.partition(".")
            digits = f"{int(integer):,}{point}{fraction}"
        if ("+" in self.flags and " " in self.flags) or ("-" in self.flags and "0" in self.flags):
            raise FormatError("flags that exclude each other")
        before, behind = "", ""
        if is_negative:
            before, behind = ("(", ")") if "(" in self.flags else ("-", "")
        elif "+" in self.flags:
            before = "+"
        elif " " in self.flags:
            before = " "
        return self._zeros(digits, before, behind) if takes_zeros else self._wide(before + digits + behind)

    def _fraction(self, value: Argument, kind: str) -> str:
        if isinstance(value, bool) or not isinstance(value, float):
            raise FormatError(f"%{kind} takes numbers with a fraction")
        is_negative = math.copysign(1, value) < 0 and not math.isnan(value)
        if not math.isfinite(value):
            return self._signed_word("NaN" if math.isnan(value) else "Infinity", is_negative)
        if kind == "a":
            return self._signed(_hexadecimal(abs(value)), is_negative)
        number = Decimal(repr(float(abs(value))))
        precision = _DEFAULT_PRECISION if self.precision is None else self.precision
        if kind == "g":
            self._check_flags("-+ 0,(")
            text = _general_digits(number, max(precision, 1))
        elif kind == "e":
            self._check_flags("-#+ 0(")
            text = _scientific(number, precision)
        else:
            self._check_flags("-#+ 0,(")
            text = _fixed(number, precision)
        return self._signed(text, is_negative)

    def _signed_word(self, word: str, is_negative: bool) -> str:
        if word == "NaN":
            return self._wide(word)
        if is_negative:
            return self._wide(f"({word})" if "(" in self.flags else f"-{word}")
        return self._wide(f"+{word}" if "+" in self.flags else word)


def _fixed(number: Decimal, precision: int) -> str:
    return f"{number.quantize(Decimal(1).scaleb(-precision), context=_DIGITS):f}"


def _scientific(number: Decimal, precision: int) -> str:
    if not number:
        return f"{_fixed(number, precision)}e+00"
    exponent = number.adjusted()
    digits = number.scaleb(-exponent).quantize(Decimal(1).scaleb(-precision), context=_DIGITS)
    if digits >= 10:
        exponent += 1
        digits = digits.scaleb(-1).quantize(Decimal(1).scaleb(-precision), context=_DIGITS)
    return f"{digits:f}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _general_digits(number: Decimal, precision: int) -> str:
    """Format without an exponent if the number is at least 0.0001 and less than ten to the power of the precision."""
    if not number:
        return _fixed(number, precision - 1)
    rounded = Context(prec=precision, rounding=ROUND_HALF_UP).plus(number)
    if Decimal("0.0001") <= rounded < Decimal(10) ** precision:
        return _fixed(number, precision - 1 - rounded.adjusted())
    return _scientific(number, precision - 1)


def _hexadecimal(value: float) -> str:
    mantissa, _, exponent = value.hex().partition("p")
    digits = mantissa.rstrip("0") if "." in mantissa else f"{mantissa}.0"
    return f"{digits}0p{int(exponent)}" if digits.endswith(".") else f"{digits}p{int(exponent)}"


def plain_text(value: Argument) -> str:
    """Return a value as Java prints it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Whole():
            return str(value.value)
        case Shown():
            return value.text
    return number_text(value, isinstance(value, Single))


def number_text(value: float, is_single: bool = False) -> str:
    """Return a floating-point number as Java prints it: with an exponent below 0.001 and from ten million upwards."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    number = Decimal(str(np.float32(value)) if is_single else repr(float(value)))
    sign = "-" if math.copysign(1, value) < 0 else ""
    number = abs(number).normalize()
    if number and not Decimal("0.001") <= number < Decimal(10_000_000):
        exponent = number.adjusted()
        return f"{sign}{_with_point(number.scaleb(-exponent))}E{exponent}"
    return sign + _with_point(number)


def _with_point(number: Decimal) -> str:
    text = f"{number:f}"
    return text if "." in text else f"{text}.0"


_BITS: dict[type[types.DataType], int] = {
    types.TinyIntType: 8,
    types.SmallIntType: 16,
    types.IntType: 32,
    types.BigIntType: 64,
    types.DateType: 32,
    types.TimeType: 32,
    types.YearMonthIntervalType: 32,
    types.DayTimeIntervalType: 64,
}


def timestamp_text(nanoseconds: int) -> str:
    """Return a timestamp as Java prints it: omitting zero seconds and fractions."""
    days, rest = divmod(nanoseconds, DAY_NS)
    year, month, day = civil_from_days(days)
    seconds, fraction = divmod(rest, 1_000_000_000)
    text = f"{year:04d}-{month:02d}-{day:02d}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if seconds % 60 or fraction:
        text += f":{seconds % 60:02d}"
    if not fraction:
        return text
    digits = f"{fraction:09d}"
    return f"{text}.{digits[:3] if digits.endswith('000000') else digits[:6] if digits.endswith('000') else digits}"


def _argument(data_type: types.DataType) -> Callable[[Any], Argument]:
    """Return a function that converts values of a type to format arguments."""
    bits = _BITS.get(type(data_type))
    if bits is not None:
        return lambda value: Whole(value, bits)
    if isinstance(data_type, types.BooleanType | types.DoubleType | types.NullType):
        return lambda value: value
    if isinstance(data_type, types.FloatType):
        return Single
    if isinstance(data_type, types.TimestampType | types.LocalZonedTimestampType):
        return lambda value: Shown(timestamp_text(value))
    if is_text(data_type) or isinstance(data_type, types.DecimalType):
        return lambda value: Shown(f"{value:f}" if not isinstance(value, str) else value)
    raise UnsupportedError(f"PRINTF does not format values of type {data_type}")


def _printf(call: definition.Call) -> Kernel:
    converters = [_argument(data_type) for data_type in call.types[1:]]

    def format_row(pattern: str | None, *values: Any) -> str | None:
        if pattern is None:
            return None
        arguments = [None if value is None else see(value) for see, value in zip(converters, values, strict=True)]
        try:
            return formatted(pattern, arguments)
        except FormatError:
            return None

    return definition.value_kernel(format_row, call.types, call.result, takes_null=True)


TEXT_FORMAT_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "PRINTF",
        (definition.takes(definition.TEXT), definition.takes(definition.TEXT, definition.ANY, repeated=1)),
        definition.returns_nullable(definition.STRING),
        _printf,
        "Formats the values with a Java format string; returns NULL if a value does not fit the format.",
        section="string",
        usage="PRINTF(format, value1, ...)",
    ),
)


#: a floating-point number in Java's syntax
_NUMBER: Final = re.compile(
    r"[\0- ]*[+-]?(?:NaN|Infinity|(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
    r"|0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?)[\0- ]*",
    re.ASCII,
)


def _is_decimal_text(text: str | None) -> bool:
    return text is not None and (_NUMBER.fullmatch(text) is not None or _is_whole(text))


def _is_whole(text: str) -> bool:
    """Return whether Java parses it as a 64-bit integer, in the digits of any script."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isdecimal() and -(2**63) <= parse_digits(digits) * (-1 if text.startswith("-") else 1) < 2**63


def _always(answer: bool) -> Kernel:
    """Return a kernel with the same answer for all values, including NULL."""

    def kernel(column: Datum) -> Datum:
        return pc.or_(pc.is_valid(column), pc.is_null(column)) if answer else pc.is_null(pc.is_null(column))

    return kernel


def _is_alpha(call: definition.Call) -> Kernel:
    return (lambda column: pc.fill_null(pc.utf8_is_alpha(column), False)) if is_text(call.types[0]) else _always(False)


def _is_digit(call: definition.Call) -> Kernel:
    if is_text(call.types[0]):
        return lambda column: pc.fill_null(pc.utf8_is_decimal(column), False)
    return _always(isinstance(call.types[0], types.IntegralType))


def _is_decimal(call: definition.Call) -> Kernel:
    if is_text(call.types[0]):
        return definition.value_kernel(_is_decimal_text, call.types, call.result, takes_null=True)
    return _always(not isinstance(call.types[0], types.DecimalType))


def _ascii(text: str) -> int:
    """Return the first byte of the UTF-8 encoding as a signed number."""
    first = text[:1].encode()[:1]
    return int.from_bytes(first, "big", signed=True) if first else 0


def _chr(code: int) -> str:
    return chr(code & 0xFF) if code >= 0 else ""


def _is_valid_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


_TEXT_OR_NUMBER = definition.takes(definition.either(definition.TEXT, definition.NUMERIC))

TEXT_CHECKS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "IS_ALPHA",
        _TEXT_OR_NUMBER,
        definition.returns_not_null(definition.BOOLEAN_TYPE),
        _is_alpha,
        "Returns TRUE if all characters are letters.",
        section="string",
        usage="IS_ALPHA(string)",
    ),
    definition.scalar(
        "IS_DIGIT",
        _TEXT_OR_NUMBER,
        definition.returns_not_null(definition.BOOLEAN_TYPE),
        _is_digit,
        "Returns TRUE if all characters are digits.",
        section="string",
        usage="IS_DIGIT(string)",
    ),
    definition.scalar(
        "IS_DECIMAL",
        _TEXT_OR_NUMBER,
        definition.returns_not_null(definition.BOOLEAN_TYPE),
        _is_decimal,
        "Returns TRUE if the string can be parsed as a number.",
        section="string",
        usage="IS_DECIMAL(string)",
    ),
    definition.scalar(
        "ASCII",
        definition.takes(definition.TEXT),
        definition.returns(definition.INT),
        definition.per_value(_ascii),
        "Returns the code of the first character, or 0 for an empty string.",
        section="string",
        usage="ASCII(string)",
    ),
    definition.scalar(
        "CHR",
        definition.takes(definition.INTEGER),
        definition.returns_nullable(definition.STRING),
        definition.per_value(_chr),
        "Returns the character whose code is the lowest eight bits of the integer.",
        section="string",
        usage="CHR(integer)",
    ),
    definition.scalar(
        "IS_VALID_UTF8",
        definition.takes(definition.BINARY),
        definition.returns(definition.BOOLEAN_TYPE),
        definition.per_value(_is_valid_utf8),
        "Returns TRUE if the bytes are valid UTF-8.",
        section="string",
        usage="IS_VALID_UTF8(bytes)",
    ),
    definition.scalar(
        "MAKE_VALID_UTF8",
        definition.takes(definition.BINARY),
        definition.returns(definition.STRING),
        definition.per_value(lambda raw: raw.decode(errors="replace")),
        "Decodes UTF-8 bytes to a string, replacing invalid sequences with U+FFFD.",
        section="string",
        usage="MAKE_VALID_UTF8(bytes)",
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*TEXT_FORMAT_FUNCTIONS, *TEXT_CHECKS_FUNCTIONS)
