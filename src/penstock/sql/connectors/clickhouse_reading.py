"""Reads and looks up rows of ClickHouse, for the connector in `clickhouse`.

Types are those of the server's columns, without loss, and anything as STRING; see
`penstock.connectors.clickhouse_source`. The query evaluates all conditions that are given to the server again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from penstock.base.config_options import POSITIVE, ConfigOption, ConfigOptions
from penstock.base.errors import UnsupportedError
from penstock.connectors import clickhouse_source as engine
from penstock.connectors.clickhouse import ClickHouseTable
from penstock.sql.connectors import jdbc
from penstock.sql.connectors.conditions import name_type, translate
from penstock.sql.data.arrow import arrow_type, to_values
from penstock.sql.logical.nodes import PlanColumn, Scan
from penstock.sql.tables import tables
from penstock.sql.tables.connector import ColumnsLookup, LookedUp, LookupReader, TableLookup, TableOptions
from penstock.sql.typed import Typed

FETCH: Final = ConfigOption("scan.fetch-size", POSITIVE, engine.FETCH_SIZE).with_description(
    "How many rows a block of an answer has at most."
)
FINAL: Final = (
    ConfigOptions.key("scan.final")
    .boolean_type()
    .default_value(False)
    .with_description(
        "Whether scans and look-ups see the last version of a row only (FINAL), for tables such as ReplacingMergeTree."
    )
)
READ_RETRIES: Final = ConfigOption("scan.max-retries", POSITIVE, engine.RETRIES).with_description(
    "How often a query is repeated that the server refuses for now, or does not answer."
)
OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    jdbc.PARTITION_COLUMN,
    jdbc.PARTITION_COUNT,
    jdbc.LOWER,
    jdbc.UPPER,
    FETCH,
    FINAL,
    READ_RETRIES,
)


@dataclass(frozen=True, slots=True)
class ClickHouseScan(tables.TableScan, tables.ProjectionPushDown, tables.FilterPushDown, tables.LimitPushDown):
    """Reads some columns, and filters rows on the server.

    Attributes:
        scan: what is read; its columns are those of `columns`.
        title: the table, for errors.
        columns: the columns to read.
    """

    scan: engine.TableScan
    title: str
    columns: tuple[PlanColumn, ...]

    def build(self) -> engine.TableScan:
        """Return what is read of the server."""
        names = tables.column_names(len(self.columns))
        columns = tuple(
            (name, column.name, arrow_type(column.type)) for name, column in zip(names, self.columns, strict=True)
        )
        return replace(self.scan, columns=columns)

    def reader(self) -> tables.TableReader:
        """See `TableScan`."""
        return tables.TableReader(engine.ClickHouseSource.of_scan(self.build()))

    def with_columns(self, columns: Sequence[int]) -> ClickHouseScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_conditions(self, conditions: Sequence[Typed]) -> tables.Filtered:
        """See `FilterPushDown`. The query evaluates all conditions again."""
        names = [column.name for column in self.columns]
        used, taken = translate(conditions, names)
        pushed = replace(self, scan=replace(self.scan, conditions=(*self.scan.conditions, *taken)))
        return tables.Filtered(pushed, tuple(conditions), used)

    def with_limit(self, limit: int) -> ClickHouseScan:
        """See `LimitPushDown`."""
        least = limit if self.scan.limit is None else min(limit, self.scan.limit)
        return replace(self, scan=replace(self.scan, limit=least))


def build_scan(scan: Scan, table: ClickHouseTable, options: TableOptions) -> ClickHouseScan:
    """Return the scan of a table. Raises `ValidationError` if only some options of partitions are set."""
    read = engine.TableScan(
        table,
        (),
        engine.to_columns,
        partitions=jdbc.read_partitions(options),
        is_final=options.read(FINAL),
        fetch_size=options.read(FETCH),
        retries=options.read(READ_RETRIES),
    )
    return ClickHouseScan(read, options.title, tuple(scan.schema))


class RowLookupReader(LookupReader):
    """Finds rows by key columns, with one query for the keys of a batch.

    Args:
        scan: the table and its columns.
        key: the positions of the key columns.
    """

    def __init__(self, scan: ClickHouseScan, key: tuple[int, ...]) -> None:
        self._key = key
        self._types = [scan.columns[position].type for position in key]
        names = [scan.columns[position].name for position in key]
        self._lookup = engine.KeyLookup(scan.build(), names, [str(name_type(kind)) for kind in self._types])

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        columns = [to_values(column, kind) for column, kind in zip(keys.columns, self._types, strict=True)]
        wanted = list(dict.fromkeys(row for row in zip(*columns, strict=True) if None not in row))
        return ColumnsLookup(self._lookup.find(wanted), self._key).lookup(keys)

    def close(self) -> None:
        """Close the connections."""
        self._lookup.close()


def build_lookup(scan: ClickHouseScan, key: Sequence[int]) -> TableLookup:
    """Return the look-up of a table. Raises `UnsupportedError` for key columns of other types."""
    for position in key:
        column = scan.columns[position]
        if name_type(column.type) not in ("integer", "text", "boolean"):
            raise UnsupportedError(
                f"column '{column.name}' of table {scan.title} is {column.type}, by which rows are not looked up: join "
                "on columns of integers, STRING and BOOLEAN, or set 'lookup.cache' = 'FULL'"
            )
    return TableLookup(tuple(key), partial(RowLookupReader, scan, tuple(key)))
