"""Resolved columns, whose types and expressions are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from penstock.base.errors import WrongValueError
from penstock.table.catalog.schema import Schema, UnresolvedColumn, UnresolvedWatermark
from penstock.table.data.logical_types import DataType, RowField, RowType
from penstock.table.plan.row_schema import TimeAttribute
from penstock.table.sql import to_sql
from penstock.table.sql.syntax import Expression
from penstock.table.typed.nodes import Typed


class ColumnKind(Enum):
    """The origin of a column."""

    PHYSICAL = "PHYSICAL"
    COMPUTED = "COMPUTED"
    METADATA = "METADATA"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, created by `physical`, `computed` and `metadata`."""

    name: str
    data_type: DataType
    kind: ColumnKind = ColumnKind.PHYSICAL
    #: the expression of a computed column
    expression: Typed | None = None
    #: the same expression, as written
    written: Expression | None = None
    metadata_key: str | None = None
    is_virtual: bool = False
    comment: str | None = None
    time: TimeAttribute | None = None

    @staticmethod
    def physical(name: str, data_type: DataType) -> Column:
        """Return a column that the table stores."""
        return Column(name, data_type)

    @staticmethod
    def computed(name: str, resolved_expression: Typed, written: Expression | None = None) -> Column:
        """Return a column computed by an expression over the others."""
        return Column(name, resolved_expression.type, ColumnKind.COMPUTED, resolved_expression, written)

    @staticmethod
    def metadata(name: str, data_type: DataType, metadata_key: str | None = None, is_virtual: bool = False) -> Column:
        """Return a column with metadata of the connector."""
        return Column(name, data_type, ColumnKind.METADATA, metadata_key=metadata_key, is_virtual=is_virtual)

    def with_comment(self, comment: str | None) -> Column:
        """Return a copy with a comment."""
        return replace(self, comment=comment)

    def rename(self, new_name: str) -> Column:
        """Return a copy with another name."""
        return replace(self, name=new_name)

    def copy(self, new_type: DataType) -> Column:
        """Return a copy with another type."""
        return replace(self, data_type=new_type)

    def is_physical(self) -> bool:
        """Return whether the table stores the column."""
        return self.kind is ColumnKind.PHYSICAL

    def is_persisted(self) -> bool:
        """Return whether a sink writes the column."""
        return self.is_physical() or (self.kind is ColumnKind.METADATA and not self.is_virtual)

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def get_data_type(self) -> DataType:
        """Return the type."""
        return self.data_type

    def get_comment(self) -> str | None:
        """Return the comment, if there is one."""
        return self.comment

    def explain_extras(self) -> str | None:
        """Return the clause of a computed or metadata column; None for a physical column."""
        if self.kind is ColumnKind.COMPUTED:
            return f"AS {to_sql(self.written)}" if self.written is not None else f"AS {self.expression}"
        if self.kind is ColumnKind.METADATA:
            source = f" FROM '{self.metadata_key}'" if self.metadata_key is not None else ""
            return f"METADATA{source}{' VIRTUAL' * self.is_virtual}"
        return None

    def as_summary_string(self) -> str:
        """Return the column in one line."""
        extras = self.explain_extras()
        time = "" if self.time is None else f" {self.time.value}"
        return f"`{self.name}` {self.data_type}{time}" + ("" if extras is None else f" {extras}")

    __str__ = as_summary_string


@dataclass(frozen=True, slots=True)
class WatermarkSpec:
    """The event-time column of a table, and the expression of its watermark."""

    rowtime_attribute: str
    expression: Typed
    written: Expression

    def as_summary_string(self) -> str:
        """Return the watermark in one line."""
        return f"WATERMARK FOR `{self.rowtime_attribute}`: {self.expression.type} AS {to_sql(self.written)}"

    __str__ = as_summary_string


