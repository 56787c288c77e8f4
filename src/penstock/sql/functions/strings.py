"""Functions of strings: case, trimming and other functions of whole strings, construction, splitting and search."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.data import types
from penstock.sql.data.arrow import Datum, Kernel, to_full_array
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.functions import definition
from penstock.sql.functions.characters import from_units, units
from penstock.sql.functions.java_regex import compiled, split
from penstock.sql.functions.type_rules import BYTES, common_type

# --- case ------------------------------------------------------------------------------------------------------------

_WORD: Final = re.compile("[0-9A-Za-z]+")


def _in_case(
    ascii_kernel: Callable[[Datum], Datum], function: Callable[[str], str]
) -> Callable[[definition.Call], Kernel]:
    """Use an Arrow kernel for ASCII columns. Other strings may change their length, so Python converts them."""

    def bind(call: definition.Call) -> Kernel:
        general = definition.value_kernel(function, call.types, call.result)

        def kernel(column: Datum) -> Datum:
            is_ascii = pc.string_is_ascii(column)
            plain = is_ascii.as_py() if isinstance(is_ascii, pa.Scalar) else pc.all(is_ascii).as_py()
            return ascii_kernel(column) if plain is not False else general(column)

        return general.made_faster(kernel)

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


def _trim(side: str) -> Callable[[definition.Call], Kernel]:
    """Trim the characters of the second operand, or spaces by default, on a side."""

    def bind(call: definition.Call) -> Kernel:
        fast, slow = _TRIMS[side]
        if len(call.types) == 1:
            return definition.value_kernel(lambda text: slow(text, " "), call.types, call.result).made_faster(
                lambda column: fast(column, " ")
            )
        general = definition.value_kernel(slow, call.types, call.result)
        characters = call.value(1)
        if not isinstance(characters, str):
            return general
        if not characters:
            return general.made_faster(lambda column, *operands: column)
        return general.made_faster(lambda column, *operands: fast(column, characters))

    return bind


def _trim_sides(call: definition.Call) -> Kernel:
    """TRIM. SQL passes the sides as a keyword, the Table API as two leading operands."""
    if isinstance(call.types[0], types.BooleanType):
        return definition.value_kernel(_trim_by_flags, call.types, call.result)
    return _trim(call.options[0] if call.options else "BOTH")(call)


def _trim_by_flags(leading: bool, trailing: bool, characters: str, text: str) -> str:
    text = text.lstrip(characters) if leading else text
    return text.rstrip(characters) if trailing else text


def _trim_type(call: definition.Operands) -> types.DataType:
    """Return VARCHAR of the trimmed string's length."""
    text = call.types[3] if isinstance(call.types[0], types.BooleanType) else call.types[0]
    return types.VarCharType(max(getattr(text, "length", types.LENGTH_MAX), 1), call.any_nullable())


def _uuids(call: definition.Call) -> Kernel:
    return lambda rows: pa.array([str(uuid.uuid4()) for _ in range(rows)], pa.string())


def _define(
    name: str,
    signatures: definition.Signature | Sequence[definition.Signature],
    result: definition.ResultRule,
    bind: Callable[[definition.Call], Kernel],
    usage: str,
    summary: str,
    **more: object,
) -> definition.ScalarFunction:
    return definition.scalar(name, signatures, result, bind, summary, usage=usage, section="string", **more)


_TRIMMED: Final = definition.takes(definition.TEXT, definition.TEXT, optional=1)

