"""LATERAL of a query: its rows for each row of the tables before it, as a join with the query on its own."""

from __future__ import annotations

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import Part, RelationScope
from penstock.table.analyser.seams import Queries
from penstock.table.analyser.select import project
from penstock.table.analyser.subqueries import join_condition, uncorrelated, uses_outer_columns
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import BooleanType
from penstock.table.plan.logical import Aggregate, Join, JoinType, Node
from penstock.table.plan.row_schema import RowSchema
from penstock.table.sql import relations
from penstock.table.typed.nodes import Typed


def lateral_query(
    left: RelationScope, relation: relations.DerivedTable, node: relations.Join, queries: Queries
) -> RelationScope:
    """Each row of the left side with the rows that the query has for it.

    Raises:
        ValidationError: for a RIGHT or FULL join.
        UnsupportedError: if the query cannot stand without the left side.
    """
    if node.join_type not in ("INNER", "CROSS", "LEFT"):
        raise ValidationError(f"{node.join_type} JOIN of LATERAL is not possible: the join is CROSS, INNER or LEFT")
    if node.using or node.is_natural:
        raise UnsupportedError("NATURAL and USING with LATERAL are not supported: write the condition after ON")
    calls = queries.calls
    query = queries.query(relation.query, left)
    _check_groups(query)
    found = uncorrelated(query, calls)
    names = relation.columns or query.schema.names
    if len(names) != len(query.schema):
        raise ValidationError(f"the list of names has {len(names)} columns, and the query {len(query.schema)}")
    join_type = JoinType.LEFT if node.join_type == "LEFT" else JoinType.INNER
    schema = left.schema.joined(found.plan.schema, right_nullable=join_type is JoinType.LEFT)
    width = len(left.schema)
    seen = RowSchema(schema.columns[: width + len(query.schema)]).renamed([*left.schema.names, *names])
    part = Part(relation.alias, (), width, RowSchema(seen.columns[width:]))
    # While the condition is read, the columns are those that it may name.
    scope = RelationScope([*left.parts, part], left.plan, left.merged, left.hidden, left.outer)
    conditions: list[Typed] = []
    scope.plan = Join(
        schema=seen, left=left.plan, right=query, join_type=join_type, condition=join_condition(found, width, (), calls)
    )
    if node.condition is not None:
        conditions.append(calls.implicit(ScalarAnalyser(scope, calls).typed(node.condition), BooleanType()))
    condition = join_condition(found, width, conditions, calls)
    joined = Join(schema=schema, left=left.plan, right=found.plan, join_type=join_type, condition=condition)
    scope.plan = project(joined, schema.fields()[: len(seen)], seen.names)
    return scope


def _check_groups(plan: Node) -> None:
    """A group of all rows is there even where no row is, and a join has no row for it."""
    if isinstance(plan, Aggregate) and not plan.keys and uses_outer_columns(plan):
        raise UnsupportedError(
            "LATERAL of an aggregate without GROUP BY is not supported: write it as a query in an expression"
        )
    for inner in plan.inputs():
        _check_groups(inner)
