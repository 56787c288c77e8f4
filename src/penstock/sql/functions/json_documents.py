"""Reads and writes JSON by the rules of Jackson, which Flink uses.

Parsed values are dictionaries, lists, strings, integers, decimals (which keep every digit), booleans and None. Text
after the first value is ignored.
"""

from __future__ import annotations

import json
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn

from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.functions.numbers import double_text

_BLANKS: Final = " \t\r\n"
#: a nesting depth that Python can handle
_NESTED_AT_MOST: Final = 300
_NAMED_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES: Final = str.maketrans({**{chr(code): f"\\u{code:04X}" for code in range(32)}, **_NAMED_ESCAPES})


class JsonTextError(TableRuntimeError):
    """Raised for invalid JSON."""


class Document(NamedTuple):
    """The value of a JSON text, or the error in it."""

    value: Any
    error: JsonTextError | None = None


def _no_constant(word: str) -> NoReturn:
    raise JsonTextError(f"{word} is no value of JSON")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise JsonTextError("an object has the same key twice")
    return members


_DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant)


def read_json(text: str, decoder: json.JSONDecoder = _DECODER) -> Any:
    """Parse the first value of a string. Raises `JsonTextError` if it is not valid JSON."""
    begin = 0
    while begin < len(text) and text[begin] in _BLANKS:
        begin += 1
    try:
        value, end = decoder.raw_decode(text, begin)
    except json.JSONDecodeError as error:
        raise JsonTextError(f"{error.msg} (line: {error.lineno}, column: {error.colno})") from error
    except (ValueError, ArithmeticError) as error:
        raise JsonTextError(str(error)) from error
    except RecursionError as error:
        raise JsonTextError("objects and arrays are nested too deeply") from error
    if end < len(text) and not isinstance(value, dict | list | str):
        _check_end(value, text, end)
    if text.count("[") + text.count("{") > _NESTED_AT_MOST and _depth_exceeds(value, _NESTED_AT_MOST):
        raise JsonTextError(f"objects and arrays are nested more than {_NESTED_AT_MOST} deep")
    return value


def reader(keeps_last: bool) -> json.JSONDecoder:
    """Create a decoder. Fractions without an exponent become decimals. Duplicate keys need `keeps_last`."""
    return json.JSONDecoder(
        parse_float=lambda digits: float(digits) if "e" in digits or "E" in digits else Decimal(digits),
        parse_constant=_no_constant,
        object_pairs_hook=None if keeps_last else _without_repeats,
    )


def _check_end(value: object, text: str, end: int) -> None:
    """Raise `JsonTextError` unless whitespace follows a number, or if a letter or digit follows a keyword."""
    following = text[end]
    is_number = value is not None and not isinstance(value, bool)
    wrong = following not in _BLANKS if is_number else following.isidentifier() or following.isdigit()
    if wrong:
        line, column = text.count("\n", 0, end) + 1, end - text.rfind("\n", 0, end)
        raise JsonTextError(f"Unexpected character {following!r} (line: {line}, column: {column})")


def _depth_exceeds(value: Any, most: int) -> bool:
    level: list[Any] = [value]
    for _ in range(most + 1):
        level = [
            part
            for container in level
            if isinstance(container, dict | list)
            for part in (container.values() if isinstance(container, dict) else container)
            if isinstance(part, dict | list)
        ]
        if not level:
            return False
    return True


@lru_cache(maxsize=4096)
def document(text: str) -> Document:
    """Parse a string. Results are cached, so callers must not modify the value."""
    try:
        return Document(read_json(text))
    except JsonTextError as error:
        return Document(None, error)


def text_in_quotes(text: str) -> str:
    """Return a string as a JSON string."""
    return f'"{text.translate(_ESCAPES)}"'


def key_order(key: str) -> bytes:
    """Return the sort key of an object key: the order of UTF-16 code units."""
    return key.encode("utf-16-be", "surrogatepass")


def write_json(value: object) -> str:
    """Write a value without whitespace, with sorted keys."""
    if isinstance(value, str):
        return text_in_quotes(value)
    if isinstance(value, dict):
        keys = sorted(value, key=key_order)
        return "{" + ",".join([f"{text_in_quotes(key)}:{write_json(value[key])}" for key in keys]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write_json, value)) + "]"
    return "null" if value is None else scalar_text(value)


def scalar_text(value: object) -> str:
    """Return the text of a number, boolean or string, without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal) and not value:
        value = value.copy_abs()
    return double_text(value) if isinstance(value, float) else str(value)


def storable(text: str) -> str:
    """Combine surrogate pairs into characters and replace lone surrogates with `?`."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\ufffd", "?")
    return text