TEXT_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    _define(
        "UPPER",
        definition.takes(definition.TEXT),
        definition.returns_operand(0),
        _in_case(pc.ascii_upper, str.upper),
        "UPPER(string)",
        "Returns the string in upper case.",
        aliases=("UPPERCASE",),
    ),
    _define(
        "LOWER",
        definition.takes(definition.TEXT),
        definition.returns_operand(0),
        _in_case(pc.ascii_lower, str.lower),
        "LOWER(string)",
        "Returns the string in lower case.",
        aliases=("LOWERCASE",),
    ),
    _define(
        "INITCAP",
        definition.takes(definition.TEXT),
        definition.returns_operand(0),
        definition.per_value(_with_initials),
        "INITCAP(string)",
        "Capitalizes the first letter of each word and lower-cases the rest.",
        python_name="initCap",
    ),
    _define(
        "CHAR_LENGTH",
        definition.takes(definition.TEXT),
        definition.returns(definition.INT),
        definition.arrow(pc.utf8_length),
        "CHAR_LENGTH(string)",
        "Returns the number of characters in the string.",
        aliases=("CHARACTER_LENGTH",),
        python_name="charLength",
    ),
    _define(
        "TRIM",
        (_TRIMMED, definition.takes(definition.BOOLEAN, definition.BOOLEAN, definition.TEXT, definition.TEXT)),
        _trim_type,
        _trim_sides,
        "TRIM([BOTH | LEADING | TRAILING] [characters] FROM string)",
        "Removes the characters, by default spaces, from the ends of the string.",
    ),
    _define(
        "LTRIM",
        _TRIMMED,
        definition.returns_text,
        _trim("LEADING"),
        "LTRIM(string[, characters])",
        "Removes the characters, by default spaces, from the start of the string.",
    ),
    _define(
        "RTRIM",
        _TRIMMED,
        definition.returns_text,
        _trim("TRAILING"),
        "RTRIM(string[, characters])",
        "Removes the characters, by default spaces, from the end of the string.",
    ),
    _define(
        "BTRIM",
        _TRIMMED,
        definition.returns(definition.STRING),
        _trim("BOTH"),
        "BTRIM(string[, characters])",
        "Removes the characters, by default spaces, from both ends of the string.",
    ),
    _define(
        "REVERSE",
        definition.takes(definition.TEXT),
        definition.returns_nullable(definition.STRING),
        definition.arrow(pc.utf8_reverse),
        "REVERSE(string)",
        "Reverses the string.",
    ),
    _define(
        "UUID",
        definition.takes(),
        definition.returns_not_null(types.CharType(36)),
        _uuids,
        "UUID()",
        "Returns a random UUID, such as 3d3c68f7-f608-473f-b60c-b0c44ad4cc4e.",
        is_deterministic=False,
        takes_rows=True,
    ),
)


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


def _joined_type(call: definition.Operands) -> types.DataType:
    """Return the type of a concatenation: the sum of the lengths, CHAR if all operands are."""
    lengths = [getattr(data_type, "length", types.LENGTH_MAX) for data_type in call.types]
    if sum(lengths) > types.LENGTH_MAX:
        return types.VarCharType(types.LENGTH_MAX, call.any_nullable())
    kind = (
        types.CharType if all(isinstance(data_type, types.CharType) for data_type in call.types) else types.VarCharType
    )
    return kind(max(sum(lengths), 1), call.any_nullable())


def _overlaid_type(call: definition.Operands) -> types.DataType:
    lengths = [getattr(data_type, "length", types.LENGTH_MAX) for data_type in call.types[:2]]
    return types.VarCharType(min(max(sum(lengths), 1), types.LENGTH_MAX), call.any_nullable())


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


def _replace(call: definition.Call) -> Kernel:
    general = definition.value_kernel(str.replace, call.types, call.result)
    old, new = call.value(1), call.value(2)
    if not isinstance(old, str) or not isinstance(new, str) or not old:
        return general
    return general.made_faster(lambda column, *operands: pc.replace_substring(column, old, new))


def _translate(text: str | None, before: str | None, after: str | None) -> str | None:
    """Replace each character of `before` by the one at its index in `after`, or remove it if `after` is too short."""
    if not text or not before:
        return text
    table: dict[int, str] = {}
    for index, char in enumerate(before):
        table.setdefault(ord(char), (after or "")[index : index + 1])
    return text.translate(table)


def _translated_type(call: definition.Operands) -> types.DataType:
    return types.VarCharType(types.LENGTH_MAX, call.types[0].is_nullable)


_PADDED: Final = definition.takes(definition.TEXT, definition.INTEGER, definition.TEXT)

