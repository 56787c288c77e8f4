"""Expressions as they are written. Names are not resolved, and nothing has a type yet.

All nodes are values; `at` is the offset in the text where one begins, for errors, and does not count in comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from penstock.table.data.logical_types import DataType, IntervalResolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """The base of all."""

    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The base of all; `kind` as Calcite calls them."""

    kind: ClassVar[str]
    at: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OrderItem:
    """What is ordered by. `nulls`: FIRST or LAST, where it is said."""

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
    """What an aggregate goes over. `unit`: ROWS or RANGE, where a frame is given; `base`: a window that it extends.

    `exclusion`: what EXCLUDE says; `disallows_partial`: DISALLOW PARTIAL.
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
    """A number, as its digits are written."""

    text: str


@dataclass(frozen=True, slots=True)
class TextLiteral(Expression):
    """A text."""

    value: str


@dataclass(frozen=True, slots=True)
class BinaryLiteral(Expression):
    """Bytes, in hexadecimal digits."""

    digits: str


@dataclass(frozen=True, slots=True)
class TemporalLiteral(Expression):
    """DATE, TIME, TIMESTAMP or TIMESTAMP_LTZ (`root`) and a text."""

    root: str
    text: str


@dataclass(frozen=True, slots=True)
class TypedLiteral(Expression):
    """A value of a program, as `penstock.table.data.values` holds it, and its type. SQL has no text for it."""

    value: object
    type: DataType


@dataclass(frozen=True, slots=True)
class IntervalQualifier:
    """The unit of an interval. `precision`: digits of its first field; `fraction`: of fractions of a second.

    `times`: how many of the unit one is, where it has none of its own: a week is 7 days, a quarter 3 months.
    """

    resolution: IntervalResolution
    precision: int | None = None
    fraction: int | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class IntervalLiteral(Expression):
    """INTERVAL, a text and a unit."""

    text: str
    qualifier: IntervalQualifier
    is_negative: bool = False


# --- names and calls -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reference(Expression):
    """Names with dots in between: a column, perhaps with its table, perhaps fields in it."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Star(Expression):
    """All columns, or those of a table."""

    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """An operator or a function, by its name in capitals (`+`, `AND`, `IS NOT NULL`, `UPPER`), and its operands.

    `path`: how a function is written, which may be that of a function of a catalog. `is_quoted`: it was in backticks.
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
    #: words that belong to the call's own syntax, such as `NULL ON EMPTY`
    options: tuple[str, ...] = ()
    #: RETURNING
    returns: DataType | None = None


@dataclass(frozen=True, slots=True)
class Over(Expression):
    """A call over a window, which may only be named."""

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
    """A unit of time, or another word that a function takes in place of a value."""

    word: str


@dataclass(frozen=True, slots=True)
class DescriptorArgument(Expression):
    """DESCRIPTOR(a, b): names of columns; each may have a type."""

    columns: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class ModelArgument(Expression):
    """MODEL name."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableArgument(Expression):
    """TABLE name or TABLE (query), how it is partitioned and ordered."""

    query: Query
    partition: tuple[Expression, ...] = ()
    order: tuple[OrderItem, ...] = ()


# --- operators with a form of their own ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """CAST, or TRY_CAST, which gives NULL for what cannot be cast."""

    operand: Expression
    to: DataType
    is_try: bool = False


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """CASE, with an operand that is compared or without."""

    operand: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@dataclass(frozen=True, slots=True)
class Between(Expression):
    """Whether a value lies between two others."""

    operand: Expression
    low: Expression
    high: Expression
    is_negated: bool = False
    is_symmetric: bool = False


@dataclass(frozen=True, slots=True)
class In(Expression):
    """Whether a value is one of a list, or a row of a query."""

    operand: Expression
    among: tuple[Expression, ...] | Query
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Like(Expression):
    """Whether a text is like a pattern; `kind`: LIKE, ILIKE, SIMILAR TO or RLIKE."""

    operand: Expression
    pattern: Expression
    escape: Expression | None = None
    kind: str = "LIKE"
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Quantified(Expression):
    """A comparison with SOME (`=  ANY` is the same) or ALL of a list or query."""

    operator: str
    operand: Expression
    quantifier: str
    among: tuple[Expression, ...] | Query


@dataclass(frozen=True, slots=True)
class Exists(Expression):
    """Whether a query has rows; with `is_unique`, whether it has none twice."""

    query: Query
    is_unique: bool = False


@dataclass(frozen=True, slots=True)
class Subquery(Expression):
    """The value of a query."""

    query: Query


@dataclass(frozen=True, slots=True)
class RowValue(Expression):
    """ROW(a, b), or (a, b). `names` of the fields default to EXPR$0, EXPR$1 and so on, as in SQL."""

    items: tuple[Expression, ...]
    names: tuple[str, ...] = ()


def numbered_row(items: Iterable[Expression]) -> RowValue:
    """A row of the Table API, whose fields are f0, f1 and so on."""
    found = tuple(items)
    return RowValue(found, tuple(f"f{place}" for place in range(len(found))))


@dataclass(frozen=True, slots=True)
class Collection(Expression):
    """ARRAY[…], MULTISET[…] or MAP[key, value, …]; or of the rows of a query."""

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
