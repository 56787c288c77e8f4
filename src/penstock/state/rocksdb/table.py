"""A keyed state with one row per entry: values, accumulators, windows, timers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from typing import Any

from penstock.state.errors import StateError
from penstock.state.frozen import Pack
from penstock.state.rocksdb.cache import WriteCache
from penstock.state.rocksdb.namespace_pane import NamespacePane
from penstock.state.rocksdb.panes import Panes
from penstock.state.rocksdb.rows import WHOLE
from penstock.state.rocksdb.store import Batch

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