TEXT_BUILDING_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    _define(
        "||",
        definition.takes(definition.TEXT, definition.TEXT, repeated=1),
        _joined_type,
        definition.arrow(_join),
        "string1 || string2",
        "Concatenates string1 and string2.",
    ),
    _define(
        "CONCAT",
        (definition.takes(definition.TEXT), definition.takes(definition.TEXT, definition.TEXT, repeated=1)),
        definition.returns(definition.STRING),
        definition.arrow(_join),
        "CONCAT(string1, string2, ...)",
        "Concatenates the strings; returns NULL if any of them is NULL.",
    ),
    _define(
        "CONCAT_WS",
        (definition.takes(definition.TEXT), definition.takes(definition.TEXT, definition.TEXT, repeated=1)),
        definition.returns(definition.STRING),
        definition.arrow(_concat_ws),
        "CONCAT_WS(separator, string1, string2, ...)",
        "Joins the strings that are not NULL with the separator; returns NULL if the separator is NULL.",
    ),
    _define(
        "LPAD",
        _PADDED,
        definition.returns(definition.STRING),
        definition.per_value(_lpad),
        "LPAD(string, length, padding)",
        "Pads the string on the left to a length; a longer string is truncated.",
    ),
    _define(
        "RPAD",
        _PADDED,
        definition.returns(definition.STRING),
        definition.per_value(_rpad),
        "RPAD(string, length, padding)",
        "Pads the string on the right to a length; a longer string is truncated.",
    ),
    _define(
        "REPEAT",
        definition.takes(definition.TEXT, definition.INTEGER),
        definition.returns(definition.STRING),
        definition.arrow(_repeat),
        "REPEAT(string, times)",
        "Repeats the string the given number of times.",
    ),
    _define(
        "REPLACE",
        definition.takes(definition.TEXT, definition.TEXT, definition.TEXT),
        definition.returns(definition.STRING),
        _replace,
        "REPLACE(string, old, new)",
        "Replaces every occurrence of `old` in the string with `new`.",
    ),
    _define(
        "TRANSLATE",
        definition.takes(definition.TEXT, definition.TEXT, definition.TEXT),
        _translated_type,
        definition.per_value(_translate, takes_null=True),
        "TRANSLATE(string, before, after)",
        "Replaces each character of `before` with its counterpart in `after`, or removes it without one.",
        aliases=("TRANSLATE3",),
        python_name="TRANSLATE3",
    ),
    _define(
        "OVERLAY",
        definition.takes(definition.TEXT, definition.TEXT, definition.INTEGER, definition.INTEGER, optional=1),
        _overlaid_type,
        definition.per_value(_overlay),
        "OVERLAY(string1 PLACING string2 FROM start [FOR length])",
        "Replaces `length` characters of string1 with string2, beginning at `start`; the length defaults to that of "
        "string2.",
    ),
)


# --- by places -------------------------------------------------------------------------------------------------------


def _part(text: str, start: int, length: int = types.LENGTH_MAX) -> str | None:
    """Return the substring at a position, which counts from 1, or from the end if negative."""
    if length < 0:
        return None
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[begin : begin + length] if begin >= 0 else ""


def _substring(call: definition.Call) -> Kernel:
    start, length = call.value(1), call.value(2) if len(call.types) > 2 else types.LENGTH_MAX
    general = definition.value_kernel(_part, call.types, call.result)
    if not isinstance(start, int) or not isinstance(length, int) or length < 0:
        return general
    if start >= 0:
        begin = max(start - 1, 0)
        return general.made_faster(lambda column, *operands: _slice(column, begin, begin + length))
    stop = start + length if start + length < 0 else None

    def from_end(column: Datum, *operands: Datum) -> Datum:
        is_too_short = pc.less(pc.utf8_length(column), -start)
        return pc.if_else(is_too_short, "", _slice(column, start, stop))

    return general.made_faster(from_end)


def _slice(column: Datum, begin: int, end: int | None) -> Datum:
    return pc.utf8_slice_codeunits(column, begin, end if end is None or end < types.LENGTH_MAX else None)


