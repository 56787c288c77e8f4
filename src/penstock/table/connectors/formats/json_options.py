"""The options shared by JSON formats."""

from __future__ import annotations

from typing import Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.value_types import choice
from penstock.table.connectors.formats.json_rules import NULL_KEYS, JsonRules
from penstock.table.connectors.table_options import TableOptions


def switch(key: str, description: str) -> ConfigOption[bool]:
    """Return a boolean option that is off by default."""
    return ConfigOptions.key(key).boolean_type().default_value(False).with_description(description)


FAIL_ON_MISSING: Final = switch("fail-on-missing-field", "Whether a missing column is an error.")
IGNORE_ERRORS: Final = switch(
    "ignore-parse-errors",
    "Whether to read invalid values as NULL, and to skip and count messages that are not rows.",
)
TIMESTAMPS: Final = ConfigOption(
    "timestamp-format.standard",
    choice("SQL", "ISO-8601"),
    "SQL",
    "`SQL` for `2020-12-30 12:13:14.123`, `ISO-8601` for `2020-12-30T12:13:14.123`; TIMESTAMP_LTZ has a trailing Z.",
)
NULL_KEY_MODE: Final = ConfigOption(
    NULL_KEYS,
    choice("FAIL", "DROP", "LITERAL"),
    "FAIL",
    "How to write a map entry whose key is NULL: `FAIL` fails the job, `DROP` drops the entry, `LITERAL` writes the "
    "key in `map-null-key.literal`.",
)
NULL_KEY: Final = (
    ConfigOptions.key("map-null-key.literal")
    .string_type()
    .default_value("null")
    .with_description("The key written for NULL if `map-null-key.mode` is `LITERAL`.")
)
PLAIN_DECIMALS: Final = switch(
    "encode.decimal-as-plain-number",
    "Whether to write decimals with all their digits and without an exponent; otherwise `100000` becomes `1E+5`.",
)
LEAVE_OUT_NULLS: Final = switch("encode.ignore-null-fields", "Whether to omit fields that are NULL.")
#: the options shared by JSON changelogs
CHANGELOG_OPTIONS: Final = (IGNORE_ERRORS, TIMESTAMPS, NULL_KEY_MODE, NULL_KEY, PLAIN_DECIMALS, LEAVE_OUT_NULLS)


def json_rules(options: TableOptions, fails_on_missing: bool = False) -> JsonRules:
    """Return the rules set by the options."""
    return JsonRules(
        fails_on_missing,
        options.read(IGNORE_ERRORS),
        options.read(TIMESTAMPS) == "ISO-8601",
        options.read(PLAIN_DECIMALS),
        options.read(LEAVE_OUT_NULLS),
        options.read(NULL_KEY_MODE),
        options.read(NULL_KEY),
    )
