"""Typed configuration options: `ConfigOption`, and `ConfigOptions`, which builds one step by step.

>>> attempts = ConfigOptions.key("restart-strategy.fixed-delay.attempts").int_type().default_value(1)
>>> attempts.key(), attempts.default_value()
('restart-strategy.fixed-delay.attempts', 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.base import value_types
from penstock.base.errors import ConfigurationError
from penstock.base.secrets import HIDDEN, find_credentials, hide, is_sensitive
from penstock.base.value_types import ValueType

__all__ = ["ConfigOption", "ConfigOptions"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Definition(Generic[T]):
    key: str
    value_type: ValueType[Any]
    default: T
    description: str


class ConfigOption(Generic[T]):
    """A key with its value type and default; immutable. Read it with `Configuration.read`."""

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
    """Builds `ConfigOption`s: `ConfigOptions.key("k").int_type().default_value(5)`."""

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
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.BOOLEAN)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Make the values integers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.INTEGER)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Make the values integers, like `int_type`."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.INTEGER)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Make the values floating-point numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.FLOAT)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Make the values floating-point numbers, like `float_type`."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.FLOAT)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Make the values text."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.STRING)

        def duration_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Make the values durations, written `10 s` and read as milliseconds."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.DURATION_MS)

        def memory_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Make the values memory sizes, written `64 mb` and read as bytes."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.BYTES_COUNT)

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
