"""What a table may do besides being read whole: abilities that the planner asks for. None of them has to be there.

A `TableScan` is a value: it stands for the reading of a table, and each ability gives a changed copy. So the planner
can try one, and keep the scan that it had. Columns are counted among those that the scan gives when it is asked. What
comes of it goes into `Scan.source`, with a schema that fits.
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

#: the values of the partition columns of one partition, by their names; None for NULL
Partition = Mapping[str, str | None]
#: a column, and then which field of each row in it; NULL where a row around is NULL. A column alone is as it is
Path = tuple[int, ...]


def leaf_type(kind: DataType, fields: Sequence[int]) -> DataType:
    """The type of a field of a field of rows of a type; it may be NULL where a row around it may be."""
    is_nullable = kind.is_nullable
    for place in fields:
        kind = tuple(kind.children())[place]
        is_nullable = is_nullable or kind.is_nullable
    return kind.nullable() if is_nullable else kind


class TableScan(ABC):
    """A table that is to be read. Implementations are frozen, and equal where they read the same."""

    @abstractmethod
    def reader(self) -> TableReader:
        """How it is read."""

    def check(self) -> None:  # noqa: B027 - most tables are checked when they are read
        """Look at the table itself while the statement is planned, once all columns that are read are known.

        Raises:
            PenstockError: for a table that cannot be read as it is declared.
        """


@dataclass(frozen=True, slots=True)
class WholeScan(TableScan):
    """A scan without abilities."""

    table: TableReader

    def reader(self) -> TableReader:
        """The reader that it was made of."""
        return self.table


class ProjectionPushDown(ABC):
    """Reads some columns only."""

    @abstractmethod
    def with_columns(self, columns: Sequence[int]) -> TableScan:
        """A scan that gives these columns, in this order."""


class Filtered(NamedTuple):
    """What a scan makes of conditions.

    Attributes:
        scan: leaves out rows for which they are not true.
        remaining: those that somebody else still has to check.
        used: those of `remaining` that are of use to the scan all the same, for EXPLAIN.
    """

    scan: TableScan
    remaining: tuple[Typed, ...]
    used: tuple[Typed, ...] = ()


class NestedPushDown(ABC):
    """Reads some fields of columns that are rows."""

    @abstractmethod
    def with_leaves(self, paths: Sequence[Path]) -> TableScan:
        """A scan that gives a column for each path, in this order."""


class FilterPushDown(ABC):
    """Leaves out rows that a query does not want."""

    @abstractmethod
    def with_conditions(self, conditions: Sequence[Typed]) -> Filtered:
        """A scan that leaves out rows, and the conditions that are not, or not wholly, done with."""


class LimitPushDown(ABC):
    """Stops early where only some rows are wanted."""

    @abstractmethod
    def with_limit(self, limit: int) -> TableScan:
        """A scan that gives so many rows, if there are so many, and may give more: the limit stays in the plan."""


class PartitionPushDown(ABC):
    """Reads some partitions only. What a query says of their columns stays in its plan."""

    @abstractmethod
    def partitions(self) -> list[Partition] | None:
        """The partitions that there are; None where that is not known."""

    @abstractmethod
    def with_partitions(self, partitions: Sequence[Partition]) -> TableScan:
        """A scan of these partitions."""


class WatermarkPushDown(ABC):
    """Has watermarks made where it is read: each split that its readers open by name then has its own.

    A split that is slow holds the watermark back, and one that is far ahead makes no rows of others late. See
    `SourceReaderContext.open_split`, and `SplitColumnBatch` for the rows of a split.
    """

    @abstractmethod
    def with_watermarks(self, strategy: WatermarkStrategy) -> TableScan:
        """A scan whose `TableReader` has this strategy."""
