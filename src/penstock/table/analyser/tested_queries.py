"""IN, EXISTS and comparisons with SOME or ALL of queries, nested in other expressions.

`x IN (query)` asks how many rows of the query equal x. If x or the rows may be NULL, it also asks whether there are
rows, and rows with NULL: then IN is neither true nor false. `x > SOME (query)` compares with the least value of the
query, and `x > ALL (query)` is the negation of `x <= SOME (query)`. Each question is a scalar query, and so a join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.calls import Calls
from penstock.table.analyser.subqueries import FALSE, TRUE, OuterField, Uncorrelated, uncorrelated, uses_outer
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import BooleanType, IntType
from penstock.table.functions.signatures import BIGINT
from penstock.table.plan.logical import Aggregate, AggregateCall, Filter, Join, JoinType, Node, Project
from penstock.table.plan.row_counts import least_rows, most_rows
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.sql import syntax
from penstock.table.typed.nodes import Constant, Typed

_COUNT: Final = BIGINT.not_null()
_INT: Final = IntType(False)
_UNKNOWN: Final = Constant(BooleanType(), None)
#: the negation of each operator
_DENIED: Final = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
#: the values of a query to compare with: if a comparison holds for any value, it holds for one of these
_EXTREMES: Final = {">": ("MIN",), ">=": ("MIN",), "<": ("MAX",), "<=": ("MAX",), "<>": ("MIN", "MAX")}
#: the rows of a query: none at all, some without NULL, some with NULL
_NONE, _KNOWN, _SOME_NULL = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Test:
    """IN or EXISTS of a query, or a comparison with SOME of its rows.

    Attributes:
        query: the query.
        is_negated: whether the test is negated.
        operand: the value to compare with the column of the query; None for EXISTS.
        operator: the comparison, with the operand on the left; `=` for IN.
    """

    query: syntax.Query
    is_negated: bool
    operand: syntax.Expression | None = None
    operator: str = "="


def find_test(node: syntax.Expression) -> Test | None:
    """Return the test that an expression represents, or None."""
    is_negated = False
    while isinstance(node, syntax.Call) and node.name == "NOT":
        node, is_negated = node.operands[0], not is_negated
    if isinstance(node, syntax.Quantified) and isinstance(node.among, syntax.Query):
        operator = "<>" if node.operator == "!=" else node.operator
        if node.quantifier == "ALL":
            return Test(node.among, not is_negated, node.operand, _DENIED[operator])
        return Test(node.among, is_negated, node.operand, operator)
    if isinstance(node, syntax.In) and isinstance(node.among, syntax.Query):
        return Test(node.among, is_negated != node.is_negated, node.operand)
    if isinstance(node, syntax.Exists) and not node.is_unique:
        return Test(node.query, is_negated)
    return None


def analyse_test(
    test: Test, operand: tuple[Typed, Typed] | None, query: Node, ask: Callable[[Uncorrelated], Typed], calls: Calls
) -> Typed:
    """Return the result of a test for a row.

    `operand`: the compared value, over the enclosing columns and as the query sees it. `ask`: returns the value of a
    scalar query.
    """
    if operand is None:
        known = has_rows(query)
        if known is not None:
            return Constant(FALSE.type, known != test.is_negated)
        answer = calls.call(">", [_known(ask(_rows(tested_rows(query), calls)), calls), _number(0)])
    else:
        answer = _some(test.operator, *operand, query, ask, calls)
    return calls.call("NOT", [answer]) if test.is_negated else answer


def has_rows(query: Node) -> bool | None:
    """Return whether a query has rows; None if this depends on its tables."""
    if least_rows(query):
        return True
    return False if most_rows(query) == 0 else None


def tested_rows(query: Node) -> Node:
    """Simplify a query for EXISTS: drop selected columns and LEFT joins that use the enclosing query."""
    while True:
        if isinstance(query, Project) and any(map(uses_outer, query.expressions)):
            query = query.input
        elif (left := _kept_side(query)) is not None:
            query = left
        else:
            return query


def _kept_side(query: Node) -> Node | None:
    """Return the left side of a correlated LEFT join, in which each left row occurs at least once."""
    while isinstance(query, Project):
        query = query.input
    is_left = isinstance(query, Join) and query.join_type is JoinType.LEFT and uses_outer(query.condition)
    return query.left if is_left and isinstance(query, Join) else None


def _some(
    operator: str, operand: Typed, inside: Typed, query: Node, ask: Callable[[Uncorrelated], Typed], calls: Calls
) -> Typed:
    """Return whether a comparison holds for one of the rows."""
    name = "IN" if operator == "=" else operator
    if len(query.schema) != 1:
        raise ValidationError(f"{name} compares 1 value with {len(query.schema)} columns")
    if any(isinstance(node, OuterField) and node.index >= 0 for node in operand.walk()):
        raise UnsupportedError(f"{name} of a query that compares a column of a query further out is not supported here")
    column = query.schema.field(0)
    if operator == "=":
        matches = Filter(schema=query.schema, input=query, condition=calls.call("=", [column, inside]))
        is_there = calls.call(">", [_known(ask(_rows(matches, calls)), calls), _number(0)])
        if not operand.type.is_nullable and not column.type.is_nullable:
            return is_there
    else:
        values = [ask(_extreme(function, query, calls)) for function in _EXTREMES[operator]]
        is_there = calls.together("OR", [calls.call(operator, [operand, value]) for value in values])
    rows = _known(ask(_kind_of_rows(query, calls)), calls)
    is_unknown = calls.call("=", [rows, Constant(_INT, _SOME_NULL)])
    if operand.type.is_nullable:
        is_unknown = calls.call("OR", [calls.call("IS NULL", [operand]), is_unknown])
    is_empty = calls.call("=", [rows, Constant(_INT, _NONE)])
    return calls.call("CASE", [is_there, TRUE, is_empty, FALSE, is_unknown, _UNKNOWN, FALSE])


def _extreme(function: str, query: Node, calls: Calls) -> Uncorrelated:
    """Return the least or the greatest value of a query; NULL without rows."""
    column = query.schema.field(0)
    return uncorrelated(_aggregated(query, AggregateCall(function, (column,), column.type.nullable())), calls)


def _known(count: Typed, calls: Calls) -> Typed:
    """Replace a missing count by 0, because a stream without rows yields no count."""
    return calls.call("COALESCE", [count, Constant(count.type.not_null(), 0)])


def _number(value: int) -> Constant:
    return Constant(_COUNT, value)


def _aggregated(query: Node, *calls: AggregateCall) -> Aggregate:
    """Return the aggregates of all rows of a query."""
    schema = RowSchema(tuple(PlanColumn(f"$agg{index}", call.type) for index, call in enumerate(calls)))
    return Aggregate(schema=schema, input=query, keys=(), calls=calls)


def _rows(query: Node, calls: Calls) -> Uncorrelated:
    """Count the rows of a query."""
    return uncorrelated(_aggregated(query, AggregateCall("COUNT", (), _COUNT)), calls)


def _kind_of_rows(query: Node, calls: Calls) -> Uncorrelated:
    """Return whether a query of one column has rows, and whether NULL is among them."""
    counts = _aggregated(
        query, AggregateCall("COUNT", (), _COUNT), AggregateCall("COUNT", (query.schema.field(0),), _COUNT)
    )
    every, known = counts.schema.fields()
    is_empty, has_null = calls.call("=", [every, _number(0)]), calls.call("<", [known, every])
    kinds = [is_empty, Constant(_INT, _NONE), has_null, Constant(_INT, _SOME_NULL), Constant(_INT, _KNOWN)]
    kind = calls.call("CASE", kinds)
    schema = RowSchema((PlanColumn("$kind", kind.type),))
    return uncorrelated(Project(schema=schema, input=counts, expressions=(kind,)), calls)
