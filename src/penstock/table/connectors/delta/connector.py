"""`delta`: reads and writes Delta Lake tables.

A sink writes each row exactly once, in one table version per checkpoint; with a primary key it merges changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from penstock.base.durable_files import check_outlives
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.delta.features import check_before_writing
from penstock.connectors.delta.library import require_library
from penstock.connectors.delta.split import Scanned
from penstock.connectors.delta.types import stored_type
from penstock.table.connectors.abilities import TableScan
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.delta.options import (
    CHANGE_FEED,
    COMPACTION,
    FILE_SIZE,
    IGNORE_CHANGES,
    IGNORE_DELETES,
    INTERVAL,
    MERGE_SCHEMA,
    OPTIONAL,
    PATH,
    PROPERTIES,
    STORAGE,
    follows,
    read_place,
    read_table_properties,
    where_to_begin,
)
from penstock.table.connectors.delta.scan import DeltaScan
from penstock.table.connectors.delta.sink import TableDeltaSink
from penstock.table.connectors.held_table import held_lookup
from penstock.table.connectors.lookup import TableLookup
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import TableWriter
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import ValidationError
from penstock.table.plan.changes import ALL, INSERTS
from penstock.table.plan.logical import Scan, Write
from penstock.table.plan.row_schema import RowSchema


class DeltaConnector(TableConnector):
    """See the module docstring."""

    name = "delta"
    required_options = (PATH,)
    optional_options = OPTIONAL
    takes_partitions = True

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the delta-rs storage options and the table properties."""
        return [key for key in options if key.startswith((STORAGE, PROPERTIES))]

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return the scan. Raises `ValidationError` for conflicting options."""
        require_library()
        _stored(options.title, scan.schema)
        is_following = follows(options)
        interval_ms = options.read(INTERVAL)
        if interval_ms < 1:
            raise options.wrong(INTERVAL.key(), f"it must be 1 or above, not {interval_ms}")
        scanned = Scanned(
            read_place(options),
            (),
            where_to_begin(options),
            interval_ms if is_following else None,
            options.read(IGNORE_DELETES),
            options.read(IGNORE_CHANGES),
            options.read(CHANGE_FEED),
        )
        return DeltaScan(scanned, tuple(scan.schema), tuple(scan.schema[index].name for index in scan.key))

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return a lookup that reads the table once and caches its rows."""
        table_scan = self.scan(scan, options)
        table_scan.check()
        return held_lookup(table_scan.reader(), scan, key)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer that merges by the primary key if the table declares one."""
        require_library()
        if write.overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE into Delta table {options.title} is not supported: delete its rows"
            )
        schema = write.schema
        check_before_writing(read_place(options), bool(write.key))
        compaction = options.read(COMPACTION)
        if compaction is not None and compaction < 1:
            raise options.wrong(COMPACTION.key(), f"it must be 1 or above, not {compaction}")
        check_outlives(options.required(PATH))
        try:
            sink = TableDeltaSink(
                tuple(schema.types),
                read_place(options),
                _stored(options.title, schema),
                partition_columns=write.partition_keys or None,
                key=tuple(schema[index].name for index in write.key),
                merge_schema=options.read(MERGE_SCHEMA),
                properties=read_table_properties(options),
                target_bytes=options.read(FILE_SIZE),
                compact_after=compaction,
            )
        except ConfigurationError as error:
            raise ValidationError(f"table {options.title} cannot be written: {error}") from error
        if not write.key:
            return TableWriter(sink, INSERTS, takes_columns=True)
        return TableWriter(sink, ALL, wants_before=False, takes_columns=True, deletes_by_key=True)


def _stored(title: str, schema: RowSchema) -> pa.Schema:
    """Return the columns with Delta Lake types. Raises `UnsupportedError` for a type that Delta Lake lacks."""
    try:
        return pa.schema([(column.name, stored_type(arrow_type(column.type), column.name)) for column in schema])
    except UnsupportedError as error:
        raise UnsupportedError(f"table {title}: {error}") from error
