"""The states of a savepoint as rows of a table: remaining entries, layouts, listings, and the states' names (H5).

`live_rows` yields the remaining entries of a keyed state's history of files, in pieces and still pickled. A single file
never names an entry twice, so its rows are streamed. For a longer history, the keys are evaluated first (a later file
may replace or remove the entries of an earlier one), then the remaining entries are streamed. Only keys become Python
objects, never values. Key equality is Python's own, as in a running job.

A *part* is the input of one Spark task: some key groups of a keyed state's history (`KeyedPart`), or one list of an
operator state (`ListPart`). A *layout* converts the entries of one kind of state: from a part to pieces, with one list
of Python values per column and at most a few thousand values each. Layouts are plain functions or partials, so they can
be sent to Spark. `raw` requests pickled values, if possible without unpickling them; only the last column of a layout
may be raw.

`list_operator` lists an operator of a savepoint and its states, without reading any state.

The state names of the built-in operators, and the kind of each state, are repeated here. The operators are the
authority; the tests read savepoints of real jobs by these names.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.pickling import dumps
from penstock.runtime.operators.connector import COMMITTABLES_STATE, SPLITS_STATE, WRITER_STATE
from penstock.runtime.operators.record.process import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.runtime.operators.window import kept_windows
from penstock.runtime.operators.window.kept_windows import EVENT_TIMERS as WINDOW_EVENT_TIMERS
from penstock.runtime.operators.window.kept_windows import PROCESSING_TIMERS as WINDOW_PROCESSING_TIMERS
from penstock.state.errors import StateError
from penstock.state.key_columns import COLUMNS_SCHEMA
from penstock.state.loading import Shapes, StateLoader, merged
from penstock.state.schema import schema_from_json
from penstock.state.snapshot import DROP_NAMESPACE, PUT, extract_shapes, read_operator
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import OperatorState, StateFile

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


NO_NAMESPACE: Final = dumps(None)


@dataclass(frozen=True)
class KeyedPart:
    """Key groups `first` to `last` of a history; `state` and `operator` are names."""

    state: str
    operator: str
    files: tuple[StateFile, ...]
    first: int
    last: int
    schema: str = ""
    migrations: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def cut(self, first: int, last: int) -> KeyedPart:
        """Return the key groups of the part that are from `first` to `last`."""
        return replace(self, first=max(self.first, first), last=min(self.last, last))

    @property
    def what(self) -> str:
        """The state's name in errors."""
        return f"state {self.state!r} of {self.operator}"

    def loader(self) -> StateLoader:
        """Return a loader for today's classes, like that of a job started from the savepoint (`docs/state.md`)."""
        return state_loader(self.operator, self.state, self.schema, self.migrations)


@dataclass(frozen=True)
class ListPart:
    """The items of one subtask in an operator state."""

    what: str
    subtask: int
    file: StateFile


Part: TypeAlias = Any
Piece: TypeAlias = "list[Iterable[Any]]"
Layout: TypeAlias = Callable[[FileCheckpointStore, Part, bool], Iterator[Piece]]


def state_loader(operator: str, state: str, schema: str, migrations: Mapping[str, Callable[..., Any]]) -> StateLoader:
    """Return the loader of a state's files; if they do not name their classes, the schema names some."""
    shapes: Shapes = dict(schema_from_json(schema).classes()) if schema else {}
    return StateLoader(operator, state, 1, migrations, shapes)


def _keys(rows: EntryRows) -> list[Any]:
    return list(map(rows.loads, rows.keys))


def _values(rows: EntryRows, raw: bool = False) -> list[Any]:
    """Return the values; if `raw`, pickled, and unchanged unless one of their classes has changed."""
    if raw and rows.loads is pickle.loads:
        return rows.values
    values = map(rows.loads, rows.values)
    return list(map(dumps, values) if raw else values)


def _namespaces(rows: EntryRows) -> list[Any]:
    return list(map(rows.loads, rows.namespaces))


def _entries(storage: FileCheckpointStore, part: KeyedPart) -> Iterator[EntryRows]:
    return live_rows(storage, part.files, part.first, part.last, part.loader())


def _plain(storage: FileCheckpointStore, part: KeyedPart) -> Iterator[EntryRows]:
    for rows in _entries(storage, part):
        if set(rows.namespaces) - {NO_NAMESPACE}:
            raise StateError(f"{part.what} also has entries by window or time: read it with read_keyed_state")
        yield rows


