"""The specification of a join of two window tables, shared by its operators, and the names of its states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.table.data.logical_types import DataType
from penstock.table.plan.logical import JoinType
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.typed.nodes import Typed

#: The states of the sides.
SIDES: Final = ("left windows", "right windows")
#: The states of a join that stores rows as columns.
COLUMN_STATES: Final = ("left_window_columns", "right_window_columns")


@dataclass(frozen=True, slots=True)
class WindowJoining:
    """The pairs and the output of a window join.

    Args:
        join_type: determines which rows the join emits; SEMI and ANTI emit rows of the left side only.
        keys: for each side, the indices of the key columns without the window's columns.
        nulls_match: for each key column, whether NULL equals NULL.
        condition: a further condition on pairs, over the columns of both sides.
        types: the types of each side's row columns; further columns serve only as keys.
        names: the names of the output columns.
        edges: for each side, the indices of the window's start and end.
        is_moment: whether the time attributes are instants, so that windows end in the session's time zone.
    """

    join_type: JoinType
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    nulls_match: tuple[bool, ...]
    condition: Typed | None
    types: tuple[Sequence[DataType], Sequence[DataType]]
    names: tuple[str, ...]
    session: StreamSession
    edges: tuple[tuple[int, int], tuple[int, int]]
    is_moment: bool = False

    def about_columns(self) -> str:
        """Return the description of the columnar states, see `ColumnStates`."""
        return f"the rows of a join of windows by {len(self.nulls_match)} columns"
