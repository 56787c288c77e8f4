"""State: its descriptors, the keyed states that `RuntimeContext` returns, broadcast state and operator state."""

from penstock.state.operator_state import BroadcastState, OperatorListState, OperatorStateStore, ReadOnlyBroadcastState
from penstock.state.states import (
    AggregatingState,
    AggregatingStateDescriptor,
    AppendingState,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    MergingState,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    StateView,
    ValueState,
    ValueStateDescriptor,
)
from penstock.state.ttl_config import StateTtlConfig

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorListState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "StateView",
    "ValueState",
    "ValueStateDescriptor",
]
