"""Broadcast state: a map that every subtask of an operator holds in full (D2).

It is on the heap with every keyed state backend. `put` copies the value: the records of a broadcast reach all subtasks
of a process by reference, and each subtask needs a state of its own. `get` returns the value in the state, not a copy:
only the side with write access may change it, and only `put` guarantees that the change is stored.

On both sides `items`, `keys` and `values` return the same kind of view as keyed map state: of the contents at the time
of the call. All calls share the list in a view until the state changes, because the reading side often calls them for
every record.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, NoReturn, TypeVar

from penstock.base.declared_values import Change, fitting
from penstock.base.typeinfo import TypeInformation
from penstock.codecs.pickling import dumps
from penstock.state.errors import StateError
from penstock.state.snapshot import OperatorCapture
from penstock.state.states import StateView

K = TypeVar("K")
V = TypeVar("V")

BROADCAST_MODE: Final = "broadcast"


class BroadcastEntries(dict[K, V]):
    """The map of a broadcast state, shared by both sides; code that changes it calls `note_change`."""

    __slots__ = ("_views",)

    def __init__(self) -> None:
        super().__init__()
        self._views: dict[str, StateView[Any]] = {}

    def note_change(self) -> None:
        """Forget the views: they list the previous contents."""
        if self._views:
            self._views = {}

    def view(self, name: str, list_items: Callable[[dict[K, V]], Iterable[Any]]) -> StateView[Any]:
        """Return the view of that name; `list_items` builds its list if the map has changed since the last call."""
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = StateView(list(list_items(self)))
        return view


class ReadOnlyBroadcastState(Generic[K, V]):
    """A broadcast state as seen by the side that is not broadcast: writing raises `StateError`.

    Its values are shared with the state and must not be changed in place: other subtasks would not see the change.
    """

    __slots__ = ("_entries", "_name")

    def __init__(self, name: str, entries: BroadcastEntries[K, V]) -> None:
        self._name = name
        self._entries = entries

    def get(self, key: K) -> V | None:
        """Return the value under `key`, or None."""
        return self._entries.get(key)

    def contains(self, key: K) -> bool:
        """Return whether there is a value under `key`."""
        return key in self._entries

    def items(self) -> StateView[tuple[K, V]]:
        """Return a view of the current pairs."""
        return self._entries.view("items", dict.items)

    def keys(self) -> StateView[K]:
        """Return a view of the current keys."""
        return self._entries.view("keys", dict.keys)

    def values(self) -> StateView[V]:
        """Return a view of the current values; the values themselves are not copied."""
        return self._entries.view("values", dict.values)

    def sample(self) -> Iterable[Any]:
        """Return one of the values, for the runtime."""
        return list(islice(dict.values(self._entries), 1))

    def is_empty(self) -> bool:
        """Return whether the map is empty."""
        return not self._entries

    def put(self, key: K, value: V) -> None:
        """Raise `StateError`: this side only reads."""
        self._refuse()

    def put_all(self, dict_value: dict[K, V]) -> None:
        """Raise `StateError`: this side only reads."""
        self._refuse()

    def remove(self, key: K) -> None:
        """Raise `StateError`: this side only reads."""
        self._refuse()

    def clear(self) -> None:
        """Raise `StateError`: this side only reads."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StateError(
            f"broadcast state {self._name!r} can only be read in process_element() and on_timer(), which do not see "
            "the same records in every subtask: write it in process_broadcast_element()"
        )

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, {len(self._entries)} entries)"


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """A broadcast state as seen by the broadcast side.

    Its writer must do the same in every subtask: see `BroadcastProcessFunction`.
    """

    __slots__ = ("_change",)

    def __init__(self, name: str) -> None:
        super().__init__(name, BroadcastEntries())
        self._change: Change | None = None

    def declare(self, value_type: TypeInformation | None) -> None:
        """Declare the type of values: rows in them then have its field order, and a FLOAT has single precision."""
        self._change = fitting(value_type, True)

    def read_only(self) -> ReadOnlyBroadcastState[K, V]:
        """Return the same state for a side that may only read it."""
        return ReadOnlyBroadcastState(self._name, self._entries)

    def put(self, key: K, value: V) -> None:
        """Store a copy of a value; raises `StateError` for one that cannot be copied."""
        try:
            self._entries[key] = copy.deepcopy(value) if self._change is None else copy.deepcopy(self._change(value))
            self._entries.note_change()
        except Exception as error:
            raise StateError(
                f"broadcast state {self._name!r}: a {type(value).__qualname__} cannot be stored: {error}"
            ) from error

    def put_all(self, dict_value: dict[K, V]) -> None:
        """Store copies of several values."""
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: K) -> None:
        """Remove the value under `key`, if there is one."""
        self._entries.pop(key, None)
        self._entries.note_change()

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
        self._entries.note_change()

    def __delitem__(self, key: K) -> None:
        del self._entries[key]
        self._entries.note_change()

    def restore(self, pairs: Iterable[tuple[K, V]]) -> None:
        """Restore the entries of a snapshot."""
        self._entries.update(pairs)
        self._entries.note_change()

    def capture(self, owner: str) -> BroadcastCapture:
        """Return the current entries, pickled in one call; raises a `StateError` that names `owner` and the state."""
        try:
            frozen = dumps(dict(self._entries))
        except Exception as error:
            raise StateError(f"{owner}: an entry of state {self._name!r} cannot be pickled: {error}") from error
        return BroadcastCapture(self._name, frozen, len(self._entries))


class BroadcastCapture(OperatorCapture):
    """A frozen broadcast state; its items, pairs of key and value, are built from it in the background."""

    def __init__(self, name: str, frozen: bytes, count: int) -> None:
        super().__init__(name, BROADCAST_MODE, [])
        self._frozen = frozen
        self._count = count

    @property
    def count(self) -> int:
        """The number of entries."""
        return self._count

    def to_bytes(self) -> bytes:
        """Return the entries as an Arrow IPC stream, one item for each."""
        entries: dict[Any, Any] = pickle.loads(self._frozen)
        return OperatorCapture(self.name, self.mode, [dumps(pair) for pair in entries.items()]).to_bytes()
