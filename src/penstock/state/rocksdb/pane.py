"""The entries of one namespace: a dictionary that is partly in memory and partly in the store.

`Pane`: the dictionary itself holds the young generation. It inherits the C methods that only serve hits (`pane[key]`,
`pane[key] = value`), so these cost no more than in a plain dictionary. Every method that needs the rest is overridden.
Methods that remove entries, `setdefault` and `update` mark the keys themselves; assignment does not.

The first of these that knows a key is authoritative: the young generation, the old generation, `_gone`, the store.
`_gone` holds keys that are in neither generation and need no lookup in the store. The value of a key is True if the
store may have a row to delete, and False if it has none. A key in a generation may be in `_gone` as well; `_gone` then
describes only the store.

`NamespacePane` is the pane of a table's namespace: one row per entry, in the key group of the entry's key.

`Panes` are the namespaces of one state, kept in memory with the key groups that have rows of each. Timers and windows
use them to find and drop due namespaces without reading the store. They take about 150 bytes per namespace. The pane of
a namespace is created on first access, and forgotten when it has nothing in memory. While a pane is still referenced,
it is found again, so a namespace never has two panes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any
from weakref import WeakValueDictionary

from penstock.state.keys import check_key_groups, decode_plain_key, key_bytes, key_group_of_bytes, sample_keys
from penstock.state.rocksdb.cache import WriteCache
from penstock.state.rocksdb.store import Batch, Row, View, namespace_head, pickled_keys, sized

_MISSING: Any = object()
#: The maximum number of entries that count as few.
_FEW = 256
_get = dict.get
_items = dict.items
_set = dict.__setitem__
_pop = dict.pop


class Pane(dict[Any, Any]):
    """See the module docstring. Subclasses map entries to rows."""

    __slots__ = ("__weakref__", "_cache", "_gone", "_name", "_old", "_weight", "changed", "has_rows", "is_complete")

    def __init__(self, cache: WriteCache, name: str, has_rows: bool, weight: int) -> None:
        super().__init__()
        self._cache = cache
        self._name = name
        self._old: dict[Any, Any] = {}
        self._gone: dict[Any, bool] = {}
        #: the number that an entry adds to `WriteCache.grown`
        self._weight = weight
        #: whether the store may have rows of this pane
        self.has_rows = has_rows
        #: whether every entry is in memory, so that lookups skip the store
        self.is_complete = False
        self.changed: set[Any] = set()

    # --- the rows -----------------------------------------------------------------------------------------------------

    def locate(self, key: Any) -> bytes:
        """Return the key of an entry's row."""
        raise NotImplementedError

    def _decode_key(self, row: bytes, raw: bytes) -> Any:
        """Return the entry key that a row belongs to."""
        raise NotImplementedError

    def _encode(self, key: Any, value: Any) -> bytes:
        """Return the content of an entry's row."""
        raise NotImplementedError

    def prefixes(self) -> Iterable[bytes]:
        """Return the prefixes that the rows begin with."""
        raise NotImplementedError

    def _on_put(self, row: bytes) -> None:
        """Note that a row is being written."""
        self.has_rows = True

    def _rows(self) -> Iterator[Row]:
        """Return the rows currently in the store."""
        raise NotImplementedError

    def _unknown_rows(self) -> Iterator[Row]:
        """Return the rows currently in the store, or nothing if all entries are in memory."""
        return iter(()) if self.is_complete or not self.has_rows else self._rows()

    # --- looking up ---------------------------------------------------------------------------------------------------

    def _find(self, key: Any) -> Any:
        """Load the value of a key that the young generation lacks into it, and return the value or `_MISSING`."""
        self._cache.grown += self._weight
        old = self._old
        if key in old:
            value = old.pop(key)
        elif self.is_complete or not self.has_rows or key in self._gone:
            return _MISSING
        else:
            raw = self._cache.read(self.locate(key))
            if raw is None:
                self._gone[key] = False
                return _MISSING
            value = self._cache.unpickle(self._name, raw)
        _set(self, key, value)
        return value

    def __missing__(self, key: Any) -> Any:
        value = self._find(key)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        value = _get(self, key, _MISSING)
        if value is _MISSING:
            value = self._find(key)
            if value is _MISSING:
                return default
        return value

    def __contains__(self, key: object) -> bool:
        return _get(self, key, _MISSING) is not _MISSING or self._find(key) is not _MISSING

    # --- changing -----------------------------------------------------------------------------------------------------

    def pop(self, key: Any, *default: Any) -> Any:
        value = self.get(key, _MISSING)
        if value is not _MISSING:
            self._remove(key)
        elif not default:
            raise KeyError(key)
        else:
            value = default[0]
        return value

    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    def popitem(self) -> tuple[Any, Any]:
        for key in self:
            return key, self.pop(key)
        raise KeyError("there are no entries")

    def _remove(self, key: Any) -> None:
        _pop(self, key, None)
        self._old.pop(key, None)
        if self.has_rows:
            self._gone.setdefault(key, True)
        self.changed.add(key)

    def sweep_row(self, key: Any, row: bytes, raw: bytes, latest_expired_ms: int, batch: Batch) -> None:
        """Remove the entry of a row if it has expired; see `sweeper`.

        Its value ends with the time of the last access.
        """
        value = _get(self, key, _MISSING)
        if value is _MISSING:
            value = self._old.get(key, _MISSING)
        if value is not _MISSING:
            if value[1] <= latest_expired_ms:
                self._remove(key)
        elif key not in self._gone and self._cache.unpickle(self._name, raw)[1] <= latest_expired_ms:
            batch.delete(row)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        value = self.get(key, _MISSING)
        if value is _MISSING:
            value = self[key] = default
            self.changed.add(key)
        return value

    def update(self, *args: Any, **more: Any) -> None:
        cache, mark = self._cache, self.changed.add
        for given in (*args, more):
            for key, value in given.items() if hasattr(given, "items") else given:
                cache.grown += self._weight
                _set(self, key, value)
                mark(key)

    def clear(self) -> None:
        """Remove all entries and, immediately, their rows."""
        if self.has_rows:
            batch = self._cache.store.batch()
            if self.is_complete:
                for key in {*self.in_memory(), *(key for key, has_row in self._gone.items() if has_row)}:
                    batch.delete(self.locate(key))
            else:
                for prefix in self.prefixes():
                    batch.delete_prefix(prefix)
            batch.write()
        self._old = {}
        self._gone = {}
        self.has_rows = self.is_complete = False
        self.changed.clear()
        super().clear()

    # --- going through all --------------------------------------------------------------------------------------------

    def _copy(self) -> dict[Any, Any]:
        # Not `dict.copy`, which reads a subclass through its overridden methods.
        return {key: value for key, value in _items(self)}  # noqa: C416 - nor does `dict()`

    def in_memory(self) -> dict[Any, Any]:
        """Return a copy of both generations."""
        young = self._copy()
        return {**self._old, **young} if self._old else young

    def items(self) -> Any:
        """Iterate over all entries as of now, those in memory first; the others are not cached."""
        cached, removed, rows = self.in_memory(), set(self._gone), self._unknown_rows()
        return chain(cached.items(), self.stored(rows, cached, removed))

    def stored(self, rows: Iterable[Row], cached: dict[Any, Any], removed: set[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield the entries of rows, except entries that are in memory or removed."""
        loads, name, key_of = self._cache.unpickle, self._name, self._decode_key
        for row, raw in rows:
            key = key_of(row, raw)
            if key not in cached and key not in removed:
                yield key, loads(name, raw)

    def keys(self) -> Any:
        cached, removed, rows = self.in_memory(), set(self._gone), self._unknown_rows()
        return chain(cached, self.stored_keys(rows, cached, removed))

    def stored_keys(self, rows: Iterable[Row], cached: dict[Any, Any], removed: set[Any]) -> Iterator[Any]:
        """Like `stored`, but yield only the keys and do not unpickle the values."""
        keys = (self._decode_key(row, raw) for row, raw in rows)
        return (key for key in keys if key not in cached and key not in removed)

    def snapshot(self) -> PaneSnapshot:
        """Return all entries as of now, readable any number of times."""
        return PaneSnapshot(self, self.in_memory(), set(self._gone), self._unknown_rows())

    def values(self) -> Any:
        return (value for _, value in self.items())

    def __iter__(self) -> Iterator[Any]:
        keys: Iterator[Any] = self.keys()
        return keys

    def __len__(self) -> int:
        return sum(1 for _ in self.keys()) if self.has_rows else len(self.in_memory())

    def __bool__(self) -> bool:
        if dict.__len__(self) or self._old:
            return True
        if self.is_complete or not self.has_rows:
            return False
        # Keep the entries found in memory, so that the next call is free. Load few entries all at once, because a
        # caller that asks usually iterates over them next.
        self.is_complete = True
        for key, value in islice(self.stored(self._rows(), {}, set(self._gone)), _FEW + 1):
            self.is_complete = dict.__len__(self) < _FEW
            self._cache.grown += self._weight
            _set(self, key, value)
        return dict.__len__(self) > 0

    def copy(self) -> dict[Any, Any]:
        return dict(self.items())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Pane):
            other = other.copy()
        return self.copy() == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __repr__(self) -> str:
        return f"<{dict.__len__(self)} young and {len(self._old)} old entries of state {self._name!r}>"

    # --- generations --------------------------------------------------------------------------------------------------

    @property
    def young(self) -> int:
        """The number of keys that the young generation knows, including keys without an entry."""
        return dict.__len__(self) + len(self._gone)

    @property
    def is_idle(self) -> bool:
        """Whether the pane can be rebuilt from the store."""
        return not (dict.__len__(self) or self._old or self.changed)

    def _write(self, batch: Batch, key: Any) -> None:
        value = _get(self, key, _MISSING)
        if value is _MISSING:
            value = self._old.get(key, _MISSING)
        if value is not _MISSING:
            row = self.locate(key)
            self._cache.put(batch, row, self._encode(key, value))
            self._on_put(row)
            self._gone.pop(key, None)
        elif self._gone.get(key):
            batch.delete(self.locate(key))
            self._gone[key] = False

    def write_back(self, batch: Batch) -> None:
        """Write the marked entries and clear the marks."""
        if self.changed:
            self._cache.note_written(self._name, len(self.changed))
        for key in self.changed:
            self._write(batch, key)
        self.changed.clear()

    def turn(self, batch: Batch) -> None:
        """Drop the old generation after writing its marked entries, and make the young generation the old one."""
        young = self._copy() if dict.__len__(self) else {}
        changed = self.changed
        if changed:
            written = [key for key in changed if key not in young] if young else list(changed)
            self._cache.note_written(self._name, len(written))
            for key in written:
                self._write(batch, key)
                changed.discard(key)
        if self._old:
            self.is_complete = False
        self._old = young
        super().clear()
        if not self._gone:
            return
        # Keep the knowledge about the store only for keys that stay in memory.
        self._gone = {key: known for key, known in self._gone.items() if key in young}


class PaneSnapshot:
    """The entries of a pane as of the creation of this object. Rows of a large pane stay in the store.

    Values in memory are the pane's own objects. Each pass loads the values of rows again.
    """

    __slots__ = ("_cached", "_gone", "_listed", "_pane", "_rest", "_view")

    def __init__(self, pane: Pane, cached: dict[Any, Any], removed: set[Any], rows: Iterator[Row]) -> None:
        self._pane = pane
        self._cached = cached
        self._gone = removed
        self._listed = list(islice(rows, _FEW + 1))
        self._rest: Iterator[Row] | None = None
        self._view: View | None = None
        if len(self._listed) > _FEW:
            # The first pass continues this scan, which is faster than a view; later passes need a view.
            self._rest, self._view = rows, pane._cache.store.view()

    def _rows(self) -> Iterator[Row]:
        if self._view is None:
            return iter(self._listed)
        rest, self._rest = self._rest, None
        if rest is not None:
            return chain(self._listed, rest)
        return chain.from_iterable(map(self._view.scan, self._pane.prefixes()))

    def all_items(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over all entries, those in memory first."""
        return chain(self._cached.items(), self._pane.stored(self._rows(), self._cached, self._gone))

    def all_keys(self) -> Iterator[Any]:
        """Iterate over the keys of all entries, in the same order."""
        return chain(self._cached, self._pane.stored_keys(self._rows(), self._cached, self._gone))


class NamespacePane(Pane):
    """The entries of one namespace, one row each, in the key groups of their keys."""

    __slots__ = ("_head", "_key_at", "_max_parallelism", "groups")

    def __init__(
        self, cache: WriteCache, name: str, layout: bytes, namespace: Any, max_parallelism: int, groups: int = 0
    ) -> None:
        # A plain state has a single pane, whose entries are counted on demand.
        super().__init__(cache, name, bool(groups), 0 if namespace is None else 1)
        cache.grown += self._weight
        #: a bitmap of the key groups that may have rows
        self.groups = groups
        self._head = namespace_head(name, layout, namespace)
        self._key_at = 2 + len(self._head) + 4
        self._max_parallelism = max_parallelism

    def locate(self, key: Any) -> bytes:
        data = key_bytes(key)
        return key_group_of_bytes(data, self._max_parallelism).to_bytes(2, "big") + self._head + sized(data)

    def _decode_key(self, row: bytes, raw: bytes) -> Any:
        keys = pickled_keys(raw)
        return decode_plain_key(row[self._key_at :]) if keys is None else keys[0]

    def _encode(self, key: Any, value: Any) -> bytes:
        cache, name = self._cache, self._name
        return cache.encode(name, cache.pickle(name, value), key)

    def _on_put(self, row: bytes) -> None:
        group = 1 << int.from_bytes(row[:2], "big")
        if not self.groups & group:
            self.groups |= group
            self.has_rows = True

    def _rows(self) -> Iterator[Row]:
        if not self.groups:
            return iter(())
        return chain.from_iterable(map(self._cache.store.view().scan, self.prefixes()))

    def prefixes(self) -> Iterable[bytes]:
        groups, group = self.groups, 0
        while groups:
            low = (groups & -groups).bit_length()
            group += low
            groups >>= low
            yield (group - 1).to_bytes(2, "big") + self._head

    def sweep(self, row: bytes, raw: bytes, key_at: int, latest_expired_ms: int, batch: Batch) -> None:
        """See `Sweepable.sweep`."""
        self.sweep_row(self._decode_key(row, raw), row, raw, latest_expired_ms, batch)

    def validate(self, key_groups: tuple[int, int]) -> None:
        """See `KeyedStateBackend.validate`."""
        keys = [*sample_keys(dict.keys(self)), *sample_keys(self._old)]
        check_key_groups(self._name, keys, self._max_parallelism, key_groups)
        assert self.has_rows or not self.groups, f"state {self._name!r}: only what has rows has key groups"
        assert self.has_rows or not any(self._gone.values()), f"state {self._name!r}: only what has rows deletes some"

    def __bool__(self) -> bool:
        if super().__bool__():
            return True
        if not any(self._gone.values()):
            self.groups, self.has_rows = 0, False
        return False

    def clear(self) -> None:
        super().clear()
        self.groups = 0


_PANES_CHECKED_MAX = 8


class Panes(dict[Any, Any]):
    """A dictionary of panes by namespace; the dictionary itself holds the panes in use."""

    __slots__ = ("_held", "_make", "_stored")

    def __init__(self, make: Callable[[Any, int], NamespacePane], stored: dict[Any, int]) -> None:
        super().__init__()
        self._make = make
        #: namespaces not in use, with the key groups that have their rows
        self._stored = stored
        self._held: WeakValueDictionary[Any, NamespacePane] = WeakValueDictionary()

    def open(self, namespace: Any) -> NamespacePane:
        """Return the pane of a namespace, creating it if necessary."""
        pane: NamespacePane | None = _get(self, namespace)
        if pane is None:
            groups = self._stored.pop(namespace, 0)
            pane = self._held.pop(namespace, None)
            if pane is None:  # not `or`: a pane without entries is falsy
                pane = self._make(namespace, groups)
            self[namespace] = pane
        return pane

    def take(self, namespace: Any) -> NamespacePane | None:
        """Forget a namespace and return its pane, or None if the namespace is unknown."""
        if namespace not in self:
            self._held.pop(namespace, None)
            return None
        pane = self.open(namespace)
        del self[namespace]
        return pane

    def write_back(self, batch: Batch) -> None:
        """Write the marked entries of every pane."""
        for _, pane in _items(self):
            pane.write_back(batch)

    def turn(self, batch: Batch) -> None:
        """Turn the generations of every pane, and forget idle panes."""
        for namespace, pane in list(_items(self)):
            pane.turn(batch)
            # A plain state keeps a reference to its single pane.
            if pane.is_idle and namespace is not None:
                del self[namespace]
                self._held[namespace] = pane
                if pane.groups:
                    self._stored[namespace] = pane.groups

    def validate(self, name: str, key_groups: tuple[int, int]) -> None:
        """See `KeyedStateBackend.validate`."""
        own = (2 << key_groups[1]) - (1 << key_groups[0])
        for namespace in dict.keys(self):
            assert namespace not in self._stored, f"state {name!r}: namespace {namespace!r} lies in two places"
            assert namespace not in self._held, f"state {name!r}: namespace {namespace!r} has two panes"
        for groups in self._stored.values():
            assert groups, f"state {name!r}: a namespace is kept that has neither rows nor entries"
            assert not groups & ~own, f"state {name!r}: a namespace has rows in key groups of other subtasks"
        for _, pane in islice(_items(self), _PANES_CHECKED_MAX):
            pane.validate(key_groups)
            assert not pane.groups & ~own, f"state {name!r}: a namespace has rows in key groups of other subtasks"

    def get(self, namespace: Any, default: Any = None) -> Any:
        pane = _get(self, namespace)
        if pane is None:
            return self.open(namespace) if namespace in self._stored else default
        return pane

    def __missing__(self, namespace: Any) -> Any:
        if namespace in self._stored:
            return self.open(namespace)
        raise KeyError(namespace)

    def __contains__(self, namespace: object) -> bool:
        return dict.__contains__(self, namespace) or namespace in self._stored

    def __iter__(self) -> Iterator[Any]:
        return iter([*dict.keys(self), *self._stored])

    def keys(self) -> Any:
        return list(self)

    def values(self) -> Any:
        return [self[namespace] for namespace in self]

    def items(self) -> Any:
        return [(namespace, self[namespace]) for namespace in self]

    def __len__(self) -> int:
        return dict.__len__(self) + len(self._stored)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == other

    __hash__ = None
