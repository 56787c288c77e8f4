"""Typed configuration options (`ConfigOption`), their builder, value types, and the constructors of Penstock's own.

>>> attempts = ConfigOptions.key("restart-strategy.fixed-delay.attempts").int_type().default_value(1)
>>> attempts.key(), attempts.default_value()
('restart-strategy.fixed-delay.attempts', 1)

`ValueType`: a `Configuration` holds the values it was given, text or native. A `ValueType` converts either to the one
Python type that an option promises. All types accept text, because files and command lines provide text. Memory sizes
have Flink's text format: `64 mb`, `20kb`, `1 g`. All units are powers of 1,024.

`option` and `unset` create Penstock's own options. Each option goes into one registry and has a type that rejects
invalid values.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.base.errors import ConfigurationError, WrongValueError
from penstock.base.secrets import HIDDEN, find_credentials, hide, is_sensitive
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
    "ConfigOption",
    "ConfigOptions",
    "ValueType",
    "build_list_type",
    "choice",
    "format_bytes",
    "parse_bytes",
    "parse_list",
    "render",
]


_UNIT_BYTES = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}
_FORM = re.compile(r"([0-9]+)\s*([a-zA-Z]*)\Z")


def parse_bytes(text: str) -> int:
    """Parse a size such as `64 mb` into bytes. A bare number is in bytes; case does not matter.

    Raises:
        ValueError: if the text is not a size.
    """
    match = _FORM.match(text.strip())
    if match is None or match[2].lower() not in _UNIT_BYTES:
        raise WrongValueError(f"not a memory size: {text!r}; write a whole number and a unit: b, kb, mb, gb or tb")
    return int(match[1]) * _UNIT_BYTES[match[2].lower()]


def format_bytes(size_bytes: int) -> str:
    """Format a size in the largest unit that is exact; `parse_bytes` reads it back.

    Raises:
        ValueError: if the size is negative.
    """
    if size_bytes < 0:
        raise WrongValueError(f"a memory size cannot be negative: {size_bytes}")
    for label in ("tb", "gb", "mb", "kb"):
        if size_bytes and size_bytes % _UNIT_BYTES[label] == 0:
            return f"{size_bytes // _UNIT_BYTES[label]} {label}"
    return f"{size_bytes} bytes"


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


@dataclass(frozen=True, slots=True)
class _Definition(Generic[T]):
    key: str
    value_type: ValueType[Any]
    default: T
    description: str


class ConfigOption(Generic[T]):
    """A key with its value type and default; immutable. Read it with `Configuration.read`.

    Examples:
        >>> from penstock.common import ConfigOptions, Configuration
        >>> retries = ConfigOptions.key("shop.retries").int_type().default_value(3)
        >>> Configuration().read(retries), Configuration.from_dict({"shop.retries": "5"}).read(retries)
        (3, 5)
    """

    __slots__ = ("_definition",)

    def __init__(self, key: str, value_type: ValueType[Any], default: T, description: str = "") -> None:
        if not key:
            raise ConfigurationError("the key of a configuration option must not be empty")
        self._definition: _Definition[T] = _Definition(key, value_type, default, description)

    def key(self) -> str:
        """Return the key, such as `parallelism.default`."""
        return self._definition.key

    def value_type(self) -> ValueType[Any]:
        """Return the type that converts the option's value."""
        return self._definition.value_type

    def default_value(self) -> T:
        """Return the value to use when the option is not set; None if it has no default."""
        return self._definition.default

    def has_default_value(self) -> bool:
        """Return whether the option has a default."""
        return self._definition.default is not None

    def description(self) -> str:
        """Return the option's description; may be empty."""
        return self._definition.description

    def with_description(self, description: str) -> ConfigOption[T]:
        """Return the same option with another description."""
        definition = self._definition
        return ConfigOption(definition.key, definition.value_type, definition.default, description)

    def convert(self, value: object) -> T:
        """Convert a raw value, text or native, to the option's type.

        Raises:
            ConfigurationError: if it cannot be converted; names the key and value.
        """
        try:
            converted: T = self._definition.value_type.convert(value)
        except (TypeError, ValueError) as error:
            kind, reason, value_repr = self._definition.value_type.name, str(error), repr(value)
            if not is_sensitive(self.key()):
                message = f"option {self.key()} ({kind}) has value {value_repr}: {reason}"
                if not find_credentials(str(value)):
                    raise ConfigurationError(message) from error
                reason = hide(reason)
            # Neither the message nor the chained error may contain the secret.
            reason = reason.replace(value_repr, HIDDEN).replace(str(value), HIDDEN) if str(value).strip() else reason
            wrong = ConfigurationError(f"option {self.key()} ({kind}) has a wrong value: {reason}")
        else:
            return converted
        raise wrong

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfigOption):
            return NotImplemented
        return self.key() == other.key() and self.default_value() == other.default_value()

    def __hash__(self) -> int:
        return hash(self.key())

    def __repr__(self) -> str:
        return f"ConfigOption({self.key()!r}, {self.value_type().name}, default={self.default_value()!r})"


