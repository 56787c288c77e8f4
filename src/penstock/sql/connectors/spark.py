"""The connectors `spark`, `print`, `blackhole`, `vector-function` and `socket`.

`SparkConnector`: a table registered in Spark, files, or whatever else Spark reads and writes by one of its formats.
Batch jobs read it in place; jobs of all execution modes write it, epoch by epoch, see `ForEachBatchSink`.

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
from typing import Any, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOptions
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.collect import DiscardingSink, PrintSink
from penstock.connectors.socket_text import SocketTextSource
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType, has_variants, is_of_spark
from penstock.sql.formats.format import Formats, MessagesSource
from penstock.sql.logical.nodes import ALL, INSERTS, Scan, Write
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
OPTION: Final = "option."
#: Delta Lake's options of Spark that make a write idempotent: a name, and a number that rises
_TRANSACTION_NAME, _TRANSACTION_NUMBER = "txnAppId", "txnVersion"


class SparkConnector(TableConnector):
    """See the module docstring. Options with the prefix `option.` go to Spark. Columns are matched by position.

    Takes one of `table` and `path`; neither with a format that finds its data by options, such as `jdbc`.
    """

    name = "spark"
    optional_options = (TABLE, PATH, SPARK_FORMAT, SAVE_MODE)

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options for Spark."""
        return [key for key in options if key.startswith(OPTION)]

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return a reader of a data frame, for batch jobs only."""
        table, path, kind, more = _read_place(options)
        if table is not None:
            return TableReader(None, frame=partial(_table, table), spark_table=table)
        return TableReader(None, frame=partial(_load, path, kind, more))

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer that appends rows, epoch by epoch."""
        from penstock.drivers.spark.foreach_batch import ForEachBatchSink, spark_schema

        mode = options.read(SAVE_MODE).lower()
        if mode not in ("append", "overwrite", "ignore", "error", "errorifexists"):
            raise options.wrong(SAVE_MODE.key(), "it is append, overwrite, ignore or error")
        if write.overwrites:
            mode = "overwrite"
        for column in write.schema:
            if not is_of_spark(column.type) or has_variants(column.type):
                raise ValidationError(
                    f"column '{column.name}' of table {options.title} is {column.type}, which the frame of an epoch "
                    "cannot have: cast it, for example to STRING"
                )
        columns = pa.schema([(column.name, arrow_type(column.type)) for column in write.schema])
        try:
            schema = spark_schema(columns)
        except UnsupportedError as error:
            raise ValidationError(f"table {options.title} cannot be written: {error}") from error
        function = partial(_save, *_read_place(options), mode)
        sink = ForEachBatchSink(function, schema, options.title, by_place=True)
        return TableWriter(sink, INSERTS, takes_columns=True)


def _read_place(options: TableOptions) -> tuple[str | None, str | None, str, dict[str, str]]:
    """Return the table, the path, the format, and the options for Spark."""
    table, path = options.read(TABLE), options.read(PATH)
    more = {key: options[f"{OPTION}{key}"] for key in options.below(OPTION)}
    if (table is None) == (path is None) and not (table is None and more):
        raise ValidationError(
            f"connector 'spark' of table {options.title} takes one of the options 'table' and 'path'; or neither, with "
            f"a format that needs none and '{OPTION}…' for it"
        )
    return table, path, options.read(SPARK_FORMAT), more


def _table(name: str, spark: Any) -> Any:
    return spark.table(name)


def _load(path: str | None, kind: str, more: Mapping[str, str], spark: Any) -> Any:
    return spark.read.format(kind).options(**more).load(path)


def _save(
    table: str | None, path: str | None, kind: str, more: Mapping[str, str], mode: str, frame: Any, epoch: int
) -> None:
    """Write an epoch. A name of transactions for Delta Lake gets the epoch as its number."""
    if _TRANSACTION_NAME in more:
        more = {_TRANSACTION_NUMBER: str(epoch), **more}
    writer = frame.write.format(kind).mode(mode).options(**more)
    if table is not None:
        writer.saveAsTable(table)
    else:
        writer.save(path)


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
