"""The view of a job is one, whatever its execution mode (A1, I1)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.datastream.environments import local_environment
from tests.failing import FailsOnce

from penstock.base.job import JobStatus
from penstock.base.restart_strategy import RestartStrategies
from penstock.datastream import RuntimeExecutionMode
from penstock.runtime.checkpoint.statistics import CheckpointStatus
from penstock.runtime.job.view import JobView

BATCH, MICRO = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.MICRO_BATCH


def view_of(mode: Any, function: Any = str, **options: Any) -> JobView:
    env = local_environment(2, **options).set_runtime_mode(mode)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 1))
    env.from_collection(list(range(20))).key_by(lambda n: n % 3).map(function).name("words").print()
    job = env.execute_async("views")
    job.wait()
    return job.get_view().result(10)


@pytest.mark.parametrize("mode", [BATCH, MICRO])
def test_vertices_and_statuses(mode: Any) -> None:
    view = view_of(mode)
    assert (view.name, view.status, view.restarts, view.failures) == ("views", JobStatus.FINISHED, 0, ())
    assert {JobStatus.RUNNING, JobStatus.FINISHED} <= set(view.since_ms)
    assert [vertex.parallelism for vertex in view.vertices][-1] == 2
    read = [subtask.metrics.records_in for subtask in view.vertices[-1].subtasks if subtask.metrics is not None]
    assert sum(read) == 20


def test_epochs_are_checkpoints_of_the_history() -> None:
    view = view_of(MICRO, execution__micro_batch__max_records=6)
    assert view.checkpoints.last is not None
    assert [r.status for r in view.checkpoints.history] == [CheckpointStatus.COMPLETED] * view.checkpoints.completed
    assert view.checkpoints.history[0] == view.checkpoints.last


def test_an_epoch_that_failed_and_ran_again(tmp_path: Any) -> None:
    view = view_of(MICRO, FailsOnce(tmp_path / "failed", 3))
    assert view.restarts == 1
    (failure,) = view.failures
    assert failure.attempt == 0
    assert failure.task in ("words (1/2)", "words (2/2)")
    assert [r.status for r in view.checkpoints.history].count(CheckpointStatus.FAILED) == 1
    assert view.status is JobStatus.FINISHED