def _left(call: definition.Call) -> Kernel:
    length = call.value(1)
    general = definition.value_kernel(lambda text, count: text[: max(count, 0)], call.types, call.result)
    if not isinstance(length, int):
        return general
    return general.made_faster(lambda column, other: _slice(column, 0, max(length, 0)))


def _right(call: definition.Call) -> Kernel:
    length = call.value(1)
    general = definition.value_kernel(lambda text, count: text[-count:] if count > 0 else "", call.types, call.result)
    if not isinstance(length, int) or length <= 0:
        return general
    return general.made_faster(lambda column, other: _slice(column, -length, None))


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


def _at_end(kernel: Callable[..., Datum], function: Callable[[Any, Any], bool]) -> Callable[[definition.Call], Kernel]:
    def bind(call: definition.Call) -> Kernel:
        part = call.value(1)
        general = definition.value_kernel(function, call.types, call.result)
        if not isinstance(part, str | bytes):
            return general
        return general.made_faster(lambda column, other: kernel(column, part))

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


def _split_index(call: definition.Call) -> Kernel:
    general = definition.value_kernel(_get_part, call.types, call.result)
    separator, index = call.value(1), call.value(2)
    if not isinstance(separator, str) or not separator or not isinstance(index, int) or index < 0:
        return general
    take = part_kernel(index)

    def kernel(column: Datum, *operands: Datum) -> Datum:
        if isinstance(column, pa.Scalar):
            return general(column, *operands)
        return take(pc.split_pattern(column, separator, max_splits=index + 1))

    return general.made_faster(kernel)


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


def _index(call: definition.Operands, index: int) -> types.DataType | None:
    """Accept an integer. Raises `ValidationError` if it is a negative constant."""
    data_type, value = call.types[index], call.value(index)
    if isinstance(value, int) and value < 0:
        raise ValidationError(f"Index must be an integer starting from '0', but was '{value}'.")
    return (
        definition.INT
        if isinstance(data_type, types.NullType)
        else data_type
        if isinstance(data_type, types.IntegralType)
        else None
    )


def _choice_type(call: definition.Operands) -> types.DataType:
    common = common_type(call.types[1:])
    return definition.STRING if common is None or isinstance(common, types.NullType) else common


def _elt(index: Datum, *columns: Datum) -> Datum:
    numbers = index.cast(pa.int64())
    is_there = pc.and_(pc.greater_equal(numbers, 1), pc.less_equal(numbers, len(columns)))
    positions = pc.if_else(
        is_there, pc.subtract_checked(pc.if_else(is_there, numbers, 1), 1), pa.scalar(None, pa.int64())
    )
    if isinstance(positions, pa.Scalar):
        return columns[positions.as_py()] if positions.is_valid else pa.scalar(None, columns[0].type)
    return pc.choose(positions, *[to_full_array(column, len(positions)) for column in columns])


def _as_first(call: definition.Operands) -> types.DataType:
    """Return STRING for strings and BYTES for bytes, nullable if any operand is."""
    return definition.returns(definition.BYTES_TYPE if isinstance(call.types[0], BYTES) else definition.STRING)(call)


_INDEX: Final = definition.where("<INTEGER_NUMERIC>", _index)
_TWO_ALIKE: Final = (
    definition.takes(definition.TEXT, definition.TEXT),
    definition.takes(definition.BINARY, definition.BINARY),
)

