"""List and map state in parts: lists in segments, and maps with one row per map key.

`RocksListState`: appending neither reads nor writes the existing items. The items appended since the last write become
one more row, a segment. A read joins the segments of a list, and writes the list as one segment if there are many.

`RocksMapState` never reads or writes a large map as a whole. Each stream key has its own pane, created on first access.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from penstock.state.errors import StateError
from penstock.state.keys import decode_plain_key, key_bytes, key_group_of_bytes
from penstock.state.rocksdb.cache import WriteCache
from penstock.state.rocksdb.pane import Pane, PaneSnapshot
from penstock.state.rocksdb.store import LIST, MAP, Batch, Row, key_end, namespace_head, pickled_keys, sized
from penstock.state.states import ListState, MapState, StateView

T = TypeVar("T")

#: A read writes a list with more segments than this as one segment.
_SEGMENTS_MAX = 8


class ListCell:
    """The list of one key. `items` are all items if `is_loaded`, else only the items that are not in a segment yet."""

    __slots__ = ("is_loaded", "is_replaced", "items", "segments", "written")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.is_loaded = False
        #: the existing segments are no longer valid
        self.is_replaced = False
        #: how many of the items are in segments
        self.written = 0
        #: how many segments there are; -1 while unknown
        self.segments = -1


class Lists(dict[Any, ListCell]):
    """The lists in memory: the young generation. A list always exists, but may be empty."""

    def __init__(self, cache: WriteCache, name: str, max_parallelism: int) -> None:
        super().__init__()
        self.cache = cache
        self.marked: set[Any] = set()
        self._old: dict[Any, ListCell] = {}
        self._name = name
        self._head = namespace_head(name, LIST, None)
        self._max_parallelism = max_parallelism
        cache.add(self)

    def __missing__(self, key: Any) -> ListCell:
        self.cache.grown += 1
        cell = self._old.pop(key, None)
        if cell is None:
            cell = ListCell()
        self[key] = cell
        return cell

    def _prefix(self, key: Any) -> bytes:
        data = key_bytes(key)
        return key_group_of_bytes(data, self._max_parallelism).to_bytes(2, "big") + self._head + sized(data)

    def load(self, key: Any, cell: ListCell) -> None:
        """Load all items into a cell."""
        cache, name = self.cache, self._name
        segments = [cache.unpickle(name, raw) for _, raw in cache.store.scan(self._prefix(key))]
        stored = [item for segment in segments for item in segment]
        cell.written = len(stored)
        cell.items = stored + cell.items
        cell.is_loaded = True
        cell.segments = len(segments)
        if len(segments) > _SEGMENTS_MAX:
            cell.is_replaced = True
            self.marked.add(key)

    def _write(self, batch: Batch, key: Any) -> None:
        cell = self.get(key) or self._old.get(key)
        if cell is None:
            return
        prefix = self._prefix(key)
        if cell.is_replaced:
            if cell.segments:
                batch.delete_prefix(prefix)
            cell.is_replaced, cell.written, cell.segments = False, 0, 0
        added = cell.items[cell.written :]
        if added:
            cache, name = self.cache, self._name
            row = prefix + cache.next_segment().to_bytes(8, "big")
            cache.put(batch, row, cache.encode(name, cache.pickle(name, added), key))
            if cell.segments >= 0:
                cell.segments += 1
        if cell.is_loaded:
            cell.written = len(cell.items)
        else:
            cell.items = []

    def sweep(self, row: bytes, raw: bytes, key_at: int, latest_expired_ms: int, batch: Batch) -> None:
        """See `sweeper`. A row is a segment of a list; its remaining items stay in it."""
        keys = pickled_keys(raw)
        key = decode_plain_key(row[key_at + 4 : key_end(row, key_at)]) if keys is None else keys[0]
        cell = self.get(key) or self._old.get(key)
        if cell is None or not cell.is_loaded:
            pairs = self.cache.unpickle(self._name, raw)
            left = [pair for pair in pairs if pair[1] > latest_expired_ms]
            if not left:
                batch.delete(row)
            elif len(left) < len(pairs):
                batch.put(row, self.cache.encode(self._name, self.cache.pickle(self._name, left), key))
        elif not cell.is_replaced:  # else the row is about to be deleted
            left = [pair for pair in cell.items if pair[1] > latest_expired_ms]
            if len(left) < len(cell.items):
                cell.items, cell.is_replaced = left, True
                self.marked.add(key)

    def young(self) -> int:
        """See `cache`; items are counted as they are added."""
        return 0

    def write_back(self, batch: Batch) -> None:
        """See `cache`."""
        self.cache.note_written(self._name, len(self.marked))
        for key in self.marked:
            self._write(batch, key)
        self.marked.clear()

    def turn(self, batch: Batch) -> None:
        """See `cache`. Everything is written, because the items of a list that is only appended to need not be kept."""
        self.write_back(batch)
        self._old = dict(self)
        self.clear()


class RocksListState(ListState[T]):
    """A list for each key."""

    __slots__ = ("_lists",)

    def __init__(self, backend: Any, lists: Lists) -> None:
        self._backend = backend
        self._lists = lists

    def get(self) -> list[T]:
        """Return the current key's items, oldest first, in a new list that belongs to the caller."""
        key = self._backend.current_key
        cell = self._lists[key]
        if not cell.is_loaded:
            self._lists.load(key, cell)
        return list(cell.items)

    def add(self, value: T) -> None:
        """Append an item."""
        lists, key = self._lists, self._backend.current_key
        lists[key].items.append(value)
        lists.marked.add(key)
        lists.cache.grown += 1

    def add_all(self, values: Iterable[T]) -> None:
        """Append several items."""
        values = list(values)
        if values:
            lists, key = self._lists, self._backend.current_key
            lists[key].items.extend(values)
            lists.marked.add(key)
            lists.cache.grown += len(values)

    def update(self, values: Iterable[T]) -> None:
        """Replace the items; an empty list clears the state."""
        values = list(values)
        lists, key = self._lists, self._backend.current_key
        cell = lists[key]
        cell.items, cell.is_loaded, cell.is_replaced = values, True, True
        lists.marked.add(key)
        lists.cache.grown += len(values)

    def clear(self) -> None:
        """Remove the state of the current key."""
        self.update(())

    def sample(self) -> Iterable[Any]:
        return [item for cell in islice(reversed(dict.values(self._lists)), 1) for item in cell.items[-1:]]


