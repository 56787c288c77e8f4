"""`SavepointReader`: opens savepoints and checkpoints for reading, with every state as a table (H5).

Savepoints are read and signed with the key of `penstock.checkpoints.signing-key`.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import CheckpointError, ConfigurationError
from penstock.base.options import SIGNING_KEY
from penstock.codecs.arrow_columns import plain_table
from penstock.codecs.file_systems import url_to_fs
from penstock.drivers.global_configuration import default_configuration
from penstock.runtime.operators.connector import COMMITTABLES_STATE, SPLITS_STATE
from penstock.runtime.operators.window.kept_windows import ALL_SLOTS
from penstock.state.errors import StateError
from penstock.state.key_columns import COLUMNS_SCHEMA, add_key_groups, read_columns, select_entries
from penstock.state.migrations import registered
from penstock.state.states import MapStateDescriptor, StateDescriptor
from penstock.state_processor.layouts import (
    FIRED_WINDOW_STATE,
    REDUCE_STATE,
    SESSION_STATE,
    TIMERS,
    WINDOW_STATE,
    KeyedPart,
    Layout,
    ListPart,
    OperatorListing,
    declared_kind,
    entry_layout,
    find_operator,
    item_layout,
    list_layout,
    list_operator,
    map_layout,
    no_such_state,
    operator_name,
    pair_layout,
    result_layout,
    session_layout,
    slots_layout,
    timer_layout,
    value_layout,
    window_layout,
)
from penstock.state_processor.table import Column, SavepointTable, StatePart, declared_type, decode
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.files import absolute_url, parse_signing_key
from penstock.storage.metadata import (
    CHANNEL_MODE,
    CheckpointMetadata,
    KeyedStateHandle,
    OperatorState,
    OperatorStateHandle,
    StateFile,
)


def configured_store(job_id: str, inline_bytes_max: int) -> FileCheckpointStore:
    """Return a store for savepoints, with the key of `config.yaml` or the command line, if any."""
    key = parse_signing_key(default_configuration().read(SIGNING_KEY))
    return FileCheckpointStore(None, job_id, inline_bytes_max, key=key)


def sign_savepoint(path: str, target: str, key: str | None = None) -> str:
    """Copy a savepoint or checkpoint into a new directory and sign it. Existing signatures are not checked.

    A job that ran without `penstock.checkpoints.signing-key` can continue with it from the copy. Sign only savepoints
    that you trust.

    Args:
        path: the directory of the savepoint or checkpoint, in any fsspec file system.
        target: a directory that does not exist or is empty.
        key: 16 characters or more; by default the option's value in `config.yaml`.

    Returns:
        The directory of the signed savepoint.

    Raises:
        CheckpointError: if `path` holds no complete savepoint or checkpoint, or `target` is not empty.
        ConfigurationError: if the key is missing or too short.

    Examples:
        >>> from penstock.datastream.state import ValueStateDescriptor
        >>> from penstock.state_processor import SavepointWriter, sign_savepoint
        >>> writer = SavepointWriter.new_savepoint().with_keyed_state(
        ...     "counter", ValueStateDescriptor("count"), [{"key": "ann", "value": 10}]
        ... )
        >>> path = sign_savepoint(writer.write("savepoint"), "signed", key="0123456789abcdef")
        >>> path.endswith("signed")
        True
    """
    secret = parse_signing_key(key if key is not None else default_configuration().read(SIGNING_KEY))
    if secret is None:
        raise ConfigurationError(f"set {SIGNING_KEY.key()}, or give a key")
    source = FileCheckpointStore(None, "", 0)
    metadata = source.load(str(path))
    where = absolute_url(str(target))
    fs, directory = url_to_fs(where)
    if fs.exists(directory) and fs.ls(directory):
        raise CheckpointError(f"{where} already exists and is not empty: name a new directory")
    signed = FileCheckpointStore(None, metadata.job_id, 0, key=secret)

    def copied(file: StateFile) -> StateFile:
        if file.path is None:
            return file
        return signed.write(metadata.checkpoint_id, os.path.basename(file.path), source.read(file), where)

    try:
        signed.complete(metadata.with_files(copied), where)
    except BaseException:
        signed.discard_savepoint(where)
        raise
    return where


@dataclass(frozen=True)
class ColumnsPart:
    """A history of a state in columns, which one task reads. It can be sent to another process.

    Attributes:
        storage: reads the files.
        files: the history.
        max_parallelism: the number of key groups.
    """

    storage: FileCheckpointStore
    files: tuple[StateFile, ...]
    max_parallelism: int

    def table(self, with_key_groups: bool = True) -> pa.Table:
        """Return the entries, by default with the key group of each as the first column, which takes a hash of each."""
        rows = read_columns(map(self.storage.read, self.files))
        return select_entries(add_key_groups(rows, self.max_parallelism) if with_key_groups else rows)

    def column_names(self) -> list[str]:
        """Return the names of the columns, with that of the key group."""
        rows = read_columns([self.storage.read(self.files[-1])]).slice(0, 0)
        names: list[str] = select_entries(add_key_groups(rows, self.max_parallelism)).column_names
        return names


#: Several Spark tasks read a history longer than this (bytes), each taking some of its key groups.
SLICE_BYTES: Final = 128 << 20


class SavepointReader:
    """A savepoint or retained checkpoint, open for reading. Operators are identified by uid or operator id.

    Column types are inferred from the first rows of a state, unless `key_type` or `value_type` gives them: a Python
    type, a dataclass, a `TypeInformation`, an Arrow type, or `PICKLED`.

    Reading unpickles the job's data, which runs code that the savepoint names: read only savepoints that you trust.

    Every `read_...` method raises `StateError` if the operator or state does not exist, and lists the existing ones.

    Examples:
        >>> from penstock.datastream.state import ValueStateDescriptor
        >>> from penstock.state_processor import SavepointReader, SavepointWriter
        >>> writer = SavepointWriter.new_savepoint().with_keyed_state(
        ...     "counter", ValueStateDescriptor("count"), [{"key": "ann", "value": 10}]
        ... )
        >>> reader = SavepointReader.read(writer.write("savepoint"))
        >>> reader.read_value_state("counter", "count").to_pandas()
           key  value
        0  ann     10
    """

    def __init__(self, metadata: CheckpointMetadata) -> None:
        self._metadata = metadata
        self._storage = configured_store(metadata.job_id, 0)

    @classmethod
    def read(cls, path: str) -> SavepointReader:
        """Open the savepoint or checkpoint in a directory of any fsspec file system; reads only its metadata.

        Raises:
            CheckpointError: if the metadata is missing or damaged.

        Examples:
            >>> SavepointReader.read("savepoint").is_savepoint
            True
        """
        return cls(configured_store("", 0).load(str(path)))

    # --- what is there -----------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> CheckpointMetadata:
        """The metadata, with the paths of all files."""
        return self._metadata

    @property
    def job_name(self) -> str:
        """The name of the job that took the snapshot."""
        return self._metadata.job_name

    @property
    def checkpoint_id(self) -> int:
        """The number of the checkpoint within its job."""
        return self._metadata.checkpoint_id

    @property
    def is_savepoint(self) -> bool:
        """Whether it is a savepoint rather than a checkpoint."""
        return self._metadata.is_savepoint

    @property
    def taken_at(self) -> datetime.datetime:
        """When the checkpoint or savepoint began, UTC."""
        return datetime.datetime.fromtimestamp(self._metadata.timestamp_ms / 1000, datetime.UTC)

    @property
    def operators(self) -> list[OperatorListing]:
        """All operators of the job, including those without state, upstream before downstream."""
        return [list_operator(operator) for operator in self._metadata.operators]

    def operator(self, uid: str) -> OperatorListing:
        """Return the operator with this uid or operator id."""
        return list_operator(self._find(uid))

    def verify(self) -> None:
        """Read every file once; raise `CheckpointError` for the first missing or damaged one."""
        for file in self._metadata.state_files():
            self._storage.read(file)

    # --- keyed state -------------------------------------------------------------------------------------------------

    def read_value_state(
        self, uid: str, name: str | StateDescriptor, key_type: Any = None, value_type: Any = None
    ) -> SavepointTable:
        """Read a value state: key, value.

        Args:
            uid: the operator's uid or operator id.
            name: the state's name, or its descriptor.
            key_type: the type of the keys; None to infer it.
            value_type: the type of the values; None to infer it.

        Examples:
            >>> list(reader.read_value_state("counter", "count", key_type=str, value_type=int))
            [('ann', 10)]
        """
        return self._keyed(uid, name, "value", value_layout, ("key", "value"), key_type, value_type)

    def read_list_state(
        self, uid: str, name: str | StateDescriptor, key_type: Any = None, value_type: Any = None
    ) -> SavepointTable:
        """Read a list state: key, index, value for keyed state; subtask, index, value for operator state."""
        operator = self._find(uid)
        if _name(name) in _operator_names(operator) - _keyed_names(operator):
            return self._items(operator, _name(name), ("split", "union", "broadcast"), value_type)
        return self._keyed(uid, name, "list", list_layout, ("key", "index", "value"), key_type, value_type)

    def read_map_state(
        self,
        uid: str,
        name: str | StateDescriptor,
        key_type: Any = None,
        value_type: Any = None,
        map_key_type: Any = None,
    ) -> SavepointTable:
        """Read a map state: key, map_key, value."""
        if map_key_type is None and isinstance(name, MapStateDescriptor):
            map_key_type = declared_type(name.key_type_info)
        columns = ("key", "map_key", "value")
        return self._keyed(uid, name, "map", map_layout, columns, key_type, value_type, map_key=map_key_type)

    def read_reducing_state(
        self, uid: str, name: str | StateDescriptor = REDUCE_STATE, key_type: Any = None, value_type: Any = None
    ) -> SavepointTable:
        """Read a reducing state: key, value. By default, reads the state of a `reduce` on a keyed stream."""
        return self._keyed(uid, name, "reducing", value_layout, ("key", "value"), key_type, value_type)

    def read_aggregating_state(
        self,
        uid: str,
        name: str | StateDescriptor,
        agg_function: Any = None,
        key_type: Any = None,
        value_type: Any = None,
    ) -> SavepointTable:
        """Read an aggregating state: key, value. The value is the accumulator, or its result if `agg_function` is
        given.
        """
        layout: Layout = value_layout
        if agg_function is not None:
            layout = partial(result_layout, get_result=agg_function.get_result)
        return self._keyed(uid, name, "aggregating", layout, ("key", "value"), key_type, value_type)

    def read_keyed_state(
        self, uid: str, name: str | StateDescriptor, key_type: Any = None, value_type: Any = None
    ) -> SavepointTable:
        """Read any keyed state as stored: key, namespace, value."""
        return self._keyed(uid, name, None, entry_layout, ("key", "namespace", "value"), key_type, value_type)

    def read_columns(self, uid: str, name: str | None = None) -> pa.Table:
        """Read a state that an operator keeps in columns: an Arrow table with a row for each entry.

        Rows that later ones have replaced are left out. The first column is the key group of each row. Columns of SQL
        have the names of the query where these are clear: of a join, the state `left_columns` has the columns of its
        left input; of a group aggregate, `group_columns` has the grouping columns, `rows` with the number of rows, and
        the partial results.

        Args:
            uid: the operator's uid or operator id.
            name: the name of the state; None if the operator keeps only one in columns.

        Raises:
            StateError: if the operator keeps no such state in columns, or several and `name` is None, or keeps maps
                with NULL keys.
        """
        operator = self._find(uid)
        names = sorted(_names_of_columns(operator))
        if not names:
            raise StateError(f"{operator_name(operator)} keeps no state in columns")
        if name is None and len(names) > 1:
            raise StateError(f"{operator_name(operator)} keeps several states in columns: name {' or '.join(names)}")
        name = names[0] if name is None else name
        if name not in names:
            raise StateError(f"{operator_name(operator)} keeps no state {name!r} in columns, but {' and '.join(names)}")
        try:
            tables = [plain_table(part.table()) for part in self._column_parts(operator, name)]
        except pa.ArrowInvalid as error:
            raise StateError(f"the state of {operator_name(operator)} cannot be read as columns: {error}") from error
        return pa.concat_tables(tables).replace_schema_metadata(tables[0].schema.metadata)

    def _column_parts(self, operator: OperatorState, name: str) -> list[ColumnsPart]:
        return [
            ColumnsPart(self._storage, handle.files, operator.max_parallelism)
            for handle in _column_handles(operator, name)
        ]

    def read_timers(self, uid: str, key_type: Any = None) -> SavepointTable:
        """Read the timers of a process function: time_domain (event or processing), timestamp_ms, key."""
        operator = self._find(uid)
        self._check_native(operator)
        reads = [
            (partial(timer_layout, domain=domain), part)
            for domain, name in TIMERS.items()
            for part in self._keyed_parts(operator, name)
        ]
        columns = [Column("time_domain", str), Column("timestamp_ms", int), Column("key", key_type)]
        return SavepointTable(f"the timers of {operator_name(operator)}", columns, reads, self._storage)

    def read_window_state(self, uid: str, key_type: Any = None, value_type: Any = None) -> SavepointTable:
        """Read the open windows: key, window_start, window_end (ms), fired, value.

        The value is the contents of the window: a reduced record, an accumulator, the list of all records, or with an
        evictor the list of (record, timestamp). Windows that have `fired` are kept for late records; for windows with a
        custom trigger, `fired` is unknown. Count windows, the global window and windows of other classes have neither
        start nor end.
        """
        operator = self._find(uid)
        self._check_native(operator)
        layouts: dict[str, Layout] = {
            WINDOW_STATE: partial(window_layout, fired=False),
            FIRED_WINDOW_STATE: partial(window_layout, fired=True),
            SESSION_STATE: session_layout,
            **dict.fromkeys(ALL_SLOTS, slots_layout),
        }
        if not _keyed_names(operator) & layouts.keys():
            raise no_such_state(operator, "windows", "window")
        reads = [(layout, part) for name, layout in layouts.items() for part in self._keyed_parts(operator, name)]
        columns = [
            Column("key", key_type),
            Column("window_start", int),
            Column("window_end", int),
            Column("fired", bool),
            Column("value", value_type),
        ]
        return SavepointTable(f"the windows of {operator_name(operator)}", columns, reads, self._storage)

    # --- operator state ----------------------------------------------------------------------------------------------

    def read_operator_state(self, uid: str, name: str, value_type: Any = None) -> SavepointTable:
        """Read any operator state as stored: subtask, index, value."""
        return self._items(self._find(uid), name, None, value_type)

    def read_union_state(self, uid: str, name: str | StateDescriptor, value_type: Any = None) -> SavepointTable:
        """Read a union list: subtask, index, value."""
        return self._items(self._find(uid), _name(name), ("union",), value_type)

    def read_broadcast_state(
        self, uid: str, name: str | StateDescriptor, key_type: Any = None, value_type: Any = None
    ) -> SavepointTable:
        """Read a broadcast map: map_key, value. All subtasks have the same map; an unfinished one is preferred."""
        operator = self._find(uid)
        parts = self._list_parts(operator, _name(name), ("broadcast",))
        chosen = min(parts, key=lambda part: (part.subtask in operator.finished, part.subtask))
        if isinstance(name, MapStateDescriptor):
            key_type = key_type or declared_type(name.key_type_info)
            value_type = value_type or declared_type(name.type_info)
        columns = [Column("map_key", key_type), Column("value", value_type)]
        return SavepointTable(chosen.what, columns, [(pair_layout, chosen)], self._storage)

    def read_source_splits(self, uid: str) -> SavepointTable:
        """Read the splits of a source's readers, with their positions: subtask, index, value."""
        return self._items(self._source(uid), SPLITS_STATE, None, None, may_be_empty=True)

    def read_enumerator(self, uid: str) -> Any:
        """Return the state of a source's split enumerator: a Python object of the connector."""
        operator = self._source(uid)
        assert operator.coordinator is not None
        return decode(self._storage.read(operator.coordinator))

    def read_sink_committables(self, uid: str) -> SavepointTable:
        """Read the committables that a sink had prepared and not committed: subtask, index, value."""
        return self._items(self._find(uid), COMMITTABLES_STATE, None, None, may_be_empty=True)

    # --- parts ---------------------------------------------------------------------------------------------------

    def read_kind(self, uid: str, name: str) -> str | None:
        """Return the kind of a keyed state, see `StateListing`; None if it is unknown.

        Raises:
            StateError: if the operator has no such keyed state.
        """
        operator = self._find(uid)
        if name not in _keyed_names(operator):
            raise no_such_state(operator, name, "keyed")
        return next(state.kind for state in list_operator(operator).states if state.name == name)

    def measure_states(self, uid: str, names: Sequence[str]) -> int:
        """Return the size of the files of keyed states (bytes)."""
        operator = self._find(uid)
        files = {file for name in names for part in self._keyed_parts(operator, name) for file in part.files}
        return sum(file.length for file in files)

    def split_by_key(
        self, uid: str, names: Sequence[str], pieces: int, with_namespaces: bool = False
    ) -> list[list[tuple[StatePart, ...]]]:
        """Split keyed states into ranges of key groups, so that all states of a key are in one range.

        Args:
            uid: the operator's uid or operator id.
            names: the names of the states; their rows are key and value.
            pieces: how many ranges to make, if there are as many key groups.
            with_namespaces: whether rows are key, namespace and value.

        Returns:
            For each range, the parts of each state.
        """
        operator = self._find(uid)
        self._check_native(operator)
        layout = entry_layout if with_namespaces else value_layout
        states = [list(self._keyed_parts(operator, name)) for name in names]
        groups = operator.max_parallelism
        return [
            [
                tuple(
                    StatePart(self._storage, layout, part.cut(first, last))
                    for part in parts
                    if part.first <= last and first <= part.last
                )
                for parts in states
            ]
            for first, last in split_range(0, groups - 1, max(1, min(pieces, groups)))
        ]

    def split_columns(self, uid: str, name: str) -> list[ColumnsPart]:
        """Return the parts of a state in columns."""
        return self._column_parts(self._find(uid), name)

    def split_state(self, uid: str, name: str) -> tuple[list[str], Sequence[StatePart | ColumnsPart]]:
        """Split any state of an operator; returns the names of its columns, and the parts.

        The rows are those of the method that reads the state: `read_columns`, `read_timers`, and so on.
        """
        operator = self._find(uid)
        if name in _names_of_columns(operator):
            parts = self._column_parts(operator, name)
            return parts[0].column_names(), parts
        if name in _keyed_names(operator):
            kind = self.read_kind(uid, name) or ""
            if kind == "timers":
                table = self.read_timers(uid)
            elif kind == "window":
                table = self.read_window_state(uid)
            else:
                read: Callable[..., SavepointTable] = _METHODS.get(kind, SavepointReader.read_keyed_state)
                table = read(self, uid, name)
        else:
            table = self._read_items(operator, uid, name)
        return table.column_names, table.split()

    def _read_items(self, operator: OperatorState, uid: str, name: str) -> SavepointTable:
        if name not in _operator_names(operator):
            raise no_such_state(operator, name, "keyed or operator")
        handles = [handle for state in operator.subtasks.values() for handle in state.operator.get(name, ())]
        if {handle.mode for handle in handles} == {"broadcast"}:
            return self.read_broadcast_state(uid, name)
        return self.read_operator_state(uid, name)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _find(self, uid: str) -> OperatorState:
        return find_operator(self._metadata.operators, uid)

    def _source(self, uid: str) -> OperatorState:
        operator = self._find(uid)
        if operator.coordinator is None:
            raise StateError(f"operator {operator_name(operator)} has no split enumerator: it is not a source")
        return operator

    def _keyed(
        self,
        uid: str,
        state: str | StateDescriptor,
        kind: str | None,
        layout: Layout,
        columns: tuple[str, ...],
        key_type: Any,
        value_type: Any,
        **types: Any,
    ) -> SavepointTable:
        operator, name = self._find(uid), _name(state)
        self._check_native(operator)
        parts = list(self._keyed_parts(operator, name))
        if name not in _keyed_names(operator):
            raise no_such_state(operator, name, "keyed")
        _check_kind(operator, name, kind)
        if value_type is None and isinstance(state, StateDescriptor):
            value_type = declared_type(state.type_info)
        known = {"key": key_type, "value": value_type, "index": pa.int64(), **types}
        title = f"state {name!r} of {operator_name(operator)}"
        reads = [(layout, part) for part in parts]
        return SavepointTable(title, [Column(c, known.get(c)) for c in columns], reads, self._storage)

    def _keyed_parts(self, operator: OperatorState, name: str) -> Iterator[KeyedPart]:
        title = f"state {name!r} of {operator_name(operator)}"
        for _, state in sorted(operator.subtasks.items()):
            for handle in state.keyed.get(name, ()):
                if handle.schema == COLUMNS_SCHEMA:
                    raise StateError(f"{title} is kept in columns: read it with read_columns")
                for first, last in slices(handle, SLICE_BYTES):
                    yield KeyedPart(
                        name, operator_name(operator), handle.files, first, last, handle.schema, registered()
                    )

    def _check_native(self, operator: OperatorState) -> None:
        listing = list_operator(operator)
        if listing.native_bytes:
            raise StateError(
                f"the keyed state of {operator_name(operator)} is in files of its state backend, which only a job can "
                "read: take a savepoint, which every backend writes in the same format"
            )

    def _items(
        self,
        operator: OperatorState,
        name: str,
        modes: tuple[str, ...] | None,
        value_type: Any,
        may_be_empty: bool = False,
    ) -> SavepointTable:
        is_there = name in _operator_names(operator) or not may_be_empty
        parts = self._list_parts(operator, name, modes) if is_there else []
        columns = [Column("subtask", pa.int32()), Column("index", pa.int64()), Column("value", value_type)]
        title = f"operator state {name!r} of {operator_name(operator)}"
        return SavepointTable(title, columns, [(item_layout, part) for part in parts], self._storage)

    def _list_parts(self, operator: OperatorState, name: str, modes: tuple[str, ...] | None) -> list[ListPart]:
        parts, used_modes = [], set()
        for subtask, state in sorted(operator.subtasks.items()):
            handles: tuple[OperatorStateHandle, ...] = state.operator.get(name, ())
            for handle in handles:
                used_modes.add(handle.mode)
                title = f"operator state {name!r} of {operator_name(operator)}"
                parts.append(ListPart(title, subtask, handle.file))
        if not parts:
            raise no_such_state(operator, name, "operator")
        if modes is not None and not used_modes <= set(modes):
            raise StateError(
                f"operator state {name!r} of {operator_name(operator)} is a {'/'.join(sorted(used_modes))} state, not "
                f"{' or '.join(modes)}: read it with "
                + (
                    "read_operator_state"
                    if CHANNEL_MODE in used_modes or "committable" in used_modes
                    else _READERS[used_modes.pop()]
                )
            )
        return parts


