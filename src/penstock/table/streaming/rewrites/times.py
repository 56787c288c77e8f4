"""Determines the columns of a rewritten plan that are still event time.

During analysis, columns keep their event time wherever they may have it, but execution decides. The rows of a group, or
of a join that keeps rows, are emitted when other rows arrive, so they are late for watermarks that have passed them.
Only window aggregates, window joins and interval joins emit rows ahead of the watermark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.table.analyser.window_properties import find_join_window_edges, group_keys, group_window_edges
from penstock.table.plan import logical
from penstock.table.plan.inputs import find_input, with_inputs
from penstock.table.plan.logical import Node
from penstock.table.plan.row_schema import RowSchema, TimeAttribute
from penstock.table.streaming.joins.intervals import find_interval
from penstock.table.typed.nodes import Field, Typed

_WINDOW_TIME: Final = 2
#: nodes that pass on the columns of their inputs
_PASSING: Final = (
    logical.Filter,
    logical.WatermarkAssigner,
    logical.WindowTable,
    logical.Over,
    logical.Rank,
    logical.Sort,
    logical.Correlate,
    logical.TemporalJoin,
)


def with_settled_times(plan: Node) -> Node:
    """Remove event time from a plan where rows are late for it. Unchanged parts stay the same objects."""
    node = with_inputs(plan, [with_settled_times(child) for child in plan.inputs()])
    times = [index for index, column in enumerate(node.schema) if column.time is TimeAttribute.ROWTIME]
    lost = {index for index in times if not _is_time(node, index)}
    if not lost:
        return node
    columns = [replace(column, time=None) if index in lost else column for index, column in enumerate(node.schema)]
    return replace(node, schema=RowSchema(tuple(columns)))


def _is_time(node: Node, column: int) -> bool:
    match node:
        case logical.Project(expressions=expressions):
            return _is_event_time_expression(node, expressions[column])
        case logical.Expand():
            return all(_is_event_time_expression(node, row[column]) for row in node.projections)
        case logical.Aggregate() | logical.Distinct():
            keys = group_keys(node)
            edges = group_window_edges(node.input, keys) or {}
            return edges.get(keys[column]) == _WINDOW_TIME and _is_event_time(node.input, keys[column])
        case logical.WindowTable() if column >= len(node.input.schema):
            return _is_event_time(node.input, node.time)
        case logical.WatermarkAssigner() if column == node.column:
            return True
        case logical.SetOperation():
            return all(_is_event_time(part, column) for part in node.parts)
        case logical.Join():
            return _keeps_times(node) and _is_time_below(node, column)
        case _ if isinstance(node, _PASSING):
            return _is_time_below(node, column)
        case _:
            return True


def _keeps_times(join: logical.Join) -> bool:
    """Return whether the rows of a join are ahead of the watermark."""
    return find_interval(join) is not None or find_join_window_edges(join) is not None


def _is_time_below(node: Node, column: int) -> bool:
    source = find_input(node, column)
    return source is not None and _is_event_time(*source)


def _is_event_time_expression(node: logical.Project | logical.Expand, expression: Typed) -> bool:
    return not isinstance(expression, Field) or _is_event_time(node.input, expression.index)


def _is_event_time(node: Node, column: int) -> bool:
    return node.schema[column].time is TimeAttribute.ROWTIME
