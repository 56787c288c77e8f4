"""`json`: each row is an object, with the options of Flink's format of this name. In files each row is a line."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.table.connectors.formats.format import Decoding, Encoding, TableFormat
from penstock.table.connectors.formats.json_options import (
    FAIL_ON_MISSING,
    IGNORE_ERRORS,
    LEAVE_OUT_NULLS,
    NULL_KEY,
    NULL_KEY_MODE,
    PLAIN_DECIMALS,
    TIMESTAMPS,
    json_rules,
)
from penstock.table.connectors.formats.json_reading import JsonMessageDecoder
from penstock.table.connectors.formats.json_writing import JsonMessageEncoder
from penstock.table.connectors.formats.lines import LinesFormat, LinesWriterFactory
from penstock.table.connectors.table_options import TableOptions
from penstock.table.plan.row_schema import RowSchema


class JsonTableFormat(TableFormat):
    """See the module docstring."""

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
        rules = json_rules(options, options.read(FAIL_ON_MISSING))
        if rules.fails_on_missing and rules.ignores_errors:
            raise options.wrong(IGNORE_ERRORS.key(), f"it cannot be set together with '{FAIL_ON_MISSING.key()}'")
        decoder = JsonMessageDecoder(RowSchema(tuple(schema[index] for index in wanted)), rules)
        files = LinesFormat(decoder, skips_empty=True, skips_bad=rules.ignores_errors)
        return Decoding(files, decoder, rules.ignores_errors)

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        encoder = JsonMessageEncoder(schema, json_rules(options))
        return Encoding(LinesWriterFactory(encoder, schema), encoder)
