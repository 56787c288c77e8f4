"""Planted bugs in what a job takes from the one before it, which may have been another program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec
from tests.simulation.planting import Mutant, around

from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.pending import PendingCheckpoint
from penstock.runtime.job import slots as scheduler_module
from penstock.runtime.job import tasks as job_tasks_module
from penstock.runtime.operators.record.process import EVENT_TIMERS
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.storage import metadata as stored
from penstock.storage.metadata import CheckpointMetadata, OperatorState, OperatorSubtaskState, state_of_subtask


def _dealt(change: Any) -> Any:
    """What falls to a subtask changed, where the parallelism is another one."""
    original = state_of_subtask

    def changed(operator: OperatorState, subtask: int, parallelism: int, *more: Any) -> OperatorSubtaskState:
        state = original(operator, subtask, parallelism, *more)
        return state if parallelism == operator.parallelism else change(operator, subtask, state)

    return mock.patch.object(scheduler_module, "state_of_subtask", changed)


def leave_key_groups_with_the_old_subtask() -> Any:
    def own_only(operator: OperatorState, subtask: int, state: OperatorSubtaskState) -> OperatorSubtaskState:
        own = operator.subtasks.get(subtask, OperatorSubtaskState())
        keyed = {
            name: tuple(h for h in handles if h in own.keyed.get(name, ())) for name, handles in state.keyed.items()
        }
        native = tuple(handle for handle in state.native if handle in own.native)
        return msgspec.structs.replace(state, keyed=keyed, native=native)

    return _dealt(own_only)


def give_lists_to_every_subtask() -> Any:
    return mock.patch.object(stored, "_share", lambda handle, first, step: handle)


def leave_union_state_with_the_old_subtask() -> Any:
    def own_only(operator: OperatorState, subtask: int, state: OperatorSubtaskState) -> OperatorSubtaskState:
        own = operator.subtasks.get(subtask, OperatorSubtaskState()).operator
        lists = {
            name: tuple(h for h in handles if h.mode != "union" or h in own.get(name, ()))
            for name, handles in state.operator.items()
        }
        return msgspec.structs.replace(state, operator={name: handles for name, handles in lists.items() if handles})

    return _dealt(own_only)


def lose_prepared_output_when_scaling_down() -> Any:
    def of_its_number(operator: OperatorState, subtask: int, state: OperatorSubtaskState) -> OperatorSubtaskState:
        own = operator.subtasks.get(subtask, OperatorSubtaskState()).operator
        lists = {
            name: tuple(h for h in handles if h.mode != "committable" or h in own.get(name, ()))
            for name, handles in state.operator.items()
        }
        return msgspec.structs.replace(state, operator={name: handles for name, handles in lists.items() if handles})

    return _dealt(of_its_number)


def lose_timers_on_the_way_to_rocksdb() -> Any:
    def restore_canonical(original: Any, backend: Any, name: str, *more: Any) -> bool:
        return False if name == EVENT_TIMERS else original(backend, name, *more)

    return around(RocksDBKeyedStateBackend, "restore_canonical", restore_canonical)


def delete_what_is_not_claimed() -> Any:
    def delete_initial(original: Any, coordinator: Any) -> None:
        coordinator.settings = replace(coordinator.settings, claims_initial=True)
        original(coordinator)

    return around(CheckpointCoordinator, "_delete_initial", delete_initial)


def build_on_files_of_another_job() -> Any:
    original = scheduler_module.deployments

    def deployments(*args: Any, **kwargs: Any) -> Any:
        return [(w, msgspec.structs.replace(m, builds_on_restored=True)) for w, m in original(*args, **kwargs)]

    return mock.patch.object(job_tasks_module, "deployments", deployments)


@contextmanager
def keep_state_that_nobody_claims() -> Iterator[None]:
    """A later job that has an operator of that uid again finds what was left out."""
    left: dict[str, tuple[OperatorState, ...]] = {}

    def begin_from(original: Any, coordinator: Any, initial: CheckpointMetadata) -> None:
        graph = coordinator._graph.job_graph
        claimed = {o.operator_id for vertex in graph.vertices for o in vertex.operators}
        left[coordinator._job_id] = tuple(o for o in initial.operators if o.operator_id not in claimed)
        original(coordinator, initial)

    def metadata(original: Any, pending: Any, job_id: str) -> CheckpointMetadata:
        made: CheckpointMetadata = original(pending, job_id)
        return msgspec.structs.replace(made, operators=(*made.operators, *left.get(job_id, ())))

    with around(CheckpointCoordinator, "begin_from", begin_from), around(PendingCheckpoint, "metadata", metadata):
        yield


#: Each mutant, the kinds of violation that give it away, and a seed from which on it is found soon.
MUTANTS_OF_JOBS: dict[Mutant, tuple[tuple[str, ...], int]] = {
    leave_key_groups_with_the_old_subtask: (("output", "lost"), 85),
    give_lists_to_every_subtask: (("output",), 66),
    leave_union_state_with_the_old_subtask: (("output",), 66),
    lose_prepared_output_when_scaling_down: (("output", "lost"), 512),
    lose_timers_on_the_way_to_rocksdb: (("output", "lost"), 410),
    delete_what_is_not_claimed: (("storage",), 13),
    build_on_files_of_another_job: (("missing-file", "storage"), 222),
    keep_state_that_nobody_claims: (("output", "missing-file", "leaked-file"), 67),
}
