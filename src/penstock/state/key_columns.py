"""Keyed state in columns: a table with the columns of the key, whose snapshot is the table itself as Arrow IPC.

A row belongs to the key group of its key, as everywhere, so a snapshot can be redistributed (D4). The metadata of a
file describes the table and names its key columns. Key groups are computed when a restore needs them, which is when the
parallelism has changed: hashing the keys costs many times what writing the columns does. Files of earlier releases have
the key group as their first column.

Rows are numbered in the order in which an operator adds them, and keep their numbers during one attempt of a task. So a
checkpoint writes only the rows that the last completed checkpoint does not have (G7). The metadata of such a file has
the number of its first row and of the row after its last; from the first number on, it replaces the files before it.
Rows that an operator no longer needs are left out, and then the file has the number of each row as a column. Rows of
earlier files stay in the history until the operator writes the table whole.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_columns import has_nullable_keys, nullable_key_table
from penstock.state.equality import canonical_column, hashable_elements
from penstock.state.errors import StateError
from penstock.state.keys import assign_key_groups
from penstock.state.snapshot import CaptureWriter

#: Replaces the declared schema of a keyed state whose files are columns.
COLUMNS_SCHEMA: Final = "columns"
KEY_GROUP: Final = "key_group"
_ABOUT: Final = b"penstock.columns"
#: the names of the key columns, as JSON
_KEY_NAMES: Final = b"penstock.key_columns"
#: the number of a file's first row, and the number after that of its last row
_FIRST: Final = b"penstock.first_row"
_END: Final = b"penstock.end_row"
#: how rows become the entries of the state, see `RowMeaning`
_MEANING: Final = b"penstock.row_meaning"
#: the column with the numbers of rows
ROW_NUMBER: Final = "row_number"
#: with at most this many rows, kernels take longer than a dictionary
_FEW: Final = 16


def distinct_keys(columns: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return each row's key number, as a numpy array, and the keys: values, or tuples of several columns.

    The columns must be in canonical form (`penstock.state.equality`), or equal keys may get several numbers.
    """
    if len(columns[0]) <= _FEW and all(map(_is_hashable, columns)):
        return _distinct_few(columns)
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


def _is_hashable(column: Any) -> bool:
    """Return whether the values of a column are dictionary keys in Python: not NaN, nor lists."""
    return isinstance(column, pa.Array) and not (pa.types.is_floating(column.type) or pa.types.is_nested(column.type))


def _distinct_few(columns: Sequence[pa.Array]) -> tuple[Any, list[Any]]:
    """Do the same for a few rows, without kernels."""
    lists = [column.to_pylist() for column in columns]
    numbers: dict[Any, int] = {}
    values = lists[0] if len(lists) == 1 else zip(*lists, strict=True)
    codes = [numbers.setdefault(value, len(numbers)) for value in values]
    return np.array(codes, np.int64), list(numbers)


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


@dataclass(frozen=True, slots=True)
class RowMeaning:
    """How the rows of a history become the entries of the state, for those who read it without its operator.

    Attributes:
        identity: the names of the columns that identify an entry. Empty if each row is an entry.
        first: how many entries an identity has: the first ones in `order`. 0 if a row replaces the former ones.
        order: the sort keys: the name of a column of numbers or times, whether it descends, whether NULL is first.
        counts: the names of columns with counts. If all of an entry are 0, the entry is no more. Empty if entries stay.
        labels: what users call columns, by their names in the files.
    """

    identity: tuple[str, ...] = ()
    first: int = 0
    order: tuple[tuple[str, bool, bool], ...] = ()
    counts: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


#: each row is an entry
EACH_ROW: Final = RowMeaning()


def select_entries(table: pa.Table) -> pa.Table:
    """Return the entries that the table of a history stands for, with columns under the names that users know."""
    text = (table.schema.metadata or {}).get(_MEANING)
    if text is None:
        return table
    meaning = RowMeaning(**json.loads(text))
    if meaning.identity and table.num_rows:
        codes, _ = distinct_keys([canonical_column(table.column(name)) for name in meaning.identity])
        rows = _find_first(table, codes, meaning) if meaning.first else _find_newest(codes)
        table = table.take(pa.array(rows))
    if meaning.counts:
        empty = [pc.equal(table.column(name), 0) for name in meaning.counts]
        table = table.filter(pc.invert(functools.reduce(pc.and_, empty)))
    labels = [meaning.labels.get(name, name) for name in table.column_names]
    is_clear = len(set(labels)) == len(labels)
    return table.rename_columns(labels) if is_clear else table


def _find_newest(codes: Any) -> Any:
    newest = np.zeros(int(codes.max()) + 1, np.int64)
    np.maximum.at(newest, codes, np.arange(len(codes)))
    return np.sort(newest)


