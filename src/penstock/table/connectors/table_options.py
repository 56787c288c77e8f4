"""The options of one table, read as a connector declares them."""

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
    .with_description("how rows are written as bytes; its own options begin with its name, such as `csv.`")
)


class TableOptions(Mapping[str, str]):
    """The options of a table as text, which `read` gives as what they mean.

    Args:
        title: the table, as errors name it.
        values: the options by their keys.
        prefix: what stands in front of each key; for a format its name and a point.
        zone: the time zone of the session.
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
        """The value of an option: a duration in ms, a size of memory in bytes.

        Raises:
            ValidationError: naming table, option and value, if the value is none of the option's.
        """
        text = self.get(option.key())
        if text is None:
            return option.default_value()
        try:
            return option.convert(text)
        except ConfigurationError as error:
            raise ValidationError(f"Invalid option of table {self.title}: {self._named(error, option)}") from error

    def required(self, option: ConfigOption[T | None]) -> T:
        """The value of an option that must be there. Raises `ValidationError` where it is not."""
        found = self.read(option)
        if found is None:
            raise missing(self.title, [self._prefix + option.key()])
        return found

    def below(self, prefix: str) -> TableOptions:
        """The options whose keys begin with this, without it."""
        return TableOptions(self.title, self._values, self._prefix + prefix, self.zone)

    def wrong(self, key: str, reason: str) -> ValidationError:
        """The error for an option whose value does not do."""
        return ValidationError(f"Invalid value for option '{self._prefix}{key}' of table {self.title}: {reason}")

    def _named(self, error: ConfigurationError, option: ConfigOption[Any]) -> str:
        return str(error).replace(f"option {option.key()} ", f"option {self._prefix}{option.key()} ", 1)


def missing(title: str, keys: Sequence[str]) -> ValidationError:
    """The error for options that a table has to have."""
    return ValidationError(
        f"One or more required options are missing for table {title}. Missing required options are: {', '.join(keys)}"
    )
