"""What a join of two window tables is, whichever operator runs it, and the names of its state."""

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
#: The states of a join that keeps rows as columns.
COLUMN_STATES: Final = ("left_window_columns", "right_window_columns")


@dataclass(frozen=True, slots=True)
class WindowJoining:
    """Which rows are pairs, and what is given of them.

    Args:
        join_type: which rows it gives; those of the left side alone for SEMI and ANTI.
        keys: the places of the columns of the key besides those of the window, for either side.
        nulls_match: for each column of the key whether NULL equals NULL.
        condition: over the columns of both sides, what else has to be true of pairs.
        types: of the columns of either side that are its rows; further ones are only there as keys.
        names: of the columns that it gives.
        edges: the places of the window's start and end, for either side.
        is_moment: whether the time attributes are moments, so that windows end in the session's time zone.
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
        """What the states in columns are, see `ColumnStates`."""
        return f"the rows of a join of windows by {len(self.nulls_match)} columns"
