"""Operator state, which belongs to a subtask rather than to a key (D2). The mode says how it is redistributed.

When the parallelism changes, `split` lists are distributed item by item. `union` lists go whole to every subtask,
`broadcast` maps are the same everywhere. `committable` lists are distributed by the subtask that wrote them. They hold
the prepared committables of a sink, so nothing of them remains once a subtask has finished and its last checkpoint is
complete.

A name identifies one state of an operator, whatever its mode. A restored state that the operator does not request stays
in later snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

from penstock.base.errors import WrongTypeError
from penstock.codecs.pickling import dumps
from penstock.state.broadcast_state import BROADCAST_MODE, BroadcastState
from penstock.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from penstock.state.errors import StateError
from penstock.state.snapshot import OperatorCapture

T = TypeVar("T")

SPLIT_MODE: Final = "split"
UNION_MODE: Final = "union"
COMMITTABLE_MODE: Final = "committable"


class OperatorListState(Generic[T]):
    """A list of picklable items of one subtask."""

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
