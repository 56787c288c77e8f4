"""The rules for group aggregates and table aggregates.

`AggregateRule` plans group aggregates, and DISTINCT, which is a group without aggregates. `TableAggregateRule` plans
table aggregates.
"""

from __future__ import annotations

from functools import partial
from typing import Final, TypeAlias

from penstock.sql.analyzer.select import is_of_windows
from penstock.sql.logical.nodes import (
    ALL,
    INSERTS,
    Aggregate,
    ChangelogNormalize,
    Changes,
    Distinct,
    Scan,
    TableAggregate,
)
from penstock.sql.stream.aggregates.accumulators import check_unbounded
from penstock.sql.stream.groups.columnar import ColumnGroupAggregateOperator, has_columns
from penstock.sql.stream.groups.columns import has_only_columns
from penstock.sql.stream.groups.indexed import IndexedGroupAggregateOperator
from penstock.sql.stream.groups.operators import GroupAggregateOperator, TableAggregateOperator
from penstock.sql.stream.planning.options import Optimization
from penstock.sql.stream.planning.rule import Factory, Planning, Rule, Stream, by_columns, name_columns
from penstock.sql.stream.rows.state_ttl import lasting
from penstock.sql.stream.windows.plan import aggregate_changes, aggregate_stream

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

    def advice(self, node: AggregateNode, planning: Planning, wants_before: bool) -> str | None:
        """Advise to buffer rows, which emits fewer changes."""
        is_grouped = not is_distinct_already(node, planning) and not is_of_windows(_grouped(node))
        return _MINI_BATCHES if is_grouped and planning.options.mini_batch is None else None


_MINI_BATCHES: Final = (
    "[ADVICE] You might want to enable mini-batches, with which a group emits one change for all its rows in a batch, "
    "by configuring ('table.exec.mini-batch.enabled' to 'true', 'table.exec.mini-batch.allow-latency' to a positive "
    "duration, 'table.exec.mini-batch.size' to a positive long value)."
)


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
    arguments = (
        node.keys,
        node.calls,
        node.input.schema.types,
        name_columns(node.schema),
        retracts,
        wants_before,
        planning.options.mini_batch,
    )
    operator: Factory
    ttl_ms = planning.options.lives(node.state_ttl_ms)
    keeps_columns = planning.options.allows(Optimization.COLUMN_GROUPS)
    key_types = [node.input.schema.types[key] for key in node.keys]
    if keeps_columns and not ttl_ms and has_only_columns(node.calls, key_types, retracts):
        operator = partial(IndexedGroupAggregateOperator, *arguments, labels=node.schema.names)
    elif keeps_columns and planning.options.is_in_memory and has_columns(node.calls):
        operator = partial(ColumnGroupAggregateOperator, *arguments)
    else:
        operator = partial(GroupAggregateOperator, *arguments, planning.session)
    limit = None if node.keys else 1
    inputs = by_columns(inner, node.keys)
    operator = lasting(operator, ttl_ms)
    upstreams = planning.step("Group Aggregate", operator, inputs, is_stateful=True, parallelism_limit=limit)
    return Stream(upstreams, node.schema, planning.changes(node), wants_before)


class TableAggregateRule(Rule[TableAggregate]):
    """Table aggregates, which return any number of rows for each group."""

    nodes = (TableAggregate,)

    def changes(self, node: TableAggregate, planning: Planning) -> Changes:
        """See `Rule`."""
        return INSERTS | Changes.DELETE

    def asks_before(self, node: TableAggregate, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates, because aggregates retract the values of a row."""
        return planning.updates(node.input)

    def stream(self, node: TableAggregate, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        retracts = planning.changes(node.input) != INSERTS
        check_unbounded(node.call, retracts)
        inner = planning.stream(node.input, retracts)
        operator: Factory = partial(
            TableAggregateOperator,
            node.keys,
            node.call,
            node.input.schema.types,
            name_columns(node.schema),
            retracts,
            planning.session,
        )
        limit = None if node.keys else 1
        inputs = by_columns(inner, node.keys)
        operator = lasting(operator, planning.options.lives(None))
        upstreams = planning.step("Group Table Aggregate", operator, inputs, is_stateful=True, parallelism_limit=limit)
        return Stream(upstreams, node.schema, self.changes(node, planning), False)
