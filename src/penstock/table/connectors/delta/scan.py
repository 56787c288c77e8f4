"""The scan of a Delta table, with its abilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.delta.features import check_before_reading
from penstock.connectors.delta.source import DeltaSource
from penstock.connectors.delta.split import Scanned, WantedColumn
from penstock.table.connectors.abilities import (
    Filtered,
    FilterPushDown,
    LimitPushDown,
    ProjectionPushDown,
    TableScan,
    WatermarkPushDown,
)
from penstock.table.connectors.delta.pruning import FilterPruning
from penstock.table.connectors.formats.parquet_statistics import StatisticsFilter, is_of_use, statistics_filter
from penstock.table.connectors.tables import NO_WATERMARKS, TableReader, column_names
from penstock.table.data.arrow_types import arrow_type
from penstock.table.plan.changes import ALL
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.typed.nodes import Typed


@dataclass(frozen=True, slots=True)
class DeltaScan(TableScan, ProjectionPushDown, FilterPushDown, LimitPushDown, WatermarkPushDown):
    """Reads some columns, and skips files and parts of files.

    Attributes:
        scanned: the table, and where to begin.
        columns: the columns to read.
        key: the names of the primary key columns.
        filters: files without a row that satisfies all filters are skipped.
        strategy: the watermark strategy of each subtask, which reads one file after another.
    """

    scanned: Scanned
    columns: tuple[PlanColumn, ...]
    key: tuple[str, ...] = ()
    filters: tuple[StatisticsFilter, ...] = ()
    strategy: WatermarkStrategy = NO_WATERMARKS

    def _whole(self) -> Scanned:
        columns = tuple(
            WantedColumn(output, column.name, arrow_type(column.type))
            for output, column in zip(column_names(len(self.columns)), self.columns, strict=True)
        )
        return replace(self.scanned, columns=columns, pruning=FilterPruning(self.filters) if self.filters else None)

    def check(self) -> None:
        """See `TableScan`."""
        check_before_reading(self._whole())

    def reader(self) -> TableReader:
        """See `TableScan`."""
        names = [column.name for column in self.columns]
        source = DeltaSource(self._whole())
        key = tuple(names.index(name) for name in self.key) if set(self.key) <= set(names) else ()
        if self.scanned.reads_changes:
            return TableReader(source, ALL, has_before=True, key=key, strategy=self.strategy)
        return TableReader(source, strategy=self.strategy)

    def with_columns(self, columns: Sequence[int]) -> DeltaScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_conditions(self, conditions: Sequence[Typed]) -> Filtered:
        """See `FilterPushDown`. All conditions remain: statistics only prove that a file has no matching row."""
        used = tuple(condition for condition in conditions if is_of_use(condition))
        filters = tuple(statistics_filter(condition, RowSchema(self.columns)) for condition in used)
        return Filtered(replace(self, filters=(*self.filters, *filters)), tuple(conditions), used)

    def with_limit(self, limit: int) -> DeltaScan:
        """See `LimitPushDown`."""
        known = self.scanned.limit
        return replace(self, scanned=replace(self.scanned, limit=limit if known is None else min(limit, known)))

    def with_watermarks(self, strategy: WatermarkStrategy) -> DeltaScan:
        """See `WatermarkPushDown`."""
        return replace(self, strategy=strategy)
