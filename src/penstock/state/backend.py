"""Keyed state backends: their interface, the rules between them and the operators, and the one on the heap (D1, D3).

**Tables.** A backend holds tables, `namespace -> key -> value`. `table.entries(namespace)` is a dictionary (or behaves
like one), and `table.changed(namespace)` the set of keys that its user marks. Both objects stay the same until the
namespace is dropped, so loops may keep references to them.

**Marks.** Code that assigns or removes an entry, or changes its value in place, adds the entry's key to
`changed(namespace)`. It may do so before or after the change, but before the next settling point. Unmarked changes may
be lost. Operators that process batches call `mark` after each batch: a table in which most entries changed is written
whole, and needs no marks.

**Settling points.** A backend may move entries out of memory and load them again on demand. It writes marked entries
first. It does so only in `settle()`, in `capture()` and between two items of a dropped namespace's `items()`. Between
two settling points a key's value is one object: code may fetch it, change it in place and mark it in any order, and
fetch it again. After a settling point, an older reference may no longer be the value in the state. The task settles
between batches, and a timer queue between timers; operators and user code never do.

**Schemas.** A state is written with its schema (`schema.declared`). The backend checks the first declaration of a
restored state against the restored schema. If the two differ but are compatible, it converts and marks all entries, so
that the next snapshot is whole and has the new schema.

**On the heap.** `StateTable` is a keyed state: `namespace -> key -> value`, with a record of the changes since the last
snapshot. Plain states use the single namespace None; windows use one namespace per window, timers one per time. So
dropping a window or a fired timer bucket drops one dictionary, and takes one mark in the record of changes. If timers
are sparse, most times have one key. It is kept in `lone`, without a dictionary of its own, until a caller asks for the
dictionary or adds another key.

Code that changes entries marks them by adding their keys to `changed(namespace)`. A snapshot must write the changes
since the last *completed* checkpoint. Changes in snapshots whose checkpoints have not completed (yet, or ever) are kept
and written again. The first snapshot has none to build on, so it is whole, and earlier marks serve no purpose. A job
without checkpoints takes no snapshots, or only savepoints, on which nothing builds, so it must not keep marks forever.

`HeapKeyedStateBackend` computes key groups when a snapshot is written, never on access. `HeapBackends` creates the
backends of a worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from penstock.state import states
from penstock.state.errors import StateError, StateMigrationError
from penstock.state.keys import check_key_groups, sample_keys
from penstock.state.loading import Shapes, StateLoader
from penstock.state.schema import (
    GONE,
    Converter,
    Incompatible,
    Moved,
    StateSchema,
    conversion,
    schema_from_json,
    to_state_schema,
)
from penstock.state.snapshot import (
    Changes,
    Contents,
    Frozen,
    KeyedCapture,
    Pack,
    PackedChanges,
    StateCapture,
    freeze,
    read_keyed,
)
from penstock.state.ttl_config import Cleaning, StateTtlConfig, Sweeper

Entries = dict[Any, dict[Any, Any]]
Table = TypeVar("Table", bound="KeyedTable")


def _no_clock() -> int:
    raise StateError("this backend was given no clock")


class KeyedTable(Protocol):
    """One keyed state; see the module docstring."""

    name: str
    #: The namespaces, each with its entries.
    panes: dict[Any, dict[Any, Any]]
    #: Further namespaces that have a single key: maps each to its key, whose value is None. Code that adds one here
    #: marks it like any other; `entries` turns it into a pane. None if all namespaces are in panes.
    lone: dict[Any, Any] | None
    #: A settling point for code that iterates over many entries in one call; None if entries never leave memory.
    settle: Callable[[], None] | None
    #: Whether the next snapshot writes everything; until then no marks are needed.
    is_next_whole: bool

    def entries(self, namespace: Any) -> dict[Any, Any]:
        """Return the entries under a namespace, created if missing."""

    def changed(self, namespace: Any) -> set[Any]:
        """Return the keys under a namespace whose entries have changed."""

    def mark(self, namespace: Any, keys: Collection[Any]) -> None:
        """Mark the keys of a whole batch, after their entries were set."""

    def drop(self, namespace: Any) -> Mapping[Any, Any]:
        """Remove a namespace with all its entries, and return the entries."""

    def restore(self, key: Any, namespace: Any, value: Any) -> None:
        """Restore one entry of a snapshot."""

    def mark_all(self) -> None:
        """Make the next snapshot write everything."""

    def keep_packed(self, pack: Pack) -> None:
        """Announce values in a form that snapshots do not use; from now on, `pack` captures them for a snapshot.

        Raises:
            StateError: if entries may leave memory.
        """


@dataclass(frozen=True)
class NativeFiles:
    """Files of a native capture in a checkpoint, with their key groups (both included) and functions to read them."""

    backend: str
    first_key_group: int
    last_key_group: int
    read: Mapping[str, Callable[[], bytes]]
    #: the declared schemas of the states, by name
    schemas: Mapping[str, str]


class KeyedStateBackend(ABC):
    """The keyed state of one operator in one subtask. `current_key` decides which entry a state reads and writes."""

    #: Whether a snapshot holds only the changes since the canonical files that were restored.
    adds_to_canonical = False

    def __init__(self, max_parallelism: int, owner: str = "operator") -> None:
        self.current_key: Any = states.NO_KEY
        self.max_parallelism = max_parallelism
        self.owner = owner
        #: processing time (ms), and the migrations of classes; the operator's context sets both
        self.now_ms: Callable[[], int] = _no_clock
        self.migrations: Moved = {}
        #: by name, the cleaner that removes a state's expired entries; it is notified of records and of accesses
        self.sweepers: dict[str, Cleaning] = {}
        self._schemas: dict[str, StateSchema] = {}
        #: by name, the schemas as text, which each snapshot has
        self._schema_texts: dict[str, str] = {}
        #: by name, the schema of a restored state, and whether any of its entries were restored
        self._restored: dict[str, tuple[str, bool]] = {}

    @abstractmethod
    def table(self, name: str) -> KeyedTable:
        """Return the table of that name, created if missing."""

    def list_keys(self, descriptor: states.StateDescriptor) -> list[Any]:
        """Return the keys that have an entry in the descriptor's state."""
        return list(self._declare_table(descriptor).entries(None))

    @abstractmethod
    def restore(self, name: str, entries: Entries, is_written: bool, schema: str = "") -> None:
        """Restore the entries of a snapshot; unless `is_written`, the next snapshot writes them again."""

    def restore_canonical(
        self, name: str, files: Iterable[bytes], key_groups: tuple[int, int], is_written: bool, schema: str = ""
    ) -> bool:
        """Restore a state from its history of canonical files, oldest first; only these key groups.

        Returns whether snapshots may build on these files. If classes have changed, they may not, and all entries are
        marked.
        """
        loader = self._loader(name, schema)
        entries = read_keyed(files, *key_groups, loader)
        is_written = is_written and not loader.has_changed
        self.restore(name, entries, is_written, schema)
        return is_written

    def _loader(self, name: str, schema: str = "") -> StateLoader:
        """Return the loader of a state's files; if a file does not list its classes, it uses the schema's."""
        shapes: Shapes = dict(schema_from_json(schema).classes()) if schema else {}
        return StateLoader(self.owner, name, self.max_parallelism, self.migrations, shapes)

    def restore_native(self, files: Sequence[NativeFiles]) -> None:
        """Restore captures of backends of this kind; raises `StateError` for captures of another kind."""
        for native_files in files:
            raise StateError(
                f"{self.owner}: the checkpoint holds its keyed state in files of the backend "
                f"{native_files.backend!r}: restore "
                f"it with state.backend.type: {native_files.backend}, or from a savepoint, which any backend can read"
            )

    @abstractmethod
    def capture(self, checkpoint_id: int) -> Sequence[StateCapture]:
        """Freeze and return what a snapshot must store; raises `StateError` for values that cannot be stored."""

    @abstractmethod
    def confirm(self, checkpoint_id: int) -> None:
        """Note that the checkpoint completed: later snapshots build on its files."""

    @abstractmethod
    def take_back(self, checkpoint_id: int) -> None:
        """Do not let snapshots build on that capture, the last one: a savepoint's files are not the job's own."""

    @abstractmethod
    def settle(self) -> None:
        """Run a settling point: no code holds an unmarked change."""

    def measured(self) -> dict[str, int | float]:
        """Return the backend's metrics, by Flink's names; called at each report."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Release the backend's resources; may be called twice."""

    def declare(self, descriptor: states.StateDescriptor) -> None:
        """Note the schema of a state, and convert its restored entries.

        Raises `StateError` if the state was declared differently before, `StateMigrationError` if it was restored with
        a schema that cannot be converted to the declared one.
        """
        name, schema = descriptor.name, to_state_schema(descriptor)
        known = self._schemas.get(name)
        if known is not None:
            if known != schema:
                raise StateError(
                    f"{self.owner}: state {name!r} was declared as {known} and now as {schema}; "
                    "give the two states different names"
                )
            return
        before, text = self._restored.get(name), schema.to_json()
        if before is not None and before[0] != text:
            self._migrate(descriptor, before[0])
        self._schemas[name], self._schema_texts[name] = schema, text

    def _migrate(self, descriptor: states.StateDescriptor, before: str) -> None:
        new = to_state_schema(descriptor)
        # Without a schema, only one thing is known about the restored state: it contains no times.
        old = schema_from_json(before) if before else StateSchema(new.kind, None, None)
        try:
            self.rewrite(descriptor, conversion(old, descriptor, self.migrations, self.now_ms))
        except StateError:
            raise
        except Exception as error:  # noqa: BLE001 - converting handles what user code stored, and may raise anything
            raise StateMigrationError(
                f"{self.owner}: state {descriptor.name!r} was written as {old} and is now declared as {new}. These do "
                f"not fit: {error}. Declare it as before, or with a type that it can become (docs/state.md), or give "
                "the new state another name, under which it starts empty"
            ) from (None if isinstance(error, Incompatible) else error)

    def rewrite(self, descriptor: states.StateDescriptor, convert: Converter) -> None:
        """Convert and mark all entries of a restored, undeclared state; without `convert`, only mark them."""
        table = self.table(descriptor.name)
        for namespace, entries in table.panes.items():
            mark = table.changed(namespace).add
            for key, value in list(entries.items()):
                mark(key)
                converted = value if convert is None else convert(value)
                if converted is GONE:
                    del entries[key]
                elif converted is not value:
                    entries[key] = converted
                if table.settle is not None:
                    table.settle()

    def note_schema(self, name: str, schema: str, has_entries: bool) -> None:
        """Note the schema of a restored state or part of a state; raises if its parts were declared differently."""
        known, had_entries = self._restored.get(name, (schema, False))
        if known != schema and had_entries and has_entries:
            raise StateMigrationError(
                f"{self.owner}: subtasks wrote state {name!r} under different declarations, {known} and {schema}: "
                "declare it in open(), and restore once with the parallelism of the snapshot"
            )
        if has_entries or name not in self._restored:
            self._restored[name] = (schema, has_entries)

    @property
    def store_columns(self) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
        """A function that returns the same columns mapped from a file, for state in columns; None to keep them.

        It raises `StateError` if they cannot be written.
        """
        return None

    def allocate(self, length: int, dtype: Any) -> Any:
        """Return a NumPy array of zeros, for state in columns. A backend on disk maps it from a file.

        Raises:
            StateError: if the disk has no space for it.
        """
        return np.zeros(length, dtype)

    def has_restored(self, name: str) -> bool:
        """Return whether a state of that name was restored; it may be empty."""
        return name in self.restored_names()

    def restored_names(self) -> list[str]:
        """Return the names of the restored states."""
        return list(self._restored)

    def schema_text(self, name: str) -> str:
        """Return the schema under which a state is now written."""
        text = self._schema_texts.get(name)
        return self._restored.get(name, ("", False))[0] if text is None else text

    @abstractmethod
    def validate(self, key_groups: tuple[int, int]) -> None:
        """Assert what holds between any two turns, for a sample of keys: they are the subtask's, each in one place.

        The simulator calls this; a running job never does.
        """

    @abstractmethod
    def build_sweeper(self, descriptor: states.StateDescriptor, config: StateTtlConfig) -> Cleaning | None:
        """Return the cleaner of a declared state's expired entries; None if the configuration requests none."""

    def _declare_table(self, descriptor: states.StateDescriptor) -> KeyedTable:
        self.declare(descriptor)
        return self.table(descriptor.name)

    def value_state(self, descriptor: states.StateDescriptor) -> states.ValueState[Any]:
        """Return the descriptor's state as a value state; TTL states that fold values use it as well."""
        return states.ValueState(self, self._declare_table(descriptor))

    def list_state(self, descriptor: states.ListStateDescriptor) -> states.ListState[Any]:
        """Return the list state that the descriptor names."""
        return states.ListState(self, self._declare_table(descriptor))

    def map_state(self, descriptor: states.MapStateDescriptor) -> states.MapState[Any, Any]:
        """Return the map state that the descriptor names."""
        return states.MapState(self, self._declare_table(descriptor))

    def reducing_state(self, descriptor: states.ReducingStateDescriptor) -> states.ReducingState[Any]:
        """Return the reducing state that the descriptor names."""
        return states.ReducingState(self, self._declare_table(descriptor), descriptor.reduce_function)

    def aggregating_state(self, descriptor: states.AggregatingStateDescriptor) -> states.AggregatingState[Any, Any]:
        """Return the aggregating state that the descriptor names."""
        return states.AggregatingState(self, self._declare_table(descriptor), descriptor.agg_function)


