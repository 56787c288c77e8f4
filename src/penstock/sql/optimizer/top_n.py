"""Turns filters that bound the ROW_NUMBER of rows into `Rank`, a top-N that keeps no other rows.

A number that is never read is not computed. ORDER BY without LIMIT has no meaning within a query and is removed there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.subqueries import FALSE
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import IntegralType
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import Filter, Node, Over, Project, Rank, RowSchema
from penstock.sql.logical.properties import with_inputs
from penstock.sql.optimizer.pruning import all_columns, collect_columns, columns_of_calls
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, conjuncts

_RANKS: Final = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def with_ranks(plan: Node, calls: Calls) -> Node:
    """Rewrite a plan with its top-Ns. Unchanged parts stay the same objects."""
    return _Rewriter(calls).node(plan, all_columns(plan), True)


@dataclass(frozen=True, slots=True)
class _Range:
    """The row numbers from `start` to `end`, or up to the value of an input column."""

    start: int = 1
    end: int | None = None
    column: int | None = None


class _Rewriter:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def node(self, node: Node, used: frozenset[int], is_result: bool = False) -> Node:
        """Rewrite a part of a plan with only `used` columns read.

        `is_result`: whether its order is the result's order.
        """
        match node:
            case logical.Write():
                return with_inputs(node, [self.node(node.input, all_columns(node.input), is_result)])
            case Project():
                read = collect_columns(node.expressions[index] for index in used)
                return with_inputs(node, [self.node(node.input, read, is_result)])
            case Filter():
                ranked = self._rank(node, used)
                return ranked or with_inputs(node, [self.node(node.input, used | collect_columns([node.condition]))])
            case logical.Aggregate():
                return with_inputs(node, [self.node(node.input, frozenset(node.keys) | columns_of_calls(node.calls))])
            case logical.Sort(fetch=None, offset=0) if not is_result:
                return self.node(node.input, used)
            case _:
                return with_inputs(node, [self.node(child, all_columns(child)) for child in node.inputs()])

    # --- ranks --------------------------------------------------------------------------------------------------------

    def _rank(self, node: Filter, used: frozenset[int]) -> Node | None:
        """Return the top-N that a filter makes of the row numbers below it, or None."""
        over = _over_below(node)
        if over is None:
            return None
        path: list[Project | Filter] = []
        bounds: list[_Range] = []
        below: Node = node
        while isinstance(below, Project | Filter):
            if isinstance(below, Project):
                path.append(below)
            else:
                parts = [(part, _bound(part, below.input, over)) for part in conjuncts(below.condition)]
                bounds += [bound for _, bound in parts if bound is not None]
                rest = [part for part, bound in parts if bound is None]
                path += [replace(below, condition=self._conjoin(rest))] if rest else []
            below = below.input
        if all(bound.end is None and bound.column is None for bound in bounds):
            return None
        for step in path:
            used = (
                collect_columns(step.expressions[i] for i in used)
                if isinstance(step, Project)
                else used | collect_columns([step.condition])
            )
        ranked = self._ranked(over, _intersect_ranges(bounds), len(over.input.schema) in used)
        for step in reversed(path):
            ranked = replace(step, input=ranked)
        return ranked

    def _conjoin(self, parts: list[Typed]) -> Typed:
        return reduce(lambda condition, other: self._calls.call("AND", [condition, other]), parts)

    def _ranked(self, over: Over, numbers: _Range, is_read: bool) -> Node:
        function = over.calls[0].function
        if function != "ROW_NUMBER":
            raise ValidationError(f"{function}() on streaming table is not supported currently")
        start, end = numbers.start, numbers.end
        if end is not None and end < 1:
            raise ValidationError(f"Rank end can't smaller than zero. The rank end is {end}")
        if end is not None and start > end:
            # No row has such a number: conditions contradict each other, perhaps those of a join with its input's.
            ranked = self._ranked(over, replace(numbers, start=1), is_read)
            return Filter(schema=ranked.schema, input=ranked, condition=FALSE)
        inner = self.node(over.input, all_columns(over.input))
        is_known = numbers.column is None and start == end
        shows = is_read and not is_known
        schema = over.schema if shows else RowSchema(over.schema.columns[: len(inner.schema)])
        rank = Rank(
            schema=schema,
            input=inner,
            partition=over.partition,
            order=over.order,
            start=start,
            end=end,
            end_column=numbers.column,
            shows_number=shows,
        )
        if shows:
            return rank
        number = Constant(over.calls[0].type, start)
        return Project(schema=over.schema, input=rank, expressions=(*schema.fields(), number))


def _over_below(node: Node) -> Over | None:
    """Return the node that computes row numbers below filters and projections, or None."""
    while isinstance(node, Project | Filter):
        node = node.input
    is_number = isinstance(node, Over) and len(node.calls) == 1 and node.calls[0].function in _RANKS
    return node if is_number else None  # type: ignore[return-value]


def _origin(expression: Typed, node: Node) -> Typed:
    """Trace an expression over `node` through projections and filters to a column or a constant."""
    while isinstance(expression, FunctionCall) and expression.function == "CAST" and _is_whole(expression):
        expression = expression.operands[0]
    if isinstance(node, Filter):
        return _origin(expression, node.input)
    if isinstance(expression, Field) and isinstance(node, Project):
        return _origin(node.expressions[expression.index], node.input)
    return expression


def _is_whole(cast: FunctionCall) -> bool:
    return isinstance(cast.type, IntegralType) and isinstance(cast.operands[0].type, IntegralType)


def _bound(part: Typed, below: Node, over: Over) -> _Range | None:
    """Return the row numbers that a condition admits, or None if it is not just a bound."""
    if not isinstance(part, FunctionCall) or part.function not in _TURNED:
        return None
    number = len(over.input.schema)
    left, right = (_origin(operand, below) for operand in part.operands)
    relation = part.function
    if not (isinstance(left, Field) and left.index == number):
        left, right, relation = right, left, _TURNED[relation]
    if not (isinstance(left, Field) and left.index == number):
        return None
    if isinstance(right, Constant) and isinstance(right.value, int) and isinstance(right.type, IntegralType):
        value = right.value
        start = {">": value + 1, ">=": value, "=": value}.get(relation, 1)
        return _Range(max(start, 1), {"<": value - 1, "<=": value, "=": value}.get(relation))
    if isinstance(right, Field) and right.index != number and relation == "<=":
        return _Range(column=right.index)
    return None


def _intersect_ranges(bounds: list[_Range]) -> _Range:
    start = max(bound.start for bound in bounds)
    ends = [bound.end for bound in bounds if bound.end is not None]
    columns = {bound.column for bound in bounds if bound.column is not None}
    if len(columns) > 1 or (columns and (ends or start > 1)):
        raise ValidationError("the rank range of a top-N can be constants or one column, not both")
    return _Range(start, min(ends, default=None), next(iter(columns), None))
