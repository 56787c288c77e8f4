"""LATERAL of a query: it is worked out for each row of what stands before it, whose columns it may use."""

from __future__ import annotations

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.calls import Calls
from penstock.table.analyser.literals import number
from penstock.table.analyser.select import project
from penstock.table.analyser.subqueries import has_one_row, join_condition, settled, uncorrelated, uses_outer
from penstock.table.plan.logical import Aggregate, Join, JoinType, Node, Project
from penstock.table.typed.nodes import Field, Typed


def lateral(left: Node, query: Node, keeps: bool, calls: Calls) -> Node:
    """The columns of `left`, then those of the query. `keeps`: also rows for which the query has none."""
    selected: tuple[Typed, ...] | None = None
    names = query.schema.names
    if isinstance(query, Project) and any(map(uses_outer, query.expressions)):
        # What it selects is worked out over the join, where the columns from outside are.
        selected, query = query.expressions, query.input
    found = uncorrelated(query, calls)
    width = len(left.schema)
    is_one = bool(found.conditions) and has_one_row(query)
    join_type = JoinType.LEFT if keeps or is_one else JoinType.INNER
    joined = Join(
        schema=left.schema.joined(found.plan.schema, right_nullable=join_type is JoinType.LEFT),
        left=left,
        right=found.plan,
        join_type=join_type,
        condition=join_condition(found, width, (), calls),
    )
    columns: list[Typed] = list(joined.schema.fields()[:width])
    if selected is None:
        columns += [_column(joined, query, place, is_one, calls) for place in range(len(query.schema))]
    elif join_type is JoinType.LEFT:
        raise UnsupportedError(
            "a LATERAL query that selects what it works out of columns of the table before it cannot be joined by LEFT "
            "JOIN, nor have an aggregate without groups"
        )
    else:
        columns += [settled(one, width) for one in selected]
    return project(joined, columns, [*left.schema.names, *names])


def _column(joined: Join, query: Node, place: int, is_one: bool, calls: Calls) -> Typed:
    """A column of the query. An aggregate without groups has a row for no rows, too, in which COUNT is 0."""
    column = joined.schema.field(len(joined.left.schema) + place)
    if not is_one or query.schema[place].type.is_nullable:
        return column
    if not _is_count(query, place):
        raise UnsupportedError(
            f"column '{query.schema[place].name}' of a LATERAL query with an aggregate without groups must be the "
            "aggregate itself: work with its result in the query around it"
        )
    return calls.call("COALESCE", [column, calls.cast(number("0"), column.type)])


def _is_count(node: Node, place: int) -> bool:
    while isinstance(node, Project):
        column = node.expressions[place]
        if not isinstance(column, Field):
            return False
        node, place = node.input, column.index
    return isinstance(node, Aggregate) and node.calls[place - len(node.keys)].function == "COUNT"