_READERS: Final = {
    "split": "read_list_state",
    "union": "read_union_state",
    "broadcast": "read_broadcast_state",
}
_METHODS: Final[dict[str, Callable[..., SavepointTable]]] = {
    "value": SavepointReader.read_value_state,
    "list": SavepointReader.read_list_state,
    "map": SavepointReader.read_map_state,
    "reducing": SavepointReader.read_reducing_state,
    "aggregating": SavepointReader.read_aggregating_state,
}


def slices(handle: KeyedStateHandle, slice_bytes: int) -> list[tuple[int, int]]:
    """Split the key groups of a handle into ranges (both ends included) of about `slice_bytes` each."""
    count = handle.last_key_group - handle.first_key_group + 1
    pieces = max(1, min(count, -(-handle.length // slice_bytes)))
    return split_range(handle.first_key_group, handle.last_key_group, pieces)


def split_range(first: int, last: int, pieces: int) -> list[tuple[int, int]]:
    """Split key groups `first` to `last` into `pieces` ranges of about equal length, both ends included."""
    count = last - first + 1
    bounds = [first + i * count // pieces for i in range(pieces + 1)]
    return [(a, b - 1) for a, b in pairwise(bounds) if a < b]


def _name(state: str | StateDescriptor) -> str:
    return state.name if isinstance(state, StateDescriptor) else state


def _keyed_names(operator: OperatorState) -> set[str]:
    return {name for state in operator.subtasks.values() for name in state.keyed}


def _column_handles(operator: OperatorState, name: str) -> list[KeyedStateHandle]:
    handles = [handle for _, state in sorted(operator.subtasks.items()) for handle in state.keyed.get(name, ())]
    return [handle for handle in handles if handle.schema == COLUMNS_SCHEMA]


def _names_of_columns(operator: OperatorState) -> set[str]:
    return {name for name in _keyed_names(operator) if _column_handles(operator, name)}


def _operator_names(operator: OperatorState) -> set[str]:
    return {name for state in operator.subtasks.values() for name in state.operator}


def _check_kind(operator: OperatorState, name: str, expected: str | None) -> None:
    for state in operator.subtasks.values():
        for handle in state.keyed.get(name, ()):
            kind = declared_kind(handle)
            if expected is not None and kind in _METHODS and kind != expected:
                raise StateError(
                    f"state {name!r} of {operator_name(operator)} is a {kind} state: read it with "
                    f"{_METHODS[kind].__name__}"
                )
