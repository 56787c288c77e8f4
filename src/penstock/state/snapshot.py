"""The contents of a snapshot, encoded as Arrow IPC so that pandas or Spark can read a savepoint (H5), and captures.

`StateCapture` is an operator's state at a checkpoint, isolated from all later changes (G7): keyed, operator or channel
state. It is made in the task's turn. In the background it stores itself in a `CaptureWriter`, which is the operator's
part of the checkpoint in progress, or it is discarded.

`freeze` protects the changes of a keyed state when a snapshot is taken (G7). User code continues meanwhile and may
change the objects, so they are pickled at once, in a single call. Numbers, text, bytes and tuples of these are
immutable: they are kept, and pickled in the background. Key groups are computed, and the Arrow bytes built and written,
in the background as well.

An operator may hold values in a form that snapshots do not use, such as the numbers of rows that it keeps in columns.
Its table then has a `Pack`, which takes the current data of these values, and builds the values in the background.

**Files.** A keyed state is a *history* of files, each a table of rows (key_group, operation, key, namespace, value).
Files apply in order; an operation puts an entry, removes an entry, or drops a whole namespace. A history of one file
with only puts is a full snapshot. An operator state is a table of rows (value). Keys, namespaces and values are pickled
bytes. The Arrow schema of keyed state has two keys in its metadata. `penstock.classes` holds, as JSON, the classes that
the pickles name, with the fields of dataclasses and NamedTuples (`state.loading`). `penstock.keys` holds the version of
the canonical bytes (`state.keys`) that assigned the keys to key groups.
"""

from __future__ import annotations

import json
import pickle
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from penstock.codecs.pickling import dumps, dumps_all
from penstock.state.errors import StateError
from penstock.state.keys import assign_key_group, assign_key_groups
from penstock.state.loading import Shapes, loads_with_shapes, merged, shapes_from_json

if TYPE_CHECKING:
    from penstock.state.loading import StateLoader


Reference = TypeVar("Reference")


class StateCapture(Protocol):
    """See the module docstring."""

    def write_capture(self, writer: CaptureWriter) -> None:
        """Write everything that was captured."""

    def discard(self) -> None:
        """Release the captured state; also called after it was stored. A second call has no effect."""


class NativeCapture(StateCapture, Protocol):
    """All keyed state of an operator in a subtask at a checkpoint, in the backend's own files."""

    @property
    def backend(self) -> str:
        """The backend's name."""

    @property
    def schemas(self) -> Mapping[str, str]:
        """The schemas of the states, by name."""

    def store(self, write: Callable[[str, bytes], Reference], known: Mapping[str, Reference]) -> dict[str, Reference]:
        """Store each file with `write(name, data)`, except unchanged files of the checkpoint it builds on."""

    def export(self) -> Iterator[tuple[str, bytes]]:
        """Yield the same state in the canonical format: (state name, file), one state's files after another's."""


class CaptureWriter(Protocol):
    """The destination of captures. Names are state names of one operator."""

    @property
    def max_parallelism(self) -> int:
        """The number of key groups."""

    def write_list(self, name: str, mode: str, count: int, data: bytes) -> None:
        """Write an operator state, or the records in flight in a channel; `mode` says how it is redistributed."""

    def write_changes(self, name: str, schema: str, is_whole: bool, data: bytes) -> None:
        """Write the changes of a keyed state: all of it if `is_whole`, or if its schema has changed."""

    def write_columns(self, name: str, is_addition: bool, data: bytes) -> None:
        """Write a keyed state in columns: all of it, or the rows that the last completed checkpoint does not have."""

    def write_native(self, capture: NativeCapture) -> None:
        """Write all keyed state, in a backend's own files."""


#: A namespace, the keys written in it with their values, and the keys removed from it.
Contents: TypeAlias = tuple[Any, list[Any], list[Any], list[Any]]
#: Dropped namespaces, and the contents written and removed.
Changes: TypeAlias = tuple[list[Any], list[Contents]]


class Packed(Protocol):
    """Values as of a snapshot, in an immutable form."""

    def unpack(self) -> list[Any]:
        """Return the values in the form of snapshots, as new objects; called once, in the background."""


#: Packs values in the form that an operator holds.
Pack: TypeAlias = Callable[[list[Any]], Packed]


@dataclass
class PackedChanges:
    """Changes whose values are packed."""

    dropped: list[Any]
    written: list[tuple[Any, list[Any], Packed, list[Any]]]

    @classmethod
    def of(cls, changes: Changes, pack: Pack) -> PackedChanges:
        """Pack the changes; the result owns their lists."""
        dropped, written = changes
        return cls(dropped, [(namespace, keys, pack(values), removed) for namespace, keys, values, removed in written])

    def unpack(self) -> Changes:
        """Return the changes in the form of snapshots."""
        written = [(namespace, keys, values.unpack(), removed) for namespace, keys, values, removed in self.written]
        return self.dropped, written


