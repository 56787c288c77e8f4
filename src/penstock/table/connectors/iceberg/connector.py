"""`iceberg`: reads, follows and writes Iceberg tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.iceberg.catalog import require_library
from penstock.connectors.iceberg.scanned import Scanned
from penstock.connectors.iceberg.settings import MAIN, SinkSettings
from penstock.connectors.iceberg.source import checked
from penstock.connectors.iceberg.tables import DeclaredTable, check_before_writing, partition_transform
from penstock.table.connectors.abilities import TableScan
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.held_table import held_lookup
from penstock.table.connectors.iceberg.options import (
    AS_OF,
    BRANCH,
    CATALOG_NAME,
    CREATE,
    EVOLVE,
    INTERVAL,
    OPTIONAL,
    PARTITIONING,
    RETENTION,
    SKIP_DELETES,
    SKIP_OVERWRITES,
    SNAPSHOT_ID,
    START_ID,
    START_MS,
    STREAMING,
    TAG,
    TARGET,
    UPSERT,
    build_table_loader,
    more_keys,
    read_strategy,
    table_properties,
)
from penstock.table.connectors.iceberg.scan import IcebergScan
from penstock.table.connectors.iceberg.sink import TableIcebergSink
from penstock.table.connectors.lookup import TableLookup
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import TableWriter
from penstock.table.data import logical_types as types
from penstock.table.data.arrow_types import arrow_type
from penstock.table.plan.changes import ALL, INSERTS
from penstock.table.plan.logical import Scan, Write
from penstock.table.plan.row_schema import RowSchema

_OTHERS: Final = (
    types.YearMonthIntervalType,
    types.DayTimeIntervalType,
    types.RawType,
    types.VariantType,
    types.BitmapType,
    types.NullType,
)
#: the commas between partition transforms, not those within one
_COMMA: Final = re.compile(r",(?![^(]*\))")


class IcebergConnector(TableConnector):
    """See the module docstring."""

    name = "iceberg"
    required_options = (CATALOG_NAME,)
    optional_options = OPTIONAL
    takes_partitions = True
    takes_overwrites = True

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of catalogs, their file systems, and new tables."""
        return more_keys(options)

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return the scan. Raises `ValidationError` for conflicting options."""
        require_library()
        check_types(options.title, scan.schema, is_read=True)
        scanned = Scanned(
            build_table_loader(options, scan.path),
            (),
            snapshot_id=options.read(SNAPSHOT_ID),
            as_of_ms=options.read(AS_OF),
            follows=options.read(STREAMING),
            strategy=read_strategy(options),
            start_snapshot_id=options.read(START_ID),
            start_ms=options.read(START_MS),
            interval_ms=options.read(INTERVAL),
            skips_overwrites=options.read(SKIP_OVERWRITES),
            skips_deletes=options.read(SKIP_DELETES),
        )
        try:
            scanned = checked(scanned, options.read(BRANCH), options.read(TAG))
        except ConfigurationError as error:
            raise options.wrong(STREAMING.key(), str(error)) from error
        return IcebergScan(scanned, tuple(scan.schema))

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return a lookup that reads the table once and caches its rows."""
        table_scan = self.scan(scan, options)
        table_scan.check()
        return held_lookup(table_scan.reader(), scan, key)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer that appends rows, or writes by primary key if the table declares one."""
        require_library()
        check_types(options.title, write.schema)
        is_by_key = bool(write.key) and options.read(UPSERT) and not write.overwrites
        key = tuple(write.schema[index].name for index in write.key)
        target, retention_ms = options.read(TARGET), options.read(RETENTION)
        if target < 1:
            raise options.wrong(TARGET.key(), "it must be above 0")
        settings = SinkSettings(
            build_table_loader(options, write.path),
            _declared(write, options, key),
            creates=options.read(CREATE),
            evolves=options.read(EVOLVE),
            equality=key if is_by_key else (),
            overwrites=write.overwrites,
            branch=options.read(BRANCH) or MAIN,
            target_bytes=target,
            retention_ms=retention_ms,
        )
        assert settings.declared is not None
        check_before_writing(
            settings.loader, settings.declared, settings.evolves, settings.branch if is_by_key else None
        )
        sink = TableIcebergSink(settings, write.schema)
        if not is_by_key:
            return TableWriter(sink, INSERTS, takes_columns=True)
        return TableWriter(sink, ALL, wants_before=False, takes_columns=True, deletes_by_key=True)


def _declared(write: Write, options: TableOptions, key: tuple[str, ...]) -> DeclaredTable:
    fields = [pa.field(column.name, arrow_type(column.type), column.type.is_nullable) for column in write.schema]
    text = options.read(PARTITIONING)
    if text is not None and write.partition_keys:
        raise options.wrong(PARTITIONING.key(), "the table is PARTITIONED BY columns already: leave out one of the two")
    partitioning = write.partition_keys if text is None else tuple(map(str.strip, _COMMA.split(text)))
    try:
        for transform in partitioning:
            column, _ = partition_transform(transform)
            if column not in write.schema.names:
                raise options.wrong(PARTITIONING.key(), f"there is no column {column!r}")
    except ConfigurationError as error:
        raise options.wrong(PARTITIONING.key(), str(error)) from error
    return DeclaredTable(pa.schema(fields), key, tuple(partitioning), table_properties(options))


def check_types(title: str, schema: RowSchema, is_read: bool = False) -> None:
    """Raise `UnsupportedError` for column types that Iceberg lacks. Timestamps with 9 digits can only be read."""
    for column in schema:
        waiting = [column.type]
        while waiting:
            kind = waiting.pop()
            is_too_fine = (
                isinstance(kind, types.TimestampType | types.LocalZonedTimestampType)
                and kind.precision > 6
                and not is_read
            )
            if is_too_fine or isinstance(kind, _OTHERS):
                raise UnsupportedError(
                    f"column '{column.name}' of table {title} is {column.type}, which Iceberg does not have: "
                    + ("it keeps points in time with 6 digits" if is_too_fine else "declare it as another type")
                )
            waiting += kind.children()
