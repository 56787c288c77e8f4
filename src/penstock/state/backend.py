"""What every keyed state backend is, and the rules between it and the operators (D1, D3).

**Tables.** A backend holds tables, `namespace -> key -> value`. `table.entries(namespace)` is a dictionary (or behaves
as one), and `table.changed(namespace)` the set of keys that its user marks. Both objects stay the same until the
namespace is dropped, so loops may hold on to them.

**Marks.** Whoever assigns an entry, removes it, or changes the value that it holds in place, adds its key to
`changed(namespace)`, before or after, but before the next settling point. What is not marked may be lost.

**Settling points.** A backend may put entries out of memory, to load them again when they are asked for, and writes
those that are marked first. It does so only in `settle()`, in `capture()` and between two items of a dropped
namespace's `items()`. Between two settling points a key's value is one object: it may be fetched, changed in place and
marked in any order, and fetched again. After one, a reference from before may no longer be what the state holds.
The task settles between batches, and a timer queue between timers; operators and user code never do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.errors import StateError
from penstock.state.states import NO_KEY, AggregatingState, ListState, MapState, ReducingState, ValueState

Entries = dict[Any, dict[Any, Any]]
Table = TypeVar("Table", bound="KeyedTable")


class KeyedTable(Protocol):
    """One keyed state; see the module's text."""

    name: str
    #: The namespaces that there are, each with its entries.
    panes: dict[Any, dict[Any, Any]]
    #: A settling point for whoever goes through many entries in one call; None when nothing is ever put out of memory.
    settle: Callable[[], None] | None

    def entries(self, namespace: Any) -> dict[Any, Any]:
        """The entries under a namespace; made when there are none."""

    def changed(self, namespace: Any) -> set[Any]:
        """The keys under a namespace whose entries have changed."""

    def drop(self, namespace: Any) -> Mapping[Any, Any]:
        """Remove a namespace with all its entries, and return these."""

    def restore(self, key: Any, namespace: Any, value: Any) -> None:
        """Put back one entry of a snapshot."""

    def mark_all(self) -> None:
        """Let the next snapshot write everything."""


class KeyedStateBackend(ABC):
    """The keyed state of one operator in one subtask. `current_key` decides which entry a state reads and writes."""

    def __init__(self, max_parallelism: int, owner: str = "operator") -> None:
        self.current_key: Any = NO_KEY
        self.max_parallelism = max_parallelism
        self._owner = owner
        self._kinds: dict[str, str] = {}

    @abstractmethod
    def table(self, name: str) -> KeyedTable:
        """The table of that name, made when it is new."""

    @abstractmethod
    def restore(self, name: str, entries: Entries, is_written: bool) -> None:
        """Put entries of a snapshot back; unless `is_written`, the next snapshot writes them again."""

    @abstractmethod
    def capture(self, checkpoint_id: int) -> Sequence[Any]:
        """What a snapshot must store, frozen; raises `StateError` for what cannot be stored."""

    @abstractmethod
    def confirm(self, checkpoint_id: int) -> None:
        """The checkpoint completed."""

    @abstractmethod
    def settle(self) -> None:
        """A settling point: nobody holds an unmarked change."""

    @abstractmethod
    def close(self) -> None:
        """Release what the backend holds; it may be called twice."""

    def declare(self, descriptor: StateDescriptor) -> None:
        """Note which kind of state goes by a name; raises `StateError` when it was declared as another."""
        kind = type(descriptor).__name__
        known = self._kinds.setdefault(descriptor.name, kind)
        if known != kind:
            raise StateError(
                f"{self._owner}: state {descriptor.name!r} was declared by a {known} and now by a {kind}; "
                "give the two states different names"
            )

    def _table_for(self, descriptor: StateDescriptor) -> KeyedTable:
        self.declare(descriptor)
        return self.table(descriptor.name)

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """The value state that the descriptor names."""
        return ValueState(self, self._table_for(descriptor))

    def list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """The list state that the descriptor names."""
        return ListState(self, self._table_for(descriptor))

    def map_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """The map state that the descriptor names."""
        return MapState(self, self._table_for(descriptor))

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """The reducing state that the descriptor names."""
        return ReducingState(self, self._table_for(descriptor), descriptor.reduce_function)

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """The aggregating state that the descriptor names."""
        return AggregatingState(self, self._table_for(descriptor), descriptor.agg_function)
