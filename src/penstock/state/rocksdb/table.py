"""A keyed state with one row per entry (values, accumulators, windows, timers), and the sweep of expired rows.

`RowSweeper` deletes expired rows from the store, including rows that are never read again (D1). Flink does this during
RocksDB compaction. The binding offers no hook there, and no clock controls when a compaction runs or which rows it
reads. So a sweeper cycles through the rows of one state in order, some at each settling point, and deletes the expired
ones. A later compaction drops them. Deletions are ordinary writes, so captures, incremental checkpoints and restores
need no special handling. After a restore, the first round starts over.

**Pace.** Like compaction, the sweeper follows the writes: it checks `_LOOKS_A_WRITE` rows for each row that the state
writes. If rows expire as fast as they are written, a round takes as long as writing half of all rows. So expired rows
never outnumber the others, and there are fewer when old rows are overwritten. If the last finished round began longer
ago than the periodic compaction time, the sweeper continues at each settling point until it has caught up, whether or
not the state writes. It reads the clock once every N rows, where N is configurable.

**Entries in memory** are newer than their rows. An expired entry in memory is removed there, which deletes its row with
the next write. An entry that was never written has no row; the sweeper checks it once it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, Protocol

from penstock.state.errors import StateError
from penstock.state.rocksdb.cache import WriteCache
from penstock.state.rocksdb.pane import NamespacePane, Panes
from penstock.state.rocksdb.store import WHOLE, Batch, after, namespace_head
from penstock.state.snapshot import Pack
from penstock.state.ttl_config import StateTtlConfig

_MISSING: Any = object()
_get = dict.get
#: The number of items of a dropped namespace between two settling points.
_SETTLE_ITEMS = 256


class RocksTable:
    """`namespace -> key -> value`, an implementation of `backend.KeyedTable`.

    The backend captures and confirms: a snapshot covers the store as a whole.
    """

    def __init__(self, cache: WriteCache, name: str, max_parallelism: int, stored: dict[Any, int]) -> None:
        self.name = name
        self.settle: Callable[[], None] | None = cache.settle
        #: never: a snapshot covers the store as a whole, and unmarked entries are not written to it
        self.is_next_whole = False
        self.lone: dict[Any, Any] | None = None
        self._cache = cache

        def make(namespace: Any, groups: int) -> NamespacePane:
            return NamespacePane(cache, name, WHOLE, namespace, max_parallelism, groups)

        self._panes = Panes(make, stored)
        self.panes: dict[Any, dict[Any, Any]] = self._panes
        self._plain: NamespacePane | None = None
        cache.add(self)

    def entries(self, namespace: Any) -> NamespacePane:
        """Return the entries under a namespace, creating it if necessary."""
        pane = self._panes.open(namespace)
        if namespace is None:
            self._plain = pane
        return pane

    def changed(self, namespace: Any) -> set[Any]:
        """Return the changed keys of a namespace; add the key of each entry that you set or change in place."""
        pane: NamespacePane | None = _get(self._panes, namespace)
        return self.entries(namespace).changed if pane is None else pane.changed

    def mark(self, namespace: Any, keys: Collection[Any]) -> None:
        """Mark the keys of a whole batch."""
        self.changed(namespace).update(keys)

    def drop(self, namespace: Any) -> Mapping[Any, Any]:
        """Remove a namespace and return its entries, which are loaded during iteration."""
        pane = self._panes.take(namespace)
        if pane is None:
            return {}
        cached = pane.in_memory()
        left: Mapping[Any, Any] = (
            Dropped(self._cache, pane, cached) if pane.has_rows and not pane.is_complete else cached
        )
        pane.clear()
        if namespace is None:
            self._panes[None] = pane  # states keep a reference to it
        return left

    def restore(self, key: Any, namespace: Any, value: Any) -> None:
        """Restore one entry of a snapshot."""
        self.entries(namespace).update({key: value})

    def mark_all(self) -> None:
        """Do nothing: a snapshot covers the store as a whole."""

    def keep_packed(self, pack: Pack) -> None:
        """Raise `StateError`: values leave memory, so they must have the form that snapshots use."""
        raise StateError(f"state {self.name!r} is kept in RocksDB, which takes values in the form of snapshots alone")

    def validate(self, key_groups: tuple[int, int]) -> None:
        """See `KeyedStateBackend.validate`; reads nothing from the store."""
        self._panes.validate(self.name, key_groups)

    def note_rows(self, namespace: Any, groups: int) -> None:
        """Note that rows in these key groups (a bitmap) came into the store without the table."""
        pane = self.entries(namespace)
        pane.groups |= groups
        pane.has_rows, pane.is_complete = pane.groups != 0, False

    def young(self) -> int:
        """Return the number of young entries of plain state, which `WriteCache.grown` does not include."""
        return 0 if self._plain is None else self._plain.young

    def write_back(self, batch: Batch) -> None:
        """Write the marked entries of all panes."""
        self._panes.write_back(batch)

    def turn(self, batch: Batch) -> None:
        """Turn the generations of all panes."""
        self._panes.turn(batch)


class Dropped(Mapping[Any, Any]):
    """The entries of a dropped namespace as of the drop. Iterating over `items()` settles between items."""

    def __init__(self, cache: WriteCache, pane: NamespacePane, cached: dict[Any, Any]) -> None:
        self._cache = cache
        self._pane = pane
        self._cached = cached
        self._gone = set(pane._gone)
        self._prefixes = list(pane.prefixes())
        self._view = cache.store.view()

    def _stored(self) -> Iterator[tuple[Any, Any]]:
        rows = chain.from_iterable(map(self._view.scan, self._prefixes))
        return self._pane.stored(rows, self._cached, self._gone)

    def items(self) -> Any:
        for number, item in enumerate(chain(self._cached.items(), self._stored())):
            yield item
            if number % _SETTLE_ITEMS == 0:
                self._cache.settle()

    def values(self) -> Any:
        return (value for _, value in self.items())

    def __iter__(self) -> Iterator[Any]:
        return chain(self._cached, (key for key, _ in self._stored()))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(iter(self), _MISSING) is not _MISSING

    def __getitem__(self, key: Any) -> Any:
        if key in self._cached:
            return self._cached[key]
        raw = None if key in self._gone else self._view.get(self._pane.locate(key))
        if raw is None:
            raise KeyError(key)
        return self._cache.unpickle(self._pane._name, raw)

    def __repr__(self) -> str:
        return f"<entries of a dropped namespace, {len(self._cached)} of them in memory>"


_LOOKS_A_WRITE: Final = 2
#: The number of rows to check at one settling point, which takes some milliseconds; or one in `_SHARE` of the rows owed
#: if that is more, so that writes cannot outpace the sweeper.
ROWS_MAX: Final = 4096
_SHARE: Final = 8


class Sweepable(Protocol):
    """The rows of a state in one layout, some of which are in memory."""

    def sweep(self, row: bytes, raw: bytes, key_at: int, latest_expired_ms: int, batch: Batch) -> None:
        """Delete a row, or its expired part; its key, preceded by the length, begins at byte `key_at`."""


class RowSweeper:
    """See the module docstring."""

    def __init__(
        self,
        cache: WriteCache,
        rows: Sweepable,
        name: str,
        layout: bytes,
        key_groups: tuple[int, int],
        config: StateTtlConfig,
        now_ms: Callable[[], int],
    ) -> None:
        self._cache = cache
        self._rows = rows
        self._name = name
        self._head = namespace_head(name, layout, None)
        self._first_group, self._last_group = key_groups
        self._ttl_ms = config.ttl_ms
        self._now_ms = now_ms
        strategies = config.get_cleanup_strategies()
        compaction = strategies.get_rocksdb_compact_filter_cleanup_strategy()
        incremental = strategies.get_incremental_cleanup_strategy() if strategies.chose_incremental_cleanup() else None
        self._size = 0 if incremental is None else incremental.get_cleanup_size()
        self._sees_records = incremental is not None and incremental.run_cleanup_for_every_record()
        self._looks_a_write = 0 if compaction is None else _LOOKS_A_WRITE
        grain = ROWS_MAX if compaction is None else compaction.get_query_time_after_num_entries()
        #: rows to check per reading of the clock, and how many must be owed to begin
        self._grain = max(1, min(grain, ROWS_MAX))
        self._owed_min = 1 if compaction is None else self._grain
        self._period_ms = None if compaction is None else compaction.get_periodic_compaction_time().to_milliseconds()
        #: rows still to be checked
        self._owed = 0
        self._group = self._first_group
        #: the row to continue from in the key group; None for its first row
        self._next: bytes | None = None
        #: when this round and the last finished round began
        self._begun_ms = self._done_begun_ms = now_ms()
        cache.written.setdefault(name, 0)

    def on_access(self) -> None:
        """Note an access to the state."""
        self._owed += self._size

    def on_records(self, count: int) -> None:
        """Note `count` processed records."""
        if self._sees_records:
            self._owed += self._size * count

    def on_settle(self) -> None:
        """Check the rows owed at a settling point, up to a limit; the next settling point continues."""
        written = self._cache.written
        if written[self._name]:
            self._owed += written[self._name] * self._looks_a_write
            written[self._name] = 0
        if self._period_ms is not None and self._now_ms() - self._done_begun_ms >= self._period_ms:
            self._owed = max(self._owed, ROWS_MAX)
        if self._owed < self._owed_min:
            return
        batch = self._cache.store.batch()
        left = max(ROWS_MAX, self._owed // _SHARE)
        while left > 0 and self._owed >= self._owed_min:
            count = min(self._grain, self._owed)
            left -= count
            self._owed -= count
            if self._sweep_rows(count, batch):
                self._owed = 0  # all rows were checked, which is enough for now
        batch.write()

    def _sweep_rows(self, count: int, batch: Batch) -> bool:
        """Check the next `count` rows, and return whether the round is complete."""
        sweep, key_at = self._rows.sweep, 2 + len(self._head)
        latest_expired_ms = self._now_ms() - self._ttl_ms
        while count > 0:
            prefix = self._group.to_bytes(2, "big") + self._head
            rows = self._cache.store.scan_once(self._next or prefix, after(prefix))
            row = None
            for row, raw in islice(rows, count):
                sweep(row, raw, key_at, latest_expired_ms, batch)
                count -= 1
            if count and self._group == self._last_group:
                self._group, self._next = self._first_group, None
                self._done_begun_ms, self._begun_ms = self._begun_ms, self._now_ms()
                return True
            if count:
                self._group, self._next = self._group + 1, None
                count -= 1  # finding the next key group costs about as much as a row
            elif row is not None:
                self._next = row + b"\x00"
        return False
