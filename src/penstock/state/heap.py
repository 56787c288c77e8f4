"""The hash map state backend: keyed state in dictionaries (D1, D3).

`StateTable` is a keyed state: `namespace -> key -> value`, with a record of the changes since the last snapshot. Plain
states use the single namespace None; windows use one namespace per window, timers one per time. So dropping a window or
a fired timer bucket drops one dictionary, and takes one mark in the record of changes. If timers are sparse, most times
have one key. It is kept in `lone`, without a dictionary of its own, until a caller asks for the dictionary or adds
another key.

Code that changes entries marks them by adding their keys to `changed(namespace)`. A snapshot must write the changes
since the last *completed* checkpoint. Changes in snapshots whose checkpoints have not completed (yet, or ever) are kept
and written again. The first snapshot has none to build on, so it is whole, and earlier marks serve no purpose. A job
without checkpoints takes no snapshots, or only savepoints, on which nothing builds, so it must not keep marks forever.

`HeapKeyedStateBackend` computes key groups when a snapshot is written, never on access.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import compress, repeat
from typing import Any

from penstock.state.backend import Entries, KeyedStateBackend
from penstock.state.errors import StateError
from penstock.state.keys import check_key_groups, sample_keys
from penstock.state.snapshot import Changes, Contents, Frozen, KeyedCapture, Pack, PackedChanges, freeze
from penstock.state.states import StateDescriptor
from penstock.state.ttl_config import StateTtlConfig, Sweeper

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

    def build_sweeper(self, descriptor: StateDescriptor, config: StateTtlConfig) -> Sweeper:
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
