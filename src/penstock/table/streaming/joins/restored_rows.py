"""The rows of a join that a snapshot holds in columns."""

from __future__ import annotations

import pyarrow as pa

from penstock.codecs.map_columns import nullable_key_table
from penstock.state.key_columns import ColumnStates


def restored_rows(states: ColumnStates, name: str, about: str) -> pa.Table | None:
    """What `ColumnStates.take` returns, with the maps of tables. Earlier releases kept plain maps."""
    table = states.take(name, about)
    return None if table is None else nullable_key_table(table)
