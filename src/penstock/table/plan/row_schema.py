"""The schema of a node's output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from penstock.table.data.logical_types import DataType, RowField, RowType
from penstock.table.typed.nodes import Field


class TimeAttribute(Enum):
    """The kinds of time attributes: event time (rowtime) and processing time."""

    ROWTIME = "*ROWTIME*"
    PROCTIME = "*PROCTIME*"


@dataclass(frozen=True, slots=True)
class PlanColumn:
    """A column. `time`: the kind of time attribute, if it is one."""

    name: str
    type: DataType
    time: TimeAttribute | None = None

    def __str__(self) -> str:
        return f"{self.type} {self.time.value}" if self.time is not None else str(self.type)


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The columns of rows, in order. Names may repeat."""

    columns: tuple[PlanColumn, ...]

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[PlanColumn]:
        return iter(self.columns)

    def __getitem__(self, index: int) -> PlanColumn:
        return self.columns[index]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def types(self) -> list[DataType]:
        """The types of the columns."""
        return [column.type for column in self.columns]

    def row_type(self) -> RowType:
        """Return the columns as a ROW type."""
        return RowType([RowField(column.name, column.type) for column in self.columns], False)

    def field(self, index: int) -> Field:
        """Return a reference to a column."""
        column = self.columns[index]
        return Field(column.type, index, column.name)

    def fields(self) -> list[Field]:
        """Return references to all columns."""
        return [self.field(index) for index in range(len(self.columns))]

    def joined(self, other: RowSchema, left_nullable: bool = False, right_nullable: bool = False) -> RowSchema:
        """Return the columns of both schemas; those of an optional side become nullable."""
        left = _nullable(self.columns) if left_nullable else self.columns
        right = _nullable(other.columns) if right_nullable else other.columns
        return RowSchema((*left, *right))

    def without_time(self) -> RowSchema:
        """Return the same columns without time attributes."""
        return RowSchema(tuple(replace(column, time=None) for column in self.columns))

    def renamed(self, names: Sequence[str]) -> RowSchema:
        """Rename all columns."""
        return RowSchema(tuple(replace(column, name=name) for column, name in zip(self.columns, names, strict=True)))


def _nullable(columns: Iterable[PlanColumn]) -> tuple[PlanColumn, ...]:
    return tuple(replace(column, type=column.type.nullable()) for column in columns)
