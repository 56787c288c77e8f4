"""What a snapshot captures, and its bytes: Arrow IPC, so that pandas or Spark can read a savepoint (H5).

A keyed state is a *history* of files, each a table of rows (key_group, operation, key, namespace, value) that is
applied after the one before: put an entry, remove an entry, or drop a whole namespace. A history of one file with
puts only is a full snapshot. An operator state is a table of rows (value). Keys, namespaces and values are pickled
bytes. Under the key `penstock.classes` the Arrow schema's metadata of keyed state holds, as JSON, the classes that the
pickles name, with the fields of dataclasses and NamedTuples (`state.shapes`).

What is captured is safe from what user code changes afterwards (G7, see `state.frozen`). Working out key groups,
building the Arrow bytes and writing them happens in the background.
"""

from __future__ import annotations

import json
import pickle
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from penstock.state.errors import StateError
from penstock.state.frozen import Frozen, thaw
from penstock.state.key_columns import ColumnsCapture
from penstock.state.key_groups import key_group_of, key_groups_of
from penstock.state.pickling import dumps, dumps_all
from penstock.state.shapes import Shapes, merged, shapes_from_json

if TYPE_CHECKING:
    from penstock.state.loading import StateLoader

_BYTES = pa.large_binary()
_KEYED_SCHEMA = pa.schema(
    [("key_group", pa.int32()), ("operation", pa.int8()), ("key", _BYTES), ("namespace", _BYTES), ("value", _BYTES)]
)
_OPERATOR_SCHEMA = pa.schema([("value", _BYTES)])

PUT: Final = 0
REMOVE: Final = 1
DROP_NAMESPACE: Final = 2

_CLASSES: Final = b"penstock.classes"
_NO_NAMESPACE: Final = b""

Entries = dict[Any, dict[Any, Any]]


@dataclass
class KeyedCapture:
    """The changes of one keyed state, frozen.

    `schema` is the text of `schema.declared`. When it is another one than that of the history before, the changes are
    the whole state; `is_whole` says so too.
    """

    name: str
    frozen: Frozen
    schema: str = ""
    is_whole: bool = False

    def to_bytes(self, max_parallelism: int) -> bytes:
        """The changes as an Arrow IPC stream; drops first."""
        (dropped, written), shapes = thaw(self.frozen)
        rows = KeyedRows()
        for namespace in dropped:
            rows.add(-1, DROP_NAMESPACE, b"", dumps(namespace), b"")
        for namespace, kept, values, removed in written:
            namespace_bytes = dumps(namespace)
            for key in removed:
                rows.add(key_group_of(key, max_parallelism), REMOVE, dumps(key), namespace_bytes, b"")
            groups = key_groups_of(kept, max_parallelism)
            rows.extend(groups, PUT, dumps_all(kept), [namespace_bytes] * len(kept), dumps_all(values))
        return rows.to_bytes(shapes)


@dataclass
class OperatorCapture:
    """The items of one operator state; `mode` is split, union, broadcast (D2) or channel (records in flight)."""

    name: str
    mode: str
    items: list[bytes]

    @property
    def count(self) -> int:
        """The number of items."""
        return len(self.items)

    def to_bytes(self) -> bytes:
        """The items as an Arrow IPC stream."""
        return _ipc([_bytes_column(self.items)], _OPERATOR_SCHEMA)


StateCapture = KeyedCapture | OperatorCapture | ColumnsCapture


class KeyedRows:
    """Rows of a keyed state, gathered by column."""

    def __init__(self) -> None:
        self._columns: tuple[list[int], list[int], list[bytes], list[bytes], list[bytes]] = ([], [], [], [], [])

    def add(self, key_group: int, operation: int, key: bytes, namespace: bytes, value: bytes) -> None:
        groups, operations, keys, namespaces, values = self._columns
        groups.append(key_group)
        operations.append(operation)
        keys.append(key)
        namespaces.append(namespace)
        values.append(value)

    def extend(
        self,
        key_groups: Sequence[int],
        operation: int,
        keys: Sequence[bytes],
        namespaces: Sequence[bytes],
        values: Sequence[bytes],
    ) -> None:
        """Many rows with the same operation."""
        columns = self._columns
        columns[0].extend(key_groups)
        columns[1].extend([operation] * len(key_groups))
        columns[2].extend(keys)
        columns[3].extend(namespaces)
        columns[4].extend(values)

    def to_bytes(self, shapes: Shapes | None = None) -> bytes:
        groups, operations, *binary = self._columns
        schema = _KEYED_SCHEMA if shapes is None else _KEYED_SCHEMA.with_metadata({_CLASSES: json.dumps(shapes)})
        columns = [_int_column(groups, pa.int32(), "i"), _int_column(operations, pa.int8(), "b")]
        return _ipc(columns + [_bytes_column(column) for column in binary], schema)


