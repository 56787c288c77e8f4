"""The columns of a table as declared, before resolution.

`TableSchema`: names and types of columns, for older programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.sql.data.types import DataType, RowField, RowType
from penstock.sql.expressions.builder import Operand
from penstock.sql.parser.statement_parser import StatementParser
from penstock.sql.parser.syntax import Expression
from penstock.sql.parser.types import TypeParser


@dataclass(frozen=True, slots=True)
class UnresolvedColumn:
    """A column: physical (`data_type`), computed (`expression`), or metadata of the connector."""

    name: str
    data_type: DataType | None = None
    expression: Expression | None = None
    is_metadata: bool = False
    metadata_key: str | None = None
    is_virtual: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class UnresolvedWatermark:
    """The watermark of an event-time column: an expression over the columns of a row."""

    column: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns, watermark and primary key of a table. Created by `Schema.new_builder()`."""

    columns: tuple[UnresolvedColumn, ...] = ()
    watermarks: tuple[UnresolvedWatermark, ...] = ()
    primary_key: tuple[str, ...] = ()
    primary_key_name: str | None = None

    @staticmethod
    def new_builder() -> Schema.Builder:
        """Return a builder without columns."""
        return Schema.Builder()

    class Builder:
        """Collects columns. All methods return the builder itself."""

        def __init__(self) -> None:
            self._columns: list[UnresolvedColumn] = []
            self._watermarks: list[UnresolvedWatermark] = []
            self._key: tuple[str, ...] = ()
            self._key_name: str | None = None

        def column(self, column_name: str, data_type: str | DataType) -> Schema.Builder:
            """Add a physical column. The type is one of `DataTypes` or SQL text."""
            self._columns.append(UnresolvedColumn(column_name, parse_data_type(data_type)))
            return self

        def column_by_expression(self, column_name: str, expr: str | Expression | Operand) -> Schema.Builder:
            """Add a column computed from others by an expression: SQL text or a Table API expression."""
            self._columns.append(UnresolvedColumn(column_name, expression=parse_expression(expr)))
            return self

        def column_by_metadata(
            self,
            column_name: str,
            data_type: str | DataType,
            metadata_key: str | None = None,
            is_virtual: bool = False,
        ) -> Schema.Builder:
            """Add a column of the connector's metadata. A virtual one (`is_virtual`) is read but not written."""
            column = UnresolvedColumn(
                column_name,
                parse_data_type(data_type),
                is_metadata=True,
                metadata_key=metadata_key,
                is_virtual=is_virtual,
            )
            self._columns.append(column)
            return self

        def watermark(self, column_name: str, watermark_expr: str | Expression | Operand) -> Schema.Builder:
            """Make a TIMESTAMP or TIMESTAMP_LTZ column of precision 0 to 3 the event time, with this watermark."""
            self._watermarks.append(UnresolvedWatermark(column_name, parse_expression(watermark_expr)))
            return self

        def primary_key(self, *column_names: str) -> Schema.Builder:
            """Declare the primary key. It is not enforced."""
            return self.primary_key_named("PK_" + "_".join(column_names), *column_names)

        def primary_key_named(self, constraint_name: str, *column_names: str) -> Schema.Builder:
            """Declare a primary key with a constraint name; see `primary_key`."""
            if not column_names:
                raise WrongValueError("a primary key needs at least one column")
            self._key, self._key_name = column_names, constraint_name
            return self

        def from_schema(self, unresolved_schema: Schema) -> Schema.Builder:
            """Add everything from another schema."""
            self._columns += unresolved_schema.columns
            self._watermarks += unresolved_schema.watermarks
            if unresolved_schema.primary_key:
                self._key, self._key_name = unresolved_schema.primary_key, unresolved_schema.primary_key_name
            return self

        def from_row_data_type(self, data_type: RowType) -> Schema.Builder:
            """Add a physical column for each field of a row."""
            if not isinstance(data_type, RowType):
                raise WrongTypeError(f"from_row_data_type takes a ROW, not {data_type}")
            return self.from_fields(data_type.field_names(), data_type.field_types())

        def from_fields(self, field_names: Sequence[str], field_data_types: Sequence[str | DataType]) -> Schema.Builder:
            """Add physical columns with these names and types."""
            if len(field_names) != len(field_data_types):
                raise WrongValueError(f"there are {len(field_names)} names and {len(field_data_types)} types")
            for name, data_type in zip(field_names, field_data_types, strict=True):
                self.column(name, data_type)
            return self

        def from_resolved_schema(self, resolved_schema: Any) -> Schema.Builder:
            """Add everything from a resolved schema."""
            return self.from_schema(resolved_schema.unresolved())

        def build(self) -> Schema:
            """Return the schema."""
            return Schema(tuple(self._columns), tuple(self._watermarks), self._key, self._key_name)


