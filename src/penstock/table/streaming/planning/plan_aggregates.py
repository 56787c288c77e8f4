"""Aggregates of groups, and DISTINCT, which is a group without aggregates."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from penstock.base.errors import UnsupportedError
from penstock.table.plan.changes import ALL, INSERTS, Changes
from penstock.table.plan.logical import Aggregate, Distinct
from penstock.table.streaming.aggregates.accumulators import check_unbounded
from penstock.table.streaming.aggregates.group_aggregate_operator import GroupAggregateOperator
from penstock.table.streaming.planning import plan_windows
from penstock.table.streaming.planning.rule import Planning, Rule
from penstock.table.streaming.planning.streams import Stream, by_columns, names_of

AggregateNode: TypeAlias = Aggregate | Distinct


class AggregateRule(Rule[AggregateNode]):
    """GROUP BY and DISTINCT, and aggregates of windows."""

    nodes = (Aggregate, Distinct)

    def changes(self, node: AggregateNode, planning: Planning) -> Changes:
        """See `Rule`."""
        if isinstance(node, Distinct):
            return INSERTS if planning.changes(node.input) == INSERTS else ALL
        if plan_windows.is_of_windows(node):
            return INSERTS
        return INSERTS | Changes.UPDATE if planning.changes(node.input) == INSERTS else ALL

    def asks_before(self, node: AggregateNode, planning: Planning, wants_before: bool) -> bool:
        """What was added is taken back by its values."""
        return planning.updates(node.input)

    def stream(self, node: AggregateNode, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        retracts = planning.changes(node.input) != INSERTS
        inner = planning.stream(node.input, retracts)
        if isinstance(node, Distinct):
            keys = tuple(range(len(node.schema)))
            return _groups(
                Aggregate(schema=node.schema, input=node.input, keys=keys, calls=()), inner, planning, wants_before
            )
        if not plan_windows.is_of_windows(node):
            return _groups(node, inner, planning, wants_before)
        operator, groups = plan_windows.window_aggregate(node, names_of(node.schema), retracts, planning.session)
        limit = None if groups else 1
        inputs = by_columns(inner, groups)
        upstreams = planning.step("Window Aggregate", operator, inputs, is_stateful=True, parallelism_limit=limit)
        return Stream(upstreams, node.schema, INSERTS, False)


def _groups(node: Aggregate, inner: Stream, planning: Planning, wants_before: bool) -> Stream:
    if node.sets:
        raise UnsupportedError("GROUPING SETS, ROLLUP and CUBE are not supported in streams yet")
    retracts = planning.changes(node.input) != INSERTS
    for call in node.calls:
        check_unbounded(call, retracts)
    operator = partial(
        GroupAggregateOperator,
        node.keys,
        node.calls,
        node.input.schema.types,
        names_of(node.schema),
        retracts,
        wants_before,
        planning.session,
    )
    limit = None if node.keys else 1
    inputs = by_columns(inner, node.keys)
    upstreams = planning.step("Group Aggregate", operator, inputs, is_stateful=True, parallelism_limit=limit)
    return Stream(upstreams, node.schema, planning.changes(node), wants_before)