# Columns are built from their buffers: faster than from Python values, and `pyarrow.array` would import pandas.


def _bytes_column(items: list[bytes]) -> Any:
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, items), np.int64, len(items)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(items))]
    return pa.Array.from_buffers(_BYTES, len(items), buffers)


def _int_column(items: list[int], arrow_type: Any, code: str) -> Any:
    return pa.Array.from_buffers(arrow_type, len(items), [None, pa.py_buffer(array(code, items))])


def _ipc(columns: list[Any], schema: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    result: bytes = sink.getvalue().to_pybytes()
    return result


def _columns(data: bytes) -> list[list[Any]]:
    return _columns_and_shapes(data)[0]


def _columns_and_shapes(data: bytes) -> tuple[list[list[Any]], Shapes | None]:
    table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
    return [column.to_pylist() for column in table.columns], shapes_in(table.schema)


def shapes_in(schema: Any) -> Shapes | None:
    """The classes that the pickles of a file name, by the file's Arrow schema; None for one that does not tell."""
    classes = (schema.metadata or {}).get(_CLASSES)
    return None if classes is None else shapes_from_json(json.loads(classes))


def shapes_of_keyed(data: bytes) -> Shapes | None:
    """The classes that the pickles of one file name; None when it does not tell."""
    return shapes_in(pa.ipc.open_stream(pa.BufferReader(data)).schema)


def iterate_keyed(data: bytes, rows_max: int = 4096) -> Iterator[tuple[int, int, bytes, bytes, bytes]]:
    """The rows of one file, of which no more than `rows_max` are Python objects at a time."""
    for batch in pa.ipc.open_stream(pa.BufferReader(data)):
        for begin in range(0, batch.num_rows, rows_max):
            yield from zip(*(c.to_pylist() for c in batch.slice(begin, rows_max).columns), strict=True)


def read_keyed(
    files: Iterable[bytes], first_key_group: int, last_key_group: int, loader: StateLoader | None = None
) -> Entries:
    """The entries that a history leaves, by namespace, of the key groups in the range, both ends included.

    With a `loader`, classes that have changed since are dealt with, or named in a `StateMigrationError`.
    """
    tables: Entries = {}
    for data in files:
        columns, shapes = _columns_and_shapes(data)
        loads = pickle.loads if loader is None else loader.for_file(shapes)
        try:
            _apply(tables, columns, first_key_group, last_key_group, loads, loader)
        except StateError:
            raise
        except Exception as error:
            if loader is None:
                raise
            raise loader.unreadable(error) from error
    return tables


def _apply(
    tables: Entries,
    columns: list[list[Any]],
    first_key_group: int,
    last_key_group: int,
    loads: Callable[[bytes], Any],
    loader: StateLoader | None,
) -> None:
    """Do to the entries what the rows of a file say."""
    last_namespace_data, namespace = _NO_NAMESPACE, None
    for group, operation, key_data, namespace_data, value in zip(*columns, strict=True):
        if namespace_data != last_namespace_data:
            last_namespace_data, namespace = namespace_data, loads(namespace_data)
        if operation == DROP_NAMESPACE:
            tables.pop(namespace, None)
        elif first_key_group <= group <= last_key_group:
            key = loads(key_data)
            if operation == PUT:
                tables.setdefault(namespace, {})[key] = loads(value)
            else:
                tables.get(namespace, {}).pop(key, None)
            if loader is not None and loader.has_changed:
                loader.check_key(key, group)


def merge_keyed(files: Iterable[bytes]) -> bytes:
    """One file that says the same as a history; values stay as they are."""
    loads = pickle.loads
    entries: dict[Any, dict[Any, tuple[int, bytes, bytes, bytes]]] = {}
    all_shapes: list[Shapes | None] = []
    for data in files:
        columns, shapes = _columns_and_shapes(data)
        all_shapes.append(shapes)
        last_namespace_data, namespace = _NO_NAMESPACE, None
        for group, operation, key_data, namespace_data, value in zip(*columns, strict=True):
            if namespace_data != last_namespace_data:
                last_namespace_data, namespace = namespace_data, loads(namespace_data)
            if operation == DROP_NAMESPACE:
                entries.pop(namespace, None)
            elif operation == PUT:
                entries.setdefault(namespace, {})[loads(key_data)] = (group, key_data, namespace_data, value)
            else:
                entries.get(namespace, {}).pop(loads(key_data), None)
    rows = KeyedRows()
    for rows_of_keys in entries.values():
        if rows_of_keys:
            groups, keys, namespaces, values = zip(*rows_of_keys.values(), strict=True)
            rows.extend(groups, PUT, keys, namespaces, values)
    return rows.to_bytes(merged(all_shapes))


def read_operator(data: bytes, loads: Callable[[bytes], Any] = pickle.loads) -> list[Any]:
    """The items of an operator state."""
    (items,) = _columns(data)
    return [loads(item) for item in items]
