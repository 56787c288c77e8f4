"""What a snapshot captures, and its bytes: Arrow IPC, so that pandas or Spark can read a savepoint (H5).

A keyed state is a table of rows (key_group, key, namespace, value); an operator state is a table of rows (value).
Keys, namespaces and values are pickled bytes. Capturing pickles at once: what user code changes afterwards cannot
reach the snapshot (G7). Building the Arrow bytes and writing them happens in the background.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pyarrow as pa

_BYTES = pa.large_binary()
_KEYED_SCHEMA = pa.schema([("key_group", pa.int32()), ("key", _BYTES), ("namespace", _BYTES), ("value", _BYTES)])
_OPERATOR_SCHEMA = pa.schema([("value", _BYTES)])


@dataclass
class KeyedCapture:
    """The rows of one keyed state."""

    name: str
    key_groups: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    namespaces: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """The rows as an Arrow IPC stream."""
        columns = [_int_column(self.key_groups), *map(_bytes_column, (self.keys, self.namespaces, self.values))]
        return _ipc(columns, _KEYED_SCHEMA)


@dataclass
class OperatorCapture:
    """The items of one operator state; `mode` is split, union or broadcast (D2)."""

    name: str
    mode: str
    items: list[bytes]

    def to_bytes(self) -> bytes:
        """The items as an Arrow IPC stream."""
        return _ipc([_bytes_column(self.items)], _OPERATOR_SCHEMA)


StateCapture = KeyedCapture | OperatorCapture


# Columns are built from their buffers: faster than from Python values, and `pyarrow.array` would import pandas.


def _bytes_column(items: list[bytes]) -> Any:
    offsets = array("q", accumulate(map(len, items), initial=0))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(items))]
    return pa.Array.from_buffers(_BYTES, len(items), buffers)


def _int_column(items: list[int]) -> Any:
    return pa.Array.from_buffers(pa.int32(), len(items), [None, pa.py_buffer(array("i", items))])


def _ipc(columns: list[Any], schema: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    result: bytes = sink.getvalue().to_pybytes()
    return result


def read_keyed(data: bytes, first_key_group: int, last_key_group: int) -> Iterator[tuple[Any, Any, Any]]:
    """(key, namespace, value) of the rows whose key group lies in the range, both ends included."""
    table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
    loads = pickle.loads
    groups, keys, namespaces, values = (column.to_pylist() for column in table.columns)
    for group, key, namespace, value in zip(groups, keys, namespaces, values, strict=True):
        if first_key_group <= group <= last_key_group:
            yield loads(key), loads(namespace), loads(value)


def read_operator(data: bytes) -> list[Any]:
    """The items of an operator state."""
    table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
    return [pickle.loads(item) for item in table.column(0).to_pylist()]
