"""Functions of whole strings: case, trimming, length and order."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.logical_types import LENGTH_MAX, BooleanType, CharType, DataType, VarCharType
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, Operands, ResultRule, ScalarFunction, Signature, scalar
from penstock.table.functions.kernels import arrow, per_value, value_kernel
from penstock.table.functions.signatures import (
    BOOLEAN,
    INT,
    STRING,
    TEXT,
    returns,
    returns_not_null,
    returns_nullable,
    returns_operand,
    returns_text,
    takes,
)

# --- case ------------------------------------------------------------------------------------------------------------

_WORD: Final = re.compile("[0-9A-Za-z]+")


def _in_case(ascii_kernel: Callable[[Datum], Datum], function: Callable[[str], str]) -> Callable[[Call], Kernel]:
    """Use an Arrow kernel for ASCII columns. Other strings may change their length, so Python converts them."""

    def bind(call: Call) -> Kernel:
        general = value_kernel(function, call.types, call.result)

        def kernel(column: Datum) -> Datum:
            is_ascii = pc.string_is_ascii(column)
            plain = is_ascii.as_py() if isinstance(is_ascii, pa.Scalar) else pc.all(is_ascii).as_py()
            return ascii_kernel(column) if plain is not False else general(column)

        return kernel

    return bind


def _with_initials(text: str) -> str:
    """Capitalize each word of ASCII letters and digits and lower-case the rest of it."""
    return _WORD.sub(lambda word: word[0].capitalize(), text)


# --- what is around a text -------------------------------------------------------------------------------------------

_TRIMS: Final[dict[str, tuple[Callable[..., Datum], Callable[[str, str], str]]]] = {
    "BOTH": (pc.utf8_trim, str.strip),
    "LEADING": (pc.utf8_ltrim, str.lstrip),
    "TRAILING": (pc.utf8_rtrim, str.rstrip),
}


def _trim(side: str) -> Callable[[Call], Kernel]:
    """Trim the characters of the second operand, or spaces by default, on a side."""

    def bind(call: Call) -> Kernel:
        fast, slow = _TRIMS[side]
        characters = call.value(1) if len(call.types) > 1 else " "
        if not isinstance(characters, str):
            return value_kernel(slow, call.types, call.result)
        if not characters:
            return lambda column, *operands: column
        return lambda column, *operands: fast(column, characters)

    return bind


def _trim_sides(call: Call) -> Kernel:
    """TRIM. SQL passes the sides as a keyword, the Table API as two leading operands."""
    if isinstance(call.types[0], BooleanType):
        return value_kernel(_trim_by_flags, call.types, call.result)
    return _trim(call.options[0] if call.options else "BOTH")(call)


def _trim_by_flags(leading: bool, trailing: bool, characters: str, text: str) -> str:
    text = text.lstrip(characters) if leading else text
    return text.rstrip(characters) if trailing else text


def _trim_type(call: Operands) -> DataType:
    """Return VARCHAR of the trimmed string's length."""
    text = call.types[3] if isinstance(call.types[0], BooleanType) else call.types[0]
    return VarCharType(max(getattr(text, "length", LENGTH_MAX), 1), call.any_nullable())


def _uuids(call: Call) -> Kernel:
    return lambda rows: pa.array([str(uuid.uuid4()) for _ in range(rows)], pa.string())


def _define(
    name: str,
    signatures: Signature | Sequence[Signature],
    result: ResultRule,
    bind: Callable[[Call], Kernel],
    usage: str,
    summary: str,
    **more: object,
) -> ScalarFunction:
    return scalar(name, signatures, result, bind, summary, usage=usage, section="string", **more)


_TRIMMED: Final = takes(TEXT, TEXT, optional=1)

FUNCTIONS: tuple[ScalarFunction, ...] = (
    _define(
        "UPPER",
        takes(TEXT),
        returns_operand(0),
        _in_case(pc.ascii_upper, str.upper),
        "UPPER(string)",
        "Returns the string in upper case.",
        aliases=("UPPERCASE",),
    ),
    _define(
        "LOWER",
        takes(TEXT),
        returns_operand(0),
        _in_case(pc.ascii_lower, str.lower),
        "LOWER(string)",
        "Returns the string in lower case.",
        aliases=("LOWERCASE",),
    ),
    _define(
        "INITCAP",
        takes(TEXT),
        returns_operand(0),
        per_value(_with_initials),
        "INITCAP(string)",
        "Capitalizes the first letter of each word and lower-cases the rest.",
        python_name="initCap",
    ),
    _define(
        "CHAR_LENGTH",
        takes(TEXT),
        returns(INT),
        arrow(pc.utf8_length),
        "CHAR_LENGTH(string)",
        "Returns the number of characters in the string.",
        aliases=("CHARACTER_LENGTH",),
        python_name="charLength",
    ),
    _define(
        "TRIM",
        (_TRIMMED, takes(BOOLEAN, BOOLEAN, TEXT, TEXT)),
        _trim_type,
        _trim_sides,
        "TRIM([BOTH | LEADING | TRAILING] [characters] FROM string)",
        "Removes the characters, by default spaces, from the ends of the string.",
    ),
    _define(
        "LTRIM",
        _TRIMMED,
        returns_text,
        _trim("LEADING"),
        "LTRIM(string[, characters])",
        "Removes the characters, by default spaces, from the start of the string.",
    ),
    _define(
        "RTRIM",
        _TRIMMED,
        returns_text,
        _trim("TRAILING"),
        "RTRIM(string[, characters])",
        "Removes the characters, by default spaces, from the end of the string.",
    ),
    _define(
        "BTRIM",
        _TRIMMED,
        returns(STRING),
        _trim("BOTH"),
        "BTRIM(string[, characters])",
        "Removes the characters, by default spaces, from both ends of the string.",
    ),
    _define(
        "REVERSE",
        takes(TEXT),
        returns_nullable(STRING),
        arrow(pc.utf8_reverse),
        "REVERSE(string)",
        "Reverses the string.",
    ),
    _define(
        "UUID",
        takes(),
        returns_not_null(CharType(36)),
        _uuids,
        "UUID()",
        "Returns a random UUID, such as 3d3c68f7-f608-473f-b60c-b0c44ad4cc4e.",
        is_deterministic=False,
        takes_rows=True,
    ),
)