def value_layout(storage: FileCheckpointStore, part: KeyedPart, raw: bool) -> Iterator[Piece]:
    """Yield key, value."""
    for rows in _plain(storage, part):
        yield [_keys(rows), _values(rows, raw)]


def entry_layout(storage: FileCheckpointStore, part: KeyedPart, raw: bool) -> Iterator[Piece]:
    """Yield key, namespace, value: any keyed state as stored."""
    for rows in _entries(storage, part):
        yield [_keys(rows), _namespaces(rows), _values(rows, raw)]


def result_layout(
    storage: FileCheckpointStore, part: KeyedPart, raw: bool, get_result: Callable[[Any], Any]
) -> Iterator[Piece]:
    """Yield key, and the result of an aggregate function for the accumulator."""
    for rows in _plain(storage, part):
        results = list(map(get_result, _values(rows)))
        yield [_keys(rows), list(map(dumps, results)) if raw else results]


def list_layout(storage: FileCheckpointStore, part: KeyedPart, raw: bool) -> Iterator[Piece]:
    """Yield key, index, value: a row per item."""

    def expand(key: Any, items: Any) -> Iterator[Any]:
        if not isinstance(items, list):
            raise StateError(_other_kind(part.what, "list", items))
        return ((key, index, item) for index, item in enumerate(items))

    return _expanded(storage, part, raw, 3, expand)


def map_layout(storage: FileCheckpointStore, part: KeyedPart, raw: bool) -> Iterator[Piece]:
    """Yield key, map_key, value: a row per entry of the map."""

    def expand(key: Any, entries: Any) -> Iterator[Any]:
        if not isinstance(entries, dict):
            raise StateError(_other_kind(part.what, "map", entries))
        return ((key, map_key, value) for map_key, value in entries.items())

    return _expanded(storage, part, raw, 3, expand)


def session_layout(storage: FileCheckpointStore, part: KeyedPart, raw: bool) -> Iterator[Piece]:
    """Yield key, window_start, window_end, fired, value: a row per session; times in ms."""

    def expand(key: Any, sessions: Any) -> Iterator[Any]:
        return ((key, start, end, fired, contents) for start, end, contents, fired in sessions)

    return _expanded(storage, part, raw, 5, expand)


def slots_layout(storage: FileCheckpointStore, part: KeyedPart, raw: bool) -> Iterator[Piece]:
    """Like `session_layout`, for windows of any kind; start and end are None for windows without a time."""

    def expand(key: Any, slots: Any) -> Iterator[Any]:
        for token, slot in slots.items():
            start, end = token if isinstance(token, tuple) and len(token) == 2 else (None, None)
            for contents in slot:
                yield key, start, end, False, contents

    return _expanded(storage, part, raw, 5, expand)


def _expanded(
    storage: FileCheckpointStore,
    part: KeyedPart,
    raw: bool,
    width: int,
    expand: Callable[[Any, Any], Iterator[Any]],
) -> Iterator[Piece]:
    """Expand each entry into several rows, split into pieces again because a list may be long."""
    for rows in _plain(storage, part):
        entries = zip(_keys(rows), map(rows.loads, rows.values), strict=True)
        yield from _cut(chain.from_iterable(expand(key, value) for key, value in entries), width, raw)


def _cut(rows: Iterator[Any], width: int, raw: bool) -> Iterator[Piece]:
    columns: list[list[Any]] = [[] for _ in range(width)]
    appends = [column.append for column in columns]
    for row in rows:
        for append, cell in zip(appends, row, strict=True):
            append(cell)
        if len(columns[0]) == ROWS_MAX:
            yield _finished(columns, raw)
            columns = [[] for _ in range(width)]
            appends = [column.append for column in columns]
    if columns[0]:
        yield _finished(columns, raw)


def _finished(columns: list[list[Any]], raw: bool) -> Piece:
    return [*columns[:-1], list(map(dumps, columns[-1])) if raw else columns[-1]]


def window_layout(storage: FileCheckpointStore, part: KeyedPart, raw: bool, fired: bool) -> Iterator[Piece]:
    """Yield key, window_start, window_end, fired, value: a row per key and window; times in ms."""
    for rows in _entries(storage, part):
        windows = _namespaces(rows)
        starts, ends = [start for start, _ in windows], [end for _, end in windows]
        yield [_keys(rows), starts, ends, [fired] * len(windows), _values(rows, raw)]


