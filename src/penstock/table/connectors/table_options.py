"""The options of one table, parsed as a connector declares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, Final, TypeVar

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError
from penstock.base.secrets import remember
from penstock.table.data.errors import ValidationError

T = TypeVar("T")

CONNECTOR: Final = ConfigOptions.key("connector").string_type().no_default_value()
FORMAT: Final = (
    ConfigOptions.key("format")
    .string_type()
    .no_default_value()
    .with_description("The format of rows; its own options are prefixed with its name, such as `csv.`.")
)


class TableOptions(Mapping[str, str]):
    """The options of a table as text, which `read` converts to typed values.

    Args:
        title: the table's name in error messages.
        values: the options by key.
        prefix: the prefix of each key; for a format, its name and a dot.
        zone: the session time zone.
    """

    def __init__(self, title: str, values: Mapping[str, str], prefix: str = "", zone: tzinfo = UTC) -> None:
        self.title = title
        self.zone = zone
        self._values = dict(values)
        remember(values)
        self._prefix = prefix

    def __getitem__(self, key: str) -> str:
        return self._values[self._prefix + key]

    def __iter__(self) -> Iterator[str]:
        return (key.removeprefix(self._prefix) for key in self._values if key.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def read(self, option: ConfigOption[T]) -> T:
        """Return the value of an option: durations in ms, memory sizes in bytes.

        Raises:
            ValidationError: if the value is invalid; it names the table, the option and the value.
        """
        text = self.get(option.key())
        if text is None:
            return option.default_value()
        try:
            return option.convert(text)
        except ConfigurationError as error:
            raise ValidationError(f"Invalid option of table {self.title}: {self._named(error, option)}") from error

    def required(self, option: ConfigOption[T | None]) -> T:
        """Return the value of a required option; raise `ValidationError` if it is missing."""
        value = self.read(option)
        if value is None:
            raise missing(self.title, [self._prefix + option.key()])
        return value

    def below(self, prefix: str) -> TableOptions:
        """Return the options whose keys begin with a prefix, without the prefix."""
        return TableOptions(self.title, self._values, self._prefix + prefix, self.zone)

    def wrong(self, key: str, reason: str) -> ValidationError:
        """Return the error for an option with an invalid value."""
        return ValidationError(f"Invalid value for option '{self._prefix}{key}' of table {self.title}: {reason}")

    def _named(self, error: ConfigurationError, option: ConfigOption[Any]) -> str:
        return str(error).replace(f"option {option.key()} ", f"option {self._prefix}{option.key()} ", 1)


def missing(title: str, keys: Sequence[str]) -> ValidationError:
    """Return the error for missing required options."""
    return ValidationError(
        f"One or more required options are missing for table {title}. Missing required options are: {', '.join(keys)}"
    )