Frozen: TypeAlias = bytes | Changes | PackedChanges

_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})
_PLAIN_OR_TUPLE: Final = _PLAIN | {tuple}


def freeze(changes: Changes) -> Frozen:
    """Protect the changes from later changes to their objects; the result owns the lists. Raises pickling errors."""
    dropped, written = changes
    namespaces = [*dropped, *(namespace for namespace, _, _, _ in written)]
    lists = chain.from_iterable((keys, values, removed) for _, keys, values, removed in written)
    return changes if _are_plain(namespaces) and all(map(_are_plain, lists)) else dumps(changes)


def thaw(frozen: Frozen) -> tuple[Changes, Shapes]:
    """Return the changes, and the shapes of the classes in them."""
    if isinstance(frozen, PackedChanges):
        return frozen.unpack(), {}
    if isinstance(frozen, tuple):
        return frozen, {}
    return loads_with_shapes(frozen)


def _are_plain(values: list[Any]) -> bool:
    """Return whether each value is plain, or a tuple of plain values."""
    kinds = set(map(type, values))
    if not kinds <= _PLAIN_OR_TUPLE:
        return False
    if tuple not in kinds:
        return True
    tuples = values if kinds == {tuple} else [value for value in values if type(value) is tuple]
    return set(map(type, chain.from_iterable(tuples))) <= _PLAIN


_BYTES = pa.large_binary()
_KEYED_SCHEMA = pa.schema(
    [("key_group", pa.int32()), ("operation", pa.int8()), ("key", _BYTES), ("namespace", _BYTES), ("value", _BYTES)]
)
_OPERATOR_SCHEMA = pa.schema([("value", _BYTES)])

PUT: Final = 0
REMOVE: Final = 1
DROP_NAMESPACE: Final = 2

_CLASSES: Final = b"penstock.classes"
#: The version of the canonical bytes that determine the key groups of a file; missing in files that predate versions.
_KEYS: Final = b"penstock.keys"
KEYS_VERSION: Final = b"2"
_NO_NAMESPACE: Final = b""

Entries = dict[Any, dict[Any, Any]]


@dataclass
class KeyedCapture:
    """The frozen changes of one keyed state.

    They are the whole state if `is_whole` is set, or if `schema`, the text of `schema.declared`, differs from the
    schema of the preceding history.
    """

    name: str
    frozen: Frozen
    schema: str = ""
    is_whole: bool = False

    def to_bytes(self, max_parallelism: int) -> bytes:
        """Encode the changes as an Arrow IPC stream, drops first."""
        (dropped, written), shapes = thaw(self.frozen)
        rows = KeyedRows()
        for namespace in dropped:
            rows.add(-1, DROP_NAMESPACE, b"", dumps(namespace), b"")
        # Timers have thousands of namespaces with one key each, so gather the puts first.
        keys: list[Any] = []
        values: list[Any] = []
        namespaces: list[bytes] = []
        for namespace, put_keys, put_values, removed in written:
            namespace_bytes = dumps(namespace)
            for key in removed:
                rows.add(assign_key_group(key, max_parallelism), REMOVE, dumps(key), namespace_bytes, b"")
            keys += put_keys
            values += put_values
            namespaces += [namespace_bytes] * len(put_keys)
        rows.extend(assign_key_groups(keys, max_parallelism), PUT, dumps_all(keys), namespaces, dumps_all(values))
        return rows.to_bytes(shapes)

    def write_capture(self, writer: CaptureWriter) -> None:
        """See `StateCapture`."""
        writer.write_changes(self.name, self.schema, self.is_whole, self.to_bytes(writer.max_parallelism))

    def discard(self) -> None:
        """Do nothing: the capture is only in memory."""


@dataclass
class OperatorCapture:
    """The items of one operator state; `mode` is split, union, committable or broadcast (D2)."""

    name: str
    mode: str
    items: list[bytes]

    @property
    def count(self) -> int:
        """The number of items."""
        return len(self.items)

    def to_bytes(self) -> bytes:
        """Encode the items as an Arrow IPC stream."""
        return operator_bytes(self.items)

    def write_capture(self, writer: CaptureWriter) -> None:
        """See `StateCapture`."""
        writer.write_list(self.name, self.mode, self.count, self.to_bytes())

    def discard(self) -> None:
        """Do nothing: the capture is only in memory."""


def operator_bytes(items: list[bytes]) -> bytes:
    """Encode the items of a state without keys as an Arrow IPC stream, which `read_operator` reads."""
    return _ipc([_bytes_column(items)], _OPERATOR_SCHEMA)


