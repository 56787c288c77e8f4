"""The connectors `spark`, `print`, `blackhole`, `vector-function` and `socket`.

`SparkConnector`: a table registered in Spark, files, or whatever else Spark reads and writes by one of its formats.
Batch jobs on Spark read it in place, and other jobs a copy that Spark writes before they begin, see `DataFrameSource`.
Jobs of all execution modes write it, epoch by epoch, see `ForEachBatchSink`.

`PrintConnector`: prints rows to the program's standard output, in Flink's format.

`BlackholeConnector`: discards all rows.

`VectorFunctionConnector`: a table of vectors that a class of the user's searches.

`SocketConnector`: rows that a server sends as text. For experiments only: a socket cannot replay its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from inspect import isclass
from pkgutil import resolve_name
from typing import Any, BinaryIO, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOptions
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.options import CHECKPOINTING_DIR
from penstock.codecs import variant
from penstock.codecs.arrow_columns import plain_type
from penstock.connectors.collect import DiscardingSink, PrintSink
from penstock.connectors.file.reader import FileSplit
from penstock.connectors.file.source import FileSource
from penstock.connectors.socket_text import SocketTextSource
from penstock.formats.file_format import BulkFile, BulkFormat
from penstock.formats.parquet import ParquetFormat
from penstock.runtime import connector
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType, has_variants, is_of_spark
from penstock.sql.formats.columnar_files import NO_FILE_TYPES, TypedFile, arrow_columns
from penstock.sql.formats.format import Formats, MessagesSource
from penstock.sql.logical.nodes import ALL, INSERTS, RowSchema, Scan, Write
from penstock.sql.tables.connector import FORMAT, TableConnector, TableOptions
from penstock.sql.tables.tables import TableReader, TableWriter
from penstock.sql.tables.vectors import VectorSearchFunction

TABLE: Final = (
    ConfigOptions.key("table")
    .string_type()
    .no_default_value()
    .with_description("The name of a table or view in the Spark session.")
)
PATH: Final = ConfigOptions.key("path").string_type().no_default_value().with_description("The path of files.")
SPARK_FORMAT: Final = (
    ConfigOptions.key("format")
    .string_type()
    .default_value("parquet")
    .with_description("Spark's name of the files' format.")
)


SAVE_MODE: Final = (
    ConfigOptions.key("save.mode")
    .string_type()
    .default_value("append")
    .with_description("What Spark does with each epoch: `append` or, in BATCH, `overwrite`, `ignore` or `error`.")
)
TRANSACTION: Final = (
    ConfigOptions.key("sink.transaction-name")
    .string_type()
    .no_default_value()
    .with_description(
        "Writes each epoch once, under this name, which no other output has: with the format `jdbc` by a ledger in the "
        "database, with `delta` by Delta Lake's transactions. Other formats have no such thing."
    )
)
OPTION: Final = "option."
#: formats of text, whose columns are the declared ones. Their readers go on after bad input, and then lose fields, so
#: they fail by default.
_TEXTS: Final = ("csv", "json", "xml")


class SparkConnector(TableConnector):
    """See the module docstring. Options with the prefix `option.` go to Spark. Columns are matched by position.

    Takes one of `table` and `path`; neither with a format that finds its data by options, such as `jdbc`.
    """

    name = "spark"
    optional_options = (TABLE, PATH, SPARK_FORMAT, SAVE_MODE, TRANSACTION)

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options for Spark."""
        return [key for key in options if key.startswith(OPTION)]

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return a reader of a data frame."""
        table, path, kind, more = _read_place(options)
        schema = _frame_schema(scan, options.title) if kind.lower() in _TEXTS else None
        load = partial(_load, path, kind, more, schema) if table is None else partial(_table, table)
        return TableReader(_CopySource(load, scan.schema, options.title), frame=load, spark_table=table)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer that appends rows, epoch by epoch."""
        from penstock.drivers.spark.foreach_batch import ForEachBatchSink

        mode = options.read(SAVE_MODE).lower()
        if mode not in ("append", "overwrite", "ignore", "error", "errorifexists"):
            raise options.wrong(SAVE_MODE.key(), "it is append, overwrite, ignore or error")
        if write.overwrites:
            mode = "overwrite"
        schema = _frame_schema(write, options.title)
        table, path, kind, more = _read_place(options)
        transaction = options.read(TRANSACTION)
        if transaction is not None:
            if table is not None or kind.lower() not in ("jdbc", "delta"):
                problem = f"only the formats jdbc and delta write an epoch once, and this is {table or kind!r}"
                raise options.wrong(TRANSACTION.key(), problem)
            function = _epoch_writer(transaction, kind.lower(), path, more, mode, options.title)
        else:
            function = partial(_save, table, path, kind, more, mode)
        sink = ForEachBatchSink(function, schema, options.title, by_place=True)
        return TableWriter(sink, INSERTS, takes_columns=True)


