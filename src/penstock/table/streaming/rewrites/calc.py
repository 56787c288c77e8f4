"""Combines consecutive filters and projections into one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.table.analyser.calls import Calls
from penstock.table.evaluation.stability import is_stable
from penstock.table.plan.logical import Filter, Node, Project
from penstock.table.plan.row_schema import RowSchema
from penstock.table.typed.nodes import Field, FunctionCall, Typed, transformed


@dataclass(frozen=True, slots=True)
class Calc:
    """The combined filters and projections over `input`. `expressions`: None if its columns stay unchanged."""

    input: Node
    condition: Typed | None
    expressions: tuple[Typed, ...] | None


def extract_calc(node: Node, calls: Calls) -> Calc:
    """Combine the filters and projections from a node down, as far as possible."""
    condition: Typed | None = None
    expressions: tuple[Typed, ...] | None = None
    while True:
        if isinstance(node, Filter):
            part = node.condition
            condition = part if condition is None else calls.call("AND", [part, condition])
            node = node.input
        elif isinstance(node, Project):
            inner = node.expressions
            used = [expression for expression in (condition, *(expressions or ())) if expression is not None]
            if used and not may_be_repeated(inner, used):
                return Calc(node, condition, expressions)
            condition = None if condition is None else over(condition, inner)
            expressions = inner if expressions is None else tuple(over(expression, inner) for expression in expressions)
            node = node.input
        else:
            return Calc(node, condition, expressions)


def over(expression: Typed, inner: tuple[Typed, ...]) -> Typed:
    """Rewrite an expression over a projection's columns as one over the projection's input."""
    return transformed(expression, lambda node: inner[node.index] if isinstance(node, Field) else node)


def may_be_repeated(inner: tuple[Typed, ...], used: Sequence[Typed]) -> bool:
    """Return whether a projection's calls can be inlined: each is used at most once and gives the same result there."""
    for index, expression in enumerate(inner):
        if not isinstance(expression, FunctionCall):
            continue
        uses = sum(isinstance(node, Field) and node.index == index for part in used for node in part.walk())
        if uses > 1 or (uses and not is_stable(expression)):
            return False
    return True


def is_identity(expressions: Sequence[Typed], schema: RowSchema) -> bool:
    """Return whether the expressions are all the columns, unchanged."""
    fields = [expression.index for expression in expressions if isinstance(expression, Field)]
    return len(expressions) == len(schema) and fields == list(range(len(schema)))
