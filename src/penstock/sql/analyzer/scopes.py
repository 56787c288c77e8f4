"""Names in a query: the columns of the relations in FROM, by name, with or without a qualifier.

`Tables` and `Queries` are interfaces to the catalogs and between the parts of the analyser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.base.errors import nearest
from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.subqueries import ScalarQueries, Uncorrelated, outside, with_scalar
from penstock.sql.data.errors import UnknownNameError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import Model, Node, RowSchema
from penstock.sql.parser import syntax
from penstock.sql.parser import syntax as relations
from penstock.sql.typed import Field, Typed


@dataclass(frozen=True, slots=True)
class Part:
    """A relation in FROM: its names, and the position of its columns."""

    alias: str | None
    path: tuple[str, ...]
    offset: int
    schema: RowSchema

    def is_called(self, names: tuple[str, ...]) -> bool:
        """Return whether these names refer to this relation."""
        if self.alias is not None:
            return names == (self.alias,)
        return bool(self.path) and names == self.path[len(self.path) - len(names) :]


@dataclass(frozen=True, slots=True)
class VisibleColumn:
    """A column that `*` expands to.

    USING and NATURAL merge columns of several relations: the value is the first of `places` that is not NULL. If set,
    `merged_type` is its type when it is named, and `star_type` its type in `*`. As in Flink, they may differ: of FLOAT
    and DOUBLE, `*` takes the first.
    """

    name: str
    places: tuple[int, ...]
    merged_type: DataType | None = None
    star_type: DataType | None = None
    #: whether USING or NATURAL merged another column of this name, to which the unqualified name now refers
    is_shadowed: bool = False

    def value(self, schema: RowSchema, calls: Calls) -> Typed:
        """Return the value of the named column, over rows of a schema that has the columns at these places."""
        return self._cast(schema, calls, self.merged_type)

    def star_value(self, schema: RowSchema, calls: Calls) -> Typed:
        """Return the value of the column in `*`; see `value`."""
        return self._cast(schema, calls, self.star_type)

    def _cast(self, schema: RowSchema, calls: Calls, kind: DataType | None) -> Typed:
        values: list[Typed] = [schema.field(index) for index in self.places]
        if kind is not None:
            kinds = [kind.nullable() if value.type.is_nullable else kind.not_null() for value in values]
            values = [calls.implicit(value, to) for value, to in zip(values, kinds, strict=True)]
        return values[0] if len(values) == 1 else calls.call("COALESCE", values)

    def moved(self, by: int) -> VisibleColumn:
        """Return the column after `by` other columns are placed before it."""
        return replace(self, places=tuple(index + by for index in self.places))


@dataclass
class RelationScope:
    """The columns of joined relations."""

    parts: list[Part]
    #: the plan that produces the columns; queries in expressions append columns
    plan: Node
    #: the columns of `*`, in order
    visible: list[VisibleColumn]
    calls: Calls
    outer: RelationScope | None = None
    #: plans a query in an expression, which yields one value
    scalars: ScalarQueries | None = None

    @property
    def schema(self) -> RowSchema:
        """The columns."""
        return self.plan.schema

    def resolve(self, path: tuple[str, ...], at: int) -> tuple[Typed, tuple[str, ...]]:
        """See `Scope`."""
        resolved = self._find(path)
        if resolved is not None:
            return resolved
        around, level = self.outer, 1
        while around is not None:
            resolved = around._find(path)
            if resolved is not None:
                column, rest = resolved
                for _ in range(level):
                    column = outside(column)
                return column, rest
            around, level = around.outer, level + 1
        raise UnknownNameError(self._unknown(path), at, path[0])

    def subquery(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed:
        """See `Scope`."""
        if self.scalars is None:
            raise ValidationError("a query cannot stand in this expression")

        def ask(query: Uncorrelated) -> Typed:
            self.plan, value = with_scalar(self.plan, query, analyser.calls)
            return value

        def compared(operand: syntax.Expression) -> tuple[Typed, Typed]:
            typed = analyser.typed(operand)
            return typed, outside(typed)

        return self.scalars(node, self, compared, ask)

    def special(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed | None:
        """See `Scope`."""
        return None

    def _find(self, path: tuple[str, ...]) -> tuple[Typed, tuple[str, ...]] | None:
        for length in range(min(3, len(path) - 1), 0, -1):
            called = [part for part in self.parts if part.is_called(path[:length])]
            if len(called) > 1:
                raise ValidationError(f"Table name {'.'.join(path[:length])!r} is ambiguous")
            if called and path[length] in called[0].schema.names:
                return self._get_column(called[0], path[length]), path[length + 1 :]
        column = self.column(path[0])
        if column is not None:
            return column.value(self.schema, self.calls), path[1:]
        having = [part for part in self.parts if path[0] in part.schema.names]
        if len(having) > 1:
            raise ValidationError(f"Column {path[0]!r} is ambiguous")
        return (self._get_column(having[0], path[0]), path[1:]) if having else None

    def _get_column(self, part: Part, name: str) -> Field:
        indexes = [index for index, column_name in enumerate(part.schema.names) if column_name == name]
        if len(indexes) > 1:
            raise ValidationError(f"Column {name!r} is ambiguous")
        return self.schema.field(part.offset + indexes[0])

    def _unknown(self, path: tuple[str, ...]) -> str:
        qualified_name = ".".join(path)
        names = sorted({name for part in self.parts for name in part.schema.names})
        alike = nearest(path[-1], names)
        hint = f"; did you mean '{alike}'?" if alike else f"; there are {', '.join(names)}" if names else ""
        return f"Column '{qualified_name}' not found in any table{hint}"

    def column(self, name: str) -> VisibleColumn | None:
        """Return the visible column of a name, or None. Raises `ValidationError` if there are several."""
        columns = [column for column in self.visible if column.name == name and not column.is_shadowed]
        if len(columns) > 1:
            raise ValidationError(f"Column {name!r} is ambiguous")
        return columns[0] if columns else None

    def first_column(self, name: str) -> VisibleColumn | None:
        """Return the first visible column of a name, or None."""
        return next((column for column in self.visible if column.name == name and not column.is_shadowed), None)

    def star(self, path: tuple[str, ...]) -> list[tuple[str, Typed]]:
        """Return the columns of `*` or `table.*`, with names. Raises `ValidationError` for an unknown table."""
        if not path:
            return [(column.name, column.star_value(self.schema, self.calls)) for column in self.visible]
        called = [part for part in self.parts if part.is_called(path)]
        if len(called) != 1:
            raise ValidationError(f"Unknown identifier '{'.'.join(path)}'")
        part = called[0]
        fields = [self.schema.field(part.offset + index) for index in range(len(part.schema))]
        return [(field.name, field) for field in fields]


def visible_columns(schema: RowSchema, first: int = 0) -> list[VisibleColumn]:
    """Return the columns of a schema, starting at index `first`."""
    return [VisibleColumn(name, (first + index,)) for index, name in enumerate(schema.names[first:])]


def build_scope(plan: Node, calls: Calls, alias: str | None = None, path: Sequence[str] = ()) -> RelationScope:
    """Return the scope of one relation."""
    return RelationScope([Part(alias, tuple(path), 0, plan.schema)], plan, visible_columns(plan.schema), calls)


class Tables(Protocol):
    """The tables of the catalogs, as the analyser sees them."""

    def scan(
        self, path: tuple[str, ...], hints: tuple[relations.Hint, ...], version: int | str | None = None
    ) -> tuple[Node, tuple[str, ...]] | None:
        """Return the plan that reads a table or view, and its full path; None for an unknown table.

        `version`: read the table as it was at this time (ms since 1970), or this version of it, given as text.
        """

    def table_names(self) -> Sequence[str]:
        """Return the names of tables and views that need no qualifier, for suggestions."""

    def model(self, path: tuple[str, ...]) -> Model | None:
        """Return a model; None for an unknown one."""

    def model_names(self) -> Sequence[str]:
        """Return the names of models that need no qualifier, for suggestions."""


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A planned WITH query."""

    name: str
    plan: Node


class Queries(Protocol):
    """The query analyser, for analysers of other syntax that contains queries."""

    tables: Tables
    calls: Calls
    common: list[CommonTable]

    def query(self, node: syntax.Query, outer: RelationScope | None = None) -> Node:
        """Return the plan of a query."""