def timer_layout(storage: FileCheckpointStore, part: KeyedPart, raw: bool, domain: str) -> Iterator[Piece]:
    """Yield time_domain, timestamp_ms, key."""
    for rows in _entries(storage, part):
        keys = _keys(rows)
        yield [[domain] * len(keys), _namespaces(rows), list(map(dumps, keys)) if raw else keys]


def item_layout(storage: FileCheckpointStore, part: ListPart, raw: bool) -> Iterator[Piece]:
    """Yield subtask, index, value: a row per item."""
    items = read_operator(storage.read(part.file))
    return _cut(((part.subtask, index, item) for index, item in enumerate(items)), 3, raw)


def pair_layout(storage: FileCheckpointStore, part: ListPart, raw: bool) -> Iterator[Piece]:
    """Yield map_key, value: a row per entry of a broadcast map."""
    items = read_operator(storage.read(part.file))
    if not all(isinstance(item, tuple) and len(item) == 2 for item in items):
        raise StateError(f"{part.what} is not a map: read it with read_operator_state")
    return _cut(iter(items), 2, raw)


def _other_kind(title: str, expected: str, value: Any) -> str:
    kinds: dict[type, str] = {list: "read_list_state", dict: "read_map_state"}
    return (
        f"{title} is not a {expected} state; it holds a {type(value).__qualname__}: read it with "
        f"{kinds.get(type(value), 'read_value_state')}"
    )


#: The state of `KeyedStream.reduce`: a value per key.
REDUCE_STATE: Final = "_penstock_reduce"
#: Tumbling and sliding windows: namespace (start, end), key, contents; and fired windows that are kept for lateness.
WINDOW_STATE: Final = kept_windows.OPEN_WINDOWS
FIRED_WINDOW_STATE: Final = kept_windows.FIRED_WINDOWS
#: Session windows: key -> [[start, end, contents, fired], ...], and the timers at their ends.
SESSION_STATE: Final = kept_windows.SESSIONS
#: All other windows: a map state from windows to [contents]. Triggers and window functions keep their state for each
#: window in map states as well, under `trigger-state:` and `window-state:`.
WINDOW_TIMERS: Final = (WINDOW_EVENT_TIMERS, WINDOW_PROCESSING_TIMERS)

TIMERS: Final = {"event": EVENT_TIMERS, "processing": PROCESSING_TIMERS}

KINDS: Final = {
    REDUCE_STATE: "reducing",
    WINDOW_STATE: "window",
    FIRED_WINDOW_STATE: "window",
    SESSION_STATE: "window",
    kept_windows.SESSION_ENDS: "timers",
    kept_windows.SESSION_CLEANUPS: "timers",
    **dict.fromkeys(kept_windows.ALL_SLOTS, "window"),
    **dict.fromkeys(WINDOW_TIMERS, "timers"),
    EVENT_TIMERS: "timers",
    PROCESSING_TIMERS: "timers",
    SPLITS_STATE: "source splits",
    WRITER_STATE: "sink writer",
    COMMITTABLES_STATE: "sink committables",
}


@dataclass(frozen=True)
class StateListing:
    """A state of an operator.

    Attributes:
        name: the state's name; names that begin with `_penstock` belong to the operator itself.
        mode: `keyed`, or how an operator state is redistributed: split, union, broadcast, committable, channel.
        kind: value, list, map, reducing, aggregating, timers, window ...; None if unknown.
        subtasks: the number of subtasks that have some of it.
        files: the number of its files or inline pieces.
        size_bytes: their total size (bytes).
        items: the number of items of an operator state; None for keyed state, which would have to be read.

    Examples:
        >>> from penstock.datastream.state import ValueStateDescriptor
        >>> from penstock.state_processor import SavepointReader, SavepointWriter
        >>> writer = SavepointWriter.new_savepoint().with_keyed_state(
        ...     "counter", ValueStateDescriptor("count"), [{"key": "ann", "value": 10}]
        ... )
        >>> (state,) = SavepointReader.read(writer.write("savepoint")).operator("counter").states
        >>> state.name, state.mode, state.subtasks
        ('count', 'keyed', 1)
    """

    name: str
    mode: str
    kind: str | None
    subtasks: int
    files: int
    size_bytes: int
    items: int | None


