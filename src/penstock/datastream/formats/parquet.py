"""Parquet files."""

from __future__ import annotations

from typing import Any

from penstock.formats.avro_schema import AvroSchema
from penstock.formats.parquet import ParquetFormat, ParquetWriterFactory

__all__ = ["AvroParquetReaders", "AvroParquetWriters", "ParquetBulkWriters", "ParquetFormat", "ParquetWriterFactory"]


class AvroParquetReaders:
    """Makes formats of Parquet for `FileSource.for_bulk_file_format`."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> ParquetFormat:
        """A format that reads the fields of an Avro schema; each record is a dict."""
        return ParquetFormat(schema.field_names)


class AvroParquetWriters:
    """Makes writers of Parquet for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> ParquetWriterFactory:
        """A factory of writers of records (dicts, rows or tuples) of an Avro schema.

        Raises:
            FormatError: if the schema has a type for which Parquet has no column.
        """
        return ParquetWriterFactory(schema.to_arrow())


class ParquetBulkWriters:
    """Makes writers of Parquet for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_row_type(row_type: Any, hadoop_config: Any = None, utc_timestamp: bool = False) -> ParquetWriterFactory:
        """A factory of writers of rows.

        Args:
            row_type: `Types.ROW_NAMED`, a dict from name to type, or an Arrow schema.
            hadoop_config: must be None; there is no Hadoop.
            utc_timestamp: accepted for PyFlink programs; timestamps are written as they are, without a zone.

        Raises:
            ConfigurationError: if a type cannot be written, or there is no column.
            ValueError: if there is a Hadoop configuration.
        """
        if hadoop_config is not None:
            raise ValueError("Parquet is written by Arrow, which takes no Hadoop configuration")
        return ParquetWriterFactory(row_type)
