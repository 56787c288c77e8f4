"""Lists and maps in accumulators that may grow large.

Without windows, each view of a group has its own keyed state, so that a change does not read and write the rest of the
accumulator. Elsewhere it is a plain list or map inside the accumulator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class DataView(ABC):
    """A collection inside an accumulator. Flink: "User-defined Functions", ListView and MapView."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all elements."""


class ListView(DataView, Generic[T]):
    """A list that values are appended to."""

    def __init__(self) -> None:
        self._list: list[T] = []

    def get(self) -> list[T]:
        """Return all values in a new list, oldest first."""
        return list(self._list)

    def add(self, value: T) -> None:
        """Append a value."""
        self._list.append(value)

    def add_all(self, values: Iterable[T]) -> None:
        """Append several values."""
        self._list += list(values)

    def clear(self) -> None:
        """Remove all elements."""
        self._list = []

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListView) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ListView({list(self)})"


class MapView(DataView, Generic[K, V]):
    """A map. A missing key has the value None."""

    def __init__(self) -> None:
        self._map: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        return self._map.get(key)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        self._map[key] = value

    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set the values of several keys."""
        self._map.update(dict_value)

    def remove(self, key: K) -> None:
        """Remove a key if it exists."""
        self._map.pop(key, None)

    def contains(self, key: K) -> bool:
        """Return whether a key exists."""
        return key in self._map

    def items(self) -> Iterable[tuple[K, V]]:
        """Return a snapshot of all keys with their values; the map may be modified during iteration."""
        return list(self._map.items())

    def keys(self) -> Iterable[K]:
        """Return all keys."""
        return list(self._map)

    def values(self) -> Iterable[V]:
        """Return all values."""
        return list(self._map.values())

    def is_empty(self) -> bool:
        """Return whether the map is empty."""
        return not self._map

    def clear(self) -> None:
        """Remove all keys."""
        self._map = {}

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapView) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"MapView({dict(self.items())})"
