"""Where the columns of a node come from: which of them are edges of windows."""

from __future__ import annotations

from typing import Final

from penstock.table.analyser.subqueries import conjuncts
from penstock.table.data.logical_types import LocalZonedTimestampType
from penstock.table.plan import logical
from penstock.table.plan.row_schema import TimeAttribute
from penstock.table.streaming.windows.window_times import WindowTime
from penstock.table.typed.nodes import Field, FunctionCall

#: how many columns a window table has after those of its input: start, end and time
EDGES: Final = 3


def window_of(node: logical.Node, column: int) -> tuple[logical.WindowTable, int] | None:
    """The window table whose start (0), end (1) or time (2) a column of a node is."""
    while True:
        if isinstance(node, logical.Project):
            expression = node.expressions[column]
            if not isinstance(expression, Field):
                return None
            node, column = node.input, expression.index
        elif isinstance(node, logical.Expand):
            found = {row[column] for row in node.projections}
            same = found.pop()
            if found or not isinstance(same, Field):
                return None
            node, column = node.input, same.index
        elif isinstance(node, logical.Filter):
            node = node.input
        elif isinstance(node, logical.WindowTable):
            edge = column - (len(node.schema) - EDGES)
            return (node, edge) if edge >= 0 else window_of(node.input, column)
        elif isinstance(node, logical.Rank) and column < len(node.input.schema):
            if not is_of_window(node.input, node.partition):
                return None
            node = node.input
        elif isinstance(node, logical.Aggregate) and column < len(node.keys) and is_of_windows(node):
            column, node = node.keys[column], node.input
        elif isinstance(node, logical.Join):
            if window_edges_of(node) is None:
                return None
            width = len(node.left.schema)
            is_left = column < width
            if node.join_type.keeps_right if is_left else node.join_type.keeps_left:
                return None  # NULL where a row has no match
            node, column = (node.left, column) if is_left else (node.right, column - width)
        else:
            return None


def edges_of(node: logical.Aggregate) -> dict[int, int]:
    """Which keys are edges of windows: 0 for the start, 1 for the end, 2 for the time; by the place of the key."""
    found = {key: window_of(node.input, key) for key in node.keys}
    return {key: one[1] for key, one in found.items() if one is not None}


def is_of_window(node: logical.Node, columns: tuple[int, ...]) -> bool:
    """Whether start and end of a window are among these columns of a node."""
    found = [window_of(node, column) for column in columns]
    return {0, 1} <= {one[1] for one in found if one is not None}


def is_of_windows(node: logical.Aggregate) -> bool:
    """Whether it is an aggregate of windows.

    It groups by both ends, and by just the columns by which sessions are apart. Windows of processing time have to be
    right below it. Flink groups other rows as they are.
    """
    edges = edges_of(node)
    if node.sets or not {0, 1} <= set(edges.values()):
        return False
    window = aggregated_window(node)
    if time_of(window).is_processing and not _is_near(node.input, window):
        return False
    if window.kind != "SESSION":
        return True
    groups = {origin_of(node.input, key, window) for key in node.keys if key not in edges}
    return groups == set(window.partition)


def aggregated_window(node: logical.Aggregate) -> logical.WindowTable:
    """The window table by whose ends an aggregate groups."""
    start = next(key for key, edge in edges_of(node).items() if edge == 0)
    found = window_of(node.input, start)
    assert found is not None
    return found[0]


def _is_near(node: logical.Node, window: logical.WindowTable) -> bool:
    while isinstance(node, logical.Project | logical.Filter):
        node = node.input
    return node is window


def origin_of(node: logical.Node, column: int, window: logical.WindowTable) -> int | None:
    """The column of the input of a window table that a column is, as it is; None where it is another one."""
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


def time_of(window: logical.WindowTable) -> WindowTime:
    """The time by which a window table puts rows into windows."""
    column = window.input.schema[window.time]
    is_moment = isinstance(column.type, LocalZonedTimestampType)
    return WindowTime(window.time, is_moment, column.time is TimeAttribute.PROCTIME)


def window_edges_of(node: logical.Join) -> tuple[tuple[int, int], tuple[int, int], logical.WindowTable] | None:
    """The places of start and end of the window by which a join pairs rows, for either side; None for other joins."""
    width = len(node.left.schema)
    pairs: dict[int, tuple[int, int]] = {}
    windows: list[logical.WindowTable] = []
    for part in conjuncts(node.condition):
        if not isinstance(part, FunctionCall) or part.function != "=":
            continue
        one, other = part.operands
        if not isinstance(one, Field) or not isinstance(other, Field):
            continue
        if one.index >= width:
            one, other = other, one
        if one.index >= width or other.index < width:
            continue
        left, right = window_of(node.left, one.index), window_of(node.right, other.index - width)
        if left is None or right is None or left[1] != right[1] or not _are_alike(left[0], right[0]):
            continue
        pairs[left[1]] = one.index, other.index - width
        windows.append(left[0])
    if not {0, 1} <= pairs.keys():
        return None
    return (pairs[0][0], pairs[1][0]), (pairs[0][1], pairs[1][1]), windows[0]


def _are_alike(one: logical.WindowTable, other: logical.WindowTable) -> bool:
    """Whether the windows of both begin and end together."""
    times = [time_of(window) for window in (one, other)]
    return (one.kind, one.sizes, one.offset) == (other.kind, other.sizes, other.offset) and (
        (times[0].is_moment, times[0].is_processing) == (times[1].is_moment, times[1].is_processing)
    )
