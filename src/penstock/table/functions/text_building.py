"""Functions that build a string from others or from parts of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.logical_types import LENGTH_MAX, CharType, DataType, VarCharType
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, Operands, ResultRule, ScalarFunction, Signature, scalar
from penstock.table.functions.java_text import from_units, units
from penstock.table.functions.kernels import arrow, per_value, value_kernel
from penstock.table.functions.signatures import INTEGER, STRING, TEXT, returns, takes


def _pad(text: str, length: int, padding: str, on_left: bool) -> str | None:
    if length < 0 or not padding:
        return None
    text, padding = units(text), units(padding)
    missing = max(length - len(text), 0)
    more = (padding * (missing // len(padding) + 1))[:missing]
    return from_units((more + text if on_left else text + more)[:length])


def _lpad(text: str, length: int, padding: str) -> str | None:
    return _pad(text, length, padding, True)


def _rpad(text: str, length: int, padding: str) -> str | None:
    return _pad(text, length, padding, False)


# --- several texts ---------------------------------------------------------------------------------------------------


def _join(*columns: Datum) -> Datum:
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, "", null_handling="emit_null")


def _concat_ws(separator: Datum, *columns: Datum) -> Datum:
    """Join the strings that are not NULL with a separator."""
    if not columns:
        return pc.if_else(pc.is_null(separator), separator, "")
    return pc.binary_join_element_wise(*columns, separator, null_handling="skip")


def _joined_type(call: Operands) -> DataType:
    """Return the type of a concatenation: the sum of the lengths, CHAR if all operands are."""
    lengths = [getattr(data_type, "length", LENGTH_MAX) for data_type in call.types]
    if sum(lengths) > LENGTH_MAX:
        return VarCharType(LENGTH_MAX, call.any_nullable())
    kind = CharType if all(isinstance(data_type, CharType) for data_type in call.types) else VarCharType
    return kind(max(sum(lengths), 1), call.any_nullable())


def _overlaid_type(call: Operands) -> DataType:
    lengths = [getattr(data_type, "length", LENGTH_MAX) for data_type in call.types[:2]]
    return VarCharType(min(max(sum(lengths), 1), LENGTH_MAX), call.any_nullable())


def _overlay(text: str, other: str, start: int, length: int | None = None) -> str:
    text, other = units(text), units(other)
    if not 0 < start <= len(text):
        return from_units(text)
    replaced_length = len(other) if length is None else length
    rest = text[start - 1 + replaced_length :] if replaced_length > 0 and start + replaced_length <= len(text) else ""
    return from_units(text[: start - 1] + other + rest)


# --- repeated and replaced -------------------------------------------------------------------------------------------


def _repeat(column: Datum, times: Datum) -> Datum:
    return pc.binary_repeat(column, pc.max_element_wise(times, pa.scalar(0, times.type), skip_nulls=False))


def _replace(call: Call) -> Kernel:
    old, new = call.value(1), call.value(2)
    if not isinstance(old, str) or not isinstance(new, str) or not old:
        return value_kernel(str.replace, call.types, call.result)
    return lambda column, *operands: pc.replace_substring(column, old, new)


def _translate(text: str | None, before: str | None, after: str | None) -> str | None:
    """Replace each character of `before` by the one at its index in `after`, or remove it if `after` is too short."""
    if not text or not before:
        return text
    table: dict[int, str] = {}
    for index, char in enumerate(before):
        table.setdefault(ord(char), (after or "")[index : index + 1])
    return text.translate(table)


def _translated_type(call: Operands) -> DataType:
    return VarCharType(LENGTH_MAX, call.types[0].is_nullable)


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


_PADDED: Final = takes(TEXT, INTEGER, TEXT)

FUNCTIONS: tuple[ScalarFunction, ...] = (
    _define(
        "||",
        takes(TEXT, TEXT, repeated=1),
        _joined_type,
        arrow(_join),
        "string1 || string2",
        "Concatenates string1 and string2.",
    ),
    _define(
        "CONCAT",
        (takes(TEXT), takes(TEXT, TEXT, repeated=1)),
        returns(STRING),
        arrow(_join),
        "CONCAT(string1, string2, ...)",
        "Concatenates the strings; returns NULL if any of them is NULL.",
    ),
    _define(
        "CONCAT_WS",
        (takes(TEXT), takes(TEXT, TEXT, repeated=1)),
        returns(STRING),
        arrow(_concat_ws),
        "CONCAT_WS(separator, string1, string2, ...)",
        "Joins the strings that are not NULL with the separator; returns NULL if the separator is NULL.",
    ),
    _define(
        "LPAD",
        _PADDED,
        returns(STRING),
        per_value(_lpad),
        "LPAD(string, length, padding)",
        "Pads the string on the left to a length; a longer string is truncated.",
    ),
    _define(
        "RPAD",
        _PADDED,
        returns(STRING),
        per_value(_rpad),
        "RPAD(string, length, padding)",
        "Pads the string on the right to a length; a longer string is truncated.",
    ),
    _define(
        "REPEAT",
        takes(TEXT, INTEGER),
        returns(STRING),
        arrow(_repeat),
        "REPEAT(string, times)",
        "Repeats the string the given number of times.",
    ),
    _define(
        "REPLACE",
        takes(TEXT, TEXT, TEXT),
        returns(STRING),
        _replace,
        "REPLACE(string, old, new)",
        "Replaces every occurrence of `old` in the string with `new`.",
    ),
    _define(
        "TRANSLATE",
        takes(TEXT, TEXT, TEXT),
        _translated_type,
        per_value(_translate, takes_null=True),
        "TRANSLATE(string, before, after)",
        "Replaces each character of `before` with its counterpart in `after`, or removes it without one.",
        aliases=("TRANSLATE3",),
        python_name="TRANSLATE3",
    ),
    _define(
        "OVERLAY",
        takes(TEXT, TEXT, INTEGER, INTEGER, optional=1),
        _overlaid_type,
        per_value(_overlay),
        "OVERLAY(string1 PLACING string2 FROM start [FOR length])",
        "Replaces `length` characters of string1 with string2, beginning at `start`; the length defaults to that of "
        "string2.",
    ),
)