_MISSING: Any = object()
#: A snapshot of at least one in this many entries of a namespace is written in table order.
_ORDERED_SHARE = 8
#: A snapshot with at least one change per this many entries is written whole. It then needs no merge with the preceding
#: snapshots, which would take longer than writing the rest.
_WHOLE_SHARE = 2
#: Below this many entries and changes it makes no difference.
_WHOLE_ENTRIES_MIN = 1024


class StateTable:
    """See the module docstring."""

    __slots__ = (
        "_changed",
        "_dropped",
        "_dropped_max",
        "_has_base",
        "_lone",
        "_marked",
        "_pack",
        "_unconfirmed",
        "is_next_whole",
        "lone",
        "name",
        "panes",
        "settle",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.panes: dict[Any, dict[Any, Any]] = {}
        self.lone: dict[Any, Any] | None = {}
        self._lone: dict[Any, Any] = self.lone
        #: Entries never leave memory, so there is nothing to settle.
        self.settle: Callable[[], None] | None = None
        self._pack: Pack | None = None
        self._changed: dict[Any, set[Any]] = {}
        self._dropped: dict[Any, None] = {}
        #: whether there may be a snapshot to build on; without one, an empty table need not be written
        self._has_base = False
        #: whether the next snapshot is whole, as the first one is, and later ones after enough changes; until then,
        #: marks and drops need not be recorded
        self.is_next_whole = True
        #: keys marked by batches since the marks were last counted, and the number of drops that triggers the next
        #: count
        self._marked = 0
        self._dropped_max = _WHOLE_ENTRIES_MIN
        #: checkpoint id -> the changes that were new in its snapshot; None if any entry may have changed
        self._unconfirmed: dict[int, tuple[dict[Any, set[Any]], dict[Any, None]] | None] = {}

    def entries(self, namespace: Any) -> dict[Any, Any]:
        """Return the entries under a namespace, creating it if necessary."""
        entries = self.panes.get(namespace)
        if entries is None:
            lone = self._lone.pop(namespace, _MISSING) if self._lone else _MISSING
            entries = self.panes[namespace] = {} if lone is _MISSING else {lone: None}
        return entries

    def changed(self, namespace: Any) -> set[Any]:
        """Return the changed keys of a namespace; add the key of each entry that you set or remove."""
        keys = self._changed.get(namespace)
        if keys is None:
            keys = self._changed[namespace] = set()
        return keys

    def mark(self, namespace: Any, keys: Collection[Any]) -> None:
        """Mark the keys of a whole batch, whose entries are set; free once the next snapshot will be whole."""
        if self.is_next_whole:
            return
        self.changed(namespace).update(keys)
        self._marked += len(keys)
        # Counting visits all namespaces, of which sliding windows have thousands, so wait for at least as many marked
        # keys.
        if self._marked >= len(self.panes) + len(self._changed):
            self._marked = 0
            self.is_next_whole = self._is_mostly_changed(self._changed, self._dropped)

    def _is_mostly_changed(self, changed: dict[Any, set[Any]], dropped: dict[Any, None]) -> bool:
        total = sum(map(len, self.panes.values())) + len(self._lone)
        changes = sum(map(len, changed.values())) + len(dropped)
        return max(total, changes) >= _WHOLE_ENTRIES_MIN and changes * _WHOLE_SHARE >= total

    def drop(self, namespace: Any) -> dict[Any, Any]:
        """Remove a namespace and return its entries."""
        if namespace is not None:
            self._changed.pop(namespace, None)
        elif None in self._changed:
            # A state object references the set, so empty it instead of replacing it.
            self._changed[None].clear()
        if not self.is_next_whole:
            self._dropped[namespace] = None
            if len(self._dropped) >= self._dropped_max:
                # Timers are short-lived: most of the drops that a snapshot would record were never in an earlier one.
                self._dropped_max *= 2
                self.is_next_whole = self._is_mostly_changed(self._changed, self._dropped)
        lone = self._lone.pop(namespace, _MISSING) if self._lone else _MISSING
        return self.panes.pop(namespace, {}) if lone is _MISSING else {lone: None}

    def clear(self) -> None:
        """Forget all entries and marks; references to the entries or marks under None remain valid."""
        for namespace in list(self.panes):
            self.panes[namespace].clear()
            if namespace is not None:
                del self.panes[namespace]
        self._lone.clear()
        for keys in self._changed.values():
            keys.clear()
        self._changed = {None: self._changed[None]} if None in self._changed else {}
        self._dropped.clear()
        self.is_next_whole = True

    def restore(self, key: Any, namespace: Any, value: Any) -> None:
        """Restore one entry of a snapshot, which need not be written again."""
        self.entries(namespace)[key] = value

    def build_on_snapshot(self) -> None:
        """Let the next snapshot build on the restored one."""
        self._has_base, self.is_next_whole = True, False

    def keep_packed(self, pack: Pack) -> None:
        """Let the table hold values in another form than snapshots do; `pack` takes them for a snapshot."""
        self._pack = pack

    def mark_all(self) -> None:
        """Let the next snapshot write everything."""
        self.is_next_whole = True

    def look_at_marks(self) -> None:
        """Check whether most keys of a plain state have changed, and forget marks that are not needed."""
        marks = self._changed.get(None)
        if marks is None or len(marks) < _WHOLE_ENTRIES_MIN:
            return
        if len(self.panes) == 1 and len(marks) * _WHOLE_SHARE >= len(self.panes.get(None, ())):
            self.is_next_whole = True
        if self.is_next_whole:
            marks.clear()

    def validate(self, max_parallelism: int, key_groups: tuple[int, int]) -> None:
        """See `KeyedStateBackend.validate`."""
        name = self.name
        twice = [namespace for namespace in sample_keys(self._lone) if namespace in self.panes]
        assert not twice, f"state {name!r}: namespace {twice[0]!r} lies in two places"
        keys = [self._lone[namespace] for namespace in sample_keys(self._lone)]
        for namespace in sample_keys(self.panes):
            keys += sample_keys(self.panes[namespace])
        check_key_groups(name, keys, max_parallelism, key_groups)
        for namespace, marked in self._changed.items() if not self.is_next_whole else ():
            is_known = not marked or namespace in self.panes or namespace in self._lone or namespace in self._dropped
            assert is_known, f"state {name!r}: namespace {namespace!r} has changed, is gone, and was not dropped"
        assert self._has_base or not self._unconfirmed, f"state {name!r}: changes are kept for a snapshot to build on"
        ids = list(self._unconfirmed)
        assert ids == sorted(ids), f"state {name!r}: snapshots were taken in the order {ids}"

    def capture(self, checkpoint_id: int, owner: str) -> KeyedCapture | None:
        """Freeze the changes since the last confirmed checkpoint; None if nothing has changed."""
        if not self._has_base and not self._lone and not any(self.panes.values()):
            return None
        self._has_base = True
        changed = {} if self.is_next_whole else {n: set(keys) for n, keys in self._changed.items() if keys}
        dropped = self._dropped
        for keys in self._changed.values():
            keys.clear()
        self._changed = {n: keys for n, keys in self._changed.items() if n in self.panes}
        self._dropped = {}
        self._dropped_max = _WHOLE_ENTRIES_MIN
        if self.is_next_whole:
            self._unconfirmed[checkpoint_id], self.is_next_whole = None, False
        elif changed or dropped:
            self._unconfirmed[checkpoint_id] = (changed, dropped)
        if not self._unconfirmed:
            return None
        merged = self._merged()
        if merged is None or self._is_mostly_changed(*merged):
            return KeyedCapture(self.name, self._frozen(([], self._everything()), owner), is_whole=True)
        return KeyedCapture(self.name, self._frozen((list(merged[1]), self._contents(merged[0])), owner))

    def confirm(self, checkpoint_id: int) -> None:
        """Forget the changes in snapshots up to this completed checkpoint, which need not be written again."""
        for older in [i for i in self._unconfirmed if i <= checkpoint_id]:
            del self._unconfirmed[older]

    def take_back(self, checkpoint_id: int) -> None:
        """Mark the changes that were new in the last capture again, because no snapshot builds on it."""
        if checkpoint_id not in self._unconfirmed:
            return
        capture = self._unconfirmed.pop(checkpoint_id)
        if capture is None:
            self.is_next_whole = True
            return
        for namespace, keys in capture[0].items():
            self.changed(namespace).update(keys)
        self._dropped.update(capture[1])

    def _merged(self) -> tuple[dict[Any, set[Any]], dict[Any, None]] | None:
        """Return all unconfirmed changes; None if any entry may have changed."""
        changed: dict[Any, set[Any]] = {}
        dropped: dict[Any, None] = {}
        for capture in self._unconfirmed.values():
            if capture is None:
                return None
            if len(self._unconfirmed) == 1:
                return capture
            dropped.update(capture[1])
            for namespace, keys in capture[0].items():
                changed.setdefault(namespace, set()).update(keys)
        return changed, dropped

    def _everything(self) -> list[Contents]:
        contents: list[Contents] = [(n, list(e), list(e.values()), []) for n, e in self.panes.items() if e]
        contents += [(namespace, [key], [None], []) for namespace, key in self._lone.items()]
        return contents

    def _contents(self, changed: dict[Any, set[Any]]) -> list[Contents]:
        """Return the current contents of the changed entries."""
        written = []
        for namespace, keys in changed.items():
            entries = self.panes.get(namespace)
            if entries is None and namespace in self._lone:
                entries = {self._lone[namespace]: None}
            if entries is None:
                continue  # dropped since, which has its own mark
            # One lookup per key: on a large table, each costs a cache miss.
            put_keys = list(keys)
            if len(keys) * _ORDERED_SHARE >= len(entries):
                # Cheap enough to use the table's order, in which timers of the same time fire.
                put_keys = [key for key in entries if key in keys] + [key for key in keys if key not in entries]
            values = list(map(entries.get, put_keys, repeat(_MISSING)))
            removed: list[Any] = []
            if any(value is _MISSING for value in values):
                present = [value is not _MISSING for value in values]
                removed = [key for key, is_present in zip(put_keys, present, strict=True) if not is_present]
                put_keys, values = list(compress(put_keys, present)), list(compress(values, present))
            written.append((namespace, put_keys, values, removed))
        return written

    def _frozen(self, changes: Changes, owner: str) -> Frozen:
        if self._pack is not None:
            return PackedChanges.of(changes, self._pack)
        try:
            return freeze(changes)
        except Exception as error:
            raise StateError(f"{owner}: a value in state {self.name!r} cannot be pickled: {error}") from error


class HeapKeyedStateBackend(KeyedStateBackend):
    """Keeps everything in memory; settling only examines marks, which may be unnecessary."""

    adds_to_canonical = True

    def __init__(self, max_parallelism: int, owner: str = "operator") -> None:
        super().__init__(max_parallelism, owner)
        self._tables: dict[str, StateTable] = {}
        self._sweepers: list[Sweeper] = []

    def table(self, name: str) -> StateTable:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = StateTable(name)
        return table

    def clear(self) -> None:
        """Forget all entries, between two keys of a batch job."""
        for table in self._tables.values():
            table.clear()

    def restore(self, name: str, entries: Entries, is_written: bool, schema: str = "") -> None:
        self.note_schema(name, schema, any(entries.values()))
        table = self.table(name)
        for namespace, restored in entries.items():
            table.entries(namespace).update(restored)
        if is_written:
            table.build_on_snapshot()
        else:
            table.mark_all()

    def capture(self, checkpoint_id: int) -> list[KeyedCapture]:
        """Return the changes since the last confirmed checkpoint; raises `StateError` for unstorable values."""
        for sweeper in self._sweepers:
            sweeper.on_capture()
        captures = []
        for table in self._tables.values():
            capture = table.capture(checkpoint_id, self.owner)
            if capture is not None:
                capture.schema = self.schema_text(table.name)
                captures.append(capture)
        return captures

    def confirm(self, checkpoint_id: int) -> None:
        for table in self._tables.values():
            table.confirm(checkpoint_id)

    def take_back(self, checkpoint_id: int) -> None:
        for table in self._tables.values():
            table.take_back(checkpoint_id)

    def build_sweeper(self, descriptor: states.StateDescriptor, config: StateTtlConfig) -> Sweeper:
        table = self.table(descriptor.name)
        sweeper = Sweeper(table.entries(None), table.changed(None), descriptor.kind, config, self.now_ms)
        self._sweepers.append(sweeper)
        return sweeper

    def validate(self, key_groups: tuple[int, int]) -> None:
        for table in self._tables.values():
            table.validate(self.max_parallelism, key_groups)

    def settle(self) -> None:
        for table in self._tables.values():
            table.look_at_marks()

    def close(self) -> None:
        """Forget all entries, because a user function may keep a state object, and so the table, for longer."""
        self.clear()


class HeapBackends:
    """Creates heap backends; implements the port `KeyedBackends`."""

    def make(
        self, execution: object, operator_id: str, owner: str, max_parallelism: int, key_groups: tuple[int, int]
    ) -> KeyedStateBackend:
        """Create a backend on the heap."""
        return HeapKeyedStateBackend(max_parallelism, owner)
