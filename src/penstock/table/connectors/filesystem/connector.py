"""`filesystem`: reads and writes files, with the options of Flink's connector of this name.

A sink writes each row exactly once: files become visible when the checkpoint that covers them completes, or at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.base.durable_files import check_outlives
from penstock.base.errors import UnsupportedError
from penstock.connectors.file.filesystem import absolute_path
from penstock.table.connectors.abilities import TableScan
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.filesystem.options import (
    DEFAULT_NAME,
    INTERVAL,
    PATH,
    PATTERN,
    READ_OPTIONS,
    WRITE_OPTIONS,
    refuse_unsupported,
    rolling_policy,
)
from penstock.table.connectors.filesystem.partitions import check_types
from penstock.table.connectors.filesystem.scan import FilesScan
from penstock.table.connectors.filesystem.sink import TableFilesSink
from penstock.table.connectors.filesystem.source import METADATA, OutputColumn
from penstock.table.connectors.formats.format import Formats, only_messages
from penstock.table.connectors.held_table import held_lookup
from penstock.table.connectors.lookup import TableLookup
from penstock.table.connectors.table_options import FORMAT, TableOptions
from penstock.table.connectors.tables import TableWriter
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType
from penstock.table.plan.changes import INSERTS
from penstock.table.plan.logical import Scan, Write
from penstock.table.plan.row_schema import RowSchema


class FilesystemConnector(TableConnector):
    """See the module docstring. `formats`: the possible values of the option `format`."""

    name = "filesystem"
    required_options = (PATH, FORMAT)
    optional_options = (DEFAULT_NAME, *READ_OPTIONS, *WRITE_OPTIONS)
    takes_partitions = True

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of the format."""
        refuse_unsupported(options)
        return self._formats.option_keys(options)

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the metadata of files."""
        return METADATA

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return the scan. Raises `ValidationError` if the columns do not fit the format."""
        table_format, of_format = self._formats.find(options)
        metadata = dict(scan.metadata)
        keys = scan.partition_keys
        check_types(options.title, scan.schema, keys)
        columns = tuple(
            OutputColumn(column.name, column.type, column.name in keys, metadata.get(index))
            for index, column in enumerate(scan.schema)
        )
        stored = tuple(
            column for index, column in enumerate(scan.schema) if column.name not in keys and index not in metadata
        )
        interval_ms = options.read(INTERVAL)
        if interval_ms is not None and interval_ms <= 0:
            raise options.wrong(INTERVAL.key(), "it must be above 0")
        table_scan = FilesScan(
            title=options.title,
            path=absolute_path(options.required(PATH)),
            format=table_format,
            options=tuple(sorted(of_format.items())),
            stored=RowSchema(stored),
            columns=columns,
            partition_keys=keys,
            default_name=options.read(DEFAULT_NAME),
            pattern=options.read(PATTERN),
            interval_ms=interval_ms,
            zone=options.zone,
        )
        table_scan.reader()
        return table_scan

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return a lookup that reads all files once and caches their rows."""
        return held_lookup(self.scan(scan, options).reader(), scan, key)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer that accepts the changes that the format can represent."""
        table_format, of_format = self._formats.find(options)
        if write.overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE into files is not supported: table {options.title}. Remove the files first"
            )
        keys = write.partition_keys
        check_types(options.title, write.schema, keys)
        stored = RowSchema(tuple(column for column in write.schema if column.name not in keys))
        if not len(stored):
            raise ValidationError(f"table {options.title} has no columns besides those of its partitions")
        encoding = table_format.encoding(stored, of_format)
        if encoding.files is None:
            raise only_messages(table_format.name, options.title)
        check_outlives(options.required(PATH))
        sink = TableFilesSink(
            absolute_path(options.required(PATH)),
            encoding.files,
            write.schema,
            keys,
            options.read(DEFAULT_NAME),
            rolling_policy(options),
        )
        return TableWriter(sink, encoding.accepts, takes_columns=True, follows_query=encoding.accepts != INSERTS)
