"""Functions that test the characters of a string, or convert characters to numbers and back."""

from __future__ import annotations

import re
from typing import Final

import pyarrow.compute as pc

from penstock.table.data.logical_types import DecimalType, IntegralType
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, ScalarFunction, scalar
from penstock.table.functions.kernels import per_value, value_kernel
from penstock.table.functions.signatures import (
    BINARY,
    BOOLEAN_TYPE,
    INT,
    INTEGER,
    NUMERIC,
    STRING,
    TEXT,
    either,
    returns,
    returns_not_null,
    returns_nullable,
    takes,
)
from penstock.table.functions.type_rules import is_text

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
    return digits.isdecimal() and -(2**63) <= int(text) < 2**63


def _always(answer: bool) -> Kernel:
    """Return a kernel with the same answer for all values, including NULL."""

    def kernel(column: Datum) -> Datum:
        return pc.or_(pc.is_valid(column), pc.is_null(column)) if answer else pc.is_null(pc.is_null(column))

    return kernel


def _is_alpha(call: Call) -> Kernel:
    return (lambda column: pc.fill_null(pc.utf8_is_alpha(column), False)) if is_text(call.types[0]) else _always(False)


def _is_digit(call: Call) -> Kernel:
    if is_text(call.types[0]):
        return lambda column: pc.fill_null(pc.utf8_is_decimal(column), False)
    return _always(isinstance(call.types[0], IntegralType))


def _is_decimal(call: Call) -> Kernel:
    if is_text(call.types[0]):
        return value_kernel(_is_decimal_text, call.types, call.result, takes_null=True)
    return _always(not isinstance(call.types[0], DecimalType))


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


_TEXT_OR_NUMBER = takes(either(TEXT, NUMERIC))

FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "IS_ALPHA",
        _TEXT_OR_NUMBER,
        returns_not_null(BOOLEAN_TYPE),
        _is_alpha,
        "Returns TRUE if all characters are letters.",
        section="string",
        usage="IS_ALPHA(string)",
    ),
    scalar(
        "IS_DIGIT",
        _TEXT_OR_NUMBER,
        returns_not_null(BOOLEAN_TYPE),
        _is_digit,
        "Returns TRUE if all characters are digits.",
        section="string",
        usage="IS_DIGIT(string)",
    ),
    scalar(
        "IS_DECIMAL",
        _TEXT_OR_NUMBER,
        returns_not_null(BOOLEAN_TYPE),
        _is_decimal,
        "Returns TRUE if the string can be parsed as a number.",
        section="string",
        usage="IS_DECIMAL(string)",
    ),
    scalar(
        "ASCII",
        takes(TEXT),
        returns(INT),
        per_value(_ascii),
        "Returns the code of the first character, or 0 for an empty string.",
        section="string",
        usage="ASCII(string)",
    ),
    scalar(
        "CHR",
        takes(INTEGER),
        returns_nullable(STRING),
        per_value(_chr),
        "Returns the character whose code is the lowest eight bits of the integer.",
        section="string",
        usage="CHR(integer)",
    ),
    scalar(
        "IS_VALID_UTF8",
        takes(BINARY),
        returns(BOOLEAN_TYPE),
        per_value(_is_valid_utf8),
        "Returns TRUE if the bytes are valid UTF-8.",
        section="string",
        usage="IS_VALID_UTF8(bytes)",
    ),
    scalar(
        "MAKE_VALID_UTF8",
        takes(BINARY),
        returns(STRING),
        per_value(lambda raw: raw.decode(errors="replace")),
        "Decodes UTF-8 bytes to a string, replacing invalid sequences with U+FFFD.",
        section="string",
        usage="MAKE_VALID_UTF8(bytes)",
    ),
)
