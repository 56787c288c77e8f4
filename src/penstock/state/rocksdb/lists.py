"""List state in segments: appending neither reads nor writes the existing items.

The items appended since the last write become one more row, a segment. A read joins the segments of a list, and writes
the list as one segment if there are many.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

from penstock.state.key_bytes import decode_plain_key, key_bytes
from penstock.state.key_groups import key_group_of_bytes
from penstock.state.rocksdb.cache import WriteCache
from penstock.state.rocksdb.rows import LIST, key_end, namespace_head, pickled_keys, sized
from penstock.state.rocksdb.store import Batch
from penstock.state.states import ListState

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
