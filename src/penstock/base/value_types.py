"""Conversion of option values from and to text.

A `Configuration` holds the values it was given, text or native. A `ValueType` converts either to the one Python type
that an option promises. All types accept text, because files and command lines provide text.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.base.memory_size import parse_bytes
from penstock.base.time import Duration, Time, format_duration, parse_duration, to_millis

__all__ = [
    "BOOLEAN",
    "BYTEARRAY",
    "BYTES_COUNT",
    "DURATION_MS",
    "FLOAT",
    "INTEGER",
    "MAPPING",
    "SECRET",
    "STRING",
    "TOKEN",
    "ValueType",
    "build_list_type",
    "choice",
    "parse_list",
    "render",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ValueType(Generic[T]):
    """A human-readable name, and a conversion that raises ValueError or TypeError with a reason."""

    name: str
    convert: Callable[[object], T]


def render(value: object) -> str:
    """Format a configuration value as text that the types below can parse."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (Duration, Time, datetime.timedelta)):
        return format_duration(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, Mapping):
        return ",".join(f"{_quote(render(key))}:{_quote(render(item))}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ";".join(_quote(render(item)) for item in value)
    return str(value)


def _to_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text not in ("true", "false"):
        raise ValueError("write true or false")
    return text == "true"


def _to_integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("write a whole number")
    try:
        return int(value)
    except ValueError:
        raise ValueError("write a whole number") from None


def _to_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("write a number")
    try:
        return float(value)
    except ValueError:
        raise ValueError("write a number") from None


def _to_duration_ms(value: object) -> int:
    if isinstance(value, str):
        return parse_duration(value).to_millis()
    return to_millis(value)


def _to_byte_count(value: object) -> int:
    return parse_bytes(value) if isinstance(value, str) else _to_integer(value)


def _to_bytearray(value: object) -> bytearray:
    if isinstance(value, (bytes, bytearray)):
        return bytearray(value)
    if isinstance(value, str):
        return bytearray.fromhex(value)
    raise ValueError("give bytes, or text of hexadecimal digits")


def _to_mapping(value: object) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {str(key): render(item) for key, item in value.items()}
    if not isinstance(value, str):
        raise ValueError("give a dict, or text such as key1:value1,key2:value2")
    result = {}
    for part in split_quoted(value, ",", openers=":"):
        pair = split_quoted(part, ":", maxsplit=1)
        if len(pair) != 2:
            raise ValueError("write key1:value1,key2:value2")
        result[_unquote(pair[0])] = _unquote(pair[1])
    return result


def _to_secret(value: object) -> str:
    text = render(value)
    if not text.strip():
        raise ValueError("a secret must not be empty or blank; leave the option out if there is none")
    return text


def _to_token(value: object) -> str:
    text = _to_secret(value)
    if text.strip() != text or not all(" " <= character <= "~" for character in text):
        raise ValueError("a token goes into a header of HTTP: it is visible ASCII, and has no blank at its ends")
    return text


STRING: ValueType[str] = ValueType("string", render)
#: Text that grants access; it must not be blank.
SECRET: ValueType[str] = ValueType("secret", _to_secret)
#: A secret for an HTTP header.
TOKEN: ValueType[str] = ValueType("token", _to_token)
INTEGER: ValueType[int] = ValueType("integer", _to_integer)
FLOAT: ValueType[float] = ValueType("number", _to_float)
BOOLEAN: ValueType[bool] = ValueType("boolean", _to_boolean)
DURATION_MS: ValueType[int] = ValueType("duration", _to_duration_ms)
BYTES_COUNT: ValueType[int] = ValueType("memory size", _to_byte_count)
BYTEARRAY: ValueType[bytearray] = ValueType("bytes", _to_bytearray)
MAPPING: ValueType[dict[str, str]] = ValueType("map", _to_mapping)


def choice(*values: str, aliases: Mapping[str, str] | None = None) -> ValueType[str]:
    """Return a type that allows a few words, compared ignoring case; the result is spelled as in `values`."""
    known = {value.lower(): value for value in values} | dict(aliases or {})

    def convert(value: object) -> str:
        # An enum member stands for its name.
        text = str(getattr(value, "name", value)).strip().lower()
        if text not in known:
            raise ValueError(f"write one of {', '.join(values)}")
        return known[text]

    return ValueType("one of " + ", ".join(values), convert)


def build_list_type(item_type: ValueType[T]) -> ValueType[list[T]]:
    """Return a type of lists, written `a;b;c` or `[a, b, c]`."""

    def convert(value: object) -> list[T]:
        items: Any = parse_list(value) if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)):
            raise ValueError("give a list, or text such as a;b;c")
        return [item_type.convert(item) for item in items]

    return ValueType(f"list of {item_type.name}", convert)


def parse_list(text: str) -> list[str]:
    """Split `a;b;c`, or `[a, b, c]` as in YAML; an item that contains a separator is quoted.

    Empty text is an empty list.
    """
    trimmed = text.strip()
    if trimmed.startswith("[") and trimmed.endswith("]"):
        parts = split_quoted(trimmed[1:-1], ",")
    else:
        parts = split_quoted(trimmed, ";")
    return [_unquote(part) for part in parts]


def split_quoted(text: str, separator: str, openers: str = "", maxsplit: int = -1) -> list[str]:
    """Split at separators outside quotes; quotes are kept, surrounding blanks are stripped.

    A part that starts with a single or double quote ends with the same quote; a doubled quote stands for itself. A
    quote may also follow one of the characters in `openers`.

    Raises:
        ValueError: if a quote is not closed.
    """
    if not text.strip():
        return []
    parts: list[str] = []
    start, position, quote, at_start = 0, 0, "", True
    while position < len(text):
        character = text[position]
        if quote:
            if text.startswith(quote * 2, position):
                position += 1
            elif character == quote:
                quote = ""
        elif at_start and character in "'\"":
            quote, at_start = character, False
        elif character == separator and maxsplit != len(parts):
            parts.append(text[start:position].strip())
            start, at_start = position + 1, True
        elif not character.isspace():
            at_start = character in openers
        position += 1
    if quote:
        raise ValueError(f"a quote {quote} is not closed")
    return [*parts, text[start:].strip()]


def _quote(text: str) -> str:
    special = not text or text != text.strip() or any(mark in text for mark in ";,:'\"[]")
    return "'" + text.replace("'", "''") + "'" if special else text


def _unquote(text: str) -> str:
    if len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0]:
        return text[1:-1].replace(text[0] * 2, text[0])
    return text