@dataclass(frozen=True)
class OperatorListing:
    """An operator of a savepoint.

    Attributes:
        uid: the uid that the program set, or None.
        operator_id: 32 hexadecimal digits.
        name: the name in plans.
        parallelism: the number of subtasks.
        max_parallelism: the number of key groups of its keyed state.
        finished: the subtasks that had finished for good.
        enumerator_bytes: the size of its split enumerator's state for a source; None otherwise.
        native_bytes: the size of keyed state in a backend's own files, which only a job can read; 0 in savepoints.
        states: its keyed states, then its operator states, each sorted by name.

    Examples:
        >>> from penstock.datastream.state import ValueStateDescriptor
        >>> from penstock.state_processor import SavepointReader, SavepointWriter
        >>> writer = SavepointWriter.new_savepoint().with_keyed_state(
        ...     "counter", ValueStateDescriptor("count"), [{"key": "ann", "value": 10}]
        ... )
        >>> (operator,) = SavepointReader.read(writer.write("savepoint")).operators
        >>> operator.uid, operator.parallelism, operator.max_parallelism
        ('counter', 1, 128)
    """

    uid: str | None
    operator_id: str
    name: str
    parallelism: int
    max_parallelism: int
    finished: tuple[int, ...]
    enumerator_bytes: int | None
    native_bytes: int
    states: tuple[StateListing, ...]


def list_operator(operator: OperatorState) -> OperatorListing:
    """List an operator and its states from the metadata."""
    keyed = {name for subtask in operator.subtasks.values() for name in subtask.keyed}
    lists = {name for subtask in operator.subtasks.values() for name in subtask.operator}
    states = [_keyed(operator, name) for name in sorted(keyed)] + [_list(operator, name) for name in sorted(lists)]
    native = [h for subtask in operator.subtasks.values() for h in getattr(subtask, "native", ())]
    return OperatorListing(
        operator.uid,
        operator.operator_id,
        operator.name,
        operator.parallelism,
        operator.max_parallelism,
        operator.finished,
        None if operator.coordinator is None else operator.coordinator.length,
        sum(file.length for handle in native for file in handle.files.values()),
        tuple(states),
    )


def _keyed(operator: OperatorState, name: str) -> StateListing:
    subtask_handles = [subtask.keyed[name] for subtask in operator.subtasks.values() if name in subtask.keyed]
    handles = [handle for some in subtask_handles for handle in some]
    kind = KINDS.get(name) or next(filter(None, map(declared_kind, handles)), None)
    files = sum(len(handle.files) for handle in handles)
    return StateListing(
        name, "keyed", kind, len(subtask_handles), files, sum(handle.length for handle in handles), None
    )


def _list(operator: OperatorState, name: str) -> StateListing:
    subtask_handles = [subtask.operator[name] for subtask in operator.subtasks.values() if name in subtask.operator]
    handles = [handle for some in subtask_handles for handle in some]
    mode = handles[0].mode if handles else "split"
    kind = KINDS.get(name) or {"broadcast": "map", "channel": "in flight"}.get(mode, "list")
    size = sum(handle.file.length for handle in handles)
    return StateListing(
        name, mode, kind, len(subtask_handles), len(handles), size, sum(handle.items for handle in handles)
    )


def declared_kind(handle: Any) -> str | None:
    """Return the kind of state in a handle's schema; None without a schema."""
    schema = getattr(handle, "schema", "")
    if not schema:
        return None
    if schema == COLUMNS_SCHEMA:
        return "columns"
    try:
        kind = json.loads(schema).get("kind")
    except (ValueError, AttributeError):
        return None
    return kind if isinstance(kind, str) else None


def find_operator(operators: Iterable[OperatorState], uid: str) -> OperatorState:
    """Return the operator with this uid or operator id; raise `StateError` that lists the existing ones."""
    known = list(operators)
    for operator in known:
        if uid in (operator.uid, operator.operator_id):
            return operator
    raise StateError(f"no operator with uid {uid!r}; there are: {', '.join(_named(o) for o in known) or 'none'}")


def _named(operator: OperatorState) -> str:
    if operator.uid is not None:
        return repr(operator.uid)
    return f"{operator.name!r} without uid (id {operator.operator_id})"


def no_such_state(operator: OperatorState, name: str, mode: str) -> StateError:
    """Return the error for a state that an operator does not have."""
    names = ", ".join(_describe_states(operator))
    return StateError(f"operator {operator_name(operator)} has no {mode} state {name!r}; there are: {names or 'none'}")


def _describe_states(operator: OperatorState) -> Iterator[str]:
    for state in list_operator(operator).states:
        yield f"{state.name!r} ({state.mode})"


def operator_name(operator: OperatorState) -> str:
    """Return the operator's name for errors."""
    return repr(operator.uid) if operator.uid is not None else f"{operator.name!r} (id {operator.operator_id})"