class KeyedRows:
    """Rows of a keyed state, collected by column."""

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
        """Add many rows with the same operation."""
        columns = self._columns
        columns[0].extend(key_groups)
        columns[1].extend([operation] * len(key_groups))
        columns[2].extend(keys)
        columns[3].extend(namespaces)
        columns[4].extend(values)

    def to_bytes(self, shapes: Shapes | None = None, keys_version: bytes | None = KEYS_VERSION) -> bytes:
        groups, operations, *binary = self._columns
        metadata = {} if keys_version is None else {_KEYS: keys_version}
        if shapes is not None:
            metadata[_CLASSES] = json.dumps(shapes).encode()
        schema = _KEYED_SCHEMA.with_metadata(metadata or None)
        columns = [_int_column(groups, pa.int32(), "i"), _int_column(operations, pa.int8(), "b")]
        return _ipc(columns + [_bytes_column(column) for column in binary], schema)


# Columns are built from buffers: this is faster than from Python values, and `pyarrow.array` would import pandas.


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
    return _columns_and_about(data)[0]


def _columns_and_about(data: bytes) -> tuple[list[list[Any]], AboutFile]:
    table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
    return [column.to_pylist() for column in table.columns], _about(table.schema)


class AboutFile(NamedTuple):
    """The metadata of a keyed state file.

    `shapes`: the classes that its pickles name; None if unknown. `keys_version`: see the module docstring.
    """

    shapes: Shapes | None
    keys_version: bytes | None


def _about(schema: Any) -> AboutFile:
    metadata = schema.metadata or {}
    classes = metadata.get(_CLASSES)
    return AboutFile(None if classes is None else shapes_from_json(json.loads(classes)), metadata.get(_KEYS))


def about_keyed(data: bytes) -> AboutFile:
    """Return the metadata of a file."""
    return _about(pa.ipc.open_stream(pa.BufferReader(data)).schema)


def extract_shapes(schema: Any) -> Shapes | None:
    """Return the classes that the pickles of a file name, from its Arrow schema; None if unknown."""
    return _about(schema).shapes


def iterate_keyed(data: bytes, rows_max: int = 4096) -> Iterator[tuple[int, int, bytes, bytes, bytes]]:
    """Yield the rows of one file; at most `rows_max` of them are Python objects at a time."""
    for batch in pa.ipc.open_stream(pa.BufferReader(data)):
        for begin in range(0, batch.num_rows, rows_max):
            yield from zip(*(c.to_pylist() for c in batch.slice(begin, rows_max).columns), strict=True)


def read_keyed(
    files: Iterable[bytes], first_key_group: int, last_key_group: int, loader: StateLoader | None = None
) -> Entries:
    """Apply a history and return the resulting entries of a range of key groups (both ends included), by namespace.

    A `loader` converts classes that have changed since, or names them in a `StateMigrationError`.
    """
    tables: Entries = {}
    for data in files:
        columns, about = _columns_and_about(data)
        loads = pickle.loads if loader is None else loader.for_file(about.shapes)
        renewed = None if loader is None or about.keys_version is not None else loader.renewed_key
        try:
            _apply(tables, columns, first_key_group, last_key_group, loads, loader, renewed)
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
    renewed: Callable[[Any, int], Any] | None,
) -> None:
    """Apply the rows of a file to the entries. `renewed` converts the keys of an older file."""
    last_namespace_data, namespace = _NO_NAMESPACE, None
    for group, operation, key_data, namespace_data, value in zip(*columns, strict=True):
        if namespace_data != last_namespace_data:
            last_namespace_data, namespace = namespace_data, loads(namespace_data)
        if operation == DROP_NAMESPACE:
            tables.pop(namespace, None)
        elif first_key_group <= group <= last_key_group:
            key = loads(key_data)
            if renewed is not None:
                key = renewed(key, group)
            if operation == PUT:
                tables.setdefault(namespace, {})[key] = loads(value)
            else:
                tables.get(namespace, {}).pop(key, None)
            if loader is not None and loader.has_changed:
                loader.check_key(key, group)


def merge_keyed(files: Iterable[bytes]) -> bytes:
    """Merge a history into one equivalent file, keeping the pickled values."""
    loads = pickle.loads
    entries: dict[Any, dict[Any, tuple[int, bytes, bytes, bytes]]] = {}
    all_shapes: list[Shapes | None] = []
    keys_version: bytes | None = KEYS_VERSION
    for data in files:
        columns, about = _columns_and_about(data)
        all_shapes.append(about.shapes)
        keys_version = keys_version and about.keys_version
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
    return rows.to_bytes(merged(all_shapes), keys_version)


def read_operator(data: bytes, loads: Callable[[bytes], Any] = pickle.loads) -> list[Any]:
    """Return the items of an operator state."""
    (items,) = _columns(data)
    return [loads(item) for item in items]
