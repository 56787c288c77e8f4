"""The options of one field: `fields.<name>.kind`, `.min` and so on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.table.connectors.table_options import TableOptions
from penstock.table.data.errors import ValidationError

KIND: Final = (
    ConfigOptions.key("kind").string_type().default_value("random").with_description("`random` or `sequence`.")
)
MIN: Final = ConfigOptions.key("min").string_type().no_default_value().with_description("The least number.")
MAX: Final = ConfigOptions.key("max").string_type().no_default_value().with_description("The greatest number.")
MAX_PAST: Final = (
    ConfigOptions.key("max-past").duration_type().default_value(0).with_description("The maximum age of a timestamp.")
)
LENGTH: Final = (
    ConfigOptions.key("length")
    .int_type()
    .no_default_value()
    .with_description(
        "The length of strings and bytes (default 100) and the number of elements in collections (default 3)."
    )
)
VAR_LEN: Final = (
    ConfigOptions.key("var-len")
    .boolean_type()
    .default_value(False)
    .with_description("Whether strings and bytes may be shorter.")
)
START: Final = (
    ConfigOptions.key("start").int_type().no_default_value().with_description("The first value of a sequence.")
)
END: Final = (
    ConfigOptions.key("end")
    .int_type()
    .no_default_value()
    .with_description("The last value of a sequence, which ends the table.")
)
NULL_RATE: Final = (
    ConfigOptions.key("null-rate")
    .float_type()
    .default_value(0.0)
    .with_description("The fraction of values that are NULL.")
)
FIELD_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    KIND,
    MIN,
    MAX,
    MAX_PAST,
    LENGTH,
    VAR_LEN,
    START,
    END,
    NULL_RATE,
)


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """The options of a field, and its name in option keys: `name`, or `name.part` for a nested field."""

    path: str
    options: TableOptions

    def part(self, name: str) -> FieldOptions:
        """Return the options of a nested field."""
        return FieldOptions(f"{self.path}.{name}", self.options.below(f"{name}."))

    def refuse(self, *given: ConfigOption[Any], reason: str) -> None:
        """Raise `ValidationError` if one of these options is set."""
        for option in given:
            if option.key() in self.options:
                raise self.wrong(option, reason)

    def wrong(self, option: ConfigOption[Any], reason: str) -> ValidationError:
        """Return the error for an invalid option."""
        return self.options.wrong(option.key(), reason)
