"""Keyed state as user code holds it: value, list, map, reducing and aggregating state (D1).

Each object reads the backend's current key on every access, so that only that key's state can be reached. User code
may keep and change what it read; only `update`, `add` and `put` promise to store it.

`ListState.get` returns a list, and `keys`, `items` and `values` of a map return views, both of the contents at the time
of the call: later changes of the state do not show in them. They can be read any number of times. Their values are the
state's own objects, not copies. The order of a map's entries differs between backends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.state.errors import StateError

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN", contravariant=True)
OUT = TypeVar("OUT", covariant=True)
ITEM = TypeVar("ITEM", covariant=True)
_MISSING: Any = object()
#: The items of a view that its text shows.
_SHOWN_MAX: Final = 20


class _NoKey:
    def __repr__(self) -> str:
        return "NO_KEY"

    def __hash__(self) -> int:
        raise StateError(
            "keyed state was used while no key is current: use it in process_element or on_timer of a keyed stream "
            "(after key_by), not in open(), close() or on a stream without keys"
        )


#: The current key while there is none: using it to look something up raises `StateError`.
NO_KEY: Any = _NoKey()


class KeyHolder(Protocol):
    """What says which key is current: a keyed state backend."""

    @property
    def current_key(self) -> Any: ...


class Sampled(Protocol):
    """A state of user code."""

    def sample(self) -> Iterable[Any]: ...


class EntryTable(Protocol):
    """The table that holds a state's entries, as far as the state uses it; see `state.backend`."""

    @property
    def is_next_whole(self) -> bool: ...

    def entries(self, namespace: Any) -> dict[Any, Any]: ...

    def changed(self, namespace: Any) -> set[Any]: ...


class StateView(Collection[ITEM]):
    """The keys, values or pairs of a map at the time of the call; it can be read any number of times.

    `len` and `in` work as well. On RocksDB a large map stays on disk, and each pass and each `len` reads it. All passes
    have the same order, which is not defined otherwise.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Collection[ITEM]) -> None:
        #: in an order of its own; nothing changes it
        self._items = items

    def __iter__(self) -> Iterator[ITEM]:
        return iter(self._items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        return next(iter(self._items), _MISSING) is not _MISSING

    def __repr__(self) -> str:
        shown = list(map(repr, islice(self._items, _SHOWN_MAX + 1)))
        if len(shown) > _SHOWN_MAX:
            shown[_SHOWN_MAX] = "..."
        return f"StateView([{', '.join(shown)}])"


class State:
    """Base of all keyed states."""

    __slots__ = ("_backend", "_changed", "_entries", "_table")

    def __init__(self, backend: KeyHolder, table: EntryTable) -> None:
        self._backend = backend
        self._table = table
        self._entries = table.entries(None)
        self._changed = table.changed(None)

    def clear(self) -> None:
        """Remove the state of the current key."""
        key = self._backend.current_key
        self._entries.pop(key, None)
        self._changed.add(key)  # raises where no key is current; `pop` does not when nothing is there

    def sample(self) -> Iterable[Any]:
        """A value of some key, if one is in memory, for the runtime: all values of a state have one type.

        It is the key that came last, because a dictionary keeps the places of keys that left until it grows.
        """
        return islice(reversed(dict.values(self._entries)), 1)


class ValueState(State, Generic[T]):
    """One value for each key."""

    __slots__ = ()

    def value(self) -> T | None:
        """The current key's value, or None."""
        return self._entries.get(self._backend.current_key)

    def update(self, value: T | None) -> None:
        """Store the current key's value; None clears it."""
        if value is None:
            self.clear()
            return
        key = self._backend.current_key
        if not self._table.is_next_whole:
            self._changed.add(key)
        self._entries[key] = value


class AppendingState(State, ABC, Generic[IN, OUT]):
    """A state to which values are added, and which returns something: list, reducing and aggregating state."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT:
        """What the current key's state gives."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value to the current key's state."""


class MergingState(AppendingState[IN, OUT]):
    """One whose contents under two keys, or of two windows, can be made into one."""

    __slots__ = ()


class ListState(MergingState[T, Iterable[T]]):
    """A list for each key."""

    __slots__ = ()

    def get(self) -> list[T]:
        """The current key's items, oldest first, in a new list that belongs to the caller."""
        return list(self._entries.get(self._backend.current_key, ()))

    def add(self, value: T) -> None:
        """Append an item."""
        entries, key = self._entries, self._backend.current_key
        if not self._table.is_next_whole:
            self._changed.add(key)
        items = entries.get(key)
        if items is None:
            entries[key] = [value]
        else:
            items.append(value)

    def add_all(self, values: Iterable[T]) -> None:
        """Append several items."""
        values = list(values)
        if values:
            key = self._backend.current_key
            if not self._table.is_next_whole:
                self._changed.add(key)
            self._entries.setdefault(key, []).extend(values)

    def update(self, values: Iterable[T]) -> None:
        """Replace the items; an empty list clears the state."""
        values = list(values)
        if values:
            key = self._backend.current_key
            if not self._table.is_next_whole:
                self._changed.add(key)
            self._entries[key] = values
        else:
            self.clear()

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def sample(self) -> Iterable[Any]:
        return [item for items in super().sample() for item in items[-1:]]


