"""Plans group aggregates, and DISTINCT, which is a group without aggregates."""

from __future__ import annotations

from functools import partial
from typing import Final, TypeAlias

from penstock.table.analyser.window_properties import is_of_windows
from penstock.table.plan.changes import ALL, INSERTS, Changes
from penstock.table.plan.logical import Aggregate, ChangelogNormalize, Distinct, Scan
from penstock.table.streaming.aggregates.accumulators import check_unbounded
from penstock.table.streaming.aggregates.group_aggregate_operator import GroupAggregateOperator
from penstock.table.streaming.planning.optimizations import Optimization
from penstock.table.streaming.planning.plan_windows import aggregate_changes, aggregate_stream
from penstock.table.streaming.planning.rule import Factory, Planning, Rule
from penstock.table.streaming.planning.streams import Stream, by_columns, name_columns
from penstock.table.streaming.rows.state_times import lasting

#: nodes whose keys identify their rows
_UNIQUE: Final = (Aggregate, Distinct, ChangelogNormalize, Scan)

AggregateNode: TypeAlias = Aggregate | Distinct


class AggregateRule(Rule[AggregateNode]):
    """GROUP BY, DISTINCT and window aggregates."""

    nodes = (Aggregate, Distinct)

    def changes(self, node: AggregateNode, planning: Planning) -> Changes:
        """See `Rule`."""
        if is_distinct_already(node, planning):
            return planning.changes(node.input)
        grouped = _grouped(node)
        if is_of_windows(grouped):
            return aggregate_changes(grouped, planning)
        if isinstance(node, Distinct):
            return INSERTS if planning.changes(node.input) == INSERTS else ALL
        return INSERTS | Changes.UPDATE if planning.changes(node.input) == INSERTS else ALL

    def asks_before(self, node: AggregateNode, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates, because aggregates retract the values of a row."""
        if is_distinct_already(node, planning):
            return wants_before
        return planning.updates(node.input)

    def stream(self, node: AggregateNode, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        if is_distinct_already(node, planning):
            return planning.stream(node.input, wants_before)
        grouped = _grouped(node)
        if is_of_windows(grouped):
            return aggregate_stream(grouped, planning, wants_before)
        inner = planning.stream(node.input, planning.changes(node.input) != INSERTS)
        return _groups(grouped, inner, planning, wants_before)


def _grouped(node: AggregateNode) -> Aggregate:
    """Return DISTINCT as a group by all columns."""
    if isinstance(node, Aggregate):
        return node
    keys = tuple(range(len(node.schema)))
    return Aggregate(schema=node.schema, input=node.input, keys=keys, calls=(), state_ttl_ms=node.state_ttl_ms)


def is_distinct_already(node: AggregateNode, planning: Planning) -> bool:
    """Return whether the node is a DISTINCT whose input is distinct already: groups, or a table with a key."""
    if not isinstance(node, Distinct) or not planning.options.allows(Optimization.DISTINCT_REMOVAL):
        return False
    rows = planning.extract_calc(node.input).input
    return isinstance(rows, _UNIQUE) and bool(planning.upsert_keys.of(node.input))


def _groups(node: Aggregate, inner: Stream, planning: Planning, wants_before: bool) -> Stream:
    retracts = planning.changes(node.input) != INSERTS
    for call in node.calls:
        check_unbounded(call, retracts)
    operator: Factory = partial(
        GroupAggregateOperator,
        node.keys,
        node.calls,
        node.input.schema.types,
        name_columns(node.schema),
        retracts,
        wants_before,
        planning.options.mini_batch,
        planning.session,
    )
    limit = None if node.keys else 1
    inputs = by_columns(inner, node.keys)
    operator = lasting(operator, planning.options.lives(node.state_ttl_ms))
    upstreams = planning.step("Group Aggregate", operator, inputs, is_stateful=True, parallelism_limit=limit)
    return Stream(upstreams, node.schema, planning.changes(node), wants_before)
