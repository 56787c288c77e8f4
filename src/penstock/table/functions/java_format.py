"""Format strings of Java's `Formatter`, such as `%08.2f`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

import numpy as np

from penstock.base.errors import UnsupportedError
from penstock.table.data.errors import TableRuntimeError


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
        spec = _Spec(conversion, flags, None if width is None else int(width), _whole(precision))
        if conversion in "%n":
            parts.append(spec.fixed())
            continue
        if "<" in flags:
            index = last
        elif number is not None and int(number) > 0:
            index = int(number) - 1
        else:
            index, ordinary = ordinary, ordinary + 1
        if not 0 <= index < len(arguments):
            raise FormatError(f"there is no value for {directive.group()}")
        last = index
        parts.append(spec.of(arguments[index]))
    return "".join(parts)


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


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
