"""Planted bugs about parts of a job that restart alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.simulation.planting import Mutant, around

from penstock.runtime.graph import ExecutionGraph, Regions
from penstock.runtime.job.failover import PartRestart
from penstock.runtime.job.sources import JobSources, SourceCoordinator
from penstock.runtime.job.tasks import JobTasks


def restart_the_failed_task_alone() -> Any:
    def of(original: Any, regions: Any, subtasks: Any) -> Any:
        return frozenset(subtasks)

    return around(Regions, "of", of)


def restart_a_region_without_its_consumers() -> Any:
    def of(original: Any, regions: Any, subtasks: Any) -> Any:
        last = max(failed := list(subtasks))
        return frozenset(s for s in original(regions, failed) if s <= last)

    return around(Regions, "of", of)


def keep_the_splits_of_a_reader_that_restarts() -> Any:
    def reset_reader(original: Any, source: Any, subtask: int, checkpoint_id: int) -> None:
        source._assigned = [entry for entry in source._assigned if entry[1] != subtask]
        original(source, subtask, checkpoint_id)

    return around(SourceCoordinator, "reset_reader", reset_reader)


@contextmanager
def hand_out_again_what_a_reader_has_in_its_snapshot() -> Iterator[None]:
    def snapshot(original: Any, source: Any, checkpoint_id: int, completed_id: int) -> Any:
        return original(source, checkpoint_id, 0)

    def reset_reader(original: Any, source: Any, subtask: int, checkpoint_id: int) -> None:
        original(source, subtask, 0)

    with (
        around(SourceCoordinator, "snapshot", snapshot),
        around(SourceCoordinator, "reset_reader", reset_reader),
    ):
        yield


def count_splits_from_the_snapshot_that_is_to_come() -> Any:
    """What was assigned before a checkpoint that was given up is lost."""

    def snapshot(original: Any, source: Any, checkpoint_id: int, completed_id: int) -> Any:
        state = original(source, checkpoint_id, completed_id)
        source._assigned.clear()
        return state

    return around(SourceCoordinator, "snapshot", snapshot)


def forget_readers_that_restart() -> Any:
    return mock.patch.object(JobSources, "restart", return_value=None)


def restart_a_part_before_its_tasks_have_ended() -> Any:
    return mock.patch.object(PartRestart, "has_ended", property(lambda part: part.phase is not None))


def overlook_regions_that_fail_meanwhile() -> Any:
    return mock.patch.object(PartRestart, "expects", lambda part, failed: part.phase is not None)


def restart_a_part_without_its_state() -> Any:
    def deploy(original: Any, tasks: Any, restored: Any, checkpoints: Any, part: Any = None) -> None:
        original(tasks, restored if part is None else None, checkpoints, part)

    return around(JobTasks, "deploy", deploy)


def restart_a_part_from_the_checkpoint_before() -> Any:
    def deploy(original: Any, tasks: Any, restored: Any, checkpoints: Any, part: Any = None) -> None:
        before = checkpoints.completed[-2] if part is not None and len(checkpoints.completed) > 1 else restored
        original(tasks, before, checkpoints, part)

    return around(JobTasks, "deploy", deploy)


def restart_a_part_under_its_old_number() -> Any:
    def reset(original: Any, graph: Any, attempt: Any = None, part: Any = None) -> None:
        if part is None:
            original(graph, attempt)
            return
        for vertex in graph:
            if vertex.id in part:
                vertex.reset(vertex.current.id.attempt)

    return around(ExecutionGraph, "reset", reset)


MUTANTS_OF_REGIONS: dict[Mutant, tuple[tuple[str, ...], int]] = {
    restart_the_failed_task_alone: (("invalid", "stalled"), 11),
    restart_a_region_without_its_consumers: (("invalid", "raised", "stalled"), 11),
    keep_the_splits_of_a_reader_that_restarts: (("output",), 11),
    hand_out_again_what_a_reader_has_in_its_snapshot: (("order", "output"), 731),
    count_splits_from_the_snapshot_that_is_to_come: (("output",), 49),
    forget_readers_that_restart: (("output", "stalled"), 11),
    restart_a_part_before_its_tasks_have_ended: (("invalid",), 11),
    overlook_regions_that_fail_meanwhile: (("stalled",), 460),
    restart_a_part_without_its_state: (("lost", "output"), 20),
    restart_a_part_from_the_checkpoint_before: (("output",), 880),
    restart_a_part_under_its_old_number: (("outside", "stalled"), 36),
}
