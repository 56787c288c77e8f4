"""Plans joins of two window tables by the bounds of their windows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.subqueries import TRUE
from penstock.table.plan.logical import Join, WindowTable
from penstock.table.streaming.joins.column_window_join_operator import ColumnWindowJoinOperator
from penstock.table.streaming.joins.join_conditions import JoinKeys
from penstock.table.streaming.joins.window_join_operator import WindowJoinOperator
from penstock.table.streaming.joins.window_joining import WindowJoining
from penstock.table.streaming.planning.planned_joins import PlannedJoin, with_keys
from penstock.table.streaming.planning.rule import Factory
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.windows.window_times import WindowTime
from penstock.table.typed.nodes import Field

#: the indices of window start and end for each side, and the window table of the left side
WindowEdges: TypeAlias = tuple[tuple[int, int], tuple[int, int], WindowTable]


def window_join(
    join: Join,
    windows: WindowEdges,
    keys: JoinKeys,
    names: Sequence[str],
    session: StreamSession,
    is_in_memory: bool,
) -> PlannedJoin:
    """Plan a window join.

    Args:
        join: the join.
        windows: the windows of its sides.
        keys: the equalities of its condition, including the equalities of the window.
        names: the names of the output columns.
        session: the session of its operator.
        is_in_memory: whether rows may be stored as columns.
    """
    left_edges, right_edges, window = windows
    time = WindowTime.of(window)
    if time.is_processing:
        raise UnsupportedError(
            "Processing time Window Join is not supported yet: take an event time attribute for both windows"
        )
    edges = set(zip(left_edges, right_edges, strict=True))
    indices = [
        index
        for index, (key, other) in enumerate(zip(keys.left, keys.right, strict=True))
        if not (isinstance(key, Field) and isinstance(other, Field) and (key.index, other.index) in edges)
    ]
    left, left_places = with_keys(join.left, [keys.left[index] for index in indices])
    right, right_places = with_keys(join.right, [keys.right[index] for index in indices])
    joining = WindowJoining(
        join.join_type,
        (left_places, right_places),
        tuple(keys.nulls_match[index] for index in indices),
        None if keys.rest == TRUE else keys.rest,
        (join.left.schema.types, join.right.schema.types),
        tuple(names),
        session,
        (left_edges, right_edges),
        time.is_moment,
    )
    operator: Factory = partial(WindowJoinOperator, joining)
    if is_in_memory:
        operator = partial(ColumnWindowJoinOperator, joining, [left.schema.types[index] for index in left_places])
    name = f"Window Join {join.join_type.value}"
    return PlannedJoin(name, (left, right), (left_places, right_places), operator, False)
