"""Random expressions and conditions over the columns of a query."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final, TypeVar

from tests.table.differential.chance import Chance
from tests.table.differential.dialects import both
from tests.table.differential.kinds import BOOLEAN, DOUBLE, FLOAT, INT, LIST, MAP, PAIR, ROWTIME, TEXT, TIME, Kind
from tests.table.differential.relations import Column, Relation, with_prefix

T = TypeVar("T")

_FEW: Final = {
    INT: ("-1", "2"),
    TEXT: ("'x'", "'XY'"),
    TIME: ("TIMESTAMP '1970-01-01 00:00:02'", "TIMESTAMP '1970-01-01 00:00:07'"),
}
_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
#: kinds with NaN, whose comparisons in expressions follow IEEE 754 in Penstock and the total order in DuckDB
_WITH_NAN: Final = (DOUBLE, FLOAT)


class Expressions:
    """Builds expressions of what is drawn. Each relation of a query draws from a branch of its own."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._numbers = count()

    # --- what is drawn ------------------------------------------------------------------------------------------------

    def _pick(self, choices: Sequence[T]) -> T:
        return self._chance.pick(choices)

    def _several(self, choices: Sequence[T], least: int, most: int) -> list[T]:
        return self._chance.several(choices, least, most)

    def _flag(self) -> bool:
        return self._chance.flag()

    def _one_in(self, times: int) -> bool:
        return self._chance.one_in(times)

    def _number(self, least: int, most: int) -> int:
        return self._chance.number(least, most)

    # --- names --------------------------------------------------------------------------------------------------------

    def _column(self, kind: Kind) -> Column:
        """A column with a new name."""
        return Column(f"c{next(self._numbers)}", kind)

    def _alias(self) -> str:
        return f"q{next(self._numbers)}"

    def _as(self) -> str:
        return f" AS {self._alias()}"

    # --- expressions --------------------------------------------------------------------------------------------------

    def expression(self, inner: Relation, kind: Kind, depth: int) -> str:
        """An expression of a kind over the columns of a query."""
        names = inner.list_columns(kind)
        leaves = [*names, *names, *kind.constants, kind.null]
        if depth == 0 or self._flag():
            return self._pick(leaves)
        one, other = (self.expression(inner, kind, depth - 1) for _ in range(2))
        own = self._own(kind, one, other)
        chosen = self._number(0, len(own) + 1)
        if chosen == 0:
            return f"COALESCE({one}, {other})"
        if chosen == 1:
            return f"CASE WHEN {self.condition(inner, depth - 1)} THEN {one} ELSE {other} END"
        return own[chosen - 2]

    def _own(self, kind: Kind, one: str, other: str) -> list[str]:
        """Expressions that only a kind has."""
        if kind == INT:
            return [f"({one} + {other})", f"({one} - {other})", f"(2 * {one})", f"ABS({one})"]
        if kind == TEXT:
            return [f"({one} || {other})", f"UPPER({one})"]
        if kind == TIME:
            return [f"({one} + INTERVAL '2' SECOND)", f"({one} - INTERVAL '1' SECOND)"]
        return []

    def _field(self, inner: Relation) -> tuple[str, Kind] | None:
        """A part of a nested value, or its size."""
        columns = [column for column in inner.columns if column.kind in (LIST, PAIR, MAP)]
        if not columns:
            return None
        column = self._pick(columns)
        if column.kind == PAIR:
            return self._pick([(f"{column.name}.y", INT), (f"{column.name}.x", DOUBLE)])
        if column.kind == LIST:
            return both(f"CARDINALITY({column.name})", f"len({column.name})"), INT
        return self._pick(
            [
                (both(f"CARDINALITY({column.name})", f"cardinality({column.name})"), INT),
                (f"{column.name}['b']", INT),
            ]
        )

    # --- conditions ---------------------------------------------------------------------------------------------------

    def condition(self, inner: Relation, depth: int) -> str:
        """A condition over the columns of a query."""
        if depth > 0 and self._flag():
            one, other = (self.condition(inner, depth - 1) for _ in range(2))
            return self._pick([f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})"])
        kind = self._pick([INT, TEXT, *(kind for kind in inner.kinds() if kind not in (INT, TEXT, ROWTIME))])
        names = inner.list_columns(kind)
        if kind not in _FEW:
            return self._rare_condition(self._pick(names), kind, inner)
        one, other = self.expression(inner, kind, 0), self.expression(inner, kind, depth)
        compared = f"{one} {self._pick(_COMPARISONS)} {other}"
        few = f"{one} IN ({', '.join(_FEW[kind])})"
        more = f"{one} LIKE 'x%'" if kind == TEXT else f"{one} BETWEEN {' AND '.join(_FEW[kind])}"
        return self._pick([compared, compared, f"{one} IS NULL", f"{one} IS NOT NULL", few, more])

    def _rare_condition(self, name: str, kind: Kind, inner: Relation) -> str:
        choices = [f"{name} IS NULL", f"{name} IS NOT NULL"]
        if kind == BOOLEAN:
            choices += [name, f"{name} IS NOT TRUE"]
        if kind in _WITH_NAN:
            choices += [_ordered(name, self._pick(_COMPARISONS), "1.0"), _ordered(name, "<", "1.0")]
        elif kind.has_scalar_equality and kind.constants:
            choices.append(f"{name} {self._pick(_COMPARISONS)} {self._pick(kind.constants)}")
        elif kind.has_scalar_equality:
            choices.append(f"{name} {self._pick(_COMPARISONS)} {self._pick(inner.list_columns(kind))}")
        field = self._field(inner)
        if field is not None and field[1] == INT:
            choices.append(f"{field[0]} {self._pick(_COMPARISONS)} 1")
        return self._pick(choices)

    def _prefixed(self, relation: Relation, alias: str) -> tuple[Column, ...]:
        return tuple(with_prefix(relation.columns, alias))


def _ordered(name: str, operator: str, constant: str) -> str:
    """A comparison of a number that may be NaN: false by IEEE 754, but for `<>`."""
    compared = f"{name} {operator} {constant}"
    of_nan = "TRUE" if operator == "<>" else "FALSE"
    return both(
        f"{name} {operator} CAST({constant} AS DOUBLE)", f"CASE WHEN isnan({name}) THEN {of_nan} ELSE {compared} END"
    )
