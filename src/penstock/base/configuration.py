"""`Configuration`, a job's settings by key, and `ExecutionConfig`, the execution settings of a program as methods."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from penstock.base import config_options as value_types
from penstock.base import options
from penstock.base.config_options import ConfigOption, ValueType, parse_list, render
from penstock.base.errors import UnsupportedError, WrongTypeError
from penstock.base.secrets import shown
from penstock.base.time import Duration, Time, to_millis

__all__ = ["Configuration", "ExecutionConfig"]


T = TypeVar("T")
D = TypeVar("D")


class Configuration:
    """Settings by key, as text or native values; getters convert them.

    The typed way is `read` with an option from `penstock.base.options`; the getters by key are PyFlink's. If the key is
    not set, a getter returns its `default_value` unchanged.

    Args:
        other: a configuration to copy.

    Raises:
        ConfigurationError: from every getter, if a value cannot be converted; names the key and value.

    Examples:
        >>> from penstock.base.options import PARALLELISM
        >>> from penstock.common import Configuration
        >>> configuration = Configuration.from_dict({"parallelism.default": "4"})
        >>> configuration.read(PARALLELISM), configuration.get_string("pipeline.name", "none")
        (4, 'none')
    """

    def __init__(self, other: Configuration | None = None, j_configuration: None = None) -> None:
        if j_configuration is not None:
            raise UnsupportedError("Penstock has no Java configuration to wrap")
        self._values: dict[str, Any] = {} if other is None else dict(other._values)

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """Create a configuration from the entries of a dict.

        Raises:
            TypeError: if a key is not a string or a value is None.

        Examples:
            >>> Configuration.from_dict({"execution.target": "local"}).to_dict()
            {'execution.target': 'local'}
        """
        configuration = cls()
        for key, value in map.items():
            configuration._set(key, value)
        return configuration

    def read(self, option: ConfigOption[T]) -> T:
        """Return an option's converted and validated value, or its default if it is not set.

        Raises:
            ConfigurationError: if the value is not of the option's type or range; names the key and value.
        """
        if option.key() not in self._values:
            return option.default_value()
        return option.convert(self._values[option.key()])

    def write(self, option: ConfigOption[Any], value: object) -> Configuration:
        """Set an option, validating the value immediately; return this configuration.

        Raises:
            ConfigurationError: if the value is not of the option's type or range; names the key and value.
        """
        option.convert(value)
        self._set(option.key(), value)
        return self

    def get_string(self, key: str, default_value: D) -> str | D:
        """Return the value as text."""
        return self._get(key, value_types.STRING, default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        """Set a text value; return this configuration.

        Examples:
            >>> configuration.set_string("pipeline.name", "orders").get_string("pipeline.name", "")
            'orders'
        """
        return self._set_checked(key, value, value_types.STRING)

    def get_integer(self, key: str, default_value: D) -> int | D:
        """Return the value as an integer."""
        return self._get(key, value_types.INTEGER, default_value)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set an integer; return this configuration."""
        return self._set_checked(key, value, value_types.INTEGER)

    def get_boolean(self, key: str, default_value: D) -> bool | D:
        """Return the value as a boolean."""
        return self._get(key, value_types.BOOLEAN, default_value)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set a boolean; return this configuration."""
        return self._set_checked(key, value, value_types.BOOLEAN)

    def get_float(self, key: str, default_value: D) -> float | D:
        """Return the value as a floating-point number."""
        return self._get(key, value_types.FLOAT, default_value)

    def set_float(self, key: str, value: float) -> Configuration:
        """Set a floating-point number; return this configuration."""
        return self._set_checked(key, value, value_types.FLOAT)

    def get_bytearray(self, key: str, default_value: D) -> bytearray | D:
        """Return the value as bytes; text is read as hexadecimal digits."""
        return self._get(key, value_types.BYTEARRAY, default_value)

    def set_bytearray(self, key: str, value: bytes | bytearray) -> Configuration:
        """Set bytes; return this configuration."""
        return self._set_checked(key, value, value_types.BYTEARRAY)

    def key_set(self) -> set[str]:
        """Return the keys that are set."""
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        """Return whether the key is set."""
        return key in self._values

    def remove_config(self, key: str) -> bool:
        """Remove a key; return whether it was set."""
        return self._values.pop(key, None) is not None

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Copy all entries of `other`, with `prefix` before each key; return this configuration."""
        self._values.update({(prefix or "") + key: value for key, value in other._values.items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Add all entries, as text, to a dict."""
        target_dict.update(self.to_dict())

    def to_dict(self) -> dict[str, str]:
        """Return all entries as text. `from_dict` turns them into an equivalent configuration."""
        return {key: render(value) for key, value in self._values.items()}

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """Split a list written `a;b;c` or `[a, b, c]`; empty text, or None, is an empty list.

        Raises:
            ValueError: if a quote is not closed.
        """
        return parse_list(value) if value else []

    @overload
    def _get(self, key: str, value_type: ValueType[T], default_value: None) -> T | None: ...
    @overload
    def _get(self, key: str, value_type: ValueType[T], default_value: D) -> T | D: ...
    def _get(self, key: str, value_type: ValueType[T], default_value: Any) -> Any:
        return self.read(ConfigOption(key, value_type, default_value))

    def _set_checked(self, key: str, value: object, value_type: ValueType[Any]) -> Configuration:
        self._set(key, ConfigOption(key, value_type, None).convert(value))
        return self

    def _set(self, key: str, value: object) -> None:
        if not isinstance(key, str):
            raise WrongTypeError(f"the key of a configuration entry must be a str, not {key!r}")
        if value is None:
            raise WrongTypeError(f"configuration entry {key} cannot be None; remove the key to unset it")
        self._values[key] = value

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Configuration) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self.to_dict().items()))

    def __repr__(self) -> str:
        return f"Configuration({shown(self.to_dict())!r})"

    def __str__(self) -> str:
        return str(shown(self.to_dict()))


class ExecutionConfig:
    """A view of a `Configuration` through methods; changes take effect there at once.

    Setters return this object and raise ConfigurationError for a value out of range.

    Args:
        configuration: the configuration to read and write; None for a new one.

    Examples:
        >>> from penstock.common import ExecutionConfig
        >>> config = ExecutionConfig().set_parallelism(2).set_global_job_parameters({"shop": "north"})
        >>> config.get_parallelism(), config.get_global_job_parameters()
        (2, {'shop': 'north'})
    """

    PARALLELISM_DEFAULT = -1
    """The parallelism of a program that has set none."""

    PARALLELISM_UNKNOWN = -2
    """The value with which `set_parallelism` leaves the parallelism as it is."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration

    def get_parallelism(self) -> int:
        """Return the default number of subtasks of an operator; `PARALLELISM_DEFAULT` if not set."""
        if self._configuration.contains_key(options.PARALLELISM.key()):
            return self._configuration.read(options.PARALLELISM)
        return self.PARALLELISM_DEFAULT

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the default number of subtasks of an operator; `PARALLELISM_DEFAULT` unsets it."""
        if parallelism == self.PARALLELISM_DEFAULT:
            self._configuration.remove_config(options.PARALLELISM.key())
        elif parallelism != self.PARALLELISM_UNKNOWN:
            self._configuration.write(options.PARALLELISM, parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups of keyed state; -1 if not set."""
        if self._configuration.contains_key(options.MAX_PARALLELISM.key()):
            return self._configuration.read(options.MAX_PARALLELISM)
        return -1

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups of keyed state: 1 to 32,768."""
        self._configuration.write(options.MAX_PARALLELISM, max_parallelism)
        return self

    def get_auto_watermark_interval(self) -> int:
        """Return the interval at which watermark generators are asked for a watermark, in milliseconds."""
        return self._configuration.read(options.AUTO_WATERMARK_INTERVAL_MS)

    def set_auto_watermark_interval(self, interval: Duration | Time | datetime.timedelta | int) -> ExecutionConfig:
        """Set the interval at which watermark generators are asked for a watermark; an int is in milliseconds."""
        self._configuration.write(options.AUTO_WATERMARK_INTERVAL_MS, Duration.of_millis(to_millis(interval)))
        return self

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Assign a uid to each operator without one."""
        self._configuration.write(options.AUTO_GENERATE_UIDS, True)
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Make an operator without a uid an error, so that savepoints survive changes to the program."""
        self._configuration.write(options.AUTO_GENERATE_UIDS, False)
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return whether operators without a uid get one."""
        return self._configuration.read(options.AUTO_GENERATE_UIDS)

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return the user's own settings, which every function can read."""
        parameters = self._configuration.read(options.GLOBAL_JOB_PARAMETERS)
        return dict(parameters)

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """Replace the user's own settings; values become text."""
        self._configuration.write(options.GLOBAL_JOB_PARAMETERS, dict(global_job_parameters_dict))
        return self