def _epoch_writer(transaction: str, kind: str, path: str | None, more: Mapping[str, str], mode: str, title: str) -> Any:
    """Return what writes each epoch once."""
    from penstock.drivers.spark.delta_epochs import DeltaEpochWriter
    from penstock.drivers.spark.jdbc_epochs import JdbcEpochWriter

    try:
        if kind == "jdbc":
            return JdbcEpochWriter(transaction, more, mode)
        others = {key: value for key, value in more.items() if key.lower() != "path"}
        target = path or next((value for key, value in more.items() if key.lower() == "path"), "")
        return DeltaEpochWriter(transaction, target, others, mode)
    except ConfigurationError as error:
        raise ValidationError(f"table {title}: {error}") from error


def _read_place(options: TableOptions) -> tuple[str | None, str | None, str, dict[str, str]]:
    """Return the table, the path, the format, and the options for Spark."""
    table, path = options.read(TABLE), options.read(PATH)
    more = {key: options[f"{OPTION}{key}"] for key in options.below(OPTION)}
    if (table is None) == (path is None) and not (table is None and more):
        raise ValidationError(
            f"connector 'spark' of table {options.title} takes one of the options 'table' and 'path'; or neither, with "
            f"a format that needs none and '{OPTION}…' for it"
        )
    kind = options.read(SPARK_FORMAT)
    if kind.lower() == "jdbc":
        from penstock.drivers.spark.jdbc_epochs import with_driver

        more = with_driver(more)
    return table, path, kind, more


def _frame_schema(node: Scan | Write, title: str) -> Any:
    """Return Spark's schema of a table's columns. Raises `ValidationError` if Spark has none."""
    from penstock.drivers.spark.foreach_batch import spark_schema

    for column in node.schema:
        if not is_of_spark(column.type) or has_variants(column.type):
            raise ValidationError(
                f"column '{column.name}' of table {title} is {column.type}, which a frame of Spark "
                "cannot have: cast it, for example to STRING"
            )
    columns = pa.schema([(column.name, plain_type(arrow_type(column.type))) for column in node.schema])
    try:
        return spark_schema(columns)
    except UnsupportedError as error:
        raise ValidationError(f"table {title} has no form in Spark: {error}") from error


def _table(name: str, spark: Any) -> Any:
    return spark.table(name)


def _load(path: str | None, kind: str, more: Mapping[str, str], schema: Any, spark: Any) -> Any:
    if kind.lower() in _TEXTS and not any(key.lower() == "mode" for key in more):
        more = {"mode": "FAILFAST", **more}
    reader = spark.read.format(kind).options(**more)
    return (reader if schema is None else reader.schema(schema)).load(path)


def _save(
    table: str | None, path: str | None, kind: str, more: Mapping[str, str], mode: str, frame: Any, epoch: int
) -> None:
    """Write an epoch."""
    writer = frame.write.format(kind).mode(mode).options(**more)
    if table is not None:
        writer.saveAsTable(table)
    else:
        writer.save(path)