@dataclass(frozen=True, slots=True)
class UniqueConstraint:
    """A primary key, which is not enforced."""

    name: str
    columns: tuple[str, ...]

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def get_columns(self) -> list[str]:
        """Return the columns."""
        return list(self.columns)

    def as_summary_string(self) -> str:
        """Return the key in one line."""
        return f"CONSTRAINT `{self.name}` PRIMARY KEY ({', '.join(f'`{name}`' for name in self.columns)}) NOT ENFORCED"

    __str__ = as_summary_string


@dataclass(frozen=True, slots=True)
class ResolvedSchema:
    """The columns of a table with their types, its watermarks and its primary key."""

    columns: tuple[Column, ...]
    watermark_specs: tuple[WatermarkSpec, ...] = ()
    primary_key: UniqueConstraint | None = None

    @staticmethod
    def of(*columns: Column) -> ResolvedSchema:
        """Return a schema with only these columns."""
        return ResolvedSchema(columns)

    @staticmethod
    def physical(column_names: Sequence[str], column_data_types: Sequence[DataType]) -> ResolvedSchema:
        """Return a schema of physical columns."""
        if len(column_names) != len(column_data_types):
            raise WrongValueError(f"there are {len(column_names)} names and {len(column_data_types)} types")
        return ResolvedSchema(tuple(map(Column.physical, column_names, column_data_types)))

    def get_column_count(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def get_columns(self) -> list[Column]:
        """Return the columns, in order."""
        return list(self.columns)

    def get_column_names(self) -> list[str]:
        """Return the names of the columns."""
        return [column.name for column in self.columns]

    def get_column_data_types(self) -> list[DataType]:
        """Return the types of the columns."""
        return [column.data_type for column in self.columns]

    def get_column(self, column_index_or_name: int | str) -> Column | None:
        """Return a column by its index or name, or None."""
        if isinstance(column_index_or_name, int):
            return self.columns[column_index_or_name] if 0 <= column_index_or_name < len(self.columns) else None
        return next((column for column in self.columns if column.name == column_index_or_name), None)

    def get_watermark_specs(self) -> list[WatermarkSpec]:
        """Return the watermarks."""
        return list(self.watermark_specs)

    def get_primary_key(self) -> UniqueConstraint | None:
        """Return the primary key, if there is one."""
        return self.primary_key

    def get_primary_key_indexes(self) -> list[int]:
        """Return the indexes of the primary key columns among the physical columns."""
        names = [column.name for column in self.columns if column.is_physical()]
        return [names.index(name) for name in self.primary_key.columns] if self.primary_key is not None else []

    def to_physical_row_data_type(self) -> RowType:
        """Return the row type of the physical columns."""
        return _row([column for column in self.columns if column.is_physical()])

    def to_source_row_data_type(self) -> RowType:
        """Return the row type of all columns."""
        return _row(self.columns)

    def to_sink_row_data_type(self) -> RowType:
        """Return the row type of the columns that a sink writes."""
        return _row([column for column in self.columns if column.is_persisted()])

    def unresolved(self) -> Schema:
        """Return the schema as a program declares it."""
        columns = []
        for column in self.columns:
            is_computed = column.kind is ColumnKind.COMPUTED
            columns.append(
                UnresolvedColumn(
                    column.name,
                    None if is_computed else column.data_type,
                    column.written,
                    column.kind is ColumnKind.METADATA,
                    column.metadata_key,
                    column.is_virtual,
                    column.comment,
                )
            )
        marks = tuple(
            UnresolvedWatermark(watermark.rowtime_attribute, watermark.written) for watermark in self.watermark_specs
        )
        key = self.primary_key
        return Schema(tuple(columns), marks, key.columns if key else (), key.name if key else None)

    def __str__(self) -> str:
        parts = [*self.columns, *self.watermark_specs, *([self.primary_key] if self.primary_key is not None else [])]
        return "(\n" + ",\n".join(f"  {part}" for part in parts) + "\n)"


def _row(columns: Sequence[Column]) -> RowType:
    return RowType([RowField(column.name, column.data_type, column.comment) for column in columns], False)
