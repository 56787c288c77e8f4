"""The columns of a table as a program declares them, before anything is resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.table.data.logical_types import DataType, RowType
from penstock.table.methods.operand import Operand
from penstock.table.sql.statement_parser import StatementParser
from penstock.table.sql.syntax import Expression
from penstock.table.sql.type_parser import TypeParser


@dataclass(frozen=True, slots=True)
class UnresolvedColumn:
    """A column: physical (`data_type`), computed (`expression`), or one of the connector's metadata."""

    name: str
    data_type: DataType | None = None
    expression: Expression | None = None
    is_metadata: bool = False
    metadata_key: str | None = None
    is_virtual: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class UnresolvedWatermark:
    """How far event time has come, by an expression over the columns of a row."""

    column: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns, watermark and primary key of a table. Made by `Schema.new_builder()`."""

    columns: tuple[UnresolvedColumn, ...] = ()
    watermarks: tuple[UnresolvedWatermark, ...] = ()
    primary_key: tuple[str, ...] = ()
    primary_key_name: str | None = None

    @staticmethod
    def new_builder() -> Schema.Builder:
        """A builder without columns."""
        return Schema.Builder()

    class Builder:
        """Collects columns. All methods give the builder itself."""

        def __init__(self) -> None:
            self._columns: list[UnresolvedColumn] = []
            self._watermarks: list[UnresolvedWatermark] = []
            self._key: tuple[str, ...] = ()
            self._key_name: str | None = None

        def column(self, column_name: str, data_type: str | DataType) -> Schema.Builder:
            """A physical column. Its type is one of `DataTypes`, or its text in SQL."""
            self._columns.append(UnresolvedColumn(column_name, type_of(data_type)))
            return self

        def column_by_expression(self, column_name: str, expr: str | Expression | Operand) -> Schema.Builder:
            """A column that is computed from others by an expression: SQL, or one of the Table API."""
            self._columns.append(UnresolvedColumn(column_name, expression=expression_of(expr)))
            return self

        def column_by_metadata(
            self,
            column_name: str,
            data_type: str | DataType,
            metadata_key: str | None = None,
            is_virtual: bool = False,
        ) -> Schema.Builder:
            """A column of what the connector knows besides. `is_virtual`: it is only read and not written."""
            column = UnresolvedColumn(
                column_name,
                type_of(data_type),
                is_metadata=True,
                metadata_key=metadata_key,
                is_virtual=is_virtual,
            )
            self._columns.append(column)
            return self

        def watermark(self, column_name: str, watermark_expr: str | Expression | Operand) -> Schema.Builder:
            """Make a column of type TIMESTAMP(3) or TIMESTAMP_LTZ(3) the event time, and say how far it has come."""
            self._watermarks.append(UnresolvedWatermark(column_name, expression_of(watermark_expr)))
            return self

        def primary_key(self, *column_names: str) -> Schema.Builder:
            """Columns that tell rows apart. Nothing enforces that they do."""
            return self.primary_key_named("PK_" + "_".join(column_names), *column_names)

        def primary_key_named(self, constraint_name: str, *column_names: str) -> Schema.Builder:
            """As `primary_key`, with a name for it."""
            if not column_names:
                raise WrongValueError("a primary key needs at least one column")
            self._key, self._key_name = column_names, constraint_name
            return self

        def from_schema(self, unresolved_schema: Schema) -> Schema.Builder:
            """All that another schema has."""
            self._columns += unresolved_schema.columns
            self._watermarks += unresolved_schema.watermarks
            if unresolved_schema.primary_key:
                self._key, self._key_name = unresolved_schema.primary_key, unresolved_schema.primary_key_name
            return self

        def from_row_data_type(self, data_type: RowType) -> Schema.Builder:
            """A physical column for each field of a row."""
            if not isinstance(data_type, RowType):
                raise WrongTypeError(f"from_row_data_type takes a ROW, not {data_type}")
            return self.from_fields(data_type.field_names(), data_type.field_types())

        def from_fields(self, field_names: Sequence[str], field_data_types: Sequence[str | DataType]) -> Schema.Builder:
            """Physical columns of these names and types."""
            if len(field_names) != len(field_data_types):
                raise WrongValueError(f"there are {len(field_names)} names and {len(field_data_types)} types")
            for name, data_type in zip(field_names, field_data_types, strict=True):
                self.column(name, data_type)
            return self

        def from_resolved_schema(self, resolved_schema: Any) -> Schema.Builder:
            """All that a resolved schema has."""
            return self.from_schema(resolved_schema.unresolved())

        def build(self) -> Schema:
            """The schema."""
            return Schema(tuple(self._columns), tuple(self._watermarks), self._key, self._key_name)


def type_of(data_type: str | DataType) -> DataType:
    """A type, which may be text."""
    if isinstance(data_type, DataType):
        return data_type
    if not isinstance(data_type, str):
        raise WrongTypeError(f"a type must be one of DataTypes or its text in SQL, not {data_type!r}")
    type_parser = TypeParser(data_type)
    found = type_parser.data_type()
    type_parser.finish()
    return found


def expression_of(expression: str | Expression | Operand) -> Expression:
    """An expression as it is written, which may be text, or made by the Table API."""
    if isinstance(expression, Operand):
        return expression._node
    if isinstance(expression, Expression):
        return expression
    if not isinstance(expression, str):
        raise WrongTypeError(f"an expression must be a text in SQL, not {expression!r}")
    parser = StatementParser(expression)
    found = parser.expression()
    parser.finish()
    return found
