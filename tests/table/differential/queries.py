"""Random queries, in the SQL that Flink and DuckDB have in common. Their order of rows is never asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from hypothesis import strategies as st
from tests.table.differential.tongues import both

INT, TEXT = "INT", "STRING"
#: points in time, and those that are the event time of their rows
TIME, ROWTIME = "TIMESTAMP(3)", "ROWTIME"

#: What joins columns of a kind. Times of events that are equal make an interval join, which takes no updates.
_EQUAL = dict.fromkeys((INT, TEXT), ("=", "=", "IS NOT DISTINCT FROM")) | {TIME: ("IS NOT DISTINCT FROM",)}


@dataclass(frozen=True)
class Column:
    """A column of a query."""

    name: str
    kind: str


@dataclass(frozen=True)
class Relation:
    """A query and its columns."""

    sql: str
    columns: tuple[Column, ...]

    def of(self, kind: str) -> list[str]:
        """The names of the columns of a kind."""
        return [one.name for one in self.columns if one.kind == kind]


class Queries:
    """Builds one query from what is drawn. `tables`: their names and columns."""

    def __init__(self, draw: st.DrawFn, tables: dict[str, tuple[Column, ...]]) -> None:
        self._draw = draw
        self._tables = tables
        self._numbers = count()

    def relation(self, depth: int) -> Relation:
        """A query with so many steps at most between it and the tables."""
        if depth == 0:
            return self._table()
        steps = [
            self._select,
            self._select,
            self._join,
            self._join,
            self._aggregate,
            self._aggregate,
            self._half_join,
            self._tested,
            self._distinct,
            self._set_operation,
            self._top_n,
            self._arrived,
            self._limit,
            self._running,
            self._scalar,
        ]
        return self._one(steps)(depth)

    # --- relations ----------------------------------------------------------------------------------------------------

    def _table(self) -> Relation:
        name = self._one(sorted(self._tables))
        columns = self._tables[name]
        return Relation(f"SELECT {', '.join(one.name for one in columns)} FROM {name}", columns)

    def _select(self, depth: int) -> Relation:
        inner = self.relation(depth - 1)
        choices = [INT, TEXT, *({TIME} & {one.kind for one in inner.columns})]
        kinds = self._draw(st.lists(st.sampled_from(choices), min_size=1, max_size=3))
        columns = [Column(self._name(), kind) for kind in kinds]
        selected = ", ".join(f"{self._expression(inner, one.kind, 2)} AS {one.name}" for one in columns)
        where = f" WHERE {self._condition(inner, 2)}" if self._flag() else ""
        return Relation(f"SELECT {selected} FROM ({inner.sql}){self._alias()}{where}", tuple(columns))

    def _join(self, depth: int) -> Relation:
        (left, one_side), (right, other_side) = self._side(depth - 1), self._side(depth - 1)
        kind = self._one(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        pairs = [(one, other) for one in left.columns for other in right.columns if one.kind == other.kind]
        if not pairs:
            return left
        on = [
            f"{one_side}.{one.name} {self._one(_EQUAL[one.kind])} {other_side}.{other.name}"
            for one, other in self._some(pairs, 1, 2)
        ]
        both = Relation("", (*_prefixed(left, one_side), *_prefixed(right, other_side)))
        if self._flag():
            on.append(self._condition(both, 1))
        columns = tuple(Column(self._name(), one.kind) for one in both.columns)
        selected = ", ".join(f"{old.name} AS {new.name}" for old, new in zip(both.columns, columns, strict=True))
        where = f" WHERE {self._condition(both, 1)}" if self._flag() else ""
        joined = f"({left.sql}) AS {one_side} {kind} ({right.sql}) AS {other_side} ON {' AND '.join(on)}"
        sql = f"SELECT {selected} FROM {joined}{where}"
        return Relation(sql, columns)

    def _half_join(self, depth: int) -> Relation:
        (left, one_side), (right, other_side) = self._side(depth - 1), self._side(depth - 1)
        pairs = [(one, other) for one in left.columns for other in right.columns if one.kind == other.kind]
        if not pairs:
            return left
        one, other = self._one(pairs)
        negated = "NOT " if self._flag() else ""
        if self._flag():
            condition = f"{one_side}.{one.name} {negated}IN (SELECT {other.name} FROM ({right.sql}) AS {other_side})"
        else:
            on = f"{one_side}.{one.name} = {other_side}.{other.name}"
            condition = f"{negated}EXISTS (SELECT 1 FROM ({right.sql}) AS {other_side} WHERE {on})"
        names = ", ".join(f"{one_side}.{one.name}" for one in left.columns)
        return Relation(f"SELECT {names} FROM ({left.sql}) AS {one_side} WHERE {condition}", left.columns)

    def _tested(self, depth: int) -> Relation:
        """Rows with what IN or EXISTS of a query says of them, or those for which a condition with it holds."""
        (left, one_side), (right, other_side) = self._side(depth - 1), self._side(depth - 1)
        pairs = [(one, other) for one in left.columns for other in right.columns if one.kind == other.kind]
        if not pairs:
            return left
        one, other = self._one(pairs)
        negated = "NOT " if self._flag() else ""
        query = f"FROM ({right.sql}) AS {other_side}"
        if self._flag():
            test = f"{self._expression(left, one.kind, 1)} {negated}IN (SELECT {other.name} {query})"
        else:
            test = f"{negated}EXISTS (SELECT 1 {query} WHERE {one_side}.{one.name} = {other_side}.{other.name})"
        names = [f"{one_side}.{column.name}" for column in left.columns]
        if self._flag():
            where = f"{test} OR {self._condition(left, 1)}"
            return Relation(f"SELECT {', '.join(names)} FROM ({left.sql}) AS {one_side} WHERE {where}", left.columns)
        column = Column(self._name(), INT)
        told = f"CASE WHEN {test} THEN 1 WHEN NOT ({test}) THEN 0 ELSE 2 END AS {column.name}"
        return Relation(f"SELECT {', '.join([*names, told])} FROM ({left.sql}) AS {one_side}", (*left.columns, column))

    def _aggregate(self, depth: int) -> Relation:
        inner = self.relation(depth - 1)
        keys = self._some(inner.columns, 1, 2)
        columns = [Column(self._name(), one.kind) for one in keys]
        selected = [f"{key.name} AS {column.name}" for key, column in zip(keys, columns, strict=True)]
        calls = []
        for _ in range(self._number(1, 3)):
            call, kind = self._call(inner)
            column = Column(self._name(), kind)
            calls.append(call)
            columns.append(column)
            selected.append(f"{call} AS {column.name}")
        grouped = ", ".join(one.name for one in keys)
        having = f" HAVING {self._one(calls)} IS NOT NULL" if self._flag() else ""
        sql = f"SELECT {', '.join(selected)} FROM ({inner.sql}){self._alias()} GROUP BY {grouped}{having}"
        return Relation(sql, tuple(columns))

    def _call(self, inner: Relation) -> tuple[str, str]:
        filtered = f" FILTER (WHERE {self._condition(inner, 1)})" if self._flag() and self._flag() else ""
        distinct = "DISTINCT " if self._flag() else ""
        choices = [("COUNT(*)", INT), *((f"COUNT({distinct}{one.name})", INT) for one in inner.columns)]
        for one in inner.columns:
            choices += [(f"MIN({one.name})", one.kind), (f"MAX({one.name})", one.kind)]
            if one.kind == INT:
                choices.append((f"SUM({distinct}{one.name})", INT))
        call, kind = self._one(choices)
        return f"{call}{filtered}", kind

    def _distinct(self, depth: int) -> Relation:
        inner = self.relation(depth - 1)
        columns = tuple(self._some(inner.columns, 1, len(inner.columns)))
        names = ", ".join(one.name for one in columns)
        return Relation(f"SELECT DISTINCT {names} FROM ({inner.sql}){self._alias()}", columns)

    def _set_operation(self, depth: int) -> Relation:
        operator = self._one(SET_OPERATORS)
        left, right = self.relation(depth - 1), self.relation(depth - 1)
        kinds = [one.kind for one in left.columns]
        columns = tuple(Column(self._name(), kind) for kind in kinds)
        other = ", ".join(self._expression(right, kind, 1) for kind in kinds)
        own = ", ".join(f"{old.name} AS {new.name}" for old, new in zip(left.columns, columns, strict=True))
        sql = (
            f"SELECT {own} FROM ({left.sql}){self._alias()} {operator} SELECT {other} FROM ({right.sql}){self._alias()}"
        )
        return Relation(sql, columns)

    def _top_n(self, depth: int) -> Relation:
        inner = self.relation(depth - 1)
        partition = [one.name for one in self._some(inner.columns, 0, 1)]
        by = f"PARTITION BY {partition[0]} " if partition else ""
        names = ", ".join(one.name for one in inner.columns)
        number = self._name()
        last = self._number(1, 3)
        bound = self._one([f"{number} <= {last}", f"{number} = {last}", f"{number} BETWEEN 2 AND {last + 1}"])
        shows = self._flag()
        columns = (*inner.columns, Column(number, INT)) if shows else inner.columns
        shown = ", ".join(one.name for one in columns)
        return Relation(
            f"SELECT {shown} FROM (SELECT {names}, ROW_NUMBER() OVER ({by}ORDER BY {self._order(inner)}) AS {number} "
            f"FROM ({inner.sql}){self._alias()}){self._alias()} WHERE {bound}",
            columns,
        )

    def _arrived(self, depth: int) -> Relation:
        """The first or the last rows to come of a table, or of each group in it. Such a step is above a table alone."""
        inner = self._table()
        partition = [one.name for one in self._some(inner.columns, 0, 2)]
        by = f"PARTITION BY {', '.join(partition)} " if partition else ""
        columns = tuple(self._some(inner.columns, 1, len(inner.columns)))
        names, time, number = ", ".join(one.name for one in columns), self._name(), self._name()
        where = f" WHERE {self._condition(inner, 1)}" if self._flag() else ""
        come = f"SELECT *, {both('PROCTIME()', 'rowid')} AS {time} {inner.sql[inner.sql.index('FROM') :]}{where}"
        return Relation(
            f"SELECT {names} FROM (SELECT *, ROW_NUMBER() OVER ({by}ORDER BY {time} {self._one(['ASC', 'DESC'])}) "
            f"AS {number} FROM ({come}){self._alias()}){self._alias()} WHERE {number} <= {self._number(1, 2)}",
            columns,
        )

    def _limit(self, depth: int) -> Relation:
        inner = self.relation(depth - 1)
        limit = f"LIMIT {self._number(1, 4)}{f' OFFSET {self._number(0, 2)}' if self._flag() else ''}"
        names = ", ".join(one.name for one in inner.columns)
        ordered = f"SELECT {names} FROM ({inner.sql}){self._alias()} ORDER BY {self._order(inner)} {limit}"
        return Relation(f"SELECT {names} FROM ({ordered}){self._alias()}", inner.columns)

    def _running(self, depth: int) -> Relation:
        inner = self.relation(depth - 1)
        numbers = inner.of(INT)
        if not numbers:
            return inner
        by, order = self._one(inner.columns).name, self._one(numbers)
        call, kind = self._one([("COUNT(*)", INT), *((f"SUM({one})", INT) for one in numbers)])
        column = Column(self._name(), kind)
        names = ", ".join(one.name for one in inner.columns)
        window = f"PARTITION BY {by} ORDER BY {order} NULLS FIRST"
        sql = f"SELECT {names}, {call} OVER ({window}) AS {column.name} FROM ({inner.sql}){self._alias()}"
        return Relation(sql, (*inner.columns, column))

    def _scalar(self, depth: int) -> Relation:
        left, right = self.relation(depth - 1), self.relation(depth - 1)
        numbers = right.of(INT)
        if not numbers:
            return left
        column = Column(self._name(), INT)
        scalar = f"(SELECT {self._one(['MAX', 'MIN', 'SUM'])}({self._one(numbers)}) FROM ({right.sql}){self._alias()})"
        names = ", ".join(one.name for one in left.columns)
        sql = f"SELECT {names}, {scalar} AS {column.name} FROM ({left.sql}){self._alias()}"
        return Relation(sql, (*left.columns, column))

    def _side(self, depth: int) -> tuple[Relation, str]:
        return self.relation(depth), f"q{next(self._numbers)}"

    def _order(self, inner: Relation) -> str:
        """All columns, so that rows that tie are alike."""
        return ", ".join(
            f"{one.name} {self._one(['ASC', 'DESC'])} NULLS {self._one(['FIRST', 'LAST'])}"
            for one in self._draw(st.permutations(inner.columns))
        )

    # --- expressions --------------------------------------------------------------------------------------------------

    def _expression(self, inner: Relation, kind: str, depth: int) -> str:
        names = inner.of(kind)
        leaves = [*names, *names, *_CONSTANTS[kind]]
        if depth == 0 or not self._flag():
            return self._one(leaves)
        one, other = (self._expression(inner, kind, depth - 1) for _ in range(2))
        shared = [f"CASE WHEN {self._condition(inner, 1)} THEN {one} ELSE {other} END", f"COALESCE({one}, {other})"]
        own = [f"({one} + {other})", f"({one} - {other})", f"(2 * {one})", f"ABS({one})"]
        if kind == TEXT:
            own = [f"({one} || {other})", f"UPPER({one})"]
        if kind == TIME:
            own = [f"({one} + INTERVAL '2' SECOND)", f"({one} - INTERVAL '1' SECOND)"]
        return self._one([*own, *shared])

    def _condition(self, inner: Relation, depth: int) -> str:
        if depth > 0 and self._flag():
            one, other = (self._condition(inner, depth - 1) for _ in range(2))
            return self._one([f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})"])
        kind = self._one([INT, TEXT, *({TIME} & {one.kind for one in inner.columns})])
        one, other = self._expression(inner, kind, 0), self._expression(inner, kind, 1)
        compared = f"{one} {self._one(['=', '<>', '<', '<=', '>', '>='])} {other}"
        few = f"{one} IN ({', '.join(_FEW[kind])})"
        more = f"{one} LIKE 'x%'" if kind == TEXT else f"{one} BETWEEN {' AND '.join(_FEW[kind])}"
        return self._one([compared, compared, f"{one} IS NULL", f"{one} IS NOT NULL", few, more])

    # --- what is drawn ------------------------------------------------------------------------------------------------

    def _one(self, choices: Sequence[T]) -> T:
        return self._draw(st.sampled_from(choices))

    def _some(self, choices: Sequence[T], least: int, most: int) -> list[T]:
        strategy = st.lists(st.sampled_from(choices), min_size=least, max_size=min(most, len(choices)), unique=True)
        return self._draw(strategy)

    def _flag(self) -> bool:
        return self._draw(st.booleans())

    def _number(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def _name(self) -> str:
        return f"c{next(self._numbers)}"

    def _alias(self) -> str:
        return f" AS q{next(self._numbers)}"


T = TypeVar("T")

SET_OPERATORS = ["UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
_CONSTANTS = {
    INT: ["0", "1", "2", "CAST(NULL AS INT)"],
    TEXT: ["'x'", "'xy'", "CAST(NULL AS VARCHAR(2147483647))"],
    TIME: ["TIMESTAMP '1970-01-01 00:00:03.000'", "CAST(NULL AS TIMESTAMP(3))"],
}
_FEW = {
    INT: ["-1", "2"],
    TEXT: ["'x'", "'XY'"],
    TIME: ["TIMESTAMP '1970-01-01 00:00:02'", "TIMESTAMP '1970-01-01 00:00:07'"],
}


def _prefixed(relation: Relation, alias: str) -> list[Column]:
    return [Column(f"{alias}.{one.name}", one.kind) for one in relation.columns]
