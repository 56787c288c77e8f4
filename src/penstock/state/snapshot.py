"""What a snapshot captures, and its bytes: Arrow IPC, so that pandas or Spark can read a savepoint (H5).

A keyed state is a *history* of files, each a table of rows (key_group, operation, key, namespace, value) that is
applied after the one before: put an entry, remove an entry, or drop a whole namespace. A history of one file with
puts only is a full snapshot. An operator state is a table of rows (value). Keys, namespaces and values are pickled
bytes.

Capturing pickles at once, in a single call: what user code changes afterwards cannot reach the snapshot (G7). Working
out key groups, building the Arrow bytes and writing them happens in the background.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

from penstock.state.key_groups import key_group_of
from penstock.state.pickling import dumps

_BYTES = pa.large_binary()
_KEYED_SCHEMA = pa.schema(
    [("key_group", pa.int32()), ("operation", pa.int8()), ("key", _BYTES), ("namespace", _BYTES), ("value", _BYTES)]
)
_OPERATOR_SCHEMA = pa.schema([("value", _BYTES)])

PUT: Final = 0
REMOVE: Final = 1
DROP_NAMESPACE: Final = 2

Entries = dict[Any, dict[Any, Any]]


@dataclass
class KeyedCapture:
    """The changes of one keyed state, frozen: pickled (dropped, [(namespace, keys, values, removed keys)])."""

    name: str
    frozen: bytes

    def to_bytes(self, max_parallelism: int) -> bytes:
        """The changes as an Arrow IPC stream; drops first."""
        dropped, written = pickle.loads(self.frozen)
        rows = KeyedRows()
        for namespace in dropped:
            rows.add(-1, DROP_NAMESPACE, b"", dumps(namespace), b"")
        for namespace, kept, values, removed in written:
            namespace_bytes = dumps(namespace)
            for key in removed:
                rows.add(key_group_of(key, max_parallelism), REMOVE, dumps(key), namespace_bytes, b"")
            for key, value in zip(kept, values, strict=True):
                rows.add(key_group_of(key, max_parallelism), PUT, dumps(key), namespace_bytes, dumps(value))
        return rows.to_bytes()


@dataclass
class OperatorCapture:
    """The items of one operator state; `mode` is split, union, broadcast (D2) or channel (records in flight)."""

    name: str
    mode: str
    items: list[bytes]

    def to_bytes(self) -> bytes:
        """The items as an Arrow IPC stream."""
        return _ipc([_bytes_column(self.items)], _OPERATOR_SCHEMA)


StateCapture = KeyedCapture | OperatorCapture


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

    def to_bytes(self) -> bytes:
        groups, operations, *binary = self._columns
        columns = [_int_column(groups, pa.int32(), "i"), _int_column(operations, pa.int8(), "b")]
        return _ipc(columns + [_bytes_column(column) for column in binary], _KEYED_SCHEMA)


# Columns are built from their buffers: faster than from Python values, and `pyarrow.array` would import pandas.


def _bytes_column(items: list[bytes]) -> Any:
    offsets = array("q", accumulate(map(len, items), initial=0))
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
    table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
    return [column.to_pylist() for column in table.columns]


def read_keyed(files: Iterable[bytes], first_key_group: int, last_key_group: int) -> Entries:
    """The entries that a history leaves, by namespace, of the key groups in the range, both ends included."""
    loads = pickle.loads
    tables: Entries = {}
    for data in files:
        for group, operation, key_data, namespace_data, value in zip(*_columns(data), strict=True):
            namespace = loads(namespace_data)
            if operation == DROP_NAMESPACE:
                tables.pop(namespace, None)
            elif first_key_group <= group <= last_key_group:
                if operation == PUT:
                    tables.setdefault(namespace, {})[loads(key_data)] = loads(value)
                else:
                    tables.get(namespace, {}).pop(loads(key_data), None)
    return tables


def merge_keyed(files: Iterable[bytes]) -> bytes:
    """One file that says the same as a history; values stay as they are."""
    loads = pickle.loads
    merged: dict[Any, dict[Any, tuple[int, bytes, bytes, bytes]]] = {}
    for data in files:
        for group, operation, key_data, namespace_data, value in zip(*_columns(data), strict=True):
            namespace = loads(namespace_data)
            if operation == DROP_NAMESPACE:
                merged.pop(namespace, None)
            elif operation == PUT:
                merged.setdefault(namespace, {})[loads(key_data)] = (group, key_data, namespace_data, value)
            else:
                merged.get(namespace, {}).pop(loads(key_data), None)
    rows = KeyedRows()
    for entries in merged.values():
        for group, key_data, namespace_data, value in entries.values():
            rows.add(group, PUT, key_data, namespace_data, value)
    return rows.to_bytes()


def read_operator(data: bytes) -> list[Any]:
    """The items of an operator state."""
    (items,) = _columns(data)
    return [pickle.loads(item) for item in items]
