"""The hash map state backend: keyed state in dictionaries (D1, D3).

A state is a table `namespace -> key -> value`. Plain states use the one namespace None; windows use a namespace a
window, so that firing a window is taking one dictionary. Key groups are worked out when a snapshot is taken, never on
access.
"""

from __future__ import annotations

import pickle
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
from penstock.state.key_groups import key_group_of
from penstock.state.snapshot import KeyedCapture, StateCapture
from penstock.state.states import NO_KEY, AggregatingState, ListState, MapState, ReducingState, ValueState

Table = dict[Any, dict[Any, Any]]


class HeapKeyedStateBackend:
    """The keyed state of one operator in one subtask. `current_key` decides which entry a state reads and writes."""

    def __init__(self, max_parallelism: int, owner: str = "operator") -> None:
        self.current_key: Any = NO_KEY
        self._max_parallelism = max_parallelism
        self._owner = owner
        self._tables: dict[str, Table] = {}
        self._kinds: dict[str, str] = {}

    def table(self, name: str) -> Table:
        """The table of that name, made when it is new."""
        return self._tables.setdefault(name, {})

    def entries(self, name: str) -> dict[Any, Any]:
        """The entries of a plain state: those under the namespace None."""
        return self.table(name).setdefault(None, {})

    def _entries_for(self, descriptor: StateDescriptor) -> dict[Any, Any]:
        kind = type(descriptor).__name__
        known = self._kinds.setdefault(descriptor.name, kind)
        if known != kind:
            raise StateError(
                f"{self._owner}: state {descriptor.name!r} was declared by a {known} and now by a {kind}; "
                "give the two states different names"
            )
        return self.entries(descriptor.name)

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """The value state that the descriptor names."""
        return ValueState(self, self._entries_for(descriptor))

    def list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """The list state that the descriptor names."""
        return ListState(self, self._entries_for(descriptor))

    def map_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """The map state that the descriptor names."""
        return MapState(self, self._entries_for(descriptor))

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """The reducing state that the descriptor names."""
        return ReducingState(self, self._entries_for(descriptor), descriptor.reduce_function)

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """The aggregating state that the descriptor names."""
        return AggregatingState(self, self._entries_for(descriptor), descriptor.agg_function)

    def restore(self, name: str, key: Any, namespace: Any, value: Any) -> None:
        """Put one row of a snapshot back."""
        self.table(name).setdefault(namespace, {})[key] = value

    def capture(self) -> list[StateCapture]:
        """All state as it is now; raises `StateError` that names the state when a value cannot be stored."""
        groups: dict[Any, tuple[int, bytes]] = {}
        return [capture for name in self._tables if (capture := self._capture_table(name, groups)) is not None]

    def _capture_table(self, name: str, groups: dict[Any, tuple[int, bytes]]) -> KeyedCapture | None:
        capture = KeyedCapture(name)
        dumps = pickle.dumps
        for namespace, entries in self._tables[name].items():
            if not entries:
                continue
            try:
                namespace_bytes = dumps(namespace, protocol=5)
                for key, value in entries.items():
                    located = groups.get(key)
                    if located is None:
                        located = groups[key] = (key_group_of(key, self._max_parallelism), dumps(key, protocol=5))
                    capture.key_groups.append(located[0])
                    capture.keys.append(located[1])
                    capture.namespaces.append(namespace_bytes)
                    capture.values.append(dumps(value, protocol=5))
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                raise StateError(f"{self._owner}: a value in state {name!r} cannot be pickled: {error}") from error
        return capture if capture.keys else None
