"""Plans table aggregates of groups."""

from __future__ import annotations

from functools import partial

from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.logical import TableAggregate
from penstock.table.streaming.aggregates.accumulators import check_unbounded
from penstock.table.streaming.aggregates.table_aggregate_operator import TableAggregateOperator
from penstock.table.streaming.planning.rule import Factory, Planning, Rule
from penstock.table.streaming.planning.streams import Stream, by_columns, name_columns
from penstock.table.streaming.rows.state_times import lasting


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
