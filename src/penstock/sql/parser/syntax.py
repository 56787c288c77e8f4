"""Syntax trees of expressions and queries, before names are resolved and types inferred.

All nodes are values. `at` is the offset in the text where a node begins; errors report it, and comparisons ignore it.
The trees of queries are SELECT and its clauses, and the relations in FROM.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from penstock.sql.data.types import DataType, IntervalResolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """The base class of expressions."""

    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The base class of queries. `kind` is Calcite's name for them."""

    kind: ClassVar[str]
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OrderItem:
    """An item of ORDER BY. `nulls`: FIRST or LAST, if specified."""

    expression: Expression
    is_descending: bool = False
    nulls: str | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a frame: a distance, or None for UNBOUNDED; `direction`: PRECEDING, FOLLOWING, or CURRENT ROW."""

    direction: str
    distance: Expression | None = None


@dataclass(frozen=True, slots=True)
class WindowSpecification:
    """A window of an OVER aggregate. `unit`: ROWS or RANGE, if a frame is given; `base`: a named window to extend.

    `exclusion`: the rows that EXCLUDE names; `disallows_partial`: DISALLOW PARTIAL.
    """

    base: str | None = None
    partition: tuple[Expression, ...] = ()
    order: tuple[OrderItem, ...] = ()
    unit: str | None = None
    lower: Bound | None = None
    upper: Bound | None = None
    exclusion: str | None = None
    disallows_partial: bool = False


# --- literals --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NullLiteral(Expression):
    """NULL."""


@dataclass(frozen=True, slots=True)
class BooleanLiteral(Expression):
    """TRUE, FALSE or UNKNOWN (None)."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class NumberLiteral(Expression):
    """A number, with its digits as written."""

    text: str


@dataclass(frozen=True, slots=True)
class TextLiteral(Expression):
    """A string."""

    value: str


@dataclass(frozen=True, slots=True)
class BinaryLiteral(Expression):
    """Bytes, as hexadecimal digits."""

    digits: str


@dataclass(frozen=True, slots=True)
class TemporalLiteral(Expression):
    """DATE, TIME, TIMESTAMP or TIMESTAMP_LTZ (`root`) and a string."""

    root: str
    text: str


@dataclass(frozen=True, slots=True)
class TypedLiteral(Expression):
    """An internal value (see `penstock.sql.data.arrow`) with its type. It has no SQL text."""

    value: object
    type: DataType


@dataclass(frozen=True, slots=True)
class IntervalQualifier:
    """The unit of an interval. `precision`: digits of its first field; `fraction`: digits of fractional seconds.

    `times`: the multiple of `resolution` that the unit stands for: a week is 7 days, a quarter 3 months.
    """

    resolution: IntervalResolution
    precision: int | None = None
    fraction: int | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class IntervalLiteral(Expression):
    """INTERVAL, a string and a unit."""

    text: str
    qualifier: IntervalQualifier
    is_negative: bool = False


# --- names and calls -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reference(Expression):
    """Names separated by dots: a column, optionally qualified by its table or followed by nested fields."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Star(Expression):
    """All columns, or all columns of one table."""

    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """An operator or a function, by its name in capitals (`+`, `AND`, `IS NOT NULL`, `UPPER`), with its operands.

    `path`: the function name as written, which may refer to a catalog function. `is_quoted`: it was in backticks.
    """

    name: str
    operands: tuple[Expression, ...] = ()
    path: tuple[str, ...] = ()
    is_distinct: bool = False
    #: ORDER BY inside the parentheses, or WITHIN GROUP after them
    order: tuple[OrderItem, ...] = ()
    #: WITHIN DISTINCT
    within_distinct: tuple[Expression, ...] = ()
    #: FILTER (WHERE …)
    condition: Expression | None = None
    #: RESPECT NULLS (True) or IGNORE NULLS (False)
    respects_nulls: bool | None = None
    #: keywords of the function's own syntax, such as `NULL ON EMPTY`
    options: tuple[str, ...] = ()
    #: RETURNING
    returns: DataType | None = None


@dataclass(frozen=True, slots=True)
class Over(Expression):
    """A call over a window, which is given inline or by name."""

    call: Expression
    window: WindowSpecification | str


@dataclass(frozen=True, slots=True)
class NamedArgument(Expression):
    """`name => value`."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class DefaultArgument(Expression):
    """DEFAULT."""


@dataclass(frozen=True, slots=True)
class LambdaFunction(Expression):
    """`(a, b) -> expression`."""

    parameters: tuple[str, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class Unit(Expression):
    """A unit of time, or another keyword that a function takes in place of a value."""

    word: str


@dataclass(frozen=True, slots=True)
class DescriptorArgument(Expression):
    """DESCRIPTOR(a, b): column names, each optionally with a type."""

    columns: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class ModelArgument(Expression):
    """MODEL name."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableArgument(Expression):
    """TABLE name or TABLE (query), with its partitioning and order."""

    query: Query
    partition: tuple[Expression, ...] = ()
    order: tuple[OrderItem, ...] = ()


# --- operators with a form of their own ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """CAST, or TRY_CAST, which returns NULL if the cast fails."""

    operand: Expression
    to: DataType
    is_try: bool = False


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """CASE, with or without an operand to compare."""

    operand: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@dataclass(frozen=True, slots=True)
class Between(Expression):
    """BETWEEN: tests whether a value lies between two others."""

    operand: Expression
    low: Expression
    high: Expression
    is_negated: bool = False
    is_symmetric: bool = False


@dataclass(frozen=True, slots=True)
class In(Expression):
    """IN: tests whether a list or the rows of a query contain a value."""

    operand: Expression
    among: tuple[Expression, ...] | Query
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(Expression):
    """Tests whether a string matches a pattern; `kind`: LIKE, ILIKE, SIMILAR TO or RLIKE."""

    operand: Expression
    pattern: Expression
    escape: Expression | None = None
    kind: str = "LIKE"
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Quantified(Expression):
    """A comparison with SOME (`= ANY` means the same) or ALL of a list or query."""

    operator: str
    operand: Expression
    quantifier: str
    among: tuple[Expression, ...] | Query


@dataclass(frozen=True, slots=True)
class Exists(Expression):
    """EXISTS: tests whether a query has rows; with `is_unique`, whether all its rows are distinct."""

    query: Query
    is_unique: bool = False


@dataclass(frozen=True, slots=True)
class Subquery(Expression):
    """A scalar subquery."""

    query: Query


@dataclass(frozen=True, slots=True)
class RowValue(Expression):
    """ROW(a, b), or (a, b). The `names` of the fields default to EXPR$0, EXPR$1 and so on, as in SQL."""

    items: tuple[Expression, ...]
    names: tuple[str, ...] = ()


def numbered_row(items: Iterable[Expression]) -> RowValue:
    """Return a Table API row, with fields f0, f1 and so on."""
    values = tuple(items)
    return RowValue(values, tuple(f"f{index}" for index in range(len(values))))


@dataclass(frozen=True, slots=True)
class Collection(Expression):
    """ARRAY[…], MULTISET[…] or MAP[key, value, …], or a collection of the rows of a query."""

    root: str
    items: tuple[Expression, ...] | Query


@dataclass(frozen=True, slots=True)
class Item(Expression):
    """`operand[index]`."""

    operand: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class FieldAccess(Expression):
    """`operand.name`."""

    operand: Expression
    name: str


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
    """A table or view by its path. `as_of`: FOR SYSTEM_TIME AS OF; `version`: VERSION AS OF."""

    path: tuple[str, ...]
    hints: tuple[Hint, ...] = ()
    as_of: Expression | None = None
    version: str | None = None


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
