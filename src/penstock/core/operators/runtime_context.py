"""The view that a rich function has of the subtask running it (PyFlink's RuntimeContext)."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from penstock.base.accumulators import Accumulator
from penstock.base.aggregators import Aggregator
from penstock.base.errors import UnsupportedError, WrongTimeError, WrongValueError
from penstock.base.metrics import MetricGroup
from penstock.core.operators.context import OperatorContext
from penstock.core.supersteps import SuperstepContext
from penstock.state.declared_values import (
    declared_aggregating_state,
    declared_list_state,
    declared_map_state,
    declared_reducing_state,
    declared_value_state,
)
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.states import AggregatingState, ListState, MapState, ReducingState, State, ValueState
from penstock.state.ttl.states import (
    open_aggregating_state,
    open_list_state,
    open_map_state,
    open_reducing_state,
    open_value_state,
)

S = TypeVar("S", bound=State)


class KeyedStateStore:
    """The keyed state of the subtask that runs a function."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return the value state of the current key; raises `StateError` on a non-keyed stream."""
        state = declared_value_state(state_descriptor, open_value_state(self._context.keyed, state_descriptor))
        return self._followed(state_descriptor, state)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the list state of the current key; raises `StateError` on a non-keyed stream."""
        state = declared_list_state(state_descriptor, open_list_state(self._context.keyed, state_descriptor))
        return self._followed(state_descriptor, state)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return the map state of the current key; raises `StateError` on a non-keyed stream."""
        state = declared_map_state(state_descriptor, open_map_state(self._context.keyed, state_descriptor))
        return self._followed(state_descriptor, state)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return the reducing state of the current key; raises `StateError` on a non-keyed stream."""
        state = declared_reducing_state(state_descriptor, partial(open_reducing_state, self._context.keyed))
        return self._followed(state_descriptor, state)

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Return the aggregating state of the current key; raises `StateError` on a non-keyed stream."""
        state = declared_aggregating_state(state_descriptor, partial(open_aggregating_state, self._context.keyed))
        return self._followed(state_descriptor, state)

    def _followed(self, descriptor: StateDescriptor, state: S) -> S:
        self._context.user_states[descriptor.name] = state
        latency = self._context.state_latency
        return state if latency is None else latency.follow(descriptor.name, state)


class RuntimeContext(KeyedStateStore):
    """Index, parallelism, attempt and keyed state of the subtask that runs a function (A1)."""

    def get_task_name(self) -> str:
        """Return the name of the task, for example `Map -> Filter`."""
        return self._context.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the operator."""
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the maximum parallelism: the number of key groups."""
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """Return the index of this subtask, from 0."""
        return self._context.subtask_index

    def get_attempt_number(self) -> int:
        """Return the number of earlier attempts of this subtask."""
        return self._context.attempt

    def get_task_name_with_subtasks(self) -> str:
        """Return the task's name with the subtask's number from 1, as in `Map (2/4)`."""
        context = self._context
        return f"{context.task_name} ({context.subtask_index + 1}/{context.parallelism})"

    def get_job_id(self) -> str:
        """Return the job's id, 32 hexadecimal digits."""
        return self._context.job_id

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return one of the user's own settings (`ExecutionConfig.set_global_job_parameters`), or the default."""
        return self._context.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """Return the metric group for the function's own metrics; see `penstock.metrics`."""
        return MetricGroup(self._context.metrics)

    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        """Register an accumulator in `open`; see `penstock.base.accumulators`.

        Raises:
            ValueError: if the operator already has an accumulator of that name.
            NotImplementedError: in an iteration, which has aggregators instead.
        """
        if self._context.superstep is not None:
            raise UnsupportedError(
                f"accumulator {name!r}: functions of an iteration, and those that only an iteration reads, have no "
                "accumulators; register an aggregator with the iteration"
            )
        if name in self._context.accumulators:
            raise WrongValueError(f"operator {self._context.operator_name!r} already has an accumulator {name!r}")
        self._context.accumulators[name] = accumulator

    def get_accumulator(self, name: str) -> Accumulator[Any, Any] | None:
        """Return this subtask's accumulator of that name, or None."""
        return self._context.accumulators.get(name)

    # --- iterations --------------------------------------------------------------------------------------------------

    def get_superstep_number(self) -> int:
        """Return the number of the superstep, from 1.

        Raises:
            RuntimeError: outside of an iteration.
        """
        return self._superstep("get_superstep_number()").number

    def get_iteration_aggregator(self, name: str) -> Aggregator[Any]:
        """Return this subtask's copy of an iteration aggregator, empty at the start of the superstep.

        Raises:
            RuntimeError: outside of an iteration.
            KeyError: if the iteration has no aggregator of that name.
        """
        return self._superstep(f"get_iteration_aggregator({name!r})").aggregator(name)

    def get_previous_iteration_aggregate(self, name: str) -> Any:
        """Return an aggregator's value in the previous superstep, over all subtasks; None in the first superstep.

        Raises:
            RuntimeError: outside of an iteration.
            KeyError: if the iteration has no aggregator of that name.
        """
        return self._superstep(f"get_previous_iteration_aggregate({name!r})").previous(name)

    def _superstep(self, call: str) -> SuperstepContext:
        superstep = self._context.superstep
        if superstep is None or superstep.number == 0:
            raise WrongTimeError(
                f"{call}: operator {self._context.operator_name!r} is not part of an iteration; only functions between "
                "iterate() and close_with() have supersteps and their aggregators"
            )
        return superstep
