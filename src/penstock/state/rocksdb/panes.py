"""The namespaces of one state, kept in memory with the key groups that have rows of each.

Timers and windows use them to find and drop due namespaces without reading the store. They take about 150 bytes per
namespace. The pane of a namespace is created on first access, and forgotten when it has nothing in memory. While a pane
is still referenced, it is found again, so a namespace never has two panes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

from penstock.state.rocksdb.namespace_pane import NamespacePane
from penstock.state.rocksdb.store import Batch

_PANES_CHECKED_MAX = 8
_get = dict.get
_items = dict.items


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
