"""What names mean in a query: the columns of the relations in FROM, by their names or by those of their tables too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.subqueries import OuterField, ScalarQueries, Uncorrelated, outside, with_scalar
from penstock.table.data.errors import ValidationError
from penstock.table.plan.logical import Node
from penstock.table.plan.row_schema import RowSchema
from penstock.table.sql import syntax
from penstock.table.typed.nodes import Field, Typed


@dataclass(frozen=True, slots=True)
class Part:
    """A relation in FROM: the names that it goes by, and where its columns are."""

    alias: str | None
    path: tuple[str, ...]
    offset: int
    schema: RowSchema

    def is_called(self, names: tuple[str, ...]) -> bool:
        """Whether these names mean this relation."""
        if self.alias is not None:
            return names == (self.alias,)
        return bool(self.path) and names == self.path[len(self.path) - len(names) :]


@dataclass
class RelationScope:
    """The columns of joined relations."""

    parts: list[Part]
    #: the plan that gives the columns; queries in expressions add columns after them
    plan: Node
    #: columns that USING or NATURAL has merged, by name
    merged: dict[str, Typed] = field(default_factory=dict)
    #: places of columns that `*` leaves out, because they are merged
    hidden: set[int] = field(default_factory=set)
    outer: RelationScope | None = None
    #: plans a query in an expression, which gives one value
    scalars: ScalarQueries | None = None

    @property
    def schema(self) -> RowSchema:
        """The columns."""
        return self.plan.schema

    def resolve(self, path: tuple[str, ...], at: int) -> tuple[Typed, tuple[str, ...]]:
        """See `Scope`."""
        found = self._find(path)
        if found is not None:
            return found
        if self.outer is not None:
            found = self.outer._find(path)
            column, rest = found if found is not None else (None, ())
            if isinstance(column, Field):
                return OuterField(column.type, column.index, column.name), rest
        raise ValidationError(self._unknown(path))

    def subquery(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed:
        """See `Scope`."""
        if self.scalars is None:
            raise ValidationError("a query cannot stand in this expression")

        def ask(query: Uncorrelated) -> Typed:
            self.plan, value = with_scalar(self.plan, query, analyser.calls)
            return value

        def compared(operand: syntax.Expression) -> tuple[Typed, Typed]:
            found = analyser.typed(operand)
            return found, outside(found)

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
                return self._column_of(called[0], path[length]), path[length + 1 :]
        if path[0] in self.merged:
            return self.merged[path[0]], path[1:]
        having = [part for part in self.parts if path[0] in part.schema.names]
        if len(having) > 1:
            raise ValidationError(f"Column {path[0]!r} is ambiguous")
        return (self._column_of(having[0], path[0]), path[1:]) if having else None

    def _column_of(self, part: Part, name: str) -> Field:
        places = [index for index, one in enumerate(part.schema.names) if one == name]
        if len(places) > 1:
            raise ValidationError(f"Column {name!r} is ambiguous")
        return self.schema.field(part.offset + places[0])

    def _unknown(self, path: tuple[str, ...]) -> str:
        shown = ".".join(path)
        names = sorted({name for part in self.parts for name in part.schema.names})
        alike = [name for name in names if name.lower() == path[-1].lower()]
        hint = f"; did you mean {alike[0]!r}?" if alike else f"; there are {', '.join(names)}" if names else ""
        return f"Column '{shown}' not found in any table{hint}"

    def star(self, path: tuple[str, ...]) -> list[Field]:
        """The columns that `*` or `table.*` means. Raises `ValidationError` for an unknown table."""
        if not path:
            merged = [one for one in self.merged.values() if isinstance(one, Field)]
            rest = [one for one in self.schema.fields() if one.index not in self.hidden and one not in merged]
            return merged + rest
        called = [part for part in self.parts if part.is_called(path)]
        if len(called) != 1:
            raise ValidationError(f"Unknown identifier '{'.'.join(path)}'")
        part = called[0]
        return [self.schema.field(part.offset + index) for index in range(len(part.schema))]


def scope_of(plan: Node, alias: str | None = None, path: Sequence[str] = ()) -> RelationScope:
    """The scope of one relation."""
    return RelationScope([Part(alias, tuple(path), 0, plan.schema)], plan)
