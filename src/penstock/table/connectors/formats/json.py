"""`json`: each row an object, with the options of Flink's format of this name. In files each row is a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.value_types import choice
from penstock.table.connectors.formats.format import Decoding, Encoding, TableFormat
from penstock.table.connectors.formats.json_reading import JsonMessageDecoder
from penstock.table.connectors.formats.json_rules import JsonRules
from penstock.table.connectors.formats.json_writing import JsonMessageEncoder
from penstock.table.connectors.formats.lines import LinesFormat, LinesWriterFactory
from penstock.table.connectors.table_options import TableOptions
from penstock.table.plan.row_schema import RowSchema


def _switch(key: str, description: str) -> ConfigOption[bool]:
    return ConfigOptions.key(key).boolean_type().default_value(False).with_description(description)


FAIL_ON_MISSING: Final = _switch("fail-on-missing-field", "whether an object that lacks a column is an error")
IGNORE_ERRORS: Final = _switch(
    "ignore-parse-errors",
    "whether values that cannot be read are NULL, and lines that are no objects are left out",
)
TIMESTAMPS: Final = ConfigOption(
    "timestamp-format.standard",
    choice("SQL", "ISO-8601"),
    "SQL",
    "`SQL` for `2020-12-30 12:13:14.123`, `ISO-8601` for `2020-12-30T12:13:14.123`; with a Z for a point on the time "
    "line",
)
NULL_KEY_MODE: Final = ConfigOption(
    "map-null-key.mode",
    choice("FAIL", "DROP", "LITERAL"),
    "FAIL",
    "has no effect: no key of a map is NULL",
)
NULL_KEY: Final = (
    ConfigOptions.key("map-null-key.literal").string_type().default_value("null").with_description("has no effect")
)
PLAIN_DECIMALS: Final = _switch("encode.decimal-as-plain-number", "whether decimals are written without an exponent")
LEAVE_OUT_NULLS: Final = _switch("encode.ignore-null-fields", "whether fields that are NULL are left out")


class JsonTableFormat(TableFormat):
    """See the module's text."""

    name = "json"
    has_named_fields = True
    options = (
        FAIL_ON_MISSING,
        IGNORE_ERRORS,
        TIMESTAMPS,
        NULL_KEY_MODE,
        NULL_KEY,
        PLAIN_DECIMALS,
        LEAVE_OUT_NULLS,
    )

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        rules = _rules(options)
        if rules.fails_on_missing and rules.ignores_errors:
            raise options.wrong(IGNORE_ERRORS.key(), f"it cannot be set together with '{FAIL_ON_MISSING.key()}'")
        decoder = JsonMessageDecoder(RowSchema(tuple(schema[place] for place in wanted)), rules)
        files = LinesFormat(decoder, skips_empty=True, skips_bad=rules.ignores_errors)
        return Decoding(files, decoder, rules.ignores_errors)

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        encoder = JsonMessageEncoder(schema, _rules(options))
        return Encoding(LinesWriterFactory(encoder, schema), encoder)


def _rules(options: TableOptions) -> JsonRules:
    return JsonRules(
        options.read(FAIL_ON_MISSING),
        options.read(IGNORE_ERRORS),
        options.read(TIMESTAMPS) == "ISO-8601",
        options.read(PLAIN_DECIMALS),
        options.read(LEAVE_OUT_NULLS),
    )