TEXT_PARTS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    *(
        _define(
            name,
            definition.takes(definition.TEXT, definition.INTEGER, definition.INTEGER, optional=1),
            definition.nullable(definition.returns_text),
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
        definition.takes(definition.TEXT, definition.INTEGER),
        definition.nullable(definition.returns_text),
        _left,
        "LEFT(string, length)",
        "Returns the leftmost `length` characters, or an empty string if the length is negative.",
    ),
    _define(
        "RIGHT",
        definition.takes(definition.TEXT, definition.INTEGER),
        definition.nullable(definition.returns_text),
        _right,
        "RIGHT(string, length)",
        "Returns the rightmost `length` characters, or an empty string if the length is negative.",
    ),
    _define(
        "POSITION",
        definition.takes(definition.TEXT, definition.TEXT, definition.INTEGER, optional=1),
        definition.returns(definition.INT),
        definition.per_value(_position),
        "POSITION(string1 IN string2)",
        "Returns the position of string1 in string2, counted from 1, or 0 if it is not found.",
    ),
    _define(
        "LOCATE",
        definition.takes(definition.TEXT, definition.TEXT, definition.INTEGER, optional=1),
        definition.returns(definition.INT),
        definition.per_value(_position),
        "LOCATE(string1, string2[, start])",
        "Returns the position of string1 in string2 at or after `start`, or 0 if it is not found.",
    ),
    _define(
        "INSTR",
        definition.takes(definition.TEXT, definition.TEXT, definition.INTEGER, definition.INTEGER, optional=2),
        definition.returns(definition.INT),
        definition.per_value(_instr),
        "INSTR(string1, string2[, start[, occurrence]])",
        "Returns the position of string2 in string1, or 0; a negative start searches backwards from the end.",
        can_fail=True,
    ),
    _define(
        "STARTSWITH",
        _TWO_ALIKE,
        definition.returns(definition.BOOLEAN_TYPE),
        _at_end(pc.starts_with, lambda text, part: text.startswith(part)),
        "STARTSWITH(string1, string2)",
        "Returns TRUE if string1 starts with string2; both are strings or both are bytes.",
    ),
    _define(
        "ENDSWITH",
        _TWO_ALIKE,
        definition.returns(definition.BOOLEAN_TYPE),
        _at_end(pc.ends_with, lambda text, part: text.endswith(part)),
        "ENDSWITH(string1, string2)",
        "Returns TRUE if string1 ends with string2; both are strings or both are bytes.",
    ),
    _define(
        "SPLIT",
        definition.takes(definition.TEXT, definition.TEXT),
        definition.returns(types.ArrayType(definition.STRING)),
        definition.per_value(_split),
        "SPLIT(string, separator)",
        "Splits the string at the separator into an array; an empty separator splits it into characters.",
    ),
    _define(
        "SPLIT_INDEX",
        (
            definition.takes(definition.TEXT, definition.INTEGER, definition.INTEGER),
            definition.takes(definition.TEXT, definition.TEXT, definition.INTEGER),
        ),
        definition.returns_nullable(definition.STRING),
        _split_index,
        "SPLIT_INDEX(string, separator, index)",
        "Splits the string at the separator and returns the part at the index, counted from 0, or NULL if the index "
        "is out of range.",
        python_name="splitIndex",
    ),
    _define(
        "SUBSTRING_INDEX",
        (
            definition.takes(definition.TEXT, definition.TEXT, definition.INTEGER),
            definition.takes(definition.BINARY, definition.BINARY, definition.INTEGER),
        ),
        _as_first,
        definition.per_value(_up_to_count),
        "SUBSTRING_INDEX(string, separator, count)",
        "Returns the substring before the `count`th separator; if the count is negative, the substring after it, "
        "counted from the right.",
    ),
    _define(
        "STR_TO_MAP",
        (definition.takes(definition.TEXT), definition.takes(definition.TEXT, definition.TEXT, definition.TEXT)),
        definition.returns_nullable(types.MapType(definition.STRING, definition.STRING)),
        definition.per_value(_to_map),
        "STR_TO_MAP(string[, pairs, values])",
        "Parses a map of strings; `pairs` and `values` are regular expressions for the delimiters between pairs and "
        "before values.",
        can_fail=True,
        python_name="strToMap",
    ),
    _define(
        "ELT",
        (
            definition.takes(_INDEX, definition.TEXT, repeated=1),
            definition.takes(_INDEX, definition.BINARY, repeated=1),
        ),
        definition.nullable(_choice_type),
        lambda call: _elt,
        "ELT(index, value1, value2, ...)",
        "Returns the value at the index, counted from 1, or NULL if the index is out of range.",
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*TEXT_FUNCTIONS, *TEXT_BUILDING_FUNCTIONS, *TEXT_PARTS_FUNCTIONS)
