"""Parquet files."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError
from penstock.base.typeinfo import RowTypeInfo
from penstock.datastream.formats.table_rows import file_columns, to_row_type_info
from penstock.formats.avro import AvroSchema
from penstock.formats.parquet import ParquetFormat, ParquetWriterFactory

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
    "ParquetFormat",
    "ParquetWriterFactory",
]


class AvroParquetReaders:
    """Creates Parquet formats for `FileSource.for_bulk_file_format`.

    Examples:
        >>> import pyarrow as pa
        >>> import pyarrow.parquet as pq
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import FileSource
        >>> from penstock.datastream.formats.avro import AvroSchema
        >>> from penstock.datastream.formats.parquet import AvroParquetReaders
        >>> pq.write_table(pa.table({"drink": ["tea"], "cups": [2]}), "orders")
        >>> schema = AvroSchema.parse_string(
        ...     '{"type": "record", "name": "Cup", "fields": [{"name": "drink", "type": "string"}]}'
        ... )
        >>> drinks = AvroParquetReaders.for_generic_record(schema)
        >>> source = FileSource.for_bulk_file_format(drinks, "orders").build()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").collect()
        [{'drink': 'tea'}]
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> ParquetFormat:
        """Return a format that reads the fields of an Avro schema; each record is a dict."""
        return ParquetFormat(schema.field_names)


class AvroParquetWriters:
    """Creates Parquet writers for `FileSink.for_bulk_format`.

    Examples:
        >>> from pathlib import Path
        >>> import pyarrow.parquet as pq
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import BucketAssigner, FileSink
        >>> from penstock.datastream.formats.avro import AvroSchema
        >>> from penstock.datastream.formats.parquet import AvroParquetWriters
        >>> schema = AvroSchema.parse_string(
        ...     '{"type": "record", "name": "Cup", "fields": [{"name": "drink", "type": "string"}]}'
        ... )
        >>> files = FileSink.for_bulk_format("orders", AvroParquetWriters.for_generic_record(schema))
        >>> files = files.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements({"drink": "tea"}).sink_to(files.build())
        >>> result = env.execute()
        >>> (path,) = Path("orders").glob("part-*")
        >>> pq.read_table(path).to_pylist()
        [{'drink': 'tea'}]
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> ParquetWriterFactory:
        """Return a factory for writers of records (dicts, rows or tuples) of an Avro schema.

        Raises:
            FormatError: if Parquet has no column type for a type of the schema.
        """
        return ParquetWriterFactory(schema.to_arrow())


class ParquetColumnarRowInputFormat(ParquetFormat):
    """Reads the columns of a row type as named rows, for `FileSource.for_bulk_file_format`.

    Args:
        row_type: `Types.ROW_NAMED` or `DataTypes.ROW`, with the names and order of the columns to read.
        hadoop_config: must be None, because Hadoop is not used.
        batch_size: accepted for PyFlink programs; the source decides how many rows are read at a time.
        is_utc_timestamp: accepted for PyFlink programs; timestamps are read unchanged.
        is_case_sensitive: must be True.

    Raises:
        TypeError: if `row_type` is not a row type.
        ValueError: if `hadoop_config` is set.
        NotImplementedError: for case-insensitive names.

    Examples:
        >>> import pyarrow as pa
        >>> import pyarrow.parquet as pq
        >>> from penstock.common import Types, WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import FileSource
        >>> from penstock.datastream.formats.parquet import ParquetColumnarRowInputFormat
        >>> pq.write_table(pa.table({"drink": ["tea"], "cups": [2]}), "orders")
        >>> drinks = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["drink"], [Types.STRING()]))
        >>> source = FileSource.for_bulk_file_format(drinks, "orders").build()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").collect()
        [Row(drink='tea')]
    """

    def __init__(
        self,
        row_type: Any,
        hadoop_config: Any = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        row_type = to_row_type_info(row_type)
        if not isinstance(row_type, RowTypeInfo):
            raise WrongTypeError(f"the row type must be made by Types.ROW_NAMED or DataTypes.ROW, not {row_type!r}")
        if hadoop_config is not None:
            raise WrongValueError("Arrow reads Parquet and takes no Hadoop configuration")
        if not is_case_sensitive:
            raise UnsupportedError("Parquet columns are matched by their exact names: set is_case_sensitive=True")
        super().__init__(row_type)


class ParquetBulkWriters:
    """Creates Parquet writers for `FileSink.for_bulk_format`.

    Examples:
        >>> from pathlib import Path
        >>> import pyarrow.parquet as pq
        >>> from penstock.common import Types
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import BucketAssigner, FileSink
        >>> from penstock.datastream.formats.parquet import ParquetBulkWriters
        >>> row_type = Types.ROW_NAMED(["drink", "cups"], [Types.STRING(), Types.INT()])
        >>> files = FileSink.for_bulk_format("orders", ParquetBulkWriters.for_row_type(row_type))
        >>> files = files.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements(("tea", 2)).sink_to(files.build())
        >>> result = env.execute()
        >>> (path,) = Path("orders").glob("part-*")
        >>> pq.read_table(path).to_pylist()
        [{'drink': 'tea', 'cups': 2}]
    """

    @staticmethod
    def for_row_type(row_type: Any, hadoop_config: Any = None, utc_timestamp: bool = False) -> ParquetWriterFactory:
        """Return a factory for writers of rows.

        Args:
            row_type: `DataTypes.ROW`, `Types.ROW_NAMED`, a dict from name to type, or an Arrow schema.
            hadoop_config: must be None, because Hadoop is not used.
            utc_timestamp: accepted for PyFlink programs; timestamps are written unchanged, without a zone.

        Raises:
            ConfigurationError: if a type cannot be written, or `row_type` has no columns.
            NotImplementedError: if Parquet cannot represent the type of a `DataTypes.ROW` column.
            ValueError: if `hadoop_config` is set.
        """
        if hadoop_config is not None:
            raise WrongValueError("Arrow writes Parquet and takes no Hadoop configuration")
        return ParquetWriterFactory(file_columns(row_type, "Parquet"))