def _find_first(table: pa.Table, codes: Any, meaning: RowMeaning) -> Any:
    """Return the numbers of the rows that are among the first of their identity; equal ones stay in their order."""
    keys = [codes]
    for name, is_descending, nulls_first in meaning.order:
        column = table.column(name).combine_chunks()
        keys.append(column.is_null().to_numpy(zero_copy_only=False) != nulls_first)
        numbers = to_ordered_numbers(column)
        keys.append(~numbers if is_descending else numbers)
    rows = np.lexsort(keys[::-1])
    ordered = codes[rows]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    ranks = np.arange(len(rows)) - np.repeat(begins, np.diff(np.append(begins, len(rows))))
    return np.sort(rows[ranks < meaning.first])


def to_ordered_numbers(column: pa.Array) -> Any:
    """Return 64-bit integers in the order of a column of numbers, booleans, dates or times; of NULL, any."""
    if pa.types.is_floating(column.type):
        floats = canonical_column(column).cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        bits = floats.view(np.int64)
        # The bits of negative floats are in the opposite order.
        return bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif not pa.types.is_integer(column.type):
        column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    filled = column.fill_null(0) if column.null_count else column
    return filled.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


@dataclass
class ColumnsCapture:
    """A table as of a checkpoint; Arrow tables are immutable, so capturing takes no time (G7).

    Args:
        name: the name of the state.
        table: the rows, or a function that builds them in the background. If rows were left out, the column
            `ROW_NUMBER` has the numbers of the others.
        key_names: the names of the key columns.
        about: describes the table; a table of something else cannot replace it.
        first: the number of the first row. It is not 0 if the rows before it are in the last completed checkpoint.
        end: the number after that of the last row; None if no row was left out.
        is_addition: whether the file continues the history; None if it does so unless `first` is 0.
        meaning: how the rows of the history become the entries of the state.
    """

    name: str
    table: pa.Table | Callable[[], pa.Table]
    key_names: tuple[str, ...]
    about: str
    first: int = 0
    end: int | None = None
    is_addition: bool | None = None
    meaning: RowMeaning = EACH_ROW

    def to_bytes(self) -> bytes:
        """Return the table as an Arrow IPC stream."""
        table = self.table() if callable(self.table) else self.table
        end = self.first + table.num_rows if self.end is None else self.end
        metadata = {
            _ABOUT: self.about,
            _FIRST: str(self.first),
            _END: str(end),
            _KEY_NAMES: json.dumps(self.key_names),
        }
        if self.meaning != EACH_ROW:
            metadata[_MEANING] = json.dumps(asdict(self.meaning))
        return _to_ipc_bytes(table.replace_schema_metadata(metadata))

    def write_capture(self, writer: CaptureWriter) -> None:
        """See `StateCapture`."""
        is_addition = self.first > 0 if self.is_addition is None else self.is_addition
        writer.write_columns(self.name, is_addition, self.to_bytes())

    def discard(self) -> None:
        """Do nothing: the capture exists only in memory."""


@dataclass
class ColumnsFile:
    """The rows of a file or of a history, without their numbers.

    `numbers`: the numbers of the rows, as a NumPy array; None if they are all from `first` to `end` (exclusive).
    """

    table: pa.Table
    first: int
    end: int
    numbers: Any = None

    def cut(self, end: int) -> ColumnsFile:
        """Return the rows before a number."""
        if end >= self.end:
            return self
        count = max(end - self.first, 0) if self.numbers is None else int(np.searchsorted(self.numbers, end))
        numbers = None if self.numbers is None else self.numbers[:count]
        return ColumnsFile(self.table.slice(0, count), self.first, max(end, self.first), numbers)

    def list_numbers(self) -> Any:
        """Return the number of each row."""
        return np.arange(self.first, self.end) if self.numbers is None else self.numbers


def _read_file(data: bytes) -> ColumnsFile:
    table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
    metadata = table.schema.metadata or {}
    first, numbers = int(metadata.get(_FIRST, b"0")), None
    end = int(metadata.get(_END, first + table.num_rows))
    if ROW_NUMBER in table.schema.names:
        numbers = table.column(ROW_NUMBER).combine_chunks().to_numpy(zero_copy_only=False)
        table = table.drop_columns([ROW_NUMBER])
    return ColumnsFile(table, first, end, numbers)


def read_history(files: Iterable[bytes]) -> ColumnsFile:
    """Return the rows that a history of files contains, or adjacent files of one; at least one file is needed.

    Raises:
        StateError: if a file of the history is missing.
    """
    parts: list[ColumnsFile] = []
    for data in files:
        part = _read_file(data)
        if parts and part.first > parts[-1].end:
            raise StateError(
                f"state in columns lacks the rows {parts[-1].end} to {part.first}: a file of its history is missing"
            )
        parts = [earlier.cut(part.first) for earlier in parts]
        parts.append(part)
    tables = [part.table for part in parts]
    if any(has_nullable_keys(kind) for table in tables for kind in table.schema.types):
        tables = list(map(nullable_key_table, tables))  # the first files may come from a release with plain maps
    if any(KEY_GROUP not in table.schema.names for table in tables):
        tables = [table.drop_columns([KEY_GROUP]) if KEY_GROUP in table.schema.names else table for table in tables]
    is_gapless = all(part.numbers is None for part in parts)
    numbers = None if is_gapless else np.concatenate([part.list_numbers() for part in parts])
    table = pa.concat_tables(tables).replace_schema_metadata(tables[-1].schema.metadata)
    return ColumnsFile(table, parts[0].first, parts[-1].end, numbers)


