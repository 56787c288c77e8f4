"""Planted bugs between two jobs of which one runs in another execution mode than the other."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest import mock

from msgspec.structs import replace
from tests.simulation.planting import Mutant, around

from penstock.runtime.checkpoint import restore as restore_module
from penstock.runtime.checkpoint import statistics as event_time
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.coordinator import enumerator_state as real_enumerator_state
from penstock.runtime.checkpoint.restore import check_in_flight as real_check_in_flight
from penstock.runtime.epochs import task as task_module
from penstock.runtime.epochs.coordinator import EpochCoordinator
from penstock.runtime.epochs.task import EpochTask
from penstock.runtime.job import sources as job_sources
from penstock.runtime.master.epochs import EpochMaster
from penstock.runtime.operators.connector import SPLITS_STATE
from penstock.state.operator_state import COMMITTABLE_MODE
from penstock.storage.metadata import CheckpointMetadata, OperatorSubtaskState


def begin_epochs_without_the_positions_of_a_stream() -> Any:
    def kept_of_sources(original: Any, coordinator: Any) -> Any:
        kept = original(coordinator)
        is_own = coordinator.latest is not None and coordinator.latest.job_id == coordinator._job_id
        return kept if is_own else dict.fromkeys(kept)

    return around(EpochCoordinator, "kept_of_sources", kept_of_sources)


def begin_a_stream_without_the_enumerators_of_epochs() -> Any:
    jobs_of_epochs: set[str] = set()

    def metadata_of_epochs(original: Any, coordinator: Any, *about: Any) -> Any:
        jobs_of_epochs.add(coordinator._job_id)
        return original(coordinator, *about)

    def enumerator_state(metadata: CheckpointMetadata, operator_id: str) -> Any:
        return None if metadata.job_id in jobs_of_epochs else real_enumerator_state(metadata, operator_id)

    stack = ExitStack()
    stack.enter_context(around(EpochCoordinator, "metadata", metadata_of_epochs))
    stack.enter_context(mock.patch.object(job_sources, "enumerator_state", enumerator_state))
    return stack


def commit_nothing_that_epochs_have_prepared() -> Any:
    def begin_from(original: Any, coordinator: Any, initial: CheckpointMetadata) -> None:
        original(coordinator, _without_committables(initial))

    return around(CheckpointCoordinator, "begin_from", begin_from)


def _without_committables(metadata: CheckpointMetadata) -> CheckpointMetadata:
    def kept(state: OperatorSubtaskState) -> OperatorSubtaskState:
        lists = {
            name: handles
            for name, handles in state.operator.items()
            if all(handle.mode != COMMITTABLE_MODE for handle in handles)
        }
        return replace(state, operator=lists)

    operators = tuple(
        replace(operator, subtasks={subtask: kept(state) for subtask, state in operator.subtasks.items()})
        for operator in metadata.operators
    )
    return replace(metadata, operators=operators)


def commit_nothing_that_a_stream_has_prepared() -> Any:
    def owed(original: Any, coordinator: Any, state: Any) -> Any:
        begun_anew = coordinator.latest.job_id != coordinator._job_id
        return replace(state, operator={}) if begun_anew and _is_sink(state) else original(coordinator, state)

    return around(EpochCoordinator, "_owed", owed)


def _is_sink(state: OperatorSubtaskState) -> bool:
    return any(handle.mode == COMMITTABLE_MODE for handles in state.operator.values() for handle in handles)


def go_on_where_the_fastest_subtask_was() -> Any:
    """At another parallelism, event time is that of the subtask that had come furthest."""

    real_of_subtask = event_time._of_subtask

    def of_subtask(state: Any, subtask: int, parallelism: int) -> tuple[int, int]:
        if state is None or not state.watermarks or state.parallelism == parallelism:
            return real_of_subtask(state, subtask, parallelism)
        known = state.watermarks.values()
        return max(before for before, _ in known), max(output for _, output in known)

    return mock.patch.object(event_time, "_of_subtask", of_subtask)


def read_on_after_a_drain_that_a_path_names() -> Any:
    def begin_from_path(original: Any, master: Any) -> Any:
        begin_from = yield from original(master)
        master.is_drained = False
        return begin_from

    return around(EpochMaster, "begin_from_path", begin_from_path)


def take_records_in_flight_into_epochs() -> Any:
    def check_in_flight(metadata: Any, job_graph: Any) -> None:
        if job_graph.mode == "STREAMING":
            real_check_in_flight(metadata, job_graph)

    stack = ExitStack()
    stack.enter_context(mock.patch.object(restore_module, "check_in_flight", check_in_flight))
    stack.enter_context(mock.patch.object(task_module, "_nothing_in_flight"))
    return stack


def _of_batches(change: Any) -> Any:
    """Change what each task of a batch leaves of an operator."""

    def snapshot(original: Any, task: Any) -> Any:
        operators = original(task)
        return {i: change(state) for i, state in operators.items()} if task._vertex.sorts else operators

    return around(EpochTask, "_snapshot", snapshot)


def leave_state_in_the_first_key_group() -> Any:
    def change(state: OperatorSubtaskState) -> OperatorSubtaskState:
        keyed = {
            name: tuple(replace(handle, first_key_group=0, last_key_group=0) for handle in handles)
            for name, handles in state.keyed.items()
        }
        return replace(state, keyed=keyed)

    return _of_batches(change)


def leave_no_timers() -> Any:
    def change(state: OperatorSubtaskState) -> OperatorSubtaskState:
        return replace(state, keyed={name: h for name, h in state.keyed.items() if "timers" not in name})

    return _of_batches(change)


def leave_no_splits_that_were_read_in_part() -> Any:
    def change(state: OperatorSubtaskState) -> OperatorSubtaskState:
        return replace(state, operator={name: h for name, h in state.operator.items() if name != SPLITS_STATE})

    return _of_batches(change)


def number_epochs_from_one_again() -> Any:
    def begin(original: Any, coordinator: Any, *args: Any) -> None:
        original(coordinator, *args)
        coordinator._epoch = 0

    return around(EpochCoordinator, "__init__", begin)


#: With the kinds of violation that give each away, and the first seed that is known to.
MUTANTS_OF_EXECUTION_MODES: dict[Mutant, tuple[tuple[str, ...], int]] = {
    begin_epochs_without_the_positions_of_a_stream: (("output",), 1),
    begin_a_stream_without_the_enumerators_of_epochs: (("output",), 2),
    commit_nothing_that_epochs_have_prepared: (("output",), 31),
    commit_nothing_that_a_stream_has_prepared: (("output",), 29),
    go_on_where_the_fastest_subtask_was: (("output",), 24),
    read_on_after_a_drain_that_a_path_names: (("output",), 96),
    take_records_in_flight_into_epochs: (("restored",), 49),
    leave_state_in_the_first_key_group: (("output",), 24),
    leave_no_timers: (("output",), 49),
    leave_no_splits_that_were_read_in_part: (("output",), 16),
    number_epochs_from_one_again: (("invalid",), 1),
}
