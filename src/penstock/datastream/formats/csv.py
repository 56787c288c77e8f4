"""CSV: rows as messages under PyFlink's names, and CSV files."""

from __future__ import annotations

from typing import Any

from penstock.codecs.csv_row import CsvRowDeserializationSchema, CsvRowSerializationSchema
from penstock.formats.csv import CsvFormat, CsvSchema, CsvSchemaBuilder, CsvWriterFactory, csv_format, csv_writer
from penstock.formats.file_format import StreamFormat

__all__ = [
    "CsvBulkWriters",
    "CsvFormat",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
    "CsvWriterFactory",
]


class CsvReaderFormat:
    """Creates formats for `FileSource.for_record_stream_format`."""

    @staticmethod
    def for_schema(schema: CsvSchema, **more: Any) -> StreamFormat[Any]:
        """Return a format that reads rows by a schema; `more` goes to `CsvFormat` (`on_error`, `multiline`, …)."""
        return csv_format(schema, **more)

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat[str]:
        """Return the format for plain lines, like `StreamFormat.text_line_format`."""
        return StreamFormat.text_line_format(charset_name)


class CsvBulkWriters:
    """Creates CSV writers for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvWriterFactory:
        """Return a factory for writers of rows, tuples or dicts with the schema's columns."""
        return csv_writer(schema)