def parse_data_type(data_type: str | DataType) -> DataType:
    """Return a data type; text is parsed."""
    if isinstance(data_type, DataType):
        return data_type
    if not isinstance(data_type, str):
        raise WrongTypeError(f"a type must be one of DataTypes or its text in SQL, not {data_type!r}")
    type_parser = TypeParser(data_type)
    parsed = type_parser.data_type()
    type_parser.finish()
    return parsed


def parse_expression(expression: str | Expression | Operand) -> Expression:
    """Return an unresolved expression, from SQL text or the Table API."""
    if isinstance(expression, Operand):
        return expression._node
    if isinstance(expression, Expression):
        return expression
    if not isinstance(expression, str):
        raise WrongTypeError(f"an expression must be a text in SQL, not {expression!r}")
    parser = StatementParser(expression)
    parsed = parser.expression()
    parser.finish()
    return parsed


__all__ = ["TableSchema"]


@dataclass(frozen=True)
class TableSchema:
    """Names and types of columns, in order. `ResolvedSchema` also has watermarks and keys."""

    field_names: Sequence[str] = ()
    data_types: Sequence[DataType] = ()

    def __post_init__(self) -> None:
        if len(self.field_names) != len(self.data_types):
            raise WrongValueError(f"there are {len(self.field_names)} names and {len(self.data_types)} types")
        object.__setattr__(self, "field_names", tuple(self.field_names))
        object.__setattr__(self, "data_types", tuple(self.data_types))

    def copy(self) -> TableSchema:
        """Return a copy."""
        return TableSchema(self.field_names, self.data_types)

    def get_field_count(self) -> int:
        """Return the number of columns."""
        return len(self.field_names)

    def get_field_names(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.field_names)

    def get_field_name(self, field_index: int) -> str | None:
        """Return the name of the column at an index, counted from 0; None if out of range."""
        return self.field_names[field_index] if 0 <= field_index < len(self.field_names) else None

    def get_field_data_types(self) -> list[DataType]:
        """Return the types of the columns."""
        return list(self.data_types)

    def get_field_data_type(self, field: int | str) -> DataType | None:
        """Return the type of a column by its index, counted from 0, or its name; None if there is no such column."""
        data_types = dict(enumerate(self.data_types)) if isinstance(field, int) else self._by_name()
        return data_types.get(field)  # type: ignore[arg-type]

    def _by_name(self) -> dict[str, DataType]:
        return dict(zip(self.field_names, self.data_types, strict=True))

    def to_row_data_type(self) -> RowType:
        """Return the columns as a row type."""
        return RowType([RowField(*pair) for pair in zip(self.field_names, self.data_types, strict=True)], False)

    def __repr__(self) -> str:
        lines = [f" |-- {name}: {kind}" for name, kind in zip(self.field_names, self.data_types, strict=True)]
        return "\n".join(["root", *lines, ""])

    @classmethod
    def builder(cls) -> TableSchema.Builder:
        """Return a builder without columns."""
        return TableSchema.Builder()

    class Builder:
        """Collects columns."""

        def __init__(self) -> None:
            self._names: list[str] = []
            self._types: list[DataType] = []

        def field(self, name: str, data_type: DataType) -> TableSchema.Builder:
            """Add a column."""
            self._names.append(name)
            self._types.append(data_type)
            return self

        def build(self) -> TableSchema:
            """Return the schema."""
            return TableSchema(self._names, self._types)
