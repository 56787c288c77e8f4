"""The hash map state backend: keyed state in dictionaries (D1, D3).

Key groups are worked out when a snapshot is written, never on access.
"""

from __future__ import annotations

from typing import Any

from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.errors import StateError
from penstock.state.snapshot import Entries, KeyedCapture
from penstock.state.states import NO_KEY, AggregatingState, ListState, MapState, ReducingState, ValueState
from penstock.state.table import StateTable


class HeapKeyedStateBackend:
    """The keyed state of one operator in one subtask. `current_key` decides which entry a state reads and writes."""

    def __init__(self, max_parallelism: int, owner: str = "operator") -> None:
        self.current_key: Any = NO_KEY
        self.max_parallelism = max_parallelism
        self._owner = owner
        self._tables: dict[str, StateTable] = {}
        self._kinds: dict[str, str] = {}

    def table(self, name: str) -> StateTable:
        """The table of that name, made when it is new."""
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = StateTable(name)
        return table

    def _table_for(self, descriptor: StateDescriptor) -> StateTable:
        kind = type(descriptor).__name__
        known = self._kinds.setdefault(descriptor.name, kind)
        if known != kind:
            raise StateError(
                f"{self._owner}: state {descriptor.name!r} was declared by a {known} and now by a {kind}; "
                "give the two states different names"
            )
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

    def keys_of(self, descriptor: StateDescriptor) -> list[Any]:
        """The keys that have an entry in the state that the descriptor names."""
        return list(self._table_for(descriptor).entries(None))

    def restore(self, name: str, entries: Entries, is_written: bool) -> None:
        """Put entries of a snapshot back; unless `is_written`, the next snapshot writes them again."""
        table = self.table(name)
        for namespace, restored in entries.items():
            table.entries(namespace).update(restored)
        if not is_written:
            table.mark_all()

    def capture(self, checkpoint_id: int) -> list[KeyedCapture]:
        """What has changed since the last confirmed checkpoint; raises `StateError` for what cannot be stored."""
        captures = (table.capture(checkpoint_id, self._owner) for table in self._tables.values())
        return [capture for capture in captures if capture is not None]

    def confirm(self, checkpoint_id: int) -> None:
        """The checkpoint completed."""
        for table in self._tables.values():
            table.confirm(checkpoint_id)
