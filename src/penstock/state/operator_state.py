"""Operator state, which belongs to a subtask rather than to a key, and broadcast state (D2).

`BroadcastState` is a map that every subtask of an operator holds in full. It is on the heap with every keyed state
backend. `put` copies the value: the records of a broadcast reach all subtasks of a process by reference, and each
subtask needs a state of its own. `get` returns the value in the state, not a copy: only the side with write access may
change it, and only `put` guarantees that the change is stored.

On both sides `items`, `keys` and `values` return the same kind of view as keyed map state: of the contents at the time
of the call. All calls share the list in a view until the state changes, because the reading side often calls them for
every record.

`OperatorStateBackend` holds the operator state of one operator in one subtask. The mode of a state says how it is
redistributed. When the parallelism changes, `split` lists are distributed item by item. `union` lists go whole to every
subtask, `broadcast` maps are the same everywhere. `committable` lists are distributed by the subtask that wrote them.
They hold the prepared committables of a sink, so nothing of them remains once a subtask has finished and its last
checkpoint is complete.

A name identifies one state of an operator, whatever its mode. A restored state that the operator does not request stays
in later snapshots.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, NoReturn, TypeVar

from penstock.base.declared_values import Change, fitting
from penstock.base.errors import WrongTypeError
from penstock.base.typeinfo import TypeInformation
from penstock.codecs.pickling import dumps
from penstock.state.errors import StateError
from penstock.state.snapshot import OperatorCapture
from penstock.state.states import ListStateDescriptor, MapStateDescriptor, StateDescriptor, StateView

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

    Examples:
        >>> from penstock.datastream import BroadcastProcessFunction, StreamExecutionEnvironment
        >>> from penstock.datastream.state import MapStateDescriptor
        >>> PRICES = MapStateDescriptor("prices")
        >>> class Known(BroadcastProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield ctx.get_broadcast_state(PRICES).contains(value)
        ...     def process_broadcast_element(self, value, ctx):
        ...         ctx.get_broadcast_state(PRICES).put(*value)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> prices = env.from_elements(("tea", 2)).broadcast(PRICES)
        >>> env.from_elements("milk").connect(prices).process(Known()).collect()
        [False]
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

    Examples:
        >>> from penstock.datastream import BroadcastProcessFunction, StreamExecutionEnvironment
        >>> from penstock.datastream.state import MapStateDescriptor
        >>> PRICES = MapStateDescriptor("prices")
        >>> class Prices(BroadcastProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         pass
        ...     def process_broadcast_element(self, value, ctx):
        ...         prices = ctx.get_broadcast_state(PRICES)
        ...         prices.put(*value)
        ...         yield dict(prices.items())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> prices = env.from_elements(("tea", 2)).broadcast(PRICES)
        >>> env.from_elements("milk").connect(prices).process(Prices()).collect()
        [{'tea': 2}]
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


T = TypeVar("T")

SPLIT_MODE: Final = "split"
UNION_MODE: Final = "union"
COMMITTABLE_MODE: Final = "committable"


class OperatorListState(Generic[T]):
    """A list of picklable items of one subtask.

    Examples:
        >>> from penstock.datastream import CheckpointedFunction, MapFunction
        >>> from penstock.datastream.state import ListStateDescriptor
        >>> from penstock.testing import harness_for
        >>> class LastWord(MapFunction, CheckpointedFunction):
        ...     def initialize_state(self, context):
        ...         store = context.get_operator_state_store()
        ...         self.last = store.get_list_state(ListStateDescriptor("last"))
        ...     def snapshot_state(self, context):
        ...         pass
        ...     def map(self, value):
        ...         before = self.last.get()
        ...         self.last.update([value])
        ...         return before
        >>> with harness_for(LastWord()) as harness:
        ...     harness.process_batch(["tea", "milk"])
        ...     harness.values
        [[], ['tea']]
    """

    def __init__(self, name: str, mode: str) -> None:
        self.name = name
        self.mode = mode
        self.items: list[T] = []

    def get(self) -> list[T]:
        """Return a copy of the items."""
        return list(self.items)

    def add(self, value: T) -> None:
        """Append an item."""
        self.items.append(value)

    def add_all(self, values: Iterable[T]) -> None:
        """Append several items."""
        self.items.extend(values)

    def update(self, values: Iterable[T]) -> None:
        """Replace the items."""
        self.items = list(values)

    def clear(self) -> None:
        """Remove all items."""
        self.items = []

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class OperatorStateBackend:
    """The operator state of one operator in one subtask."""

    def __init__(self, owner: str = "operator") -> None:
        self._owner = owner
        self._lists: dict[str, OperatorListState[Any]] = {}
        self._maps: dict[str, BroadcastState[Any, Any]] = {}
        #: The checkpoint that the job started or recovered from, even if it held nothing for this operator.
        self.restored_checkpoint_id: int | None = None

    @property
    def is_restored(self) -> bool:
        """Whether the job started from a checkpoint or a savepoint."""
        return self.restored_checkpoint_id is not None

    def list_state(self, name: str, mode: str = SPLIT_MODE) -> OperatorListState[Any]:
        """Return the list of that name, created if missing; `mode` is split, union or committable.

        Raises:
            StateError: if the name belongs to a state of another mode.
        """
        state = self._lists.get(name)
        if state is None:
            self._refuse_other_mode(name, mode)
            state = self._lists[name] = OperatorListState(name, mode)
        elif state.mode != mode:
            self._refuse_other_mode(name, mode)
        return state

    def broadcast_state(self, name: str) -> BroadcastState[Any, Any]:
        """Return the broadcast map of that name, created if missing; raises like `list_state`."""
        state = self._maps.get(name)
        if state is None:
            self._refuse_other_mode(name, BROADCAST_MODE)
            state = self._maps[name] = BroadcastState(name)
        return state

    def _refuse_other_mode(self, name: str, mode: str) -> None:
        known = BROADCAST_MODE if name in self._maps else self._lists[name].mode if name in self._lists else None
        if known is not None:
            raise StateError(
                f"{self._owner}: operator state {name!r} was restored or declared as a {known} state, but is requested "
                f"as a {mode} state: give the two different names"
            )

    def restore(self, name: str, mode: str, items: list[Any]) -> None:
        """Add items of a snapshot."""
        if mode == BROADCAST_MODE:
            self.broadcast_state(name).restore(items)
        else:
            self.list_state(name, mode).items.extend(items)

    def capture(self) -> list[OperatorCapture]:
        """Return captures of the current states, except empty lists.

        An empty map is captured, to distinguish a subtask that has seen no broadcast from one that has left nothing.
        """
        lists = [self._capture(state) for state in self._lists.values() if state.items]
        return [*lists, *(state.capture(self._owner) for state in self._maps.values())]

    def _capture(self, state: OperatorListState[Any]) -> OperatorCapture:
        try:
            return OperatorCapture(state.name, state.mode, [dumps(item) for item in state.items])
        except Exception as error:
            raise StateError(f"{self._owner}: an item of state {state.name!r} cannot be pickled: {error}") from error


class OperatorStateStore:
    """The operator states of one operator, by descriptor (PyFlink's OperatorStateStore, and Flink's list states).

    Each method returns the restored state, or an empty one; every call returns the same object. All raise `StateError`
    if the name belongs to a state with another redistribution mode.

    Examples:
        >>> from penstock.datastream import CheckpointedFunction, MapFunction
        >>> from penstock.datastream.state import ListStateDescriptor
        >>> from penstock.testing import harness_for
        >>> class Seen(MapFunction, CheckpointedFunction):
        ...     def initialize_state(self, context):
        ...         store = context.get_operator_state_store()
        ...         self.seen = store.get_list_state(ListStateDescriptor("seen"))
        ...     def snapshot_state(self, context):
        ...         pass
        ...     def map(self, value):
        ...         self.seen.add(value)
        ...         return self.seen.get()
        >>> with harness_for(Seen()) as harness:
        ...     harness.process_batch(["tea", "milk"])
        ...     harness.values
        [['tea'], ['tea', 'milk']]
    """

    def __init__(self, backend: OperatorStateBackend) -> None:
        self._backend = backend

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> OperatorListState[Any]:
        """Return a list that is split: at another parallelism, every subtask gets about the same number of items."""
        return self._backend.list_state(_name(state_descriptor, ListStateDescriptor), SPLIT_MODE)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> OperatorListState[Any]:
        """Return a list that gives every subtask the items of all subtasks, at every restore.

        Keep only this subtask's own items, or they multiply from restore to restore.
        """
        return self._backend.list_state(_name(state_descriptor, ListStateDescriptor), UNION_MODE)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return a map that its writer must keep identical in every subtask; each subtask is given one whole copy."""
        return self._backend.broadcast_state(_name(state_descriptor, MapStateDescriptor))


def _name(descriptor: StateDescriptor, kind: type[StateDescriptor]) -> str:
    if not isinstance(descriptor, kind):
        raise WrongTypeError(f"a {kind.__name__} is needed, not {descriptor!r}")
    return descriptor.name