class _CopySource(connector.Source[Any, FileSplit]):
    """Reads a copy of a data frame, in the declared types. See `DataFrameSource`.

    Args:
        load: makes the data frame in a session of Spark.
        schema: the declared columns.
        title: the table, for errors.
    """

    def __init__(self, load: Any, schema: RowSchema, title: str) -> None:
        self._load, self._schema, self._title = load, schema, title
        self._settings: dict[str, str] = {}
        self._directory: str | None = None
        self._copy: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_load": None, "_settings": {}}

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded."""
        return connector.Boundedness.BOUNDED

    def configure(self, configuration: Configuration) -> None:
        """Note where the copy goes, and the settings of the session."""
        self._settings = configuration.to_dict()
        self._directory = configuration.read(CHECKPOINTING_DIR)

    def prepare(self, check_cancelled: Any) -> None:
        """Let Spark write the copy.

        Raises:
            ValidationError: if the columns of the data frame are not as declared.
        """
        from penstock.drivers.spark.frames import DataFrameSource, arrow_schema, find_columns
        from penstock.drivers.spark.session import session_of_program

        frame = self._load(session_of_program(self._settings))
        if frame.isStreaming:
            raise ValidationError(
                f"table {self._title} is a streaming data frame: TableEnvironment.from_dataframe() makes a table of it"
            )
        places = find_columns([column.name for column in self._schema], frame.columns)
        if places is not None:
            frame = frame.select(*[frame[place] for place in places])
        kinds = [field.dataType.simpleString().upper() for field in frame.schema.fields]
        self._check(arrow_schema(frame.schema), kinds)
        frame = frame.toDF(*_names(self._schema))
        self._copy = DataFrameSource(frame, None, self._directory, _CopyFormat(self._schema))
        self._copy.prepare(check_cancelled)

    def _check(self, present: pa.Schema, kinds: Sequence[str]) -> None:
        if len(present) != len(self._schema):
            raise ValidationError(
                f"table {self._title} has {len(self._schema)} columns, and the Spark data frame that it reads has "
                f"{len(present)}: {', '.join(present.names)}"
            )
        declared = arrow_columns(self._schema, "Spark", NO_FILE_TYPES)
        for column, wanted, field, kind in zip(self._schema, declared, present, kinds, strict=True):
            if not _is_wider(wanted.type, field.type):
                raise ValidationError(
                    f"column '{column.name}' of table {self._title} is declared as {column.type}, and Spark has {kind} "
                    "there: declare it as what Spark has"
                )

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[FileSplit], restored: Any | None
    ) -> connector.SplitEnumerator[FileSplit]:
        """Create an enumerator for the files of the copy, or for an earlier copy in a checkpoint."""
        if self._copy is None:
            raise UnsupportedError(
                f"table {self._title} is read by Spark before a job begins, so a task cannot read it for look-ups or "
                "searches: join it, or copy it into a table of another connector"
            )
        enumerator: connector.SplitEnumerator[FileSplit] = self._copy.create_enumerator(context, restored)
        return enumerator

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, FileSplit]:
        """Create a reader of files."""
        return FileSource(_CopyFormat(self._schema), (), None, None).create_reader(context)


class _CopyFormat(BulkFormat[Any]):
    """Parquet files written by Spark, as the columns of a table."""

    def __init__(self, schema: RowSchema) -> None:
        columns = arrow_columns(schema, "Spark", NO_FILE_TYPES)
        self._columns = pa.schema(list(zip(_names(schema), columns.types, strict=True)))

    def open(self, file: BinaryIO) -> BulkFile[Any]:
        return TypedFile(ParquetFormat(self._columns.names, as_columns=True).open(file), self._columns)


def _names(schema: RowSchema) -> list[str]:
    return [f"c{index}" for index in range(len(schema))]


def _is_wider(wanted: pa.DataType, present: pa.DataType) -> bool:
    """Return whether a column of the one type takes all values of the other; nested ones are checked as they come."""
    if wanted == present or variant.is_of_spark(present):
        return bool(wanted == present or wanted == variant.STORED)
    kinds = pa.types
    if kinds.is_integer(wanted) and kinds.is_integer(present):
        return bool(wanted.bit_width >= present.bit_width)
    if kinds.is_decimal(wanted) and kinds.is_decimal(present):
        digits = wanted.precision - wanted.scale
        return bool(present.precision - present.scale <= digits and present.scale <= wanted.scale)
    if kinds.is_timestamp(wanted) and kinds.is_timestamp(present):
        return bool((wanted.tz is None) == (present.tz is None))
    if kinds.is_floating(wanted) and kinds.is_floating(present):
        return bool(wanted.bit_width >= present.bit_width)
    # Lists, maps and structs: their values are checked when they are read.
    return bool(kinds.is_nested(wanted) and kinds.is_nested(present))


IDENTIFIER: Final = (
    ConfigOptions.key("print-identifier").string_type().no_default_value().with_description("The prefix of each line.")
)


class PrintConnector(TableConnector):
    """See the module docstring."""

    name = "print"
    optional_options = (IDENTIFIER,)
    takes_partitions = True

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer that accepts all changes."""
        return TableWriter(
            PrintSink(options.read(IDENTIFIER)), ALL, takes_either=True, takes_text=True, follows_query=True
        )


