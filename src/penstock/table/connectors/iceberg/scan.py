"""The scan of an Iceberg table, with its abilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.connectors.iceberg.planning import check_before_reading
from penstock.connectors.iceberg.scanned import Scanned, ScannedColumn
from penstock.connectors.iceberg.source import IcebergSource
from penstock.table.connectors.abilities import (
    Filtered,
    FilterPushDown,
    LimitPushDown,
    ProjectionPushDown,
    TableScan,
)
from penstock.table.connectors.iceberg.conditions import to_row_filter
from penstock.table.connectors.tables import TableReader, column_names
from penstock.table.data.arrow_types import arrow_type
from penstock.table.plan.row_schema import PlanColumn
from penstock.table.typed.nodes import Typed


@dataclass(frozen=True, slots=True)
class IcebergScan(TableScan, ProjectionPushDown, FilterPushDown, LimitPushDown):
    """Reads some columns, and skips partitions, files and parts of files.

    Attributes:
        scanned: the scan settings, except for the columns.
        columns: the columns to read.
    """

    scanned: Scanned
    columns: tuple[PlanColumn, ...]

    def _whole(self) -> Scanned:
        columns = tuple(
            ScannedColumn(column.name, name, arrow_type(column.type))
            for name, column in zip(column_names(len(self.columns)), self.columns, strict=True)
        )
        return replace(self.scanned, columns=columns)

    def check(self) -> None:
        """See `TableScan`."""
        check_before_reading(self._whole())

    def reader(self) -> TableReader:
        """See `TableScan`."""
        return TableReader(IcebergSource(self._whole()))

    def with_columns(self, columns: Sequence[int]) -> IcebergScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_conditions(self, conditions: Sequence[Typed]) -> Filtered:
        """See `FilterPushDown`. The query evaluates all conditions again."""
        from pyiceberg.expressions import And

        names = [column.name for column in self.columns]
        known = [(expression, to_row_filter(expression, names)) for expression in conditions]
        joined = self.scanned.row_filter
        for _, condition in known:
            if condition is not None:
                joined = condition if joined is None else And(joined, condition)
        used = tuple(expression for expression, condition in known if condition is not None)
        return Filtered(replace(self, scanned=replace(self.scanned, row_filter=joined)), tuple(conditions), used)

    def with_limit(self, limit: int) -> IcebergScan:
        """See `LimitPushDown`."""
        before = self.scanned.limit
        return replace(self, scanned=replace(self.scanned, limit=limit if before is None else min(limit, before)))
