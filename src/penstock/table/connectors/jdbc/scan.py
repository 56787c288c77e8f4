"""The scan of a PostgreSQL table, with its abilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.connectors.postgres.client import Address, quoted
from penstock.connectors.postgres.scan import Partitions, Scanned, ScannedColumn
from penstock.connectors.postgres.scan_source import JdbcSource
from penstock.connectors.postgres.unrepresentable import FAIL, NULL
from penstock.table.connectors.abilities import (
    Filtered,
    FilterPushDown,
    LimitPushDown,
    ProjectionPushDown,
    TableScan,
)
from penstock.table.connectors.jdbc.conditions import to_sql_condition
from penstock.table.connectors.tables import TableReader, column_names
from penstock.table.data.arrow_types import arrow_type
from penstock.table.plan.row_schema import PlanColumn
from penstock.table.typed.nodes import Typed


@dataclass(frozen=True, slots=True)
class JdbcScan(TableScan, ProjectionPushDown, FilterPushDown, LimitPushDown):
    """Reads some columns, and filters rows on the server.

    Attributes:
        address: the database.
        table: the path of the table.
        columns: the columns to read.
        fetch_size: how many rows are fetched at a time.
        partitions: how the table is partitioned.
        conditions: filters in SQL.
        limit: the number of rows needed from each partition; None for all.
        unrepresentable: what to do with values that a type cannot hold.
    """

    address: Address
    table: str
    columns: tuple[PlanColumn, ...]
    fetch_size: int
    partitions: Partitions | None = None
    conditions: tuple[str, ...] = ()
    limit: int | None = None
    unrepresentable: str = FAIL

    def reader(self) -> TableReader:
        """See `TableScan`."""
        columns = tuple(
            ScannedColumn(name, quoted(column.name), arrow_type(column.type))
            for name, column in zip(column_names(len(self.columns)), self.columns, strict=True)
        )
        scanned = Scanned(
            self.address,
            self.table,
            columns,
            self.conditions,
            self.limit,
            self.partitions,
            self.fetch_size,
            self.unrepresentable,
        )
        return TableReader(JdbcSource(scanned))

    def with_columns(self, columns: Sequence[int]) -> JdbcScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_conditions(self, conditions: Sequence[Typed]) -> Filtered:
        """See `FilterPushDown`. Filters nothing if unrepresentable values become NULL, which the server cannot know."""
        if self.unrepresentable == NULL:
            return Filtered(self, tuple(conditions), ())
        names = [quoted(column.name) for column in self.columns]
        translated = [(condition, to_sql_condition(condition, names)) for condition in conditions]
        pushed = tuple(known.sql for _, known in translated if known is not None)
        remaining = tuple(condition for condition, known in translated if known is None or not known.is_exact)
        used = tuple(condition for condition, known in translated if known is not None and not known.is_exact)
        return Filtered(replace(self, conditions=(*self.conditions, *pushed)), remaining, used)

    def with_limit(self, limit: int) -> JdbcScan:
        """See `LimitPushDown`."""
        return replace(self, limit=limit if self.limit is None else min(limit, self.limit))
