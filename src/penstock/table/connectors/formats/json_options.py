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


FAIL_ON_MISSING: Final = switch("fail-on-missing-field", "whether an object that lacks a column is an error")
IGNORE_ERRORS: Final = switch(
    "ignore-parse-errors",
    "whether values that cannot be read are NULL, and messages that are no rows are left out and counted",
)
TIMESTAMPS: Final = ConfigOption(
    "timestamp-format.standard",
    choice("SQL", "ISO-8601"),
    "SQL",
    "`SQL` for `2020-12-30 12:13:14.123`, `ISO-8601` for `2020-12-30T12:13:14.123`; with a Z for a point on the time "
    "line",
)
NULL_KEY_MODE: Final = ConfigOption(
    NULL_KEYS,
    choice("FAIL", "DROP", "LITERAL"),
    "FAIL",
    "what becomes of an entry of a map whose key is NULL when it is written: `FAIL` fails the job, `DROP` leaves the "
    "entry out, `LITERAL` writes the key of `map-null-key.literal`",
)
NULL_KEY: Final = (
    ConfigOptions.key("map-null-key.literal")
    .string_type()
    .default_value("null")
    .with_description("the key that stands for NULL with `map-null-key.mode` `LITERAL`")
)
PLAIN_DECIMALS: Final = switch(
    "encode.decimal-as-plain-number",
    "whether decimals are written with all their digits and without an exponent; else `1E+5` stands for `100000`",
)
LEAVE_OUT_NULLS: Final = switch("encode.ignore-null-fields", "whether fields that are NULL are left out")
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
