"""Operator state: what belongs to a subtask rather than to a key (D2). The modes say how it is redistributed.

`split` lists are dealt out item by item when the parallelism changes, `union` lists go whole to every subtask,
`broadcast` maps are the same everywhere. `committable` lists are dealt out by the subtask that wrote them. They hold
what a sink has prepared, so nothing of them is left once a subtask has finished and its last checkpoint is complete.

Names are those of one operator, whatever the mode. A restored state that the operator does not ask for stays in later
snapshots.
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
        """The items; a copy."""
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
        #: The checkpoint that the job began from or recovered from, also when it held nothing for this operator.
        self.restored_checkpoint_id: int | None = None

    @property
    def is_restored(self) -> bool:
        """Whether the job began from a checkpoint or a savepoint."""
        return self.restored_checkpoint_id is not None

    def list_state(self, name: str, mode: str = SPLIT_MODE) -> OperatorListState[Any]:
        """The list of that name, made when it is new; `mode` is split, union or committable.

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
        """The broadcast map of that name, made when it is new; raises as `list_state` does."""
        state = self._maps.get(name)
        if state is None:
            self._refuse_other_mode(name, BROADCAST_MODE)
            state = self._maps[name] = BroadcastState(name)
        return state

    def _refuse_other_mode(self, name: str, wanted: str) -> None:
        known = BROADCAST_MODE if name in self._maps else self._lists[name].mode if name in self._lists else None
        if known is not None:
            raise StateError(
                f"{self._owner}: operator state {name!r} was restored or declared as a {known} state, but is requested "
                f"as a {wanted} state: give the two different names"
            )

    def restore(self, name: str, mode: str, items: list[Any]) -> None:
        """Add items of a snapshot."""
        if mode == BROADCAST_MODE:
            self.broadcast_state(name).restore(items)
        else:
            self.list_state(name, mode).items.extend(items)

    def capture(self) -> list[OperatorCapture]:
        """All states as they are now, except empty lists.

        An empty map is captured: a subtask that has seen no broadcast is told from one that has left nothing.
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

    Each method gives the state that was restored, or an empty one; the same one at every call. All raise `StateError`
    when the name belongs to a state that is redistributed in another way.
    """

    def __init__(self, backend: OperatorStateBackend) -> None:
        self._backend = backend

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> OperatorListState[Any]:
        """A list that is dealt out: at another parallelism every subtask gets about the same number of all items."""
        return self._backend.list_state(_name(state_descriptor, ListStateDescriptor), SPLIT_MODE)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> OperatorListState[Any]:
        """A list that gives every subtask the items of all subtasks, at every restore.

        Keep only this subtask's own items, or they multiply from restore to restore.
        """
        return self._backend.list_state(_name(state_descriptor, ListStateDescriptor), UNION_MODE)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map that is the same in every subtask, as its writer must see to; each subtask is given one whole copy."""
        return self._backend.broadcast_state(_name(state_descriptor, MapStateDescriptor))


def _name(descriptor: StateDescriptor, kind: type[StateDescriptor]) -> str:
    if not isinstance(descriptor, kind):
        raise WrongTypeError(f"a {kind.__name__} is needed, not {descriptor!r}")
    return descriptor.name