class MapState(State, Generic[K, V]):
    """A map for each key."""

    __slots__ = ()

    def _map(self) -> dict[K, V]:
        found: dict[K, V] = self._entries.get(self._backend.current_key, {})
        return found

    def get(self, key: K) -> V | None:
        """The value under `key`, or None."""
        return self._map().get(key)

    def put(self, key: K, value: V) -> None:
        """Store a value under `key`."""
        entries, current = self._entries, self._backend.current_key
        if not self._table.is_next_whole:
            self._changed.add(current)
        found = entries.get(current)
        if found is None:
            entries[current] = {key: value}
        else:
            found[key] = value

    def put_all(self, dict_value: dict[K, V]) -> None:
        """Store several values."""
        if dict_value:
            current = self._backend.current_key
            if not self._table.is_next_whole:
                self._changed.add(current)
            self._entries.setdefault(current, {}).update(dict_value)

    def remove(self, key: K) -> None:
        """Remove the value under `key`, when there is one."""
        found = self._map()
        found.pop(key, None)
        if not self._table.is_next_whole:
            self._changed.add(self._backend.current_key)
        if not found:
            self.clear()

    def contains(self, key: K) -> bool:
        """Whether there is a value under `key`."""
        return key in self._map()

    def items(self) -> StateView[tuple[K, V]]:
        """All pairs at this moment; the map may be changed while they are read."""
        return StateView(list(self._map().items()))

    def keys(self) -> StateView[K]:
        """All keys, in the same way."""
        return StateView(list(self._map()))

    def values(self) -> StateView[V]:
        """All values, in the same way."""
        return StateView(list(self._map().values()))

    def is_empty(self) -> bool:
        """Whether the map holds nothing."""
        return not self._map()

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __getitem__(self, key: K) -> V:
        return self._map()[key]

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        if key not in self._map():
            raise KeyError(key)
        self.remove(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._map())

    def sample(self) -> Iterable[Any]:
        return [value for entries in super().sample() for value in islice(entries.values(), 1)]


class ReducingState(MergingState[T, T | None]):
    """One value for each key, into which added values are folded."""

    __slots__ = ("_reduce",)

    def __init__(self, backend: KeyHolder, table: EntryTable, reduce_function: Callable[[T, T], T]) -> None:
        super().__init__(backend, table)
        self._reduce = reduce_function

    def get(self) -> T | None:
        """The folded value, or None when nothing was added."""
        return self._entries.get(self._backend.current_key)

    def add(self, value: T) -> None:
        """Fold a value in."""
        entries, key = self._entries, self._backend.current_key
        if not self._table.is_next_whole:
            self._changed.add(key)
        folded = entries.get(key, _MISSING)
        entries[key] = value if folded is _MISSING else self._reduce(folded, value)


class AggregatingState(MergingState[T, V | None], Generic[T, V]):
    """One accumulator for each key; `get` gives the aggregate function's result."""

    __slots__ = ("_function",)

    def __init__(self, backend: KeyHolder, table: EntryTable, function: Any) -> None:
        super().__init__(backend, table)
        self._function = function

    def get(self) -> V | None:
        """The result for what was added, or None when nothing was."""
        key = self._backend.current_key
        accumulator = self._entries.get(key, _MISSING)
        return None if accumulator is _MISSING else self._function.get_result(accumulator)

    def add(self, value: T) -> None:
        """Add a value."""
        entries, key = self._entries, self._backend.current_key
        if not self._table.is_next_whole:
            self._changed.add(key)
        accumulator = entries.get(key, _MISSING)
        if accumulator is _MISSING:
            accumulator = self._function.create_accumulator()
        entries[key] = self._function.add(value, accumulator)

    def sample(self) -> Iterable[Any]:
        """None: the function makes its results from what is held."""
        return ()
