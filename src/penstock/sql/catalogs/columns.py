"""Columns of tables, as declared (`Schema`) and as resolved (`ResolvedSchema`).

Before resolution, types and expressions are not known. `resolve` finds the types of computed columns, time attributes
and keys. `TableSchema` has only names and types of columns, for older programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.scopes import build_scope
from penstock.sql.analyzer.select import find_time_attribute
from penstock.sql.data.errors import UnknownNameError, ValidationError
from penstock.sql.data.types import DataType, LocalZonedTimestampType, RowField, RowType, TimestampType
from penstock.sql.expressions.builder import Operand
from penstock.sql.logical.nodes import PlanColumn, RowSchema, TimeAttribute, Values
from penstock.sql.parser import to_sql
from penstock.sql.parser.statement_parser import StatementParser
from penstock.sql.parser.syntax import Expression
from penstock.sql.parser.types import TypeParser
from penstock.sql.typed import Field, Typed


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
    """The columns, watermark and primary key of a table. Created by `Schema.new_builder()`.

    Examples:
        >>> from penstock.table import EnvironmentSettings, Schema, TableDescriptor, TableEnvironment
        >>> builder = Schema.new_builder().column("drink", "STRING").column("paid_at", "TIMESTAMP(3)")
        >>> columns = builder.watermark("paid_at", "paid_at - INTERVAL '5' SECOND").build()
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = TableDescriptor.for_connector("datagen").schema(columns).build()
        >>> t_env.from_descriptor(orders).get_resolved_schema().get_column_names()
        ['drink', 'paid_at']
    """

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


class ColumnKind(Enum):
    """The origin of a column."""

    PHYSICAL = "PHYSICAL"
    COMPUTED = "COMPUTED"
    METADATA = "METADATA"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, created by `physical`, `computed` and `metadata`.

    Examples:
        >>> from penstock.table import DataTypes
        >>> from penstock.table.catalog import Column
        >>> column = Column.physical("drink", DataTypes.STRING()).with_comment("hot or cold")
        >>> column.name, column.data_type, column.comment
        ('drink', STRING, 'hot or cold')
    """

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
    """A primary key, which is not enforced.

    Examples:
        >>> from penstock.table.catalog import UniqueConstraint
        >>> UniqueConstraint("key", ("drink",)).as_summary_string()
        'CONSTRAINT `key` PRIMARY KEY (`drink`) NOT ENFORCED'
    """

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
    """The columns of a table with their types, its watermarks and its primary key.

    Examples:
        >>> from penstock.table import DataTypes
        >>> from penstock.table.catalog import ResolvedSchema
        >>> schema = ResolvedSchema.physical(["drink", "cups"], [DataTypes.STRING(), DataTypes.INT()])
        >>> schema.get_column_names(), schema.get_column_count()
        (['drink', 'cups'], 2)
    """

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


def resolve(schema: Schema, calls: Calls) -> ResolvedSchema:
    """Return the resolved schema. Raises `ValidationError` if the schema is inconsistent."""
    columns = [
        Column(
            declared.name,
            declared.data_type,
            ColumnKind.METADATA if declared.is_metadata else ColumnKind.PHYSICAL,
            metadata_key=declared.metadata_key,
            is_virtual=declared.is_virtual,
            comment=declared.comment,
        )
        for declared in schema.columns
        if declared.data_type is not None
    ]
    _check_names([declared.name for declared in schema.columns])
    analyser = ScalarAnalyser(build_scope(_rows(columns), calls), calls)
    stored = {column.name: column for column in columns}
    resolved = []
    for unresolved in schema.columns:
        if unresolved.expression is None:
            resolved.append(stored[unresolved.name])
            continue
        try:
            typed = analyser.typed(unresolved.expression)
        except ValidationError as error:
            raise ValidationError(f"Invalid expression for computed column '{unresolved.name}': {error}") from error
        column = replace(Column.computed(unresolved.name, typed, unresolved.expression), comment=unresolved.comment)
        resolved.append(replace(column, time=find_time_attribute(typed)))
    marks = [_watermark(watermark, resolved, calls) for watermark in schema.watermarks]
    if len(marks) > 1:
        raise ValidationError("Multiple watermark definitions are not supported yet.")
    for mark in marks:
        index = [column.name for column in resolved].index(mark.rowtime_attribute)
        resolved[index] = replace(resolved[index], time=TimeAttribute.ROWTIME)
    key = _primary_key(schema, resolved)
    if key is not None:
        resolved = [
            replace(resolved_column, data_type=resolved_column.data_type.not_null())
            if resolved_column.name in key.columns
            else resolved_column
            for resolved_column in resolved
        ]
    return ResolvedSchema(tuple(resolved), tuple(marks), key)


def row_schema(columns: Sequence[Column]) -> RowSchema:
    """Return the columns as the row schema of a plan."""
    return RowSchema(tuple(PlanColumn(column.name, column.data_type, column.time) for column in columns))


def list_metadata_columns(columns: Sequence[Column]) -> tuple[tuple[int, str], ...]:
    """Return the positions of METADATA columns, each with its key in the connector."""
    return tuple(
        (index, column.metadata_key or column.name)
        for index, column in enumerate(columns)
        if column.kind is ColumnKind.METADATA
    )


def _rows(columns: Sequence[Column]) -> Values:
    return Values(schema=row_schema(columns), rows=())


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValidationError(f"Schema must not contain duplicate column names. Found duplicates: [{name}]")


def _watermark(mark: UnresolvedWatermark, columns: Sequence[Column], calls: Calls) -> WatermarkSpec:
    rowtime = next((column for column in columns if column.name == mark.column), None)
    if rowtime is None:
        names = ", ".join(column.name for column in columns)
        raise UnknownNameError(
            f"Invalid column name '{mark.column}' for rowtime attribute in watermark declaration. "
            f"Available names are: [{names}]",
            name=mark.column,
        )
    if not isinstance(rowtime.data_type, TimestampType | LocalZonedTimestampType) or rowtime.data_type.precision > 3:
        raise ValidationError(
            f"Invalid data type of time field for watermark definition. The field must be of type TIMESTAMP(p) or "
            f"TIMESTAMP_LTZ(p), the supported precision 'p' is from 0 to 3, but the time field type is "
            f"{rowtime.data_type}"
        )
    typed = ScalarAnalyser(build_scope(_rows(columns), calls), calls).typed(mark.expression)
    if not isinstance(typed, Field) and not isinstance(typed.type, TimestampType | LocalZonedTimestampType):
        raise ValidationError(f"Invalid data type of expression for watermark definition: {typed.type}")
    return WatermarkSpec(mark.column, typed, mark.expression)


def _primary_key(schema: Schema, columns: Sequence[Column]) -> UniqueConstraint | None:
    if not schema.primary_key:
        return None
    for name in schema.primary_key:
        matches = [column for column in columns if column.name == name]
        if not matches:
            reason = f"Invalid primary key '{schema.primary_key_name}'. Column '{name}' does not exist."
            raise UnknownNameError(reason, name=name)
        if not matches[0].is_physical():
            raise ValidationError(
                f"Invalid primary key '{schema.primary_key_name}'. Column '{name}' is not a physical column."
            )
    return UniqueConstraint(schema.primary_key_name or "PK_" + "_".join(schema.primary_key), schema.primary_key)
