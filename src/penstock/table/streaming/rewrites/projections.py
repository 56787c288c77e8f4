"""Merges consecutive projections and removes ones without effect, so that equivalent plans become equal."""

from __future__ import annotations

from penstock.table.plan.inputs import with_inputs
from penstock.table.plan.logical import Node, Project
from penstock.table.plan.row_schema import RowSchema
from penstock.table.streaming.rewrites.calc import is_identity, may_be_repeated, over


def with_few_projections(node: Node) -> Node:
    """Reduce the projections of a plan. The one at the top stays, because it has the names of the result."""
    node = with_inputs(node, [_without_needless(with_few_projections(child)) for child in node.inputs()])
    if isinstance(node, Project) and isinstance(node.input, Project):
        inner = node.input
        if may_be_repeated(inner.expressions, node.expressions):
            expressions = tuple(over(expression, inner.expressions) for expression in node.expressions)
            return Project(schema=node.schema, input=inner.input, expressions=expressions)
    return node


def _without_needless(node: Node) -> Node:
    if not isinstance(node, Project) or not _same_columns(node.schema, node.input.schema):
        return node
    return node.input if is_identity(node.expressions, node.input.schema) else node


def _same_columns(schema: RowSchema, other: RowSchema) -> bool:
    """Return whether two schemas have the same columns, apart from their names."""
    return [(column.type, column.time) for column in schema] == [(column.type, column.time) for column in other]
