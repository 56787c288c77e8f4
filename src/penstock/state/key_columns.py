"""Keyed state in columns: a table with the columns of the key, whose snapshot is the table itself as Arrow IPC.

A row belongs to the key group of its key, as everywhere, so a snapshot can be redistributed (D4). The file has the key
group as its first column, and its metadata describes the table.

The rows of an append-only table keep their numbers during one attempt of a task. So a checkpoint writes only the rows
that the last completed checkpoint does not have (G7). Such a file has the number of its first row in its metadata; rows
that are also in earlier files count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_columns import has_nullable_keys, nullable_key_table
from penstock.state.equality import hashable_elements
from penstock.state.errors import StateError
from penstock.state.keys import assign_key_groups
from penstock.state.snapshot import CaptureWriter

#: Replaces the declared schema of a keyed state whose files are columns.
COLUMNS_SCHEMA: Final = "columns"
KEY_GROUP: Final = "key_group"
_ABOUT: Final = b"penstock.columns"
#: the number of a file's first row
_FIRST: Final = b"penstock.first_row"


def distinct_keys(columns: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return each row's key number, as a numpy array, and the keys: values, or tuples of several columns.

    The columns must be in canonical form (`penstock.state.equality`), or equal keys may get several numbers.
    """
    parts = [_distinct(column) for column in columns]
    codes, keys = parts[0]
    if len(parts) == 1:
        return codes, keys
    keys = [(key,) for key in keys]
    for of_part, values in parts[1:]:
        size = len(values)
        pairs = codes.astype(np.int64) * size + of_part
        encoded = pc.dictionary_encode(pa.array(pairs))
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        keys = [(*keys[pair // size], values[pair % size]) for pair in encoded.dictionary.to_pylist()]
    return codes, keys


def _distinct(column: Any) -> tuple[Any, list[Any]]:
    """Do the same for one column, of Arrow or NumPy. Rows, arrays and maps become tuples."""
    if isinstance(column, np.ndarray):
        column = pa.array(column)
    if pa.types.is_nested(column.type):
        numbers: dict[Any, int] = {}
        codes = [numbers.setdefault(value, len(numbers)) for value in hashable_elements(column)]
        return np.array(codes, np.int64), list(numbers)
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    if not isinstance(encoded, pa.ChunkedArray):
        return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()
    if not encoded.num_chunks:
        return np.zeros(0, np.int32), []
    # All chunks have one dictionary. Arrow sees that only without NaN, and cannot combine those with NULL and NaN.
    indices = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
    return np.concatenate(indices), encoded.chunk(0).dictionary.to_pylist()


@dataclass
class ColumnsCapture:
    """A table as of a checkpoint; Arrow tables are immutable, so capturing takes no time (G7).

    `about` describes the table; a table of something else cannot replace it. `first`: the number of the first row, if
    the rows before it are in the last completed checkpoint. `table` may be a function that builds it in the background.
    """

    name: str
    table: pa.Table | Callable[[], pa.Table]
    key_names: tuple[str, ...]
    about: str
    first: int = 0

    def to_bytes(self, max_parallelism: int) -> bytes:
        """Return the table as an Arrow IPC stream, with the key group of each row as the first column."""
        table = self.table() if callable(self.table) else self.table
        codes, keys = distinct_keys([table.column(name) for name in self.key_names])
        groups = np.array(assign_key_groups(keys, max_parallelism), np.int32)[codes]
        table = table.add_column(0, KEY_GROUP, pa.array(groups, pa.int32()))
        return _to_ipc_bytes(table.replace_schema_metadata({_ABOUT: self.about, _FIRST: str(self.first)}))

    def write_capture(self, writer: CaptureWriter) -> None:
        """See `StateCapture`."""
        writer.write_columns(self.name, self.first > 0, self.to_bytes(writer.max_parallelism))

    def discard(self) -> None:
        """Do nothing: the capture exists only in memory."""


def read_columns(files: Iterable[bytes]) -> pa.Table:
    """Return the table that a history of files contains; at least one file is needed."""
    tables: list[pa.Table] = []
    rows = 0
    for data in files:
        table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
        first = int((table.schema.metadata or {}).get(_FIRST, b"0"))
        if first > rows:
            raise StateError(f"state in columns lacks the rows {rows} to {first}: a file of its history is missing")
        tables.append(table.slice(rows - first))
        rows = first + table.num_rows
    if any(has_nullable_keys(kind) for table in tables for kind in table.schema.types):
        tables = list(map(nullable_key_table, tables))  # the first files may come from a release with plain maps
    return pa.concat_tables(tables).replace_schema_metadata(tables[0].schema.metadata)


def merge_columns(files: Iterable[bytes]) -> bytes:
    """Merge a history into one file."""
    return _to_ipc_bytes(read_columns(files))


def _to_ipc_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class ColumnStates:
    """The restored tables of one operator, until it takes them, and how many rows of each are in checkpoints."""

    def __init__(self, owner: str = "operator") -> None:
        self.owner = owner
        self._restored: dict[str, list[pa.Table]] = {}
        #: by name, the number of rows in the last completed checkpoint
        self._confirmed: dict[str, int] = {}
        #: by checkpoint, its number of rows of each name
        self._captured: dict[int, dict[str, int]] = {}

    def restore(self, name: str, files: Iterable[bytes], key_groups: tuple[int, int], goes_on: bool = False) -> None:
        """Keep the rows of these key groups, both ends included. `goes_on`: the next checkpoint adds to these files."""
        first, last = key_groups
        table = read_columns(files)
        group = table.column(KEY_GROUP)
        mine = table.filter(pc.and_(pc.greater_equal(group, first), pc.less_equal(group, last)))
        self._restored.setdefault(name, []).append(mine)
        if goes_on:
            self._confirmed[name] = mine.num_rows

    def start_capture(self, name: str, rows: int, checkpoint_id: int) -> int:
        """Return the first row number that a checkpoint must write of an append-only table, which has `rows` rows."""
        self._captured.setdefault(checkpoint_id, {})[name] = rows
        return self._confirmed.get(name, 0)

    def confirm(self, checkpoint_id: int) -> None:
        """Note that the checkpoint completed: later ones add to it."""
        for captured in [captured_id for captured_id in sorted(self._captured) if captured_id <= checkpoint_id]:
            self._confirmed.update(self._captured.pop(captured))

    def take_back(self, checkpoint_id: int) -> None:
        """Do not let checkpoints build on that one: a savepoint's files are not the job's own."""
        self._captured.pop(checkpoint_id, None)

    def take(self, name: str, about: str) -> pa.Table | None:
        """Return the restored rows, or None if nothing was restored.

        Raises:
            StateError: if the rows belong to something else.
        """
        tables = self._restored.pop(name, None)
        if tables is None:
            return None
        for table in tables:
            actual = (table.schema.metadata or {}).get(_ABOUT, b"").decode()
            if actual != about:
                raise StateError(
                    f"{self.owner}: the snapshot holds {actual or 'something else'} in columns, but the operator keeps "
                    f"{about}; restore its previous definition, or give it a new uid to start without state"
                )
        try:
            return pa.concat_tables(tables).drop_columns([KEY_GROUP]).replace_schema_metadata(None).combine_chunks()
        except pa.ArrowException as error:
            raise StateError(f"{self.owner}: state {name!r} has columns of several types: {error}") from error

    def check_taken(self) -> None:
        """Raise if the operator has left a restored table, which would be lost."""
        for name in self._restored:
            raise StateError(
                f"{self.owner}: the snapshot holds state in columns ({name!r}), which this operator does not keep. "
                "Restore the operator's previous definition, or give it a new uid to start without state"
            )


__all__: list[Any] = [
    "COLUMNS_SCHEMA",
    "KEY_GROUP",
    "ColumnStates",
    "ColumnsCapture",
    "distinct_keys",
    "merge_columns",
    "read_columns",
]
