"""The connectors `spark`, `print`, `blackhole`, `vector-function` and `socket`.

`SparkConnector`: a table registered in Spark, or files that Spark reads. Batch jobs read it in place.

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

from penstock.base.config_options import ConfigOptions
from penstock.base.errors import ConfigurationError
from penstock.connectors.collect import DiscardingSink, PrintSink
from penstock.connectors.socket_text import SocketTextSource
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
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


class SparkConnector(TableConnector):
    """See the module docstring. Takes either `table` or `path`. Columns are matched by position."""

    name = "spark"
    optional_options = (TABLE, PATH, SPARK_FORMAT)

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return a reader of a data frame, for batch jobs only."""
        table, path = options.read(TABLE), options.read(PATH)
        if table is not None and path is None:
            return TableReader(None, frame=partial(_table, table), spark_table=table)
        if path is not None and table is None:
            return TableReader(None, frame=partial(_files, path, options.read(SPARK_FORMAT)))
        raise ValidationError(f"connector 'spark' of table {options.title} takes one of the options 'table' and 'path'")


def _table(name: str, spark: Any) -> Any:
    return spark.table(name)


def _files(path: str, kind: str, spark: Any) -> Any:
    return spark.read.format(kind).load(path)


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
