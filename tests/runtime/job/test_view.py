"""A job as those outside see it: one value, whatever has happened to it (A1, E6)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.runtime.job.master_rig import MasterRig, running

from penstock.base.job import JobStatus
from penstock.runtime.checkpoint.statistics import HISTORY_MAX, CheckpointStatus, SubtaskCheckpoint
from penstock.runtime.graph import ExecutionState
from penstock.runtime.job.view import FAILURES_MAX
from penstock.runtime.protocol import DeclineCheckpoint, TaskMetrics


def states(rig: MasterRig) -> set[Any]:
    return {subtask.state for vertex in rig.master.view().vertices for subtask in vertex.subtasks}


def restart(rig: MasterRig) -> None:
    rig.end_cancelled()
    rig.advance(100)
    rig.run_all()


def test_a_job_before_it_runs() -> None:
    rig = MasterRig(workers=1)
    view = rig.master.view()
    assert (view.job_id, view.name, view.status) == ("job-1", "job", JobStatus.CREATED)
    assert [(v.name, v.is_source, v.parallelism, v.max_parallelism) for v in view.vertices] == [
        ("source", True, 2, 128),
        ("sink", False, 2, 128),
    ]
    assert [w.host for w in view.workers] == ["host"]
    assert states(rig) == {ExecutionState.CREATED}
    assert (view.failures, view.in_progress, view.checkpoints.history) == ((), (), ())


def test_subtasks_of_a_running_job() -> None:
    rig = MasterRig()
    rig.clock.advance(5)
    rig.run_all()
    rig.master.on_message(TaskMetrics(rig.executions[0], 10, 9, 100))
    view = rig.master.view()
    source = view.vertices[0].subtasks[0]
    assert (view.status, source.state, source.attempt) == (JobStatus.RUNNING, ExecutionState.RUNNING, 0)
    assert source.worker_id in {worker.worker_id for worker in view.workers}
    assert dict(source.since_ms)[ExecutionState.RUNNING] == 5
    assert source.metrics is not None
    assert source.metrics.records_in == 10
    assert view.vertices[0].subtasks[1].metrics is None
    assert view.since_ms == {JobStatus.INITIALIZING: 0, JobStatus.CREATED: 0, JobStatus.RUNNING: 0}


def test_checkpoints_in_the_making_and_done() -> None:
    rig = running()
    rig.advance(1_000)
    rig.acknowledge(1, rig.executions[0], alignment_ms=4)
    rig.advance(20)
    (record,) = rig.master.view().in_progress
    assert (record.checkpoint_id, record.status, record.duration_ms) == (1, CheckpointStatus.IN_PROGRESS, 20)
    assert (record.subtasks, record.acknowledged, record.alignment_ms) == (4, 1, 4)
    rig.acknowledge(1, *rig.executions[1:])
    view = rig.master.view()
    assert view.in_progress == ()
    assert [(r.checkpoint_id, r.status, r.acknowledged) for r in view.checkpoints.history] == [
        (1, CheckpointStatus.COMPLETED, 4)
    ]


def test_failed_checkpoints_say_why() -> None:
    rig = running(conf={"execution.checkpointing.tolerable-failed-checkpoints": "5"})
    rig.advance(1_000)
    rig.master.on_message(DeclineCheckpoint(rig.executions[0], 1, "disk full", is_failure=True))
    (record,) = rig.master.view().checkpoints.history
    assert record.status is CheckpointStatus.FAILED
    assert "disk full" in str(record.failure)
    assert rig.master.view().checkpoints.failed == 1


def test_the_history_of_checkpoints_is_bounded() -> None:
    rig = running()
    for number in range(1, HISTORY_MAX + 4):
        rig.advance(1_000)
        rig.acknowledge(number)
    view = rig.master.view()
    assert [r.checkpoint_id for r in view.checkpoints.history] == list(range(HISTORY_MAX + 3, 3, -1))
    assert view.checkpoints.completed == HISTORY_MAX + 3


def test_failures_name_task_worker_and_attempt() -> None:
    rig = running()
    failed = rig.executions[2]
    rig.clock.advance(7)
    rig.fail(failed)
    restart(rig)
    rig.lose("w1")
    view = rig.master.view()
    of_worker, of_task = view.failures
    assert (of_task.task, of_task.attempt, of_task.at_ms) == ("sink (1/2)", 0, 7)
    assert of_task.worker_id is not None
    assert "broken" in of_task.text
    assert (of_worker.task, of_worker.attempt) == (None, 1)
    assert "w1" in of_worker.text
    assert view.restarts == 1
    assert {subtask.attempt for vertex in view.vertices for subtask in vertex.subtasks} == {1}


def test_the_history_of_failures_is_bounded() -> None:
    rig = running(
        conf={"restart-strategy.fixed-delay.attempts": "100", "penstock.restart.identical-failures-max": "1000"}
    )
    for number in range(FAILURES_MAX + 2):
        rig.fail(reason=f"broken for the {number}. time")
        restart(rig)
    failures = rig.master.view().failures
    assert len(failures) == FAILURES_MAX
    assert f"the {FAILURES_MAX + 1}. time" in failures[0].text


def test_a_view_stays_as_it_is() -> None:
    """It is a value: what happens later is in another one."""
    rig = running()
    before = rig.master.view()
    kept = dataclasses.asdict(before)
    rig.advance(1_000)
    rig.acknowledge(1)
    rig.fail()
    assert dataclasses.asdict(before) == kept
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.status = JobStatus.FAILED  # type: ignore[misc]


def test_a_checkpoint_has_what_each_subtask_stored() -> None:
    rig = running()
    rig.advance(1_000)
    rig.clock.advance(5)
    rig.acknowledge(1, rig.executions[0], data=b"abc", stored_bytes=2, start_delay_ms=4)
    (begun,) = rig.master.view().in_progress
    assert (begun.state_bytes, begun.stored_bytes) == (3, 2)
    rig.clock.advance(6)
    rig.acknowledge(1, *rig.executions[1:])
    record = rig.master.view().checkpoints.last
    assert record is not None
    first, *others = record.parts
    assert first == SubtaskCheckpoint(0, 0, 1_005, 5, 3, 2, 4)
    assert [(part.vertex, part.subtask, part.duration_ms, part.state_bytes) for part in others] == [
        (0, 1, 11, 1),
        (1, 0, 11, 1),
        (1, 1, 11, 1),
    ]


def test_a_restart_shows_from_where_the_job_went_on() -> None:
    rig = running()
    assert rig.master.view().checkpoints.restored is None
    rig.advance(1_000)
    rig.acknowledge(1)
    rig.fail()
    restart(rig)
    checkpoints = rig.master.view().checkpoints
    assert checkpoints.restored is not None
    assert (checkpoints.restored.checkpoint_id, checkpoints.restored.is_savepoint) == (1, False)
    assert checkpoints.last is not None
    assert checkpoints.restored.path == checkpoints.last.path
    assert checkpoints.restores == 1


def test_the_view_has_edges_options_and_ids() -> None:
    rig = running(conf={"execution.checkpointing.interval": "1 s"})
    view = rig.master.view()
    assert [(edge.source, edge.target) for edge in view.edges] == [(0, 1)]
    assert view.mode == "STREAMING"
    assert view.now_ms == rig.clock.now_ms()
    assert view.configuration["execution.checkpointing.interval"] == "1 s"
    assert [vertex.vertex_id for vertex in view.vertices] == [
        vertex.operators[0].operator_id for vertex in rig.graph.vertices
    ]