class BlackholeConnector(TableConnector):
    """See the module docstring."""

    name = "blackhole"
    takes_partitions = True

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer that accepts all changes."""
        return TableWriter(DiscardingSink(), ALL, wants_before=False, takes_columns=True, follows_query=True)


CLASS: Final = (
    ConfigOptions.key("class")
    .string_type()
    .no_default_value()
    .with_description("The class that answers searches for vectors, as `package.module.Class`.")
)


class VectorFunctionConnector(TableConnector):
    """See the module docstring."""

    name = "vector-function"
    required_options = (CLASS,)

    def vector_search(self, scan: Scan, column: int, options: TableOptions) -> Any:
        """Return an object of the class."""
        target = options.required(CLASS)
        try:
            function = resolve_name(target)
        except (ImportError, AttributeError, ValueError) as error:
            raise options.wrong(CLASS.key(), f"cannot import {target!r}: {error}") from error
        if not isclass(function) or not issubclass(function, VectorSearchFunction):
            raise options.wrong(CLASS.key(), f"{target} is no VectorSearchFunction")
        return function()


HOSTNAME: Final = (
    ConfigOptions.key("hostname").string_type().no_default_value().with_description("The host name of the server.")
)
PORT: Final = ConfigOptions.key("port").int_type().no_default_value().with_description("The port of the server.")
DELIMITER: Final = (
    ConfigOptions.key("byte-delimiter")
    .int_type()
    .default_value(10)
    .with_description("The byte that separates rows, as a number.")
)
RETRIES: Final = (
    ConfigOptions.key("max-retries")
    .int_type()
    .default_value(0)
    .with_description("The maximum number of reconnections, one per second; no limit if negative.")
)
_ASCII: Final = 128


class SocketConnector(TableConnector):
    """See the module docstring. `formats`: the formats that the option `format` may name."""

    name = "socket"
    required_options = (HOSTNAME, PORT, FORMAT)
    optional_options = (DELIMITER, RETRIES)

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of the format."""
        return self._formats.option_keys(options)

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the metadata of the format."""
        table_format, of_format = self._formats.find(options)
        return table_format.readable_metadata(of_format)

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader; raise `ValidationError` for formats that support files only."""
        table_format, of_format = self._formats.find(options)
        decoding = table_format.decoding_with_metadata(
            scan.schema, range(len(scan.schema)), of_format, dict(scan.metadata)
        )
        if decoding.messages is None:
            raise ValidationError(
                f"Format '{table_format.name}' has only files: table {options.title} needs csv, json or raw"
            )
        byte = options.read(DELIMITER)
        if not 0 <= byte < _ASCII:
            raise options.wrong(DELIMITER.key(), f"it must be from 0 to {_ASCII - 1}, not {byte}")
        hostname, port = options.required(HOSTNAME), options.required(PORT)
        try:
            inner = SocketTextSource(hostname, port, chr(byte), options.read(RETRIES))
        except ConfigurationError as error:
            raise options.wrong(PORT.key(), str(error)) from error
        name = f"{hostname}:{port}"
        source = MessagesSource(inner, decoding.messages, name, skips_bad=decoding.skips_bad)
        return TableReader(source, decoding.changes, has_before=decoding.changes != INSERTS)
