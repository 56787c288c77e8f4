"""Origins of the columns of a node: which of them are edges of windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.table.data.logical_types import LocalZonedTimestampType
from penstock.table.plan import logical
from penstock.table.plan.inputs import find_input
from penstock.table.plan.row_schema import TimeAttribute
from penstock.table.typed.nodes import Field, FunctionCall, conjuncts

#: number of columns that a window table appends to its input: start, end and time
EDGES: Final = 3


def find_window(node: logical.Node, column: int) -> tuple[logical.WindowTable, int] | None:
    """Return the window table whose start (0), end (1) or time (2) is this column."""
    while True:
        if isinstance(node, logical.Project):
            expression = node.expressions[column]
            if not isinstance(expression, Field):
                return None
            node, column = node.input, expression.index
        elif isinstance(node, logical.Expand):
            expressions = {row[column] for row in node.projections}
            same = expressions.pop()
            if expressions or not isinstance(same, Field):
                return None
            node, column = node.input, same.index
        elif isinstance(node, logical.Filter | logical.Correlate):
            if column >= len(node.input.schema):
                return None
            node = node.input
        elif isinstance(node, logical.SetOperation) and node.operator == "UNION" and node.is_all:
            return _window_of_union(node, column)
        elif isinstance(node, logical.WindowTable):
            edge = column - (len(node.schema) - EDGES)
            return (node, edge) if edge >= 0 else find_window(node.input, column)
        elif isinstance(node, logical.Rank) and column < len(node.input.schema):
            if find_window_edges(node.input, node.partition) is None:
                return None
            node = node.input
        elif isinstance(node, logical.Aggregate | logical.Distinct):
            keys = group_keys(node)
            if column >= len(keys) or not is_of_windows(node):
                return None
            below = find_window_edges(node.input, keys)
            if below is None or below[0].is_group:
                return None  # GROUP BY TUMBLE yields times but no windows
            column, node = keys[column], node.input
        elif isinstance(node, logical.Join):
            return _window_of_join(node, column)
        else:
            return None


def _window_of_union(node: logical.SetOperation, column: int) -> tuple[logical.WindowTable, int] | None:
    """Return the window of the first part, if the windows of the other parts begin and end together with it."""
    first, *others = [find_window(part, column) for part in node.parts]
    if first is None:
        return None
    are_alike = all(
        window is not None and window[1] == first[1] and _are_alike(window[0], first[0]) for window in others
    )
    return first if are_alike else None


def _window_of_join(node: logical.Join, column: int) -> tuple[logical.WindowTable, int] | None:
    edges = find_join_window_edges(node)
    if edges is None:
        return None
    width = len(node.left.schema)
    if column < width:
        # NULL if a row has no match
        return None if node.join_type.keeps_right else find_window(node.left, column)
    if node.join_type.keeps_left:
        return None
    window, start = find_window(node.right, column - width), find_window(node.right, edges[1][0])
    if node.join_type.keeps_right or window is None or start is None or window[0] is not start[0]:
        return window
    return edges[2], window[1]  # both sides are in the same window


def find_window_edges(node: logical.Node, columns: Iterable[int]) -> tuple[logical.WindowTable, dict[int, int]] | None:
    """Return the window whose start and end are both among the columns of a node, or None.

    Also return which columns are its edges, by column index: 0 for the start, 1 for the end, 2 for the time.
    """
    windows = {column: find_window(node, column) for column in columns}
    for window, edge in filter(None, windows.values()):
        edges = {
            column: column_window[1]
            for column, column_window in windows.items()
            if column_window is not None and column_window[0] is window
        }
        if edge == 0 and 1 in edges.values():
            return window, edges
    return None


def group_keys(node: logical.Aggregate | logical.Distinct) -> Sequence[int]:
    """Return the columns that rows are grouped by; for DISTINCT, all columns."""
    return node.keys if isinstance(node, logical.Aggregate) else range(len(node.schema))


def is_of_windows(node: logical.Aggregate | logical.Distinct) -> bool:
    """Return whether a node aggregates windows. With grouping sets it does not, until its rows are expanded."""
    has_sets = isinstance(node, logical.Aggregate) and node.sets
    return not has_sets and group_window_edges(node.input, group_keys(node)) is not None


def may_be_window_time(node: logical.Node, column: int) -> bool:
    """Return whether a column comes from the time of a window. Nodes in between may disappear in rewrites."""
    if isinstance(node, logical.Project):
        expression = node.expressions[column]
        return isinstance(expression, Field) and may_be_window_time(node.input, expression.index)
    if isinstance(node, logical.Aggregate):
        return column < len(node.keys) and may_be_window_time(node.input, node.keys[column])
    if isinstance(node, logical.WindowTable) and column >= len(node.input.schema):
        return column == len(node.schema) - 1
    if isinstance(node, logical.SetOperation):
        return all(may_be_window_time(part, column) for part in node.parts)
    origin = find_input(node, column)
    return origin is not None and may_be_window_time(*origin)


def group_window_edges(node: logical.Node, keys: Sequence[int]) -> dict[int, int] | None:
    """Return which keys are edges of the windows that an aggregate groups by; None for other groups.

    A window aggregate groups by both ends, and by exactly the columns that partition sessions. Windows of processing
    time must be directly below it. Flink treats other aggregates as regular groups.
    """
    window_edges = find_window_edges(node, keys)
    if window_edges is None:
        return None
    window, edges = window_edges
    if is_processing(window) and not _is_near(node, window):
        return None
    if window.kind != "SESSION":
        return edges
    groups = {find_origin_column(node, key, window) for key in keys if key not in edges}
    return edges if groups == set(window.partition) else None


def _is_near(node: logical.Node, window: logical.WindowTable) -> bool:
    while isinstance(node, logical.Project | logical.Filter):
        node = node.input
    return node is window


def find_origin_column(node: logical.Node, column: int, window: logical.WindowTable) -> int | None:
    """Return the input column of a window table that a column passes on unchanged, otherwise None."""
    while node is not window:
        if isinstance(node, logical.Project):
            expression = node.expressions[column]
            if not isinstance(expression, Field):
                return None
            node, column = node.input, expression.index
        elif isinstance(node, logical.Filter):
            node = node.input
        else:
            return None
    return column


def is_processing(window: logical.WindowTable) -> bool:
    """Return whether rows are assigned to windows by processing time."""
    return window.input.schema[window.time].time is TimeAttribute.PROCTIME


def find_join_window_edges(node: logical.Join) -> tuple[tuple[int, int], tuple[int, int], logical.WindowTable] | None:
    """Return the indexes of window start and end on both sides of a window join; None for other joins.

    The returned window is that of the left side.
    """
    width = len(node.left.schema)
    equalities: list[tuple[int, tuple[int, int], tuple[logical.WindowTable, logical.WindowTable]]] = []
    for part in conjuncts(node.condition):
        if not isinstance(part, FunctionCall) or part.function != "=":
            continue
        left_field, right_field = part.operands
        if not isinstance(left_field, Field) or not isinstance(right_field, Field):
            continue
        if left_field.index >= width:
            left_field, right_field = right_field, left_field
        if left_field.index >= width or right_field.index < width:
            continue
        left, right = find_window(node.left, left_field.index), find_window(node.right, right_field.index - width)
        if left is not None and right is not None and left[1] == right[1] and _are_alike(left[0], right[0]):
            equalities.append((left[1], (left_field.index, right_field.index - width), (left[0], right[0])))
    for _, starts, windows in (equality for equality in equalities if equality[0] == 0):
        for _, ends, other_windows in (equality for equality in equalities if equality[0] == 1):
            if other_windows[0] is windows[0] and other_windows[1] is windows[1]:
                return (starts[0], ends[0]), (starts[1], ends[1]), windows[0]
    return None


def _are_alike(left: logical.WindowTable, right: logical.WindowTable) -> bool:
    """Return whether the windows of both tables begin and end together."""
    return _measures(left) == _measures(right)


def _measures(window: logical.WindowTable) -> tuple[object, ...]:
    is_moment = isinstance(window.input.schema[window.time].type, LocalZonedTimestampType)
    return window.kind, window.sizes, window.offset, is_moment, is_processing(window)
