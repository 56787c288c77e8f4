"""Lists and maps of accumulators that may grow large.

A view of a group without windows lies in keyed state of its own, so a change to it does not read and write the rest.
Anywhere else it is a plain list or map inside the accumulator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class DataView(ABC):
    """A collection that an accumulator holds. Flink: "User-defined Functions", ListView and MapView."""

    @abstractmethod
    def clear(self) -> None:
        """Take everything out."""


class ListView(DataView, Generic[T]):
    """A list, to which values are added at its end."""

    def __init__(self) -> None:
        self._list: list[T] = []

    def get(self) -> list[T]:
        """All values, oldest first, in a new list."""
        return list(self._list)

    def add(self, value: T) -> None:
        """Add a value at the end."""
        self._list.append(value)

    def add_all(self, values: Iterable[T]) -> None:
        """Add several values at the end."""
        self._list += list(values)

    def clear(self) -> None:
        """Take everything out."""
        self._list = []

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListView) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ListView({list(self)})"


class MapView(DataView, Generic[K, V]):
    """A map. A key that is not there has the value None."""

    def __init__(self) -> None:
        self._map: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        return self._map.get(key)

    def put(self, key: K, value: V) -> None:
        """Give a key a value."""
        self._map[key] = value

    def put_all(self, dict_value: dict[K, V]) -> None:
        """Give several keys values."""
        self._map.update(dict_value)

    def remove(self, key: K) -> None:
        """Take a key out, if it is there."""
        self._map.pop(key, None)

    def contains(self, key: K) -> bool:
        """Whether a key is there."""
        return key in self._map

    def items(self) -> Iterable[tuple[K, V]]:
        """All keys with their values at this moment; the map may be changed while they are read."""
        return list(self._map.items())

    def keys(self) -> Iterable[K]:
        """All keys."""
        return list(self._map)

    def values(self) -> Iterable[V]:
        """All values."""
        return list(self._map.values())

    def is_empty(self) -> bool:
        """Whether there is no key."""
        return not self._map

    def clear(self) -> None:
        """Take everything out."""
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
