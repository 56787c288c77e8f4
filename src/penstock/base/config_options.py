"""Typed configuration options: `ConfigOption`, and `ConfigOptions` to build one step by step.

>>> attempts = ConfigOptions.key("restart-strategy.fixed-delay.attempts").int_type().default_value(1)
>>> attempts.key(), attempts.default_value()
('restart-strategy.fixed-delay.attempts', 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.base import value_types
from penstock.base.errors import ConfigurationError
from penstock.base.secrets import HIDDEN, credentials_in, hide, is_sensitive
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
    """A key, the type of its value, and its default; immutable. `Configuration.read` reads it."""

    __slots__ = ("_definition",)

    def __init__(self, key: str, value_type: ValueType[Any], default: T, description: str = "") -> None:
        if not key:
            raise ConfigurationError("the key of a configuration option must not be empty")
        self._definition: _Definition[T] = _Definition(key, value_type, default, description)

    def key(self) -> str:
        """The option's key, such as `parallelism.default`."""
        return self._definition.key

    def value_type(self) -> ValueType[Any]:
        """How the option's value is read."""
        return self._definition.value_type

    def default_value(self) -> T:
        """The value of the option when none is set; None when it has no default."""
        return self._definition.default

    def has_default_value(self) -> bool:
        """True when the option has a default."""
        return self._definition.default is not None

    def description(self) -> str:
        """What the option is for; may be empty."""
        return self._definition.description

    def with_description(self, description: str) -> ConfigOption[T]:
        """The same option with another description."""
        definition = self._definition
        return ConfigOption(definition.key, definition.value_type, definition.default, description)

    def convert(self, value: object) -> T:
        """Turns a raw value, text or native, into the option's type.

        Raises:
            ConfigurationError: naming key and value, if it cannot be.
        """
        try:
            converted: T = self._definition.value_type.convert(value)
        except (TypeError, ValueError) as error:
            kind, reason, shown = self._definition.value_type.name, str(error), repr(value)
            if not is_sensitive(self.key()):
                message = f"option {self.key()} ({kind}) has value {shown}: {reason}"
                if not credentials_in(str(value)):
                    raise ConfigurationError(message) from error
                reason = hide(reason)
            # Neither the message nor the error before it may hold the secret.
            reason = reason.replace(shown, HIDDEN).replace(str(value), HIDDEN) if str(value).strip() else reason
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
        """Starts the option called `key`.

        Raises:
            ConfigurationError: if the key is empty.
        """
        if not key:
            raise ConfigurationError("the key of a configuration option must not be empty")
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        """Knows the key and asks for the type."""

        def __init__(self, key: str) -> None:
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Values are True or False."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.BOOLEAN)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Values are whole numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.INTEGER)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Values are whole numbers, as for `int_type`."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.INTEGER)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Values are floating-point numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.FLOAT)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Values are floating-point numbers, as for `float_type`."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.FLOAT)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Values are text."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.STRING)

        def duration_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Values are lengths of time, written `10 s`, read as milliseconds."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.DURATION_MS)

        def memory_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Values are sizes of memory, written `64 mb`, read as bytes."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, value_types.BYTES_COUNT)

    class TypedConfigOptionBuilder(Generic[T]):
        """Knows key and type and asks for the default."""

        def __init__(self, key: str, value_type: ValueType[T]) -> None:
            self._key = key
            self._value_type = value_type

        def default_value(self, value: T) -> ConfigOption[T]:
            """Finishes the option with a default.

            Raises:
                ConfigurationError: if the default is not of the option's type.
            """
            option = ConfigOption(self._key, self._value_type, value)
            converted = option.convert(value)
            return ConfigOption(self._key, self._value_type, converted)

        def no_default_value(self) -> ConfigOption[T | None]:
            """Finishes the option without a default: reading it unset gives None."""
            return ConfigOption(self._key, self._value_type, None)
