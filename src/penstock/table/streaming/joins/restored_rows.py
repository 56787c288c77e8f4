"""Restores the rows of a join from a snapshot with columns."""

from __future__ import annotations

import pyarrow as pa

from penstock.codecs.map_columns import nullable_key_table
from penstock.state.key_columns import ColumnStates


def restored_rows(states: ColumnStates, name: str, about: str) -> pa.Table | None:
    """Return `ColumnStates.take` with maps whose keys are nullable. Earlier releases stored plain maps."""
    table = states.take(name, about)
    return None if table is None else nullable_key_table(table)