def read_columns(files: Iterable[bytes]) -> pa.Table:
    """Return the table that a history of files contains; at least one file is needed."""
    return read_history(files).table


def add_key_groups(table: pa.Table, max_parallelism: int) -> pa.Table:
    """Return the table of a history with the key group of each row as the first column."""
    if KEY_GROUP in table.schema.names:
        return table
    names = json.loads(table.schema.metadata[_KEY_NAMES])
    codes, keys = distinct_keys([canonical_column(table.column(name)) for name in names])
    groups = np.array(assign_key_groups(keys, max_parallelism), np.int32)[codes]
    return table.add_column(0, KEY_GROUP, pa.array(groups, pa.int32()))


def merge_columns(files: Iterable[bytes]) -> bytes:
    """Merge a history, or adjacent files of one, into one file."""
    history = read_history(files)
    table = history.table
    if history.numbers is not None:
        table = table.append_column(ROW_NUMBER, pa.array(history.numbers, pa.int64()))
    about = {_FIRST: str(history.first).encode(), _END: str(history.end).encode()}
    return _to_ipc_bytes(table.replace_schema_metadata({**(history.table.schema.metadata or {}), **about}))


def _to_ipc_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class ColumnStates:
    """The restored tables of one operator, until it takes them, and which rows of each are in checkpoints."""

    def __init__(self, owner: str = "operator") -> None:
        self.owner = owner
        self._restored: dict[str, list[pa.Table]] = {}
        #: by name, the number after that of the last row in the last completed checkpoint
        self._confirmed: dict[str, int] = {}
        #: by checkpoint and name, the number after that of its last row
        self._captured: dict[int, dict[str, int]] = {}

    def restore(
        self,
        name: str,
        files: Iterable[bytes],
        written: tuple[int, int],
        key_groups: tuple[int, int],
        max_parallelism: int,
        goes_on: bool = False,
    ) -> None:
        """Keep the rows of these key groups, both ends included.

        Args:
            name: the name of the state.
            files: a history.
            written: the key groups of all its rows.
            key_groups: the key groups of the rows to keep.
            max_parallelism: the number of key groups.
            goes_on: whether the next checkpoint adds to these files.
        """
        first, last = key_groups
        history = read_history(files)
        mine = history.table
        if written[0] < first or last < written[1]:
            mine = add_key_groups(mine, max_parallelism)
            group = mine.column(KEY_GROUP)
            mine = mine.filter(pc.and_(pc.greater_equal(group, first), pc.less_equal(group, last)))
        if KEY_GROUP in mine.schema.names:
            mine = mine.drop_columns([KEY_GROUP])
        self._restored.setdefault(name, []).append(mine)
        if goes_on:
            self._confirmed[name] = history.end

    def first_number(self, name: str, rows: int) -> int:
        """Return the number of the first of the restored rows, so that later rows continue the numbers in the files."""
        return self._confirmed[name] - rows if name in self._confirmed else 0

    def start_capture(self, name: str, end: int, checkpoint_id: int, base: int = 0) -> int:
        """Return the number of the first row that a checkpoint must write.

        Args:
            name: the name of the state.
            end: the number of the next row that the operator will add.
            checkpoint_id: the checkpoint.
            base: the first number that is in use; it grows when the operator gives its rows new numbers. If it is
                returned, the checkpoint must write the table whole.
        """
        self._captured.setdefault(checkpoint_id, {})[name] = end
        return max(self._confirmed.get(name, base), base)

    def confirm(self, checkpoint_id: int) -> None:
        """Note that the checkpoint completed: later ones add to it."""
        for captured in [captured_id for captured_id in sorted(self._captured) if captured_id <= checkpoint_id]:
            self._confirmed.update(self._captured.pop(captured))

    def take_back(self, checkpoint_id: int) -> None:
        """Do not let checkpoints build on that one: a savepoint's files are not the job's own."""
        self._captured.pop(checkpoint_id, None)

    def has_restored(self, name: str) -> bool:
        """Return whether a table of that name was restored and not taken yet."""
        return name in self._restored

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
            return pa.concat_tables(tables).replace_schema_metadata(None).combine_chunks()
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
    "EACH_ROW",
    "KEY_GROUP",
    "ROW_NUMBER",
    "ColumnStates",
    "ColumnsCapture",
    "ColumnsFile",
    "RowMeaning",
    "add_key_groups",
    "distinct_keys",
    "merge_columns",
    "read_columns",
    "read_history",
    "select_entries",
    "to_ordered_numbers",
]
