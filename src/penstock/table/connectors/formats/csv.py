"""`csv`: values as text, in the order of the table's columns, with the options of Flink's format of this name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import UnsupportedError
from penstock.table.connectors.formats.csv_reading import CsvFilesFormat, CsvMessageDecoder
from penstock.table.connectors.formats.csv_rules import CsvRules
from penstock.table.connectors.formats.csv_writing import CsvMessageEncoder
from penstock.table.connectors.formats.format import Decoding, Encoding, TableFormat
from penstock.table.connectors.formats.lines import LinesWriterFactory
from penstock.table.connectors.table_options import TableOptions
from penstock.table.plan.row_schema import RowSchema

DELIMITER: Final = (
    ConfigOptions.key("field-delimiter")
    .string_type()
    .default_value(",")
    .with_description("The delimiter between fields.")
)
DISABLE_QUOTE: Final = (
    ConfigOptions.key("disable-quote-character")
    .boolean_type()
    .default_value(False)
    .with_description("Whether to treat quotes like other characters.")
)
QUOTE: Final = (
    ConfigOptions.key("quote-character")
    .string_type()
    .no_default_value()
    .with_description('The quote around fields that contain a delimiter; by default `"`.')
)
COMMENTS: Final = (
    ConfigOptions.key("allow-comments")
    .boolean_type()
    .default_value(False)
    .with_description("Whether to skip lines that begin with #.")
)
IGNORE_ERRORS: Final = (
    ConfigOptions.key("ignore-parse-errors")
    .boolean_type()
    .default_value(False)
    .with_description("Whether to read invalid values as NULL, and to skip invalid lines.")
)
SEPARATOR: Final = (
    ConfigOptions.key("array-element-delimiter")
    .string_type()
    .default_value(";")
    .with_description("The delimiter between the elements of an array or row.")
)
ESCAPE: Final = (
    ConfigOptions.key("escape-character")
    .string_type()
    .no_default_value()
    .with_description("The character that escapes the next one.")
)
NULL: Final = (
    ConfigOptions.key("null-literal")
    .string_type()
    .no_default_value()
    .with_description("The string that represents NULL.")
)


SHORT_DECIMALS: Final = (
    ConfigOptions.key("write-bigdecimal-in-scientific-notation")
    .boolean_type()
    .default_value(True)
    .with_description("Whether to write decimals without trailing zeros and with an exponent, as 1E+5.")
)


class CsvTableFormat(TableFormat):
    """See the module docstring. Files have no header: columns are found by position."""

    name = "csv"
    options = (DELIMITER, DISABLE_QUOTE, QUOTE, COMMENTS, IGNORE_ERRORS, SEPARATOR, ESCAPE, NULL, SHORT_DECIMALS)

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        rules = _rules(options)
        decoder = CsvMessageDecoder(schema, tuple(wanted), rules)
        return Decoding(CsvFilesFormat(schema, tuple(wanted), rules), decoder, rules.ignores_errors)

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        encoder = CsvMessageEncoder(schema, _rules(options))
        return Encoding(LinesWriterFactory(encoder, schema), encoder)


def _rules(options: TableOptions) -> CsvRules:
    is_quoted = not options.read(DISABLE_QUOTE)
    if not is_quoted and QUOTE.key() in options:
        raise options.wrong(QUOTE.key(), f"it cannot be set together with '{DISABLE_QUOTE.key()}'")
    delimiter = options.read(DELIMITER)
    if "\\" in delimiter:
        delimiter = delimiter.encode().decode("unicode_escape")
    if len(delimiter) != 1:
        raise UnsupportedError(
            f"table {options.title}: 'csv.{DELIMITER.key()}' must be a single character, not {delimiter!r}"
        )
    return CsvRules(
        delimiter,
        _character(options, QUOTE) or '"' if is_quoted else None,
        _character(options, ESCAPE),
        options.read(COMMENTS),
        options.read(IGNORE_ERRORS),
        options.read(SEPARATOR),
        options.read(NULL),
        options.read(SHORT_DECIMALS),
    )


def _character(options: TableOptions, option: ConfigOption[str | None]) -> str | None:
    character = options.read(option)
    if character is not None and len(character) != 1:
        raise options.wrong(option.key(), f"it must be a single character, not {character!r}")
    return character
