"""Random queries without event time, in the SQL that Flink and DuckDB have in common. Their rows have no order.

Left out, because the two differ, or nothing defines the result: arithmetic that overflows, sums of inexact fractions,
FIRST_VALUE and LAST_VALUE of rows without an order, `IS NOT DISTINCT FROM` of numbers that may be NaN, the text of such
numbers, and an aggregate without GROUP BY of no row, which has a row in batch and none in a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.table.differential.aggregates import Aggregates
from tests.table.differential.chance import Chance
from tests.table.differential.dialects import both
from tests.table.differential.kinds import BAG_OF_INT, BAG_OF_TEXT, DOUBLE, INT, LIST, ROWTIME, TEXT, TIME, Kind
from tests.table.differential.relations import Column, Relation, join_names, with_prefix
from tests.table.differential.tables import PLAIN_NAMES, TableMaker

SET_OPERATORS: Final = ("UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
_JOINS: Final = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
#: The features of a query that restrict in which settings it runs.
ARRIVAL_ORDER, NO_BATCH, EARLY = "arrival order", "no batch", "early results"
#: late rows of operators that do not keep the watermark over a restart: after it, other rows are late
LATE_UNTIL_RESTART = "late until a restart"


class Queries(Aggregates):
    """Builds one query.

    Args:
        chance: of the query.
        tables: of the world.
    """

    def __init__(self, chance: Chance, tables: TableMaker) -> None:
        super().__init__(chance)
        self._tables = tables
        self.features: set[str] = set()

    def relation(self, depth: int) -> Relation:
        """A query with at most `depth` steps between it and the tables, which draws from a branch of its own."""
        outer, self._chance = self._chance, self._chance.next_branch()
        try:
            return self._step(depth)
        finally:
            self._chance = outer

    def _step(self, depth: int) -> Relation:
        if depth == 0:
            return self._table()
        return self._pick(self._steps())(depth)

    def _steps(self) -> list[Callable[[int], Relation]]:
        return [
            lambda _: self._table(),
            self._select,
            self._select,
            self._join,
            self._join,
            self._join_by_names,
            self._join_three,
            self._aggregate,
            self._aggregate,
            self._aggregate_all,
            self._half_join,
            self._subquery,
            self._exists_of_aggregate,
            self._scalar,
            self._distinct,
            self._set_operation,
            self._top_n,
            self._limit,
            self._running,
            self._first_or_last,
            self._unnest,
        ]

    # --- one input ----------------------------------------------------------------------------------------------------

    def _table(self) -> Relation:
        name, columns = self._pick(PLAIN_NAMES), self._tables.columns
        return Relation(f"SELECT {join_names(columns)} FROM {name}", columns)

    def _select(self, depth: int) -> Relation:
        inner = self.relation(depth - 1)
        others = [kind for kind in inner.kinds() if kind not in (INT, TEXT, ROWTIME)]
        columns, texts = [], []
        for _ in range(self._number(1, 3)):
            field = self._field(inner) if self._one_in(6) else None
            if field is not None:
                texts.append(field[0])
                columns.append(self._column(field[1]))
                continue
            kind = self._pick([INT, TEXT, *others])
            texts.append(self.expression(inner, kind, 2))
            columns.append(self._column(kind))
        selected = ", ".join(f"{text} AS {column.name}" for text, column in zip(texts, columns, strict=True))
        return Relation(f"SELECT {selected} FROM ({inner.sql}){self._as()}{self._where(inner, 2)}", tuple(columns))

    def _where(self, inner: Relation, depth: int) -> str:
        return f" WHERE {self.condition(inner, depth)}" if self._flag() else ""

    def _distinct(self, depth: int) -> Relation:
        inner = self.relation(depth - 1)
        columns = tuple(self._several(inner.columns, 1, len(inner.columns)))
        return Relation(f"SELECT DISTINCT {join_names(columns)} FROM ({inner.sql}){self._as()}", columns)

    def _top_n(self, depth: int) -> Relation:
        inner = self._with_order(self.relation(depth - 1))
        partition = self._several(inner.columns, 0, 1)
        by = f"PARTITION BY {partition[0].name} " if partition else ""
        number, last = self._column(INT), self._number(1, 3)
        bound = self._pick(
            [f"{number.name} <= {last}", f"{number.name} = {last}", f"{number.name} BETWEEN 2 AND {last + 1}"]
        )
        columns = (*inner.columns, number) if self._flag() else inner.columns
        return Relation(
            f"SELECT {join_names(columns)} FROM (SELECT {inner.names}, ROW_NUMBER() OVER ({by}ORDER BY "
            f"{self._order(inner)}) AS {number.name} FROM ({inner.sql}){self._as()}){self._as()} WHERE {bound}",
            columns,
        )

    def _limit(self, depth: int) -> Relation:
        inner = self._with_order(self.relation(depth - 1))
        limit = f"LIMIT {self._number(1, 4)}{f' OFFSET {self._number(0, 2)}' if self._flag() else ''}"
        ordered = f"SELECT {inner.names} FROM ({inner.sql}){self._as()} ORDER BY {self._order(inner)} {limit}"
        return Relation(f"SELECT {inner.names} FROM ({ordered}){self._as()}", inner.columns)

    def _with_order(self, inner: Relation) -> Relation:
        """The query without columns that cannot be sorted by: rows that tie have to be equal."""
        columns = tuple(column for column in inner.columns if column.kind.has_order)
        if len(columns) == len(inner.columns):
            return inner
        if columns:
            return Relation(f"SELECT {join_names(columns)} FROM ({inner.sql}){self._as()}", columns)
        constant = self._column(INT)
        return Relation(f"SELECT 1 AS {constant.name} FROM ({inner.sql}){self._as()}", (constant,))

    def _order(self, inner: Relation) -> str:
        """All columns, so that rows that tie are equal."""
        return ", ".join(
            f"{column.name} {self._pick(['ASC', 'DESC'])} NULLS {self._pick(['FIRST', 'LAST'])}"
            for column in self._chance.shuffled(inner.columns)
        )

    def _running(self, depth: int) -> Relation:
        """An aggregate OVER all rows up to the current one, by a column."""
        inner = self.relation(depth - 1)
        numbers = inner.list_columns(INT)
        orders = [column.name for column in inner.columns if column.kind.has_order and column.kind != ROWTIME]
        if not orders:
            return inner
        by, order = self._pick(inner.columns).name, self._pick(orders)
        call, kind = self._pick([("COUNT(*)", INT), *((f"SUM({name})", INT) for name in numbers)])
        column = self._column(kind)
        window = f"PARTITION BY {by} ORDER BY {order} NULLS FIRST"
        sql = f"SELECT {inner.names}, {call} OVER ({window}) AS {column.name} FROM ({inner.sql}){self._as()}"
        return Relation(sql, (*inner.columns, column))

    def _first_or_last(self, depth: int) -> Relation:
        """The first or the last rows that arrived of a table, or of each group in it."""
        name = self._pick(PLAIN_NAMES)
        if self._tables.table(name).splits > 1:
            return self._table()
        self.features |= {ARRIVAL_ORDER, NO_BATCH}
        inner = Relation("", self._tables.columns)
        by = join_names(self._several(inner.columns, 0, 2))
        columns = tuple(self._several(inner.columns, 1, len(inner.columns)))
        time, number = self._column(TIME).name, self._column(INT).name
        rows = f"SELECT *, {both('PROCTIME()', 'rowid')} AS {time} FROM {name}{self._where(inner, 1)}"
        window = f"{f'PARTITION BY {by} ' if by else ''}ORDER BY {time} {self._pick(['ASC', 'DESC'])}"
        return Relation(
            f"SELECT {join_names(columns)} FROM (SELECT *, ROW_NUMBER() OVER ({window}) AS {number} "
            f"FROM ({rows}){self._as()}){self._as()} WHERE {number} <= {self._number(1, 2)}",
            columns,
        )

    def _unnest(self, depth: int) -> Relation:
        """Each row with each element of an array."""
        inner = self.relation(depth - 1)
        lists = inner.list_columns(LIST)
        if not lists:
            return inner
        side, elements, column = self._alias(), self._alias(), self._column(DOUBLE)
        array = f"{side}.{self._pick(lists)}"
        unnested = both(f"UNNEST({array}) AS {elements} (e)", f"unnest({array}) AS {elements}(e)")
        names = join_names(with_prefix(inner.columns, side))
        sql = f"SELECT {names}, {elements}.e AS {column.name} FROM ({inner.sql}) AS {side} CROSS JOIN {unnested}"
        return Relation(sql, (*inner.columns, column))

    # --- groups -------------------------------------------------------------------------------------------------------

    def _aggregate(self, depth: int) -> Relation:
        inner = self.relation(depth - 1)
        keys = self._several(inner.columns, 1, 2)
        columns = [self._column(key.kind) for key in keys]
        selected = [f"{key.name} AS {column.name}" for key, column in zip(keys, columns, strict=True)]
        calls = [self.call(inner) for _ in range(self._number(1, 3))]
        having = f" HAVING {self._pick(calls)[0]} IS NOT NULL" if self._flag() else ""
        grouped = join_names(keys)
        if self._one_in(5):
            grouped = self._pick([f"ROLLUP ({grouped})", f"CUBE ({grouped})", f"GROUPING SETS (({grouped}), ())"])
            calls += [(f"GROUPING({keys[0].name})", INT)] if self._flag() else []
            # Without input, the empty grouping has a row in batch and none in a stream.
            having = " HAVING COUNT(*) > 0"
        for call, kind in calls:
            columns.append(self._column(kind))
            selected.append(f"{call} AS {columns[-1].name}")
        sql = f"SELECT {', '.join(selected)} FROM ({inner.sql}){self._as()} GROUP BY {grouped}{having}"
        return Relation(sql, tuple(columns))

    def _aggregate_all(self, depth: int) -> Relation:
        """An aggregate without GROUP BY, of a table that has rows, or with a condition that there are rows."""
        name = self._pick(PLAIN_NAMES)
        if self._flag() and self._tables.table(name).rows:
            inner, having = Relation(f"SELECT * FROM {name}", self._tables.columns), ""
        else:
            inner, having = self.relation(depth - 1), " HAVING COUNT(*) > 0"
        calls = [self.call(inner) for _ in range(self._number(1, 3))]
        columns = tuple(self._column(kind) for _, kind in calls)
        selected = ", ".join(f"{call} AS {column.name}" for (call, _), column in zip(calls, columns, strict=True))
        return Relation(f"SELECT {selected} FROM ({inner.sql}){self._as()}{having}", columns)

    def collected_result(self, depth: int) -> Relation:
        """The values of each group, as a multiset. No step follows it."""
        inner = self.relation(depth - 1)
        columns = [column for column in inner.columns if column.kind in (INT, TEXT)]
        if not columns:
            return inner
        key, collected = self._pick(inner.columns), self._pick(columns)
        kind = BAG_OF_INT if collected.kind == INT else BAG_OF_TEXT
        values = f"CAST({collected.name} AS {'BIGINT' if collected.kind == INT else 'VARCHAR'})"
        call = both(f"COLLECT({collected.name if collected.kind == TEXT else values})", f"histogram({values})")
        result = (self._column(key.kind), self._column(kind))
        selected = f"{key.name} AS {result[0].name}, {call} AS {result[1].name}"
        having = f" HAVING COUNT({collected.name}) > 0"
        sql = f"SELECT {selected} FROM ({inner.sql}){self._as()} GROUP BY {key.name}{having}"
        return Relation(sql, result)

    # --- two inputs ---------------------------------------------------------------------------------------------------

    def _side(self, depth: int) -> tuple[Relation, str]:
        return self.relation(depth), self._alias()

    @staticmethod
    def _pairs(left: Relation, right: Relation) -> list[tuple[Column, Column]]:
        """Columns of both sides that may be equal."""
        return [
            (one, other)
            for one in left.columns
            for other in right.columns
            if one.kind == other.kind and one.kind.is_equal_key and one.kind != ROWTIME
        ]

    def _equality(self, kind: Kind) -> str:
        """How columns of a kind are compared. Equal times of events would make an interval join."""
        if kind == TIME:
            return "IS NOT DISTINCT FROM"
        return self._pick(["=", "=", "IS NOT DISTINCT FROM"]) if kind in (INT, TEXT) else "="

    def _join(self, depth: int) -> Relation:
        (left, one_side), (right, other_side) = self._side(depth - 1), self._side(depth - 1)
        kind = self._pick(["JOIN", *_JOINS])
        pairs = self._pairs(left, right)
        if not pairs:
            return left
        on = [
            f"{one_side}.{one.name} {self._equality(one.kind)} {other_side}.{other.name}"
            for one, other in self._several(pairs, 1, 2)
        ]
        found = Relation("", (*with_prefix(left.columns, one_side), *with_prefix(right.columns, other_side)))
        if self._flag():
            on.append(self.condition(found, 1))
        columns = tuple(self._column(column.kind) for column in found.columns)
        selected = ", ".join(f"{old.name} AS {new.name}" for old, new in zip(found.columns, columns, strict=True))
        joined = f"({left.sql}) AS {one_side} {kind} ({right.sql}) AS {other_side} ON {' AND '.join(on)}"
        return Relation(f"SELECT {selected} FROM {joined}{self._where(found, 1)}", columns)

    def _join_by_names(self, depth: int) -> Relation:
        """`*` of a join by USING or NATURAL, whose common columns come first and once."""
        (left, one_side), (right, other_side) = self._side(depth - 1), self._side(depth - 1)
        pairs = [(one, other) for one, other in self._pairs(left, right) if one.kind in (INT, TEXT)]
        if not pairs:
            return left
        common: list[tuple[Column, Column, Column]] = []
        for one, other in self._several(pairs, 1, 2):
            if all(one != mine and other != theirs for mine, theirs, _ in common):
                common.append((one, other, self._column(one.kind)))
        kind, is_natural = self._pick(_JOINS), self._flag()
        if is_natural:
            common.sort(key=lambda names: left.columns.index(names[0]))
        merged = tuple(column for _, _, column in common)
        left_rows, left_rest = self._renamed(left, {one: new for one, _, new in common}, one_side)
        right_rows, right_rest = self._renamed(right, {other: new for _, other, new in common}, other_side)
        using = "" if is_natural else f" USING ({join_names(merged)})"
        flink = f"SELECT * FROM {left_rows} {'NATURAL ' if is_natural else ''}{kind} {right_rows}{using}"
        values = [
            f"COALESCE({one_side}.{name}, {other_side}.{name}) AS {name}" for name in (one.name for one in merged)
        ]
        on = " AND ".join(f"{one_side}.{column.name} = {other_side}.{column.name}" for column in merged)
        selected = ", ".join([*values, *(column.name for column in (*left_rest, *right_rest))])
        duckdb = f"SELECT {selected} FROM {left_rows} {kind} {right_rows} ON {on}"
        return Relation(both(flink, duckdb), (*merged, *left_rest, *right_rest))

    def _join_three(self, depth: int) -> Relation:
        """`*` of two joins by USING of one column. FULL joins are left out: the merged column is then disputed."""
        relations = [self.relation(depth - 1) for _ in range(3)]
        kind = self._pick([INT, TEXT])
        keys = [[column for column in relation.columns if column.kind == kind] for relation in relations]
        if not all(keys):
            return relations[0]
        merged = self._column(kind)
        joins = [self._pick(_JOINS[:3]) for _ in range(2)]
        rows, rest, sides = [], [], [self._alias() for _ in range(3)]
        for relation, candidates, side in zip(relations, keys, sides, strict=True):
            text, others = self._renamed(relation, {self._pick(candidates): merged}, side)
            rows.append(text)
            rest += others
        name = merged.name
        flink = f"SELECT * FROM {rows[0]} {joins[0]} {rows[1]} USING ({name}) {joins[1]} {rows[2]} USING ({name})"
        first = f"COALESCE({sides[0]}.{name}, {sides[1]}.{name})"
        selected = ", ".join([f"COALESCE({first}, {sides[2]}.{name}) AS {name}", *(column.name for column in rest)])
        on = f"{sides[0]}.{name} = {sides[1]}.{name}"
        duckdb = f"SELECT {selected} FROM {rows[0]} {joins[0]} {rows[1]} ON {on} {joins[1]} {rows[2]} "
        return Relation(both(flink, f"{duckdb}ON {first} = {sides[2]}.{name}"), (merged, *rest))

    def _renamed(self, inner: Relation, names: Mapping[Column, Column], alias: str) -> tuple[str, list[Column]]:
        """The rows of a query whose columns have new names, and the columns that `names` does not name."""
        columns = [names.get(column) or self._column(column.kind) for column in inner.columns]
        selected = ", ".join(f"{old.name} AS {new.name}" for old, new in zip(inner.columns, columns, strict=True))
        rest = [new for old, new in zip(inner.columns, columns, strict=True) if old not in names]
        return f"(SELECT {selected} FROM ({inner.sql}){self._as()}) AS {alias}", rest

    def _half_join(self, depth: int) -> Relation:
        """The rows that IN or EXISTS of another query keeps."""
        (left, one_side), (right, other_side) = self._side(depth - 1), self._side(depth - 1)
        pairs = self._pairs(left, right)
        if not pairs:
            return left
        one, other = self._pick(pairs)
        negated = "NOT " if self._flag() and one.kind in (INT, TEXT) else ""
        if self._flag():
            condition = f"{one_side}.{one.name} {negated}IN (SELECT {other.name} FROM ({right.sql}) AS {other_side})"
        else:
            on = f"{one_side}.{one.name} = {other_side}.{other.name}"
            numbers = [(a.name, b.name) for a in left.columns for b in right.columns if a.kind == INT and b.kind == INT]
            if numbers and self._one_in(3):
                first, second = self._pick(numbers)
                on += f" AND {one_side}.{first} {self._pick(['>', '<', '<>'])} {other_side}.{second}"
            condition = f"{negated}EXISTS (SELECT 1 FROM ({right.sql}) AS {other_side} WHERE {on})"
        names = join_names(with_prefix(left.columns, one_side))
        return Relation(f"SELECT {names} FROM ({left.sql}) AS {one_side} WHERE {condition}", left.columns)

    def _subquery(self, depth: int) -> Relation:
        """Rows with the result of IN or EXISTS, or the rows for which a condition with it is true."""
        (left, one_side), (right, other_side) = self._side(depth - 1), self._side(depth - 1)
        pairs = [(one, other) for one, other in self._pairs(left, right) if one.kind.has_scalar_equality]
        if not pairs:
            return left
        one, other = self._pick(pairs)
        negated = "NOT " if self._flag() else ""
        query = f"FROM ({right.sql}) AS {other_side}"
        if self._flag():
            test = f"{self.expression(left, one.kind, 1)} {negated}IN (SELECT {other.name} {query})"
        else:
            test = f"{negated}EXISTS (SELECT 1 {query} WHERE {one_side}.{one.name} = {other_side}.{other.name})"
        return self._tested(left, one_side, test)

    def _exists_of_aggregate(self, depth: int) -> Relation:
        """EXISTS over an aggregate without GROUP BY, which always has a row; or over groups."""
        (left, one_side), (right, other_side) = self._side(depth - 1), self._side(depth - 1)
        negated = "NOT " if self._flag() else ""
        query = f"FROM ({right.sql}) AS {other_side}"
        pairs = [(one, other) for one, other in self._pairs(left, right) if one.kind in (INT, TEXT)]
        if pairs and self._flag():
            one, other = self._pick(pairs)
            query += f" WHERE {one_side}.{one.name} = {other_side}.{other.name}"
        elif self._flag():
            query += f" GROUP BY {self._pick(right.columns).name}"
        call, _ = self.simple_call(right)
        test = f"{negated}EXISTS (SELECT {call} {query})"
        if self._flag():
            names = join_names(with_prefix(left.columns, one_side))
            return Relation(f"SELECT {names} FROM ({left.sql}) AS {one_side} WHERE {test}", left.columns)
        return self._tested(left, one_side, test)

    def _tested(self, left: Relation, side: str, test: str) -> Relation:
        names = join_names(with_prefix(left.columns, side))
        if self._flag():
            where = f"{test} OR {self.condition(left, 1)}"
            return Relation(f"SELECT {names} FROM ({left.sql}) AS {side} WHERE {where}", left.columns)
        column = self._column(INT)
        shown = f"CASE WHEN {test} THEN 1 WHEN NOT ({test}) THEN 0 ELSE 2 END AS {column.name}"
        return Relation(f"SELECT {names}, {shown} FROM ({left.sql}) AS {side}", (*left.columns, column))

    def _scalar(self, depth: int) -> Relation:
        """Rows with an aggregate of another query, of all its rows or of those with the same value."""
        (left, one_side), (right, other_side) = self._side(depth - 1), self._side(depth - 1)
        call, kind = self.simple_call(right)
        pairs = [(one, other) for one, other in self._pairs(left, right) if one.kind in (INT, TEXT)]
        where = ""
        if pairs and self._one_in(3):
            one, other = self._pick(pairs)
            where = f" WHERE {one_side}.{one.name} = {other_side}.{other.name}"
        column = self._column(kind)
        names = join_names(with_prefix(left.columns, one_side))
        # In streams an aggregate of no rows at all has no row, and so the query is NULL.
        rest = where or " HAVING COUNT(*) > 0"
        scalar = f"(SELECT {call} FROM ({right.sql}) AS {other_side}{rest}) AS {column.name}"
        return Relation(f"SELECT {names}, {scalar} FROM ({left.sql}) AS {one_side}", (*left.columns, column))

    def _set_operation(self, depth: int) -> Relation:
        operator = self._pick(SET_OPERATORS)
        left, right = self.relation(depth - 1), self.relation(depth - 1)
        columns = tuple(self._column(column.kind) for column in left.columns)
        other = ", ".join(self.expression(right, column.kind, 1) for column in columns)
        own = ", ".join(f"{old.name} AS {new.name}" for old, new in zip(left.columns, columns, strict=True))
        sql = f"SELECT {own} FROM ({left.sql}){self._as()} {operator} SELECT {other} FROM ({right.sql}){self._as()}"
        return Relation(sql, columns)
