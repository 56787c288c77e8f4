"""Optional abilities of a table scan, beyond a full read, that the planner can use.

A `TableScan` is a value that represents reading a table; each ability returns a modified copy, so the planner can try
one and keep the previous scan. Column indices refer to the columns that the scan currently returns. The result goes
into `Scan.source`, with a matching schema.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.table.connectors.tables import TableReader
from penstock.table.data.logical_types import DataType
from penstock.table.typed.nodes import Typed

#: the values of the partition columns of one partition, by name; None for NULL
Partition = Mapping[str, str | None]
#: a column index, then the field index in each nested row; NULL if an enclosing row is. A lone index is the column
Path = tuple[int, ...]


def leaf_type(kind: DataType, fields: Sequence[int]) -> DataType:
    """Return the type of a nested field; it is nullable if an enclosing row is."""
    is_nullable = kind.is_nullable
    for index in fields:
        kind = tuple(kind.children())[index]
        is_nullable = is_nullable or kind.is_nullable
    return kind.nullable() if is_nullable else kind


class TableScan(ABC):
    """A table to be read. Implementations are frozen, and equal if they read the same rows."""

    @abstractmethod
    def reader(self) -> TableReader:
        """Return the reader of the table."""

    def check(self) -> None:  # noqa: B027 - most tables are checked when they are read
        """Check the table itself while the statement is planned, once all columns to be read are known.

        Raises:
            PenstockError: if the table cannot be read as declared.
        """


@dataclass(frozen=True, slots=True)
class WholeScan(TableScan):
    """A scan without abilities."""

    table: TableReader

    def reader(self) -> TableReader:
        """Return the reader passed to the constructor."""
        return self.table


class ProjectionPushDown(ABC):
    """Reads only some columns."""

    @abstractmethod
    def with_columns(self, columns: Sequence[int]) -> TableScan:
        """Return a scan of these columns, in this order."""


class Filtered(NamedTuple):
    """The result of pushing conditions into a scan.

    Attributes:
        scan: skips rows that fail the conditions.
        remaining: the conditions that the query must still evaluate.
        used: the conditions in `remaining` that the scan uses nevertheless, for EXPLAIN.
    """

    scan: TableScan
    remaining: tuple[Typed, ...]
    used: tuple[Typed, ...] = ()


class NestedPushDown(ABC):
    """Reads some fields of row-typed columns."""

    @abstractmethod
    def with_leaves(self, paths: Sequence[Path]) -> TableScan:
        """Return a scan with a column for each path, in this order."""


class FilterPushDown(ABC):
    """Skips rows that a query does not need."""

    @abstractmethod
    def with_conditions(self, conditions: Sequence[Typed]) -> Filtered:
        """Return a scan that skips rows, and the conditions that it does not, or not fully, apply."""


class LimitPushDown(ABC):
    """Stops early if only some rows are needed."""

    @abstractmethod
    def with_limit(self, limit: int) -> TableScan:
        """Return a scan of at least `limit` rows, if there are as many. The limit stays in the plan."""


class PartitionPushDown(ABC):
    """Reads only some partitions. Conditions on partition columns stay in the query's plan."""

    @abstractmethod
    def partitions(self) -> list[Partition] | None:
        """Return the existing partitions; None if they are unknown."""

    @abstractmethod
    def with_partitions(self, partitions: Sequence[Partition]) -> TableScan:
        """Return a scan of these partitions."""


class WatermarkPushDown(ABC):
    """Generates watermarks in the source, separately for each split that its readers open by name.

    A slow split holds the watermark back, and a split that is far ahead does not make rows of others late. See
    `SourceReaderContext.open_split`, and `SplitColumnBatch` for the rows of a split.
    """

    @abstractmethod
    def with_watermarks(self, strategy: WatermarkStrategy) -> TableScan:
        """Return a scan whose `TableReader` has this strategy."""
