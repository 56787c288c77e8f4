"""The remaining entries of a keyed state's history of files, in pieces and still pickled (H5).

A single file never names an entry twice, so its rows are streamed. For a longer history, the keys are evaluated first
(a later file may replace or remove the entries of an earlier one), then the remaining entries are streamed. Only keys
become Python objects, never values. Key equality is Python's own, as in a running job.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.loading import StateLoader
from penstock.state.shapes import merged
from penstock.state.snapshot import DROP_NAMESPACE, PUT, extract_shapes
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import StateFile

#: The maximum number of rows in a piece.
ROWS_MAX: Final = 4096


Loads = Callable[[bytes], Any]


class EntryRows(NamedTuple):
    """Some entries by column (key groups, and pickled keys, namespaces and values), and the function that unpickles
    them.
    """

    groups: list[int]
    keys: list[bytes]
    namespaces: list[bytes]
    values: list[bytes]
    loads: Loads


def live_rows(
    storage: FileCheckpointStore,
    files: Sequence[StateFile],
    first: int,
    last: int,
    loader: StateLoader | None = None,
) -> Iterator[EntryRows]:
    """Yield the entries of key groups `first` to `last` (both included), in the order of the first put in their
    namespace.

    With a `loader`, changed classes are handled as in a restore.

    Raises:
        CheckpointError: if a file is missing or damaged.
    """
    tables = [_table(storage.read(file)) for file in files]
    loads: Loads = pickle.loads
    if loader is not None:
        loads = loader.for_file(merged([extract_shapes(table.schema) for table in tables]))
    if len(tables) == 1:
        yield from _pieces(_select(tables[0], first, last), loads)
    elif tables:
        selected = pa.concat_tables([_with_drops(table, first, last) for table in tables])
        yield from _pieces(selected.take(pa.array(_left(selected, loads), pa.int64())), loads)


def _table(data: bytes) -> Any:
    return pa.ipc.open_stream(pa.BufferReader(data)).read_all()


def _in_range(table: Any, first: int, last: int) -> Any:
    groups = table["key_group"]
    return pc.and_(pc.greater_equal(groups, first), pc.less_equal(groups, last))


def _select(table: Any, first: int, last: int) -> Any:
    """Return the rows of a single file that put an entry in the range of key groups."""
    return table.filter(pc.and_(pc.equal(table["operation"], PUT), _in_range(table, first, last)))


def _with_drops(table: Any, first: int, last: int) -> Any:
    return table.filter(pc.or_(pc.equal(table["operation"], DROP_NAMESPACE), _in_range(table, first, last)))


def _left(table: Any, loads: Loads) -> list[int]:
    """Return the numbers of the rows whose entries remain at the end."""
    left: dict[Any, dict[Any, int]] = {}
    operations = table["operation"].to_pylist()
    namespaces = table["namespace"].to_pylist()
    keys = table["key"].to_pylist()
    for number, (operation, namespace_data, key) in enumerate(zip(operations, namespaces, keys, strict=True)):
        namespace = loads(namespace_data)
        if operation == DROP_NAMESPACE:
            left.pop(namespace, None)
        elif operation == PUT:
            left.setdefault(namespace, {})[loads(key)] = number
        else:
            left.get(namespace, {}).pop(loads(key), None)
    return [number for entries in left.values() for number in entries.values()]


def _pieces(table: Any, loads: Loads) -> Iterator[EntryRows]:
    columns = [table[name].combine_chunks() for name in ("key_group", "key", "namespace", "value")]
    for begin in range(0, table.num_rows, ROWS_MAX):
        groups, keys, namespaces, values = (column.slice(begin, ROWS_MAX).to_pylist() for column in columns)
        yield EntryRows(groups, keys, namespaces, values, loads)