class ConfigOptions:
    """Builds `ConfigOption`s: `ConfigOptions.key("k").int_type().default_value(5)`.

    Examples:
        >>> from penstock.common import ConfigOptions
        >>> pause = ConfigOptions.key("shop.pause").duration_type().no_default_value()
        >>> pause.convert("2 s")
        2000
    """

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Start building the option called `key`.

        Raises:
            ConfigurationError: if the key is empty.
        """
        if not key:
            raise ConfigurationError("the key of a configuration option must not be empty")
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        """Holds the key; choose the value type next."""

        def __init__(self, key: str) -> None:
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Make the values booleans."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, BOOLEAN)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Make the values integers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, INTEGER)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Make the values integers, like `int_type`."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, INTEGER)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Make the values floating-point numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, FLOAT)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Make the values floating-point numbers, like `float_type`."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, FLOAT)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Make the values text."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, STRING)

        def duration_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Make the values durations, written `10 s` and read as milliseconds."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, DURATION_MS)

        def memory_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Make the values memory sizes, written `64 mb` and read as bytes."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, BYTES_COUNT)

    class TypedConfigOptionBuilder(Generic[T]):
        """Holds the key and the value type; choose the default next."""

        def __init__(self, key: str, value_type: ValueType[T]) -> None:
            self._key = key
            self._value_type = value_type

        def default_value(self, value: T) -> ConfigOption[T]:
            """Build the option with a default.

            Raises:
                ConfigurationError: if the default is not of the option's type.
            """
            option = ConfigOption(self._key, self._value_type, value)
            converted = option.convert(value)
            return ConfigOption(self._key, self._value_type, converted)

        def no_default_value(self) -> ConfigOption[T | None]:
            """Build the option without a default: it reads as None when it is not set."""
            return ConfigOption(self._key, self._value_type, None)


Option = ConfigOption

REGISTRY: dict[str, Option[Any]] = {}
"""All options by key, in the order in which they are made."""


def option(key: str, value_type: ValueType[T], default: T, description: str) -> Option[T]:
    """Create an option."""
    new_option = Option(key, value_type, value_type.convert(default), description)
    REGISTRY[key] = new_option
    return new_option


def unset(key: str, value_type: ValueType[T], description: str) -> Option[T | None]:
    """Create an option that reads as None when it is not set."""
    new_option: Option[T | None] = Option(key, value_type, None, description)
    REGISTRY[key] = new_option
    return new_option


def at_least(low: float, value_type: ValueType[T]) -> ValueType[T]:
    """Return the same type, restricted to values of at least `low`."""

    def convert(value: object) -> T:
        converted: Any = value_type.convert(value)
        if not converted >= low:  # also rejects NaN
            raise ValueError(f"must be at least {low}")
        result: T = converted
        return result

    return ValueType(value_type.name, convert)


COUNT = at_least(0, INTEGER)
POSITIVE = at_least(1, INTEGER)
TIME_MS = at_least(0, DURATION_MS)
POSITIVE_TIME_MS = at_least(1, DURATION_MS)
SIZE_BYTES = at_least(0, BYTES_COUNT)


def to_max_parallelism(value: object) -> int:
    """Convert to a number of key groups."""
    converted = INTEGER.convert(value)
    if not 1 <= converted <= 32768:
        raise ValueError("must be between 1 and 32768")
    return converted


def to_fraction(value: object) -> float:
    """Convert to a number from 0 to 1, inclusive."""
    converted = FLOAT.convert(value)
    if not 0.0 <= converted <= 1.0:
        raise ValueError("must be between 0 and 1")
    return converted


def to_inner_fraction(value: object) -> float:
    """Convert to a number between 0 and 1, exclusive."""
    converted = FLOAT.convert(value)
    if not 0.0 < converted < 1.0:
        raise ValueError("must be greater than 0 and less than 1")
    return converted


PORTS_RANGE_MAX = 65_535


def to_port(value: object) -> int:
    """Convert to a port number."""
    converted = INTEGER.convert(value)
    if not 0 <= converted <= PORTS_RANGE_MAX:
        raise ValueError("must be between 0 and 65535")
    return converted


def to_ports(value: object) -> str:
    """Convert to a comma-separated list of port numbers and ranges."""
    text = STRING.convert(value)
    for part in text.split(","):
        low, _, high = part.partition("-")
        if to_port(low.strip()) > to_port((high or low).strip()):
            raise ValueError(f"{part} is no range")
    return text


PORT = ValueType("port", to_port)
