"""Functions that split and search strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.errors import TableRuntimeError, ValidationError
from penstock.table.data.logical_types import LENGTH_MAX, ArrayType, DataType, IntegralType, MapType, NullType
from penstock.table.data.values import Datum, Kernel, to_full_array
from penstock.table.functions.definition import Call, Operands, ResultRule, ScalarFunction, Signature, scalar
from penstock.table.functions.java_patterns import compiled, split
from penstock.table.functions.kernels import per_value, value_kernel
from penstock.table.functions.signatures import (
    BINARY,
    BOOLEAN_TYPE,
    BYTES_TYPE,
    INT,
    INTEGER,
    STRING,
    TEXT,
    nullable,
    returns,
    returns_nullable,
    returns_text,
    takes,
    where,
)
from penstock.table.functions.type_rules import BYTES, common_type

# --- by places -------------------------------------------------------------------------------------------------------


def _part(text: str, start: int, length: int = LENGTH_MAX) -> str | None:
    """Return the substring at a position, which counts from 1, or from the end if negative."""
    if length < 0:
        return None
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[begin : begin + length] if begin >= 0 else ""


def _substring(call: Call) -> Kernel:
    start, length = call.value(1), call.value(2) if len(call.types) > 2 else LENGTH_MAX
    if not isinstance(start, int) or not isinstance(length, int) or length < 0:
        return value_kernel(_part, call.types, call.result)
    if start >= 0:
        begin = max(start - 1, 0)
        return lambda column, *operands: _slice(column, begin, begin + length)
    stop = start + length if start + length < 0 else None

    def from_end(column: Datum, *operands: Datum) -> Datum:
        is_too_short = pc.less(pc.utf8_length(column), -start)
        return pc.if_else(is_too_short, "", _slice(column, start, stop))

    return from_end


def _slice(column: Datum, begin: int, end: int | None) -> Datum:
    return pc.utf8_slice_codeunits(column, begin, end if end is None or end < LENGTH_MAX else None)


def _left(call: Call) -> Kernel:
    length = call.value(1)
    if not isinstance(length, int):
        return value_kernel(lambda text, count: text[: max(count, 0)], call.types, call.result)
    return lambda column, other: _slice(column, 0, max(length, 0))


def _right(call: Call) -> Kernel:
    length = call.value(1)
    if not isinstance(length, int) or length <= 0:
        return value_kernel(lambda text, count: text[-count:] if count > 0 else "", call.types, call.result)
    return lambda column, other: _slice(column, -length, None)


# --- where a part is -------------------------------------------------------------------------------------------------


def _find(text: str, part: str, begin: int) -> int:
    """Return the index of a part, counted from 0, or -1. An empty part is always at 0."""
    return text.find(part, max(begin, 0)) if part else 0


def _position(part: str, text: str, start: int = 1) -> int:
    return _find(text, part, start - 1) + 1


def _instr(text: str, part: str, start: int = 1, occurrence: int = 1) -> int:
    if occurrence <= 0:
        raise TableRuntimeError(f"INSTR counts occurrences from 1 on, not from {occurrence}")
    if start == 0:
        return 0
    if start < 0:
        position = _instr(text[::-1], part[::-1], -start, occurrence)
        return len(text) + 2 - position - len(part) if position else 0
    position = 0
    for _ in range(occurrence):
        position = _find(text, part, start - 1) + 1
        if not position:
            return 0
        start = position + 1
    return position


def _at_end(kernel: Callable[..., Datum], function: Callable[[Any, Any], bool]) -> Callable[[Call], Kernel]:
    def bind(call: Call) -> Kernel:
        part = call.value(1)
        if not isinstance(part, str | bytes):
            return value_kernel(function, call.types, call.result)
        return lambda column, other: kernel(column, part)

    return bind


# --- between separators ----------------------------------------------------------------------------------------------


def _parts(text: str, separator: str) -> list[str]:
    """Split at a separator. An empty string has zero parts."""
    return text.split(separator) if text else []


def _split(text: str, separator: str) -> list[str]:
    return _parts(text, separator) if separator else list(text)


def _by_whitespace(text: str) -> list[str]:
    """Split at every whitespace character."""
    parts = [""]
    for char in text:
        if char.isspace() and char not in "\x85\xa0\u2007\u202f":
            parts.append("")
        else:
            parts[-1] += char
    return parts if text else []


def _get_part(text: str, separator: str | int, index: int) -> str | None:
    """Return a part by its index, counted from 0. A numeric separator is a character code."""
    if index < 0:
        return None
    if isinstance(separator, int):
        parts = _parts(text, chr(separator)) if 1 <= separator <= 255 else []
    else:
        parts = _parts(text, separator) if separator else _by_whitespace(text)
    return parts[index] if index < len(parts) else None


def part_kernel(index: int) -> Callable[[Datum], Datum]:
    """Return a function that picks the part at an index from lists of parts."""

    def kernel(lists: Datum) -> Datum:
        positions = pc.add(lists.offsets[:-1], pa.scalar(index, pa.int32()))
        is_there = pc.fill_null(pc.less(positions, lists.offsets[1:]), False)
        parts = lists.values.take(pc.if_else(is_there, positions, pa.scalar(None, pa.int32())))
        if index:
            return parts
        # A single empty part comes from an empty string, which has zero parts.
        is_empty = pc.and_(pc.equal(pc.list_value_length(lists), 1), pc.equal(parts, ""))
        return pc.if_else(pc.fill_null(is_empty, False), pa.scalar(None, parts.type), parts)

    return kernel


def _split_index(call: Call) -> Kernel:
    general = value_kernel(_get_part, call.types, call.result)
    separator, index = call.value(1), call.value(2)
    if not isinstance(separator, str) or not separator or not isinstance(index, int) or index < 0:
        return general
    take = part_kernel(index)

    def kernel(column: Datum, *operands: Datum) -> Datum:
        if isinstance(column, pa.Scalar):
            return general(column, *operands)
        return take(pc.split_pattern(column, separator, max_splits=index + 1))

    return kernel


def _up_to_count(text: Any, separator: Any, count: int) -> Any:
    """Return the part before the nth separator, or after it counted from the right if `count` is negative.

    With fewer separators, return the whole string.
    """
    if not text or not separator or not count:
        return text[:0]
    position = -1 if count > 0 else len(text)
    for _ in range(abs(count)):
        position = text.find(separator, position + 1) if count > 0 else _find_before(text, separator, position)
        if position < 0:
            return text
    return text[:position] if count > 0 else text[position + len(separator) :]


def _find_before(text: Any, part: Any, position: int) -> int:
    """Return the last index of a part before another index, or -1."""
    return int(text.rfind(part, 0, position - 1 + len(part))) if position > 0 else -1


def _to_map(text: str, pairs: str = ",", values: str = "=") -> list[tuple[str, str | None]]:
    entries: dict[str, str | None] = {}
    for pair in split(compiled(pairs), text) if text else []:
        parts = split(compiled(values), pair, 2)
        entries[parts[0] if len(parts) == 2 else pair] = parts[1] if len(parts) == 2 else None
    return list(entries.items())


# --- one of several --------------------------------------------------------------------------------------------------


def _index(call: Operands, index: int) -> DataType | None:
    """Accept an integer. Raises `ValidationError` if it is a negative constant."""
    data_type, value = call.types[index], call.value(index)
    if isinstance(value, int) and value < 0:
        raise ValidationError(f"Index must be an integer starting from '0', but was '{value}'.")
    return INT if isinstance(data_type, NullType) else data_type if isinstance(data_type, IntegralType) else None


def _choice_type(call: Operands) -> DataType:
    common = common_type(call.types[1:])
    return STRING if common is None or isinstance(common, NullType) else common


def _elt(index: Datum, *columns: Datum) -> Datum:
    numbers = index.cast(pa.int64())
    is_there = pc.and_(pc.greater_equal(numbers, 1), pc.less_equal(numbers, len(columns)))
    positions = pc.if_else(
        is_there, pc.subtract_checked(pc.if_else(is_there, numbers, 1), 1), pa.scalar(None, pa.int64())
    )
    if isinstance(positions, pa.Scalar):
        return columns[positions.as_py()] if positions.is_valid else pa.scalar(None, columns[0].type)
    return pc.choose(positions, *[to_full_array(column, len(positions)) for column in columns])


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


def _as_first(call: Operands) -> DataType:
    """Return STRING for strings and BYTES for bytes, nullable if any operand is."""
    return returns(BYTES_TYPE if isinstance(call.types[0], BYTES) else STRING)(call)


_INDEX: Final = where("<INTEGER_NUMERIC>", _index)
_TWO_ALIKE: Final = (takes(TEXT, TEXT), takes(BINARY, BINARY))

FUNCTIONS: tuple[ScalarFunction, ...] = (
    *(
        _define(
            name,
            takes(TEXT, INTEGER, INTEGER, optional=1),
            nullable(returns_text),
            _substring,
            usage,
            "Returns the substring from `start` on, with at most `length` characters; a negative start counts from "
            "the end.",
        )
        for name, usage in (
            ("SUBSTRING", "SUBSTRING(string FROM start [FOR length])"),
            ("SUBSTR", "SUBSTR(string, start[, length])"),
        )
    ),
    _define(
        "LEFT",
        takes(TEXT, INTEGER),
        nullable(returns_text),
        _left,
        "LEFT(string, length)",
        "Returns the leftmost `length` characters, or an empty string if the length is negative.",
    ),
    _define(
        "RIGHT",
        takes(TEXT, INTEGER),
        nullable(returns_text),
        _right,
        "RIGHT(string, length)",
        "Returns the rightmost `length` characters, or an empty string if the length is negative.",
    ),
    _define(
        "POSITION",
        takes(TEXT, TEXT, INTEGER, optional=1),
        returns(INT),
        per_value(_position),
        "POSITION(string1 IN string2)",
        "Returns the position of string1 in string2, counted from 1, or 0 if it is not found.",
    ),
    _define(
        "LOCATE",
        takes(TEXT, TEXT, INTEGER, optional=1),
        returns(INT),
        per_value(_position),
        "LOCATE(string1, string2[, start])",
        "Returns the position of string1 in string2 at or after `start`, or 0 if it is not found.",
    ),
    _define(
        "INSTR",
        takes(TEXT, TEXT, INTEGER, INTEGER, optional=2),
        returns(INT),
        per_value(_instr),
        "INSTR(string1, string2[, start[, occurrence]])",
        "Returns the position of string2 in string1, or 0; a negative start searches backwards from the end.",
        can_fail=True,
    ),
    _define(
        "STARTSWITH",
        _TWO_ALIKE,
        returns(BOOLEAN_TYPE),
        _at_end(pc.starts_with, lambda text, part: text.startswith(part)),
        "STARTSWITH(string1, string2)",
        "Returns TRUE if string1 starts with string2; both are strings or both are bytes.",
    ),
    _define(
        "ENDSWITH",
        _TWO_ALIKE,
        returns(BOOLEAN_TYPE),
        _at_end(pc.ends_with, lambda text, part: text.endswith(part)),
        "ENDSWITH(string1, string2)",
        "Returns TRUE if string1 ends with string2; both are strings or both are bytes.",
    ),
    _define(
        "SPLIT",
        takes(TEXT, TEXT),
        returns(ArrayType(STRING)),
        per_value(_split),
        "SPLIT(string, separator)",
        "Splits the string at the separator into an array; an empty separator splits it into characters.",
    ),
    _define(
        "SPLIT_INDEX",
        (takes(TEXT, INTEGER, INTEGER), takes(TEXT, TEXT, INTEGER)),
        returns_nullable(STRING),
        _split_index,
        "SPLIT_INDEX(string, separator, index)",
        "Splits the string at the separator and returns the part at the index, counted from 0, or NULL if the index "
        "is out of range.",
        python_name="splitIndex",
    ),
    _define(
        "SUBSTRING_INDEX",
        (takes(TEXT, TEXT, INTEGER), takes(BINARY, BINARY, INTEGER)),
        _as_first,
        per_value(_up_to_count),
        "SUBSTRING_INDEX(string, separator, count)",
        "Returns the substring before the `count`th separator; if the count is negative, the substring after it, "
        "counted from the right.",
    ),
    _define(
        "STR_TO_MAP",
        (takes(TEXT), takes(TEXT, TEXT, TEXT)),
        returns_nullable(MapType(STRING, STRING)),
        per_value(_to_map),
        "STR_TO_MAP(string[, pairs, values])",
        "Parses a map of strings; `pairs` and `values` are regular expressions for the delimiters between pairs and "
        "before values.",
        can_fail=True,
        python_name="strToMap",
    ),
    _define(
        "ELT",
        (takes(_INDEX, TEXT, repeated=1), takes(_INDEX, BINARY, repeated=1)),
        nullable(_choice_type),
        lambda call: _elt,
        "ELT(index, value1, value2, ...)",
        "Returns the value at the index, counted from 1, or NULL if the index is out of range.",
    ),
)
