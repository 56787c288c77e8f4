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
    """Creates formats for `FileSource.for_record_stream_format`.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import FileSource
        >>> from penstock.datastream.formats.csv import CsvReaderFormat, CsvSchema
        >>> _ = Path("orders").write_text("tea,2")
        >>> schema = CsvSchema.builder().add_string_column("drink").add_number_column("cups").build()
        >>> source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), "orders").build()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").collect()
        [Row(drink='tea', cups=2)]
    """

    @staticmethod
    def for_schema(schema: CsvSchema, **more: Any) -> StreamFormat[Any]:
        """Return a format that reads rows by a schema; `more` goes to `CsvFormat` (`on_error`, `multiline`, …)."""
        return csv_format(schema, **more)

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat[str]:
        """Return the format for plain lines, like `StreamFormat.text_line_format`."""
        return StreamFormat.text_line_format(charset_name)


class CsvBulkWriters:
    """Creates CSV writers for `FileSink.for_bulk_format`.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import BucketAssigner, FileSink
        >>> from penstock.datastream.formats.csv import CsvBulkWriters, CsvSchema
        >>> schema = CsvSchema.builder().add_string_column("drink").add_number_column("cups").build()
        >>> files = FileSink.for_bulk_format("orders", CsvBulkWriters.for_schema(schema))
        >>> files = files.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements(("tea", 2)).sink_to(files.build())
        >>> result = env.execute()
        >>> (path,) = Path("orders").glob("part-*")
        >>> path.read_text().splitlines()
        ['tea,2']
    """

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvWriterFactory:
        """Return a factory for writers of rows, tuples or dicts with the schema's columns."""
        return csv_writer(schema)
