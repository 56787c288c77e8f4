"""Planted bugs about jobs whose parallelism changes while they run."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tests.simulation.planting import Mutant, around

from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.graph import ExecutionGraph, ExecutionJobVertex
from penstock.runtime.job import slots as scheduler
from penstock.runtime.job.job_master import JobMaster
from penstock.runtime.job.rescaling import Departures, RescalePhase, Rescaling
from penstock.runtime.job.slots import SlotPool
from penstock.runtime.job.sources import JobSources
from penstock.runtime.job.tasks import JobTasks


def keep_the_readers_that_there_were() -> Any:
    return mock.patch.object(JobSources, "rescale", return_value=None)


def keep_the_regions_that_there_were() -> Any:
    def rescale(original: Any, graph: Any, parallelism: Any) -> None:
        regions = graph.regions
        original(graph, parallelism)
        graph.regions = regions

    return around(ExecutionGraph, "rescale", rescale)


def begin_new_subtasks_as_the_first_ones() -> Any:
    """The messages of their first life count."""

    def rescale(original: Any, job_vertex: Any, vertex: Any, attempt: int) -> None:
        original(job_vertex, vertex, 0)

    return around(ExecutionJobVertex, "rescale", rescale)


def rescale_before_all_tasks_have_ended() -> Any:
    def end_tasks(original: Any, master: Any) -> None:
        original(master)
        if master._rescaling.phase is RescalePhase.CANCELLING:
            master._begin_attempt(is_settled=True)

    return around(JobMaster, "_end_tasks_to_rescale", end_tasks)


def let_checkpoints_go_on_while_tasks_are_ended() -> Any:
    def end_tasks(original: Any, master: Any) -> None:
        with mock.patch.object(CheckpointCoordinator, "stop", return_value=None):
            original(master)

    return around(JobMaster, "_end_tasks_to_rescale", end_tasks)


def rescale_from_the_checkpoint_before() -> Any:
    def deploy(original: Any, tasks: Any, restored: Any, checkpoints: Any, part: Any = None) -> None:
        is_rescaled = restored is not None and any(
            operator.parallelism != vertex.parallelism
            for vertex in tasks._graph.job_graph.vertices
            for operator in restored.operators
            if operator.operator_id == vertex.operators[0].operator_id
        )
        before = checkpoints.completed[-2] if is_rescaled and len(checkpoints.completed) > 1 else restored
        original(tasks, before, checkpoints, part)

    return around(JobTasks, "deploy", deploy)


def forget_records_in_flight_at_another_parallelism() -> Any:
    return mock.patch.object(scheduler, "taken_over", return_value=())


def deal_records_in_flight_out_twice() -> Any:
    return mock.patch.object(scheduler, "is_rescaled", return_value=False)


def leave_who_asked_without_an_answer() -> Any:
    return mock.patch.object(Rescaling, "end", return_value=None)


def take_slots_that_are_only_wanted() -> Any:
    def goal(original: Any, rescaler: Any) -> Any:
        return rescaler.requirements.parallelism(rescaler.requirements.desired)

    return around(Rescaling, "_goal", goal)


def take_any_checkpoint_for_complete() -> Any:
    """A job begins again as soon as a checkpoint was triggered."""

    def trying(original: Any, rescaler: Any, begun: int) -> None:
        original(rescaler, begun)
        if rescaler.phase is RescalePhase.CHECKPOINTING:
            rescaler._master.checkpoints.completed.clear()
            rescaler._go()

    return around(Rescaling, "_try_checkpoint", trying)


def give_the_slot_of_a_worker_that_leaves_out_again() -> Any:

    def leave(original: Any, pool: Any, worker_id: str) -> Any:
        registration = original(pool, worker_id)
        if registration is not None:
            pool._workers[worker_id].is_leaving = False
        return registration

    return around(SlotPool, "leave", leave)


def keep_workers_that_leave() -> Any:
    return mock.patch.object(Departures, "let_go", return_value=None)


def lose_a_worker_that_leaves_at_once() -> Any:
    """Its tasks fail, though it lives."""

    def leaving(original: Any, master: Any, message: Any) -> None:
        master._on_worker_lost(message.worker_id, message.reason)

    return around(JobMaster, "_on_worker_leaving", leaving)


MUTANTS_OF_RESCALING: dict[Mutant, tuple[tuple[str, ...], int]] = {
    keep_the_readers_that_there_were: (("output",), 477),
    keep_the_regions_that_there_were: (("raised",), 1),
    begin_new_subtasks_as_the_first_ones: (("invalid",), 1),
    rescale_before_all_tasks_have_ended: (("invalid",), 1),
    let_checkpoints_go_on_while_tasks_are_ended: (("owed",), 1162),
    rescale_from_the_checkpoint_before: (("output",), 205),
    forget_records_in_flight_at_another_parallelism: (("output",), 7),
    deal_records_in_flight_out_twice: (("failed", "task-failed"), 7),
    leave_who_asked_without_an_answer: (("waiter",), 1),
    take_slots_that_are_only_wanted: (("stalled",), 1),
    take_any_checkpoint_for_complete: (("output",), 70),
    give_the_slot_of_a_worker_that_leaves_out_again: (("leaving",), 15),
    keep_workers_that_leave: (("kept",), 15),
    lose_a_worker_that_leaves_at_once: (("kept",), 12),
}
