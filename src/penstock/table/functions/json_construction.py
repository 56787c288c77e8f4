"""Functions that construct JSON: JSON_STRING, JSON_OBJECT, JSON_ARRAY, JSON, JSON_QUOTE and JSON_UNQUOTE.

JSON_OBJECT, JSON_ARRAY and JSON return strings, but JSON_OBJECT and JSON_ARRAY embed these results as JSON. Kernels see
only columns, so an option of the call lists such operands: `EMBEDDED 1 3`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType, MapType, NullType
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import UNKNOWN, Call, Operand, Operands, ScalarFunction, scalar
from penstock.table.functions.json_documents import document, key_order, storable, text_in_quotes, write_json
from penstock.table.functions.json_query import is_json
from penstock.table.functions.json_text import becomes_json, json_column
from penstock.table.functions.kernels import per_value
from penstock.table.functions.signatures import (
    STRING,
    TEXT,
    literal,
    returns,
    returns_not_null,
    returns_nullable,
    takes,
    where,
)
from penstock.table.typed.nodes import FunctionCall, Typed

#: functions whose results JSON_OBJECT and JSON_ARRAY embed as JSON
_MAKES_JSON: Final = frozenset(("JSON_OBJECT", "JSON_ARRAY", "JSON"))
#: functions that embed JSON
EMBEDDING: Final = frozenset(("JSON_OBJECT", "JSON_ARRAY"))
MISPLACED_JSON: Final = (
    "The JSON() function is currently only supported inside JSON_ARRAY() or as the VALUE param of JSON_OBJECT()"
)


def embedded_operands(name: str, operands: Sequence[Typed]) -> tuple[str, ...]:
    """Return the option that lists the operands of a call that are JSON already."""
    if name not in EMBEDDING:
        return ()
    indices = [
        str(index)
        for index, operand in enumerate(operands)
        if isinstance(operand, FunctionCall) and operand.function in _MAKES_JSON
    ]
    return (f"EMBEDDED {' '.join(indices)}",) if indices else ()


def _embedded(call: Call) -> frozenset[int]:
    embedded = next((option for option in call.options if option.startswith("EMBEDDED ")), "EMBEDDED")
    return frozenset(map(int, embedded.split()[1:]))


def _texts(call: Call, operands: Sequence[Datum], indices: Sequence[int]) -> list[Datum]:
    """Return operands as columns of JSON. NULL stays NULL."""
    ready = _embedded(call)
    return [operands[index] if index in ready else json_column(operands[index], call.types[index]) for index in indices]


def _joined(parts: Sequence[Datum], begin: str, end: str) -> Datum:
    """Join parts with commas and enclose them in brackets. NULL is omitted."""
    if not parts:
        return pa.scalar(begin + end)
    inside = pc.binary_join_element_wise(*parts, ",", null_handling="skip") if len(parts) > 1 else parts[0]
    return pc.binary_join_element_wise(begin, pc.fill_null(inside, ""), end, "")


def _bind_object(call: Call) -> Kernel:
    keeps_null = "ABSENT ON NULL" not in call.options
    indices: dict[str, list[int]] = {}
    for index in range(0, len(call.types), 2):
        indices.setdefault(str(call.value(index)), []).append(index + 1)
    names = sorted(indices, key=key_order)

    def part(operands: Sequence[Datum], name: str) -> Datum:
        label = f"{text_in_quotes(name)}:"
        texts = _texts(call, operands, indices[name][-1:] if keeps_null else indices[name][::-1])
        text = texts[0] if len(texts) == 1 else pc.coalesce(*texts)
        return pc.binary_join_element_wise(label, pc.fill_null(text, "null") if keeps_null else text, "")

    return lambda *operands: _joined([part(operands, name) for name in names], "{", "}")


def _bind_array(call: Call) -> Kernel:
    keeps_null = "NULL ON NULL" in call.options

    def kernel(*operands: Datum) -> Datum:
        texts = _texts(call, operands, range(len(operands)))
        return _joined([pc.fill_null(text, "null") for text in texts] if keeps_null else texts, "[", "]")

    return kernel


def _bind_string(call: Call) -> Kernel:
    return lambda column: json_column(column, call.types[0])


def _json(text: str) -> str | None:
    """Parse JSON and write it without whitespace. A blank string is NULL."""
    if not text.strip():
        return None
    value, error = document(text)
    if error is not None:
        raise TableRuntimeError(f"Invalid JSON string in JSON(value) function: {error}")
    return storable(write_json(value))


# --- quotes ----------------------------------------------------------------------------------------------------------

_QUOTED: Final = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNQUOTED: Final = {escape[1]: char for char, escape in _QUOTED.items()}


def _quote(text: str) -> str:
    """Return a string as a JSON string in ASCII."""
    if text.isascii():
        return f'"{text.translate(_ASCII_QUOTED)}"'
    return f'"{"".join([_QUOTED.get(char) or _ascii(char) for char in text])}"'


def _ascii(char: str) -> str:
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))


_ASCII_QUOTED: Final = {code: _QUOTED.get(chr(code)) or _ascii(chr(code)) for code in range(128)}


def _unquote(text: str) -> str:
    """Return the value of a JSON string, or any other text unchanged."""
    if not (is_json(text) and text[0] == text[-1] == '"'):
        return text
    chars: list[str] = []
    position, end = 1, len(text) - 1
    while position < end:
        char = text[position]
        position += 1
        if char != "\\" or position >= end:
            chars.append(char)
            continue
        escape = text[position]
        position += 1
        if escape in _UNQUOTED:
            chars.append(_UNQUOTED[escape])
            continue
        try:
            chars.append(chr(int(text[position : position + 4], 16)))
        except ValueError:
            return text
        position += 4
    return storable("".join(chars))


# --- the functions ---------------------------------------------------------------------------------------------------


def _json_operand(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if becomes_json(data_type) or isinstance(data_type, NullType) else None


def _key(call: Operands, index: int) -> DataType | None:
    return None if call.value(index) in (None, UNKNOWN) else TEXT.check(call, index)


def _may_have_null_keys(call: Operands) -> bool:
    return any(map(_has_nullable_keys, call.types))


def _has_nullable_keys(data_type: DataType) -> bool:
    if isinstance(data_type, MapType) and data_type.key_type.is_nullable:
        return True
    return any(map(_has_nullable_keys, data_type.children()))


_VALUE: Final = where("<JSON_ARGUMENT>", _json_operand)
_KEY: Final[Operand] = literal(Operand(TEXT.label, _key))

FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "JSON_STRING",
        takes(_VALUE),
        returns(STRING),
        _bind_string,
        "Serializes a value of any type to JSON.",
        can_fail=_may_have_null_keys,
        usage="JSON_STRING(value)",
        python_name="jsonString",
        section="json",
    ),
    scalar(
        "JSON_OBJECT",
        (takes(), takes(_KEY, _VALUE, repeated=2)),
        returns_not_null(STRING),
        _bind_object,
        "Creates a JSON object of the keys and values. Keys are constants.",
        can_fail=_may_have_null_keys,
        usage="JSON_OBJECT([[KEY] key VALUE value, ...] [{NULL | ABSENT} ON NULL])",
        python_name="jsonObject",
        section="json",
        is_folded=False,
    ),
    scalar(
        "JSON_ARRAY",
        (takes(), takes(_VALUE, repeated=1)),
        returns_not_null(STRING),
        _bind_array,
        "Creates a JSON array of the values.",
        can_fail=_may_have_null_keys,
        usage="JSON_ARRAY([value, ...] [{NULL | ABSENT} ON NULL])",
        python_name="jsonArray",
        section="json",
        is_folded=False,
    ),
    scalar(
        "JSON",
        takes(TEXT),
        returns_nullable(STRING),
        per_value(_json),
        "Inserts a JSON string into JSON_OBJECT or JSON_ARRAY unquoted, as a JSON value.",
        can_fail=True,
        usage="JSON(string)",
        python_name="json",
        section="json",
        is_folded=False,
    ),
    scalar(
        "JSON_QUOTE",
        takes(TEXT),
        returns(STRING),
        per_value(_quote),
        "Quotes the string as a JSON value, escaping special and non-ASCII characters.",
        usage="JSON_QUOTE(string)",
        python_name="jsonQuote",
        section="json",
    ),
    scalar(
        "JSON_UNQUOTE",
        takes(TEXT),
        returns(STRING),
        per_value(_unquote),
        "Unquotes a JSON string value. A string that is not a quoted JSON string is returned unchanged.",
        usage="JSON_UNQUOTE(string)",
        python_name="jsonUnquote",
        section="json",
    ),
)
