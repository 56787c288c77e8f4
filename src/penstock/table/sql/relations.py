"""Syntax trees of queries: SELECT and its clauses, and the relations in FROM."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from penstock.table.sql.syntax import Expression, IntervalQualifier, OrderItem, Query, WindowSpecification


@dataclass(frozen=True, slots=True)
class Hint:
    """`NAME('key' = 'value', …)` or `NAME(table, …)` in a hint comment."""

    name: str
    options: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()


# --- queries ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SelectItem:
    """An expression with an optional alias."""

    expression: Expression
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class GroupItem:
    """An item of GROUP BY: an expression, or ROLLUP, CUBE or GROUPING SETS (`kind`) of groups."""

    kind: str
    expressions: tuple[Expression, ...] = ()
    sets: tuple[GroupItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Select(Query):
    """SELECT."""

    kind: ClassVar = "SELECT"
    items: tuple[SelectItem, ...]
    source: Relation | None = None
    where: Expression | None = None
    #: None without GROUP BY
    group: tuple[GroupItem, ...] | None = None
    having: Expression | None = None
    windows: tuple[tuple[str, WindowSpecification], ...] = ()
    qualify: Expression | None = None
    is_distinct: bool = False
    hints: tuple[Hint, ...] = ()
    #: GROUP BY DISTINCT: equal grouping sets count once
    has_distinct_sets: bool = False
    #: SELECT STREAM
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class Values(Query):
    """VALUES: rows of expressions."""

    kind: ClassVar = "VALUES"
    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class TableQuery(Query):
    """TABLE name: all rows of a table."""

    kind: ClassVar = "EXPLICIT_TABLE"
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetOperation(Query):
    """UNION, INTERSECT or EXCEPT (`operator`) of two queries, with ALL or without; UNION may have more parts."""

    operator: str
    parts: tuple[Query, ...]
    is_all: bool = False

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The operator."""
        return self.operator


@dataclass(frozen=True, slots=True)
class Ordered(Query):
    """A query with ORDER BY, OFFSET or LIMIT."""

    kind: ClassVar = "ORDER_BY"
    query: Query
    order: tuple[OrderItem, ...] = ()
    offset: Expression | None = None
    fetch: Expression | None = None


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A named query, optionally with column names."""

    name: str
    columns: tuple[str, ...]
    query: Query


@dataclass(frozen=True, slots=True)
class With(Query):
    """A query with common table expressions."""

    kind: ClassVar = "WITH"
    tables: tuple[CommonTable, ...]
    query: Query
    is_recursive: bool = False


# --- what may stand in FROM ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """The base class of relations. `alias` and `columns`: its names, if any. `sample`: the text of TABLESAMPLE."""

    alias: str | None = None
    columns: tuple[str, ...] = ()
    sample: str | None = None
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NamedTable(Relation):
    """A table or view by its path. `as_of`: FOR SYSTEM_TIME AS OF."""

    path: tuple[str, ...]
    hints: tuple[Hint, ...] = ()
    as_of: Expression | None = None


@dataclass(frozen=True, slots=True)
class DerivedTable(Relation):
    """A query in parentheses; with LATERAL, it can reference the tables before it."""

    query: Query
    is_lateral: bool = False
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionTable(Relation):
    """TABLE(function(…)); with LATERAL, it can reference the tables before it."""

    call: Expression
    is_lateral: bool = False


@dataclass(frozen=True, slots=True)
class UnnestedTable(Relation):
    """UNNEST of arrays, multisets or maps."""

    expressions: tuple[Expression, ...]
    with_ordinality: bool = False


@dataclass(frozen=True, slots=True)
class Join(Relation):
    """A join. `join_type`: INNER, LEFT, RIGHT, FULL, SEMI, ANTI or CROSS; a comma is also a CROSS join."""

    left: Relation
    right: Relation
    join_type: str
    condition: Expression | None = None
    using: tuple[str, ...] = ()
    is_natural: bool = False


@dataclass(frozen=True, slots=True)
class AliasedJoin(Relation):
    """Joined tables in parentheses."""

    relation: Relation


# --- MATCH_RECOGNIZE -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pattern:
    """A part of a pattern.

    `kind`: VARIABLE (named by `variable`), CONCAT, ALTER (one of several), PERMUTE, EXCLUDE, or REPEAT: `least` to
    `most` times (None for any number), as few as possible if it is reluctant; `^` and `$` for the ends.
    """

    kind: str
    variable: str = ""
    parts: tuple[Pattern, ...] = ()
    least: int = 1
    most: int | None = 1
    is_reluctant: bool = False


@dataclass(frozen=True, slots=True)
class MatchRecognize(Relation):
    """MATCH_RECOGNIZE of a relation."""

    source: Relation
    partition: tuple[Expression, ...]
    order: tuple[OrderItem, ...]
    measures: tuple[SelectItem, ...]
    #: ONE ROW PER MATCH or ALL ROWS PER MATCH
    rows_per_match: str
    #: where the search continues: PAST LAST ROW, TO NEXT ROW, TO FIRST x or TO LAST x
    skip: str
    pattern: Pattern
    within: tuple[str, IntervalQualifier] | None
    subsets: tuple[tuple[str, tuple[str, ...]], ...]
    definitions: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Pivot(Relation):
    """PIVOT and UNPIVOT, which Flink's parser accepts and its planner rejects."""

    source: Relation
    text: str