K = TypeVar("K")
V = TypeVar("V")

#: The number of entries that a pane counts as, because it holds several dictionaries.
_PANE_WEIGHT = 4


class MapPane(Pane):
    """The map of one stream key."""

    __slots__ = ("_owner_key", "_prefix")

    def __init__(self, cache: WriteCache, name: str, owner_key: Any, prefix: bytes) -> None:
        super().__init__(cache, name, True, 1)
        self._owner_key = owner_key
        self._prefix = prefix

    def locate(self, key: Any) -> bytes:
        try:
            return self._prefix + key_bytes(key)
        except StateError as error:
            raise StateError(
                f"{self._cache.owner}: map state {self._name!r} on RocksDB keeps a row for each key of the map, and a "
                f"key of type {type(key).__qualname__} has no stable value; use a str, int, float, bool, bytes, None, "
                "datetime, Decimal, UUID, Enum, Row, dataclass, or a tuple of these"
            ) from error

    def _decode_key(self, row: bytes, raw: bytes) -> Any:
        keys = pickled_keys(raw)
        return decode_plain_key(row[len(self._prefix) :]) if keys is None else keys[1]

    def _encode(self, key: Any, value: Any) -> bytes:
        cache, name = self._cache, self._name
        return cache.encode(name, cache.pickle(name, value), self._owner_key, key)

    def _rows(self) -> Iterator[Row]:
        return self._cache.store.scan(self._prefix) if self.has_rows else iter(())

    def prefixes(self) -> Iterable[bytes]:
        return (self._prefix,)


