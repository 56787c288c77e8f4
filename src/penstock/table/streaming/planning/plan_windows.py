"""Window tables, and aggregates of their windows: which operators they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.base.errors import UnsupportedError
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import LocalZonedTimestampType
from penstock.table.plan import logical
from penstock.table.plan.changes import Changes
from penstock.table.plan.row_schema import TimeAttribute
from penstock.table.streaming.aggregates.accumulators import check_windowed
from penstock.table.streaming.planning.rule import Factory, Planning, Rule
from penstock.table.streaming.planning.streams import Stream, names_of
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.windows.window_aggregate_operator import WindowAggregateOperator
from penstock.table.streaming.windows.window_table_operator import WindowTableOperator
from penstock.table.typed.nodes import Field

#: how many columns a window table has after those of its input: start, end and time
EDGES = 3


def window_of(node: logical.Node, column: int) -> tuple[logical.WindowTable, int] | None:
    """The window table whose start (0), end (1) or time (2) a column of a node is."""
    while True:
        if isinstance(node, logical.Project):
            expression = node.expressions[column]
            if not isinstance(expression, Field):
                return None
            node, column = node.input, expression.index
        elif isinstance(node, logical.Filter):
            node = node.input
        elif isinstance(node, logical.WindowTable):
            edge = column - (len(node.schema) - EDGES)
            return (node, edge) if edge >= 0 else window_of(node.input, column)
        elif isinstance(node, logical.Aggregate) and column < len(node.keys) and is_of_windows(node):
            column = node.keys[column]
            node = node.input
        else:
            return None


def edges_of(node: logical.Aggregate) -> dict[int, int]:
    """Which keys are edges of windows: 0 for the start, 1 for the end, 2 for the time; by the place of the key."""
    found = {key: window_of(node.input, key) for key in node.keys}
    return {key: one[1] for key, one in found.items() if one is not None}


def is_of_windows(node: logical.Aggregate) -> bool:
    """Whether it groups by both ends of a window."""
    return {0, 1} <= set(edges_of(node).values()) and not node.sets


def _window_table(node: logical.WindowTable, session: StreamSession) -> Factory:
    """The operator of a window table."""
    column = node.input.schema[node.time]
    if column.time is None:
        raise ValidationError(
            f"The window function requires the timecol is a time attribute type, but is {column.type}."
        )
    if column.time is TimeAttribute.PROCTIME:
        raise UnsupportedError("windows of processing time are not supported in streams yet")
    if node.kind == "SESSION":
        raise UnsupportedError("SESSION windows are not supported in streams yet")
    return partial(
        WindowTableOperator, node.kind, node.time, column.type, node.sizes, node.offset, names_of(node.schema), session
    )


def window_aggregate(
    node: logical.Aggregate, names: Sequence[str], retracts: bool, session: StreamSession
) -> tuple[Factory, list[int]]:
    """The operator of an aggregate of windows, and the columns by which its rows are partitioned."""
    edges = edges_of(node)
    places = {edge: key for key, edge in edges.items()}
    groups = [key for key in node.keys if edges.get(key) not in (0, 1)]
    found = window_of(node.input, places[0])
    assert found is not None  # `is_of_windows` has seen it
    window = found[0]
    for call in node.calls:
        check_windowed(call, window.kind, retracts)
    is_moment = isinstance(window.input.schema[window.time].type, LocalZonedTimestampType)
    operator = partial(
        WindowAggregateOperator,
        node.keys,
        places[0],
        places[1],
        is_moment,
        node.calls,
        node.input.schema.types,
        names,
        retracts,
        session,
    )
    return operator, groups


class WindowTableRule(Rule[logical.WindowTable]):
    """Windows of each row: TUMBLE, HOP, CUMULATE."""

    nodes = (logical.WindowTable,)

    def changes(self, node: logical.WindowTable, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def stream(self, node: logical.WindowTable, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        operator = _window_table(node, planning.session)
        inner = planning.stream(node.input, wants_before)
        upstreams = planning.step(f"Window Table {node.kind}", operator, inner.upstreams)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)
