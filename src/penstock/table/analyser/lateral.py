"""LATERAL queries: evaluated for each row of the preceding tables, whose columns they may use."""

from __future__ import annotations

from dataclasses import replace

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.calls import Calls
from penstock.table.analyser.literals import number
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import Part, RelationScope, visible_columns
from penstock.table.analyser.seams import Queries
from penstock.table.analyser.select import project
from penstock.table.analyser.subqueries import (
    TRUE,
    has_one_row,
    is_true,
    join_condition,
    settled,
    uncorrelated,
    uses_outer,
)
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import BooleanType
from penstock.table.plan.logical import Aggregate, Filter, Join, JoinType, Node, Project
from penstock.table.plan.row_schema import RowSchema
from penstock.table.sql import relations
from penstock.table.typed.nodes import Field, Typed


def lateral_query(
    left: RelationScope, relation: relations.DerivedTable, node: relations.Join, queries: Queries
) -> RelationScope:
    """Join each row of the left side with the rows of the query for it.

    Raises:
        ValidationError: for a RIGHT or FULL join.
        UnsupportedError: if the query cannot be decorrelated.
    """
    if node.join_type not in ("INNER", "CROSS", "LEFT"):
        raise ValidationError(f"{node.join_type} JOIN of LATERAL is not possible: the join is CROSS, INNER or LEFT")
    if node.using or node.is_natural:
        raise UnsupportedError("NATURAL and USING with LATERAL are not supported: write the condition after ON")
    calls, keeps, width = queries.calls, node.join_type == "LEFT", len(left.schema)
    query = queries.query(relation.query, left)
    names = relation.columns or query.schema.names
    if len(names) != len(query.schema):
        raise ValidationError(f"the list of names has {len(names)} columns, and the query {len(query.schema)}")
    # Do not rename by a projection: the query's own projection may use the left columns, and must be the last step.
    query = replace(query, schema=query.schema.renamed(names))
    plan = _joined(left.plan, query, keeps, TRUE, calls)
    part = Part(relation.alias, (), width, RowSchema(plan.schema.columns[width:]))
    visible = [*left.visible, *visible_columns(plan.schema, width)]
    scope = RelationScope([*left.parts, part], plan, visible, calls, left.outer)
    if node.condition is not None:
        condition = calls.implicit(ScalarAnalyser(scope, calls).typed(node.condition), BooleanType())
        if condition != TRUE and keeps:
            scope.plan = _joined(left.plan, query, keeps, condition, calls)
        elif condition != TRUE:
            scope.plan = Filter(schema=plan.schema, input=plan, condition=condition)
    return scope


def _joined(left: Node, query: Node, keeps: bool, on: Typed, calls: Calls) -> Node:
    """Join `left` with the query. `keeps`: whether to keep rows without a match.

    `on`: an additional condition over the columns of both.
    """
    selected: tuple[Typed, ...] | None = None
    names = query.schema.names
    if isinstance(query, Project) and any(map(uses_outer, query.expressions)):
        # Evaluate the selected expressions over the join, where the outer columns are available.
        selected, query = query.expressions, query.input
    inner = uncorrelated(query, calls)
    width = len(left.schema)
    is_one = bool(inner.conditions) and has_one_row(query)
    if is_one and not is_true(on):
        raise UnsupportedError(
            "LEFT JOIN LATERAL of an aggregate without groups takes ON TRUE: put the condition into the query around it"
        )
    join_type = JoinType.LEFT if keeps or is_one else JoinType.INNER
    joined = Join(
        schema=left.schema.joined(inner.plan.schema, right_nullable=join_type is JoinType.LEFT),
        left=left,
        right=inner.plan,
        join_type=join_type,
        condition=join_condition(inner, width, () if on == TRUE else (on,), calls),
    )
    columns: list[Typed] = list(joined.schema.fields()[:width])
    if selected is None:
        columns += [_column(joined, query, index, is_one, calls) for index in range(len(query.schema))]
    elif join_type is JoinType.LEFT:
        raise UnsupportedError(
            "a LATERAL query that selects what it works out of columns of the table before it cannot be joined by LEFT "
            "JOIN, nor have an aggregate without groups"
        )
    else:
        columns += [settled(expression, width) for expression in selected]
    return project(joined, columns, [*left.schema.names, *names])


def _column(joined: Join, query: Node, index: int, is_one: bool, calls: Calls) -> Typed:
    """Return a column of the query. An aggregate without groups has a row even without input, where COUNT is 0."""
    column = joined.schema.field(len(joined.left.schema) + index)
    if not is_one or query.schema[index].type.is_nullable:
        return column
    if not _is_count(query, index):
        raise UnsupportedError(
            f"column '{query.schema[index].name}' of a LATERAL query with an aggregate without groups must be the "
            "aggregate itself: work with its result in the query around it"
        )
    return calls.call("COALESCE", [column, calls.cast(number("0"), column.type)])


def _is_count(node: Node, index: int) -> bool:
    while isinstance(node, Project):
        column = node.expressions[index]
        if not isinstance(column, Field):
            return False
        node, index = node.input, column.index
    return isinstance(node, Aggregate) and node.calls[index - len(node.keys)].function == "COUNT"