class Maps(dict[Any, MapPane]):
    """The maps in memory, by stream key. A lookup always returns a map, possibly an empty one."""

    def __init__(self, cache: WriteCache, name: str, max_parallelism: int) -> None:
        super().__init__()
        self.cache = cache
        self._name = name
        self._head = namespace_head(name, MAP, None)
        self._max_parallelism = max_parallelism
        cache.add(self)

    def __missing__(self, key: Any) -> MapPane:
        data = key_bytes(key)
        group = key_group_of_bytes(data, self._max_parallelism)
        pane = MapPane(self.cache, self._name, key, group.to_bytes(2, "big") + self._head + sized(data))
        self.cache.grown += _PANE_WEIGHT
        self[key] = pane
        return pane

    def sweep(self, row: bytes, raw: bytes, key_at: int, latest_expired_ms: int, batch: Batch) -> None:
        """See `Sweepable.sweep`."""
        end = key_end(row, key_at)
        keys = pickled_keys(raw) or (decode_plain_key(row[key_at + 4 : end]), decode_plain_key(row[end:]))
        pane = self.get(keys[0])
        if pane is not None:
            pane.sweep_row(keys[1], row, raw, latest_expired_ms, batch)
        elif self.cache.unpickle(self._name, raw)[1] <= latest_expired_ms:
            batch.delete(row)

    def young(self) -> int:
        """Return 0: panes add their own entries to `WriteCache.grown`."""
        return 0

    def write_back(self, batch: Batch) -> None:
        """Write the marked entries of every pane."""
        for pane in self.values():
            if pane.changed:
                pane.write_back(batch)

    def turn(self, batch: Batch) -> None:
        """Turn the generations of every pane, and forget idle panes."""
        idle = []
        for key, pane in self.items():
            pane.turn(batch)
            if pane.is_idle:
                idle.append(key)
        for key in idle:
            del self[key]


class RocksMapState(MapState[K, V]):
    """A map per key."""

    __slots__ = ("_maps",)

    def __init__(self, backend: Any, maps: Maps) -> None:
        self._backend = backend
        self._maps = maps

    def _map(self) -> dict[K, V]:
        return self._maps[self._backend.current_key]

    def put(self, key: K, value: V) -> None:
        """Store a value under `key`."""
        maps = self._maps
        pane = maps[self._backend.current_key]
        pane[key] = value
        pane.changed.add(key)
        maps.cache.grown += 1

    def put_all(self, dict_value: dict[K, V]) -> None:
        """Store several values."""
        self._maps[self._backend.current_key].update(dict_value)

    def remove(self, key: K) -> None:
        """Remove the value under `key`, if any."""
        self._maps[self._backend.current_key].pop(key, None)

    def clear(self) -> None:
        """Remove the current key's state."""
        self._maps[self._backend.current_key].clear()

    def items(self) -> StateView[tuple[K, V]]:
        """Return all pairs as of now; the map may change while they are read."""
        return StateView(_Pairs(self._maps[self._backend.current_key].snapshot()))

    def keys(self) -> StateView[K]:
        """Return all keys as of now; see `items`."""
        return StateView(_Keys(self._maps[self._backend.current_key].snapshot()))

    def values(self) -> StateView[V]:
        """Return all values as of now; see `items`."""
        return StateView(_Values(self._maps[self._backend.current_key].snapshot()))

    def sample(self) -> Iterable[Any]:
        return [
            value for pane in islice(reversed(dict.values(self._maps)), 1) for value in islice(dict.values(pane), 1)
        ]


class _Pairs(Collection[Any]):
    """The entries of a snapshot."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: PaneSnapshot) -> None:
        self._snapshot = snapshot

    def __iter__(self) -> Iterator[Any]:
        return self._snapshot.all_items()

    def __contains__(self, item: object) -> bool:
        return any(item is other or item == other for other in self)

    def __len__(self) -> int:
        return sum(1 for _ in self._snapshot.all_keys())


class _Keys(_Pairs):
    """The keys of a snapshot."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return self._snapshot.all_keys()


class _Values(_Pairs):
    """The values of a snapshot."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._snapshot.all_items())
