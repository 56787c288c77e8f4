"""Savepoints under the job master: when they are taken, what they do to the job, and beginning from one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.runtime.job.master_rig import FakeStore, MasterRig, Numbers, running, two_vertices

from penstock.runtime.checkpoint.savepoints import ATTEMPTS_PER_MASTER, FIRST_PAUSE_MS, TakeSavepoint
from penstock.runtime.graph import JobEdge, JobGraph, JobVertex, OperatorInfo
from penstock.runtime.job.view import job_progress
from penstock.runtime.protocol import (
    AssignSplits,
    CancelTask,
    DeclineCheckpoint,
    EndOfDataReached,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    RequestSplit,
    StartTask,
    StopMode,
    TriggerCheckpoint,
)
from penstock.storage.metadata import NativeStateHandle, OperatorSubtaskState, StateFile

INTERVAL = "execution.checkpointing.interval"
TIMEOUT = "execution.checkpointing.timeout"
PATH = "execution.state-recovery.path"
IGNORE_UNCLAIMED = "execution.state-recovery.ignore-unclaimed-state"


class Waiter:
    """Somebody who waits for a savepoint: what was heard, as (path, error)."""

    def __init__(self) -> None:
        self.heard: list[tuple[str | None, str | None]] = []

    def __call__(self, path: str | None, error: str | None) -> None:
        self.heard.append((path, error))

    @property
    def error(self) -> str:
        ((path, error),) = self.heard
        assert path is None
        assert error is not None
        return error


def build_savepoint_path(checkpoint_id: int) -> str:
    return f"/sp/savepoint-job-1-{checkpoint_id:06x}"


def trigger(rig: MasterRig) -> Waiter:
    waiter = Waiter()
    rig.master.take_savepoint(TakeSavepoint("/sp/"), waiter)
    return waiter


def stop(rig: MasterRig, mode: StopMode = StopMode.SUSPEND) -> Waiter:
    waiter = Waiter()
    rig.master.take_savepoint(TakeSavepoint("/sp", mode), waiter)
    return waiter


def cancel(rig: MasterRig) -> Waiter:
    waiter = Waiter()
    rig.master.take_savepoint(TakeSavepoint("/sp", cancels=True), waiter)
    return waiter


def completed(rig: MasterRig) -> list[int]:
    return sorted({m.checkpoint_id for m in rig.of(NotifyCheckpointComplete)})


def restart(rig: MasterRig) -> None:
    """All tasks have been cancelled, and the delay is over."""
    rig.end_cancelled()
    rig.advance(100)


# --- when they are taken --------------------------------------------------------------------------------------------


def test_a_savepoint_is_taken_at_once() -> None:
    """H1: a savepoint is asked of the sources as a checkpoint is, with the directory that is its own, and whoever
    asked hears of that directory when all is there."""
    rig = running()
    waiter = trigger(rig)
    asked = rig.of(TriggerCheckpoint)
    assert [(m.execution, m.checkpoint_id, m.savepoint_path, m.stop) for m in asked] == [
        (execution, 1, build_savepoint_path(1), None) for execution in rig.executions[:2]
    ]
    rig.acknowledge(1, *rig.executions[:3])
    assert waiter.heard == []
    rig.acknowledge(1, rig.executions[3])
    assert waiter.heard == [(build_savepoint_path(1), None)]
    metadata = rig.store.savepoints[build_savepoint_path(1)]
    assert metadata.is_savepoint
    assert not metadata.ends_job
    assert metadata.external_path == build_savepoint_path(1)


def test_a_savepoint_waits_for_running_tasks() -> None:
    """H1: asked for before all tasks run, a savepoint begins with the last of them."""
    rig = MasterRig()
    waiter = trigger(rig)
    rig.say("INITIALIZING", *rig.executions)
    rig.say("RUNNING", *rig.executions[:3])
    assert rig.triggered() == []
    rig.say("RUNNING", rig.executions[3])
    rig.acknowledge(1)
    assert waiter.heard == [(build_savepoint_path(1), None)]


def test_a_savepoint_waits_for_the_recovery() -> None:
    """H1, G8: asked for while the job recovers, a savepoint is taken of the next attempt."""
    rig = running()
    rig.fail()
    waiter = trigger(rig)
    restart(rig)
    assert waiter.heard == []
    rig.run_all()
    assert rig.triggered() == [1]
    rig.acknowledge(1)
    assert waiter.heard == [(build_savepoint_path(1), None)]


@pytest.mark.parametrize("outcome", ["complete", "declined", "too late"])
def test_a_savepoint_waits_for_checkpoints_in_the_making(outcome: str) -> None:
    """H1: a savepoint begins when no checkpoint is in the making, however the last one ended."""
    rig = running(conf={TIMEOUT: "700 ms", "execution.checkpointing.tolerable-failed-checkpoints": "1"})
    rig.advance(1000)
    waiter = trigger(rig)
    assert rig.triggered() == [1]
    if outcome == "complete":
        rig.acknowledge(1)
    elif outcome == "declined":
        rig.master.on_message(DeclineCheckpoint(rig.executions[0], 1, "not ready"))
    else:
        rig.advance(700)
    assert rig.triggered() == [1, 2]
    rig.acknowledge(2)
    assert waiter.heard == [(build_savepoint_path(2), None)]


def test_no_checkpoint_begins_meanwhile() -> None:
    """H1, G6: while a savepoint is wanted or in the making no periodic checkpoint begins, and none by hand; the one
    that is due follows it."""
    rig = running(conf={"execution.checkpointing.max-concurrent-checkpoints": "3"})
    rig.advance(1000)
    waiter = trigger(rig)
    rig.advance(5000)
    assert rig.triggered() == [1]
    assert rig.master.trigger_checkpoint() is None
    rig.acknowledge(1)
    assert rig.triggered() == [1, 2]
    rig.advance(5000)
    assert rig.triggered() == [1, 2]
    assert rig.master.trigger_checkpoint() is None
    rig.acknowledge(2)
    assert waiter.heard == [(build_savepoint_path(2), None)]
    rig.advance(0)
    assert rig.triggered() == [1, 2, 3]
    assert rig.savepoint_paths() == {2: build_savepoint_path(2)}


def test_savepoints_come_one_after_the_other() -> None:
    """H1: several that were asked for are taken in that order, each when the one before is done, well or ill."""
    rig = running(conf={INTERVAL: None})
    waiters = [trigger(rig) for _ in range(3)]
    assert rig.triggered() == [1]
    rig.acknowledge(1)
    assert rig.triggered() == [1, 2]
    rig.master.on_message(DeclineCheckpoint(rig.executions[0], 2, "disk full", is_failure=True))
    assert rig.triggered() == [1, 2, 3]
    rig.acknowledge(3)
    assert [w.heard[0][0] for w in waiters] == [build_savepoint_path(1), None, build_savepoint_path(3)]


def test_a_savepoint_that_cannot_begin_in_time() -> None:
    """H1: a request has the time of a checkpoint to begin; then whoever asked is told, and nothing follows."""
    rig = MasterRig(conf={TIMEOUT: "3000 ms"})
    waiter = trigger(rig)
    rig.advance(2999)
    assert waiter.heard == []
    rig.advance(1)
    assert "could not start within 3000 ms" in waiter.error
    rig.run_all()
    assert rig.savepoint_paths() == {}
    assert rig.status == "RUNNING"


def unready(rig: MasterRig, place: int, checkpoint_id: int) -> None:
    """A task says that it cannot take part just now."""
    reason = "the task cannot inject a barrier now"
    rig.master.on_message(DeclineCheckpoint(rig.executions[place], checkpoint_id, reason, is_unready=True))


@pytest.mark.parametrize("ask", [trigger, stop, cancel])
def test_a_savepoint_that_a_task_is_not_ready_for_is_taken_a_little_later(ask: Callable[[MasterRig], Waiter]) -> None:
    """H1, H2: a task that begins or ends declines it; nobody has to ask again."""
    rig = running(conf={INTERVAL: None})
    for source in rig.executions[:2]:
        rig.master.on_message(EndOfDataReached(source))
    waiter = ask(rig)
    unready(rig, 0, 1)
    unready(rig, 1, 1)
    assert waiter.heard == []
    assert rig.store.discarded_savepoints == [build_savepoint_path(1)]
    rig.advance(FIRST_PAUSE_MS - 1)
    assert rig.triggered() == [1]
    rig.advance(1)
    assert rig.triggered() == [1, 2]
    unready(rig, 1, 2)
    rig.advance(2 * FIRST_PAUSE_MS)
    assert rig.triggered() == [1, 2, 3]
    rig.acknowledge(3)
    assert list(rig.store.savepoints) == [build_savepoint_path(3)]


@pytest.mark.parametrize("ask", [trigger, stop])
def test_a_task_that_had_finished_before_it_was_asked(ask: Callable[[MasterRig], Waiter]) -> None:
    """H1, G10: it says so first, and then that it knows nothing of the savepoint, which does without it."""
    rig = running(conf={INTERVAL: None})
    for source in rig.executions[:2]:
        rig.master.on_message(EndOfDataReached(source))
    waiter = ask(rig)
    rig.say("FINISHED", rig.executions[0])
    unready(rig, 0, 1)
    rig.acknowledge(1, *rig.executions[1:])
    assert list(rig.store.savepoints) == [build_savepoint_path(1)]
    assert rig.status == "RUNNING"
    assert "declined" not in str(waiter.heard)


def test_a_checkpoint_may_come_ahead_of_a_savepoint_that_was_put_off() -> None:
    """H1, F6: the task that is not ready may be waiting for one."""
    rig = running()
    rig.advance(990)
    waiter = trigger(rig)
    unready(rig, 0, 1)
    rig.advance(10)
    assert rig.savepoint_paths() == {1: build_savepoint_path(1)}
    assert rig.triggered() == [1, 2]
    rig.advance(FIRST_PAUSE_MS)
    assert rig.triggered() == [1, 2]
    rig.acknowledge(2)
    assert rig.triggered() == [1, 2, 3]
    rig.acknowledge(3)
    assert waiter.heard == [(build_savepoint_path(3), None)]


def test_a_savepoint_that_no_task_is_ever_ready_for() -> None:
    """H1: it has the time of a checkpoint; then whoever asked hears which task declined it."""
    rig = running(conf={INTERVAL: None, TIMEOUT: "3000 ms"})
    waiter = trigger(rig)
    for _ in range(3000):
        if waiter.heard:
            break
        for checkpoint_id in rig.triggered()[-1:]:
            unready(rig, 0, checkpoint_id)
        rig.advance(1)
    assert "could not start within 3000 ms: declined by" in waiter.error
    assert "cannot inject a barrier now" in waiter.error
    assert len(rig.triggered()) < 10
    assert rig.status == "RUNNING"


def test_a_stop_that_a_task_was_not_ready_for_is_tried_again_after_the_restart() -> None:
    """H2, G8: sources that have ended for it cannot go on, so the job begins again; then it is stopped."""
    rig = running(conf={INTERVAL: None})
    waiter = stop(rig)
    unready(rig, 0, 1)
    assert waiter.heard == []
    restart(rig)
    rig.run_all()
    assert rig.triggered() == [1, 2]
    rig.acknowledge(2)
    rig.say("FINISHED", *rig.executions)
    assert waiter.heard == [(build_savepoint_path(2), None)]


def test_a_stop_waits_for_tasks_below_those_that_have_finished() -> None:
    """H2: they decline it until they have read their inputs to the end; other sources would have ended for nothing."""
    one = two_vertices(1)
    moved = [replace(vertex, index=vertex.index + 2) for vertex in one.vertices]
    other = tuple(
        replace(one, operators=(OperatorInfo(f"id-other-{one.name}", one.name, None, True),)) for one in moved
    )
    source = replace(other[0], sources={"id-other-source": Numbers()})
    graph = JobGraph("job", (*one.vertices, source, other[1]), (*one.edges, JobEdge(1, 2, 3, 0, "HASH", False)))
    rig = running(graph=graph)
    rig.say("FINISHED", rig.executions[0])
    waiter = stop(rig)
    assert rig.triggered() == []
    rig.master.on_message(EndOfDataReached(rig.executions[1]))
    assert [message.execution for message in rig.of(TriggerCheckpoint)] == rig.executions[1:3]
    rig.acknowledge(1, *rig.executions[1:])
    rig.say("FINISHED", *rig.executions[1:])
    assert waiter.heard == [(build_savepoint_path(1), None)]


# --- what a savepoint does not do -----------------------------------------------------------------------------------


def test_a_savepoint_is_no_recovery_point_and_notifies_nobody() -> None:
    """H1: with a savepoint nothing is committed, later checkpoints do not build on it, and a failure goes back to the
    checkpoint before it."""
    rig = running()
    rig.advance(1000)
    rig.acknowledge(1)
    trigger(rig)
    rig.acknowledge(2)
    assert completed(rig) == [1]
    progress = job_progress(rig.master.view())
    assert (progress.checkpoints_completed, progress.last_checkpoint_id) == (1, 1)
    assert rig.master.checkpoints.statistics.savepoints == 1
    rig.advance(1000)
    assert rig.of(TriggerCheckpoint)[-1].completed_id == 1
    rig.fail()
    restart(rig)
    assert {t.restored_checkpoint_id for t in rig.deployed} == {1}


@pytest.mark.parametrize("end", ["finished", "cancelled", "failed"])
def test_a_savepoint_is_never_deleted(end: str) -> None:
    """H1: however the job ends, and however many checkpoints follow, the savepoint stays."""
    rig = running(conf={"restart-strategy.type": "none"})
    trigger(rig)
    rig.acknowledge(1)
    for checkpoint_id in (2, 3):
        rig.advance(1000)
        rig.acknowledge(checkpoint_id)
    if end == "finished":
        rig.say("FINISHED", *rig.executions)
    elif end == "cancelled":
        rig.master.cancel()
    else:
        rig.fail()
    rig.end_cancelled()
    rig.master.sweep()
    assert rig.master.is_done
    assert list(rig.store.savepoints) == [build_savepoint_path(1)]
    assert rig.store.discarded_savepoints == rig.store.deleted_savepoints == []
    assert {p for p in rig.store.files if p.startswith("/sp")} == {
        f.path for f in _files(rig.store, build_savepoint_path(1))
    }


def _files(store: FakeStore, path: str) -> list[Any]:
    return [f for f in store.savepoints[path].state_files() if f.path is not None]


@pytest.mark.parametrize("how", ["declined", "too late", "unwritable"])
def test_a_savepoint_that_fails_leaves_the_job_alone(how: str) -> None:
    """H1, G6: a savepoint that fails is reported to whoever asked, its files go and its tasks are told; the job goes on
    though it tolerates no failed checkpoint."""
    rig = running(conf={INTERVAL: None, TIMEOUT: "5000 ms"})
    waiter = trigger(rig)
    if how == "declined":
        rig.master.on_message(DeclineCheckpoint(rig.executions[2], 1, "disk full", is_failure=True))
    elif how == "too late":
        rig.advance(5000)
    else:
        rig.store.unwritable = {1}
        rig.acknowledge(1)
    assert {"declined": "disk full", "too late": "5000 ms", "unwritable": "disk full"}[how] in waiter.error
    assert rig.status == "RUNNING"
    assert rig.store.discarded_savepoints == [build_savepoint_path(1)]
    assert [m.execution for m in rig.of(NotifyCheckpointAborted)] == rig.executions
    assert rig.master.checkpoints.statistics.failed == 0
    again = trigger(rig)
    rig.acknowledge(2)
    assert again.heard == [(build_savepoint_path(2), None)]


def test_a_failure_of_the_job_ends_a_savepoint_in_the_making() -> None:
    """H1, G8: a savepoint is part of one attempt: when that fails, whoever asked is told so."""
    rig = running()
    waiter = trigger(rig)
    rig.fail()
    assert "recovering from a failure" in waiter.error
    restart(rig)
    rig.run_all()
    assert rig.triggered() == [1], "it is not taken again by itself"


def test_an_enumerator_that_cannot_be_captured_fails_the_savepoint_only() -> None:
    """H1: what a source's enumerator raises is the end of the savepoint, not of the job."""
    rig = running()
    rig.master._sources.coordinators["id-source"]._enumerator.breaks = True  # type: ignore[union-attr]
    waiter = trigger(rig)
    assert "enumerator" in waiter.error
    assert rig.status == "RUNNING"


# --- cancel ---------------------------------------------------------------------------------------------------------


def test_cancel_with_savepoint() -> None:
    """H1: the job is cancelled when the savepoint is there; nothing is committed in between, no source is told to end,
    and no checkpoint begins."""
    rig = running()
    waiter = cancel(rig)
    assert {m.stop for m in rig.of(TriggerCheckpoint)} == {None}
    rig.advance(5000)
    assert rig.of(CancelTask) == []
    rig.acknowledge(1)
    assert waiter.heard == [(build_savepoint_path(1), None)]
    assert rig.status == "CANCELLING"
    assert len(rig.of(CancelTask)) == 4
    assert completed(rig) == []
    assert rig.triggered() == [1]
    rig.end_cancelled()
    assert rig.status == "CANCELED"


def test_a_job_is_not_cancelled_without_its_savepoint() -> None:
    """H1: when the savepoint fails the job goes on."""
    rig = running()
    waiter = cancel(rig)
    rig.master.on_message(DeclineCheckpoint(rig.executions[0], 1, "disk full", is_failure=True))
    assert "disk full" in waiter.error
    assert rig.status == "RUNNING"
    rig.advance(1000)
    assert rig.triggered() == [1, 2]


# --- stop -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(StopMode))
def test_stop(mode: StopMode) -> None:
    """H2, F3: sources are told how to end; when the savepoint is there tasks are told, and no checkpoint follows;
    whoever asked hears of it when all tasks have committed and ended."""
    rig = running()
    rig.advance(1000)
    rig.acknowledge(1)
    waiter = stop(rig, mode)
    assert [(m.execution.vertex, m.stop) for m in rig.of(TriggerCheckpoint)[2:]] == [(0, mode), (0, mode)]
    rig.end_of_data()
    rig.acknowledge(2, finished=mode is StopMode.DRAIN)
    assert [m.execution for m in rig.of(NotifyCheckpointComplete) if m.checkpoint_id == 2] == rig.executions
    assert waiter.heard == []
    rig.advance(60_000)
    assert rig.triggered() == [1, 2]
    rig.say("FINISHED", *rig.executions)
    assert rig.status == "FINISHED"
    assert waiter.heard == [(build_savepoint_path(2), None)]
    assert rig.store.savepoints[build_savepoint_path(2)].ends_job
    rig.master.sweep()
    assert [p for p in rig.store.files if p.startswith("job-1")] == [], "the job's own checkpoints are not needed"


def test_stops_that_fail_never_give_the_job_up() -> None:
    """H2, G8: however often a stop times out, it is not the job that is at fault."""
    rig = running(conf={INTERVAL: None, TIMEOUT: "900 ms", "restart-strategy.fixed-delay.attempts": "100"})
    for _ in range(12):
        stop(rig)
        rig.advance(900)
        assert rig.status == "FAILING"
        restart(rig)
        rig.run_all()
        assert rig.status == "RUNNING"


@pytest.mark.parametrize("how", ["declined", "not ready", "too late", "unwritable"])
def test_a_stop_that_fails_restarts_the_job(how: str) -> None:
    """H2, G8: sources that have come to their end for a savepoint cannot go on: when it fails, whoever asked is told,
    and the job goes on from its last checkpoint as if nobody had asked."""
    rig = running(conf={TIMEOUT: "900 ms"})
    rig.advance(1000)
    rig.acknowledge(1)
    waiter = stop(rig)
    if how in ("declined", "not ready"):
        rig.master.on_message(DeclineCheckpoint(rig.executions[2], 2, "disk full", is_failure=how == "declined"))
    elif how == "too late":
        rig.advance(900)
    else:
        rig.store.unwritable = {2}
        rig.acknowledge(2)
    assert len(waiter.heard) == 1
    assert waiter.error
    assert rig.status == "FAILING"
    assert "stopping with a savepoint failed" in str(rig.master.failure)
    assert rig.store.discarded_savepoints == [build_savepoint_path(2)]
    restart(rig)
    assert {(t.restored_checkpoint_id, t.finished_on_restore) for t in rig.deployed} == {(1, False)}
    rig.run_all()
    rig.advance(1000)
    assert rig.triggered() == [1, 2, 3]
    rig.acknowledge(3)
    assert completed(rig) == [1, 3]
    again = stop(rig)
    rig.acknowledge(4)
    rig.say("FINISHED", *rig.executions)
    assert again.heard == [(build_savepoint_path(4), None)]


def test_a_stop_that_ended_no_source_restarts_nothing() -> None:
    """H2: when all sources had come to their end by themselves, a stop that fails leaves nothing to make good:
    whoever asked is told, and the job goes on to its end."""
    rig = running()
    rig.advance(1000)
    rig.acknowledge(1, *rig.executions[:2], finished=True)
    rig.acknowledge(1, *rig.executions[2:])
    rig.say("FINISHED", *rig.executions[:2])
    waiter = stop(rig)
    rig.master.on_message(DeclineCheckpoint(rig.executions[2], 2, "the task cannot inject a barrier now"))
    assert "cannot inject" in waiter.error
    assert rig.status == "RUNNING"
    rig.end_of_data()
    rig.advance(1000)
    rig.acknowledge(3, *rig.executions[2:], finished=True)
    rig.say("FINISHED", *rig.executions[2:])
    assert rig.status == "FINISHED"


def test_a_failure_before_the_savepoint_is_there_ends_the_stop() -> None:
    """H2, G8: when the job fails while the savepoint is in the making, it recovers and goes on."""
    rig = running()
    rig.advance(1000)
    rig.acknowledge(1)
    waiter = stop(rig)
    rig.acknowledge(2, *rig.executions[:3])
    rig.fail(rig.executions[3])
    assert "recovering" in waiter.error
    restart(rig)
    assert {(t.restored_checkpoint_id, t.finished_on_restore) for t in rig.deployed} == {(1, False)}


def stopped_and_failed(**conf: Any) -> tuple[MasterRig, Waiter]:
    """A job whose last savepoint is complete, and that failed before all was committed."""
    rig = running(conf=conf)
    rig.advance(1000)
    rig.acknowledge(1)
    waiter = stop(rig)
    rig.acknowledge(2)
    rig.fail(rig.executions[2])
    return rig, waiter


def assert_commits_only(rig: MasterRig, checkpoint_id: int) -> None:
    assert {t.restored_checkpoint_id for t in rig.deployed} == {checkpoint_id}
    assert all(t.finished_on_restore for t in rig.deployed)
    assert not any(t.settings.checkpointing for t in rig.deployed)
    before = len(rig.of(AssignSplits))
    rig.run_all()
    rig.master.on_message(RequestSplit(rig.executions[0], "id-source"))
    assert len(rig.of(AssignSplits)) == before, "no split is handed out"
    rig.advance(60_000)
    rig.end_of_data()
    rig.advance(60_000)
    assert max(rig.triggered(), default=0) <= checkpoint_id, "no checkpoint follows"


def test_after_the_savepoint_a_failure_leads_to_commits_only() -> None:
    """H2, G9: once the savepoint is there no failure brings the job back: the next attempt commits what the savepoint
    holds and ends; no split is handed out, nothing is processed, no checkpoint follows."""
    rig, waiter = stopped_and_failed()
    assert waiter.heard == []
    restart(rig)
    assert_commits_only(rig, 2)
    rig.say("FINISHED", *rig.executions)
    assert rig.status == "FINISHED"
    assert waiter.heard == [(build_savepoint_path(2), None)]


def test_a_failure_while_the_savepoint_becomes_visible() -> None:
    """H2, G8: when the job fails at the moment at which the savepoint is being completed, the recovery waits to know:
    if it is there, only what it holds is committed."""
    rig = running()
    waiter = stop(rig)
    rig.background.hold = True
    rig.acknowledge(1)
    rig.fail(rig.executions[2])
    rig.end_cancelled()
    rig.advance(100)
    rig.background.hold = False
    rig.background.run()
    assert_commits_only(rig, 1)
    rig.say("FINISHED", *rig.executions)
    assert waiter.heard == [(build_savepoint_path(1), None)]


def test_commits_that_fail_again_and_again() -> None:
    """H2, G8: the restart strategy holds for them too; in the end whoever waits hears of the savepoint that is there,
    and that not all of it is committed."""
    rig, waiter = stopped_and_failed()
    for _ in range(3):
        restart(rig)
        assert all(t.finished_on_restore for t in rig.deployed)
        rig.run_all()
        rig.fail(rig.executions[2])
    rig.end_cancelled()
    assert rig.status == "FAILED"
    assert f"{build_savepoint_path(2)} is complete, but the job ended FAILED before" in waiter.error
    assert "job-1/chk-2/_metadata" in rig.store.files, "and can be taken up by another job master"


def test_a_last_savepoint_that_is_damaged_is_not_passed_over() -> None:
    """H2, G11: before the savepoint that ends the job there is nothing to go back to: what it holds may have been
    committed in part."""
    rig, waiter = stopped_and_failed(**{"execution.checkpointing.num-retained": "2"})
    rig.store.damaged = {2}
    restart(rig)
    assert rig.status == "FAILED"
    assert "no checkpoint is left" in str(rig.master.failure)
    assert "FAILED" in waiter.error
    assert {t.execution.attempt for t in rig.deployed} == {0}


def test_cancelled_after_the_savepoint() -> None:
    """H2: a job that is cancelled before all was committed says so to whoever waits."""
    rig = running()
    waiter = stop(rig)
    rig.acknowledge(1)
    rig.master.cancel()
    rig.end_cancelled()
    assert f"{build_savepoint_path(1)} is complete, but the job ended CANCELED" in waiter.error


def test_another_job_master_only_commits() -> None:
    """H2, G8: a job master that takes the job over finds the last savepoint among its checkpoints, and has nothing to
    do but commit what it holds."""
    rig = running()
    rig.advance(1000)
    rig.acknowledge(1)
    stop(rig)
    rig.acknowledge(2)
    other = MasterRig(store=rig.store, recover=True)
    assert {t.execution.attempt for t in other.deployed} == {ATTEMPTS_PER_MASTER}
    assert_commits_only(other, 2)
    other.say("FINISHED", *other.executions)
    assert other.status == "FINISHED"


def test_another_job_master_does_not_begin_from_a_plain_savepoint() -> None:
    """H1, G8: a savepoint that left the job running is not looked at: the job goes on from its own checkpoint."""
    rig = running()
    rig.advance(1000)
    rig.acknowledge(1)
    trigger(rig)
    rig.acknowledge(2)
    other = MasterRig(store=rig.store, recover=True)
    assert {(t.restored_checkpoint_id, t.finished_on_restore) for t in other.deployed} == {(1, False)}


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [trigger, stop, cancel])
@pytest.mark.parametrize("when", ["wanted", "in the making", "complete"])
def test_a_job_that_is_being_stopped_takes_no_other(when: str, second: Any) -> None:
    """H2: nothing can follow the savepoint that ends the job, from the moment at which it is wanted."""
    rig = MasterRig() if when == "wanted" else running()
    first = stop(rig)
    if when == "complete":
        rig.acknowledge(1)
    waiter = second(rig)
    assert "already being stopped with a savepoint" in waiter.error
    if when == "wanted":
        rig.run_all()
    if when != "complete":
        rig.acknowledge(1)
    rig.say("FINISHED", *rig.executions)
    assert first.heard == [(build_savepoint_path(1), None)]


def test_what_was_asked_for_before_a_stop_is_taken_before_it() -> None:
    """H1, H2: a stop does not overtake a savepoint that was asked for earlier."""
    rig = running()
    first, last = trigger(rig), stop(rig)
    rig.acknowledge(1)
    assert first.heard == [(build_savepoint_path(1), None)]
    rig.acknowledge(2)
    rig.say("FINISHED", *rig.executions)
    assert last.heard == [(build_savepoint_path(2), None)]


@pytest.mark.parametrize("ask", [trigger, stop, cancel])
@pytest.mark.parametrize("status", ["FINISHED", "CANCELLING", "CANCELED", "FAILED"])
def test_a_job_that_is_over_takes_none(status: str, ask: Any) -> None:
    """H1, H2: a job that has ended, or is being cancelled, refuses at once and says why."""
    rig = running(conf={"restart-strategy.type": "none"})
    if status == "FINISHED":
        rig.say("FINISHED", *rig.executions)
    elif status == "FAILED":
        rig.fail()
    else:
        rig.master.cancel()
    if status != "CANCELLING":
        rig.end_cancelled()
    assert rig.status == status
    assert f"the job is {status}" in ask(rig).error


@pytest.mark.parametrize("ask", [trigger, stop, cancel])
@pytest.mark.parametrize("end", ["FINISHED", "CANCELED", "FAILED"])
@pytest.mark.parametrize("when", ["wanted", "in the making"])
def test_a_job_that_ends_answers_everybody(end: str, ask: Any, when: str) -> None:
    """H1, H2: nobody waits for ever: who asked before the job ended is told that it did."""
    rig = running(conf={"restart-strategy.type": "none"})
    if when == "wanted":
        rig.advance(1000)
    waiter = ask(rig)
    if end == "FINISHED":
        rig.say("FINISHED", *rig.executions)
    elif end == "FAILED":
        rig.fail()
    else:
        rig.master.cancel()
    rig.end_cancelled()
    assert len(waiter.heard) == 1
    if end != "FINISHED":  # with all tasks finished nothing is missing any more, and the savepoint may be whole
        assert rig.status == end
        assert waiter.error


def test_without_periodic_checkpoints() -> None:
    """H1, H2: savepoints need no interval."""
    rig = running(conf={INTERVAL: None})
    plain = trigger(rig)
    rig.acknowledge(1)
    last = stop(rig, StopMode.DRAIN)
    rig.acknowledge(2, finished=True)
    rig.say("FINISHED", *rig.executions)
    assert [w.heard for w in (plain, last)] == [[(build_savepoint_path(1), None)], [(build_savepoint_path(2), None)]]


def test_a_savepoint_begins_at_the_finished_frontier() -> None:
    """H1, G10: with tasks that have finished, the savepoint begins at the first that have not."""
    rig = running()
    rig.advance(1000)
    rig.acknowledge(1, finished=True)
    rig.say("FINISHED", *rig.executions[:2])
    waiter = stop(rig)
    assert [m.execution for m in rig.of(TriggerCheckpoint)[2:]] == rig.executions[2:]
    rig.acknowledge(2, *rig.executions[2:])
    rig.say("FINISHED", *rig.executions[2:])
    assert waiter.heard == [(build_savepoint_path(2), None)]
    source, sink = rig.store.savepoints[build_savepoint_path(2)].operators
    assert (source.finished, sink.finished) == ((0, 1), ())


# --- beginning from one ---------------------------------------------------------------------------------------------


def with_savepoint(graph: JobGraph | None = None, finished: int = 0) -> FakeStore:
    """A store with savepoint 3 of a job at `build_savepoint_path(3)`; the first `finished` vertices had finished."""
    rig = running(graph=graph)
    for checkpoint_id in (1, 2):
        rig.advance(1000)
        done = [e for e in rig.executions if e.vertex < finished]
        left = [e for e in rig.executions if e.vertex >= finished]
        if checkpoint_id == 1 and done:
            rig.acknowledge(1, *done, finished=True)
        rig.acknowledge(checkpoint_id, *left)
        if checkpoint_id == 1:
            if not done:
                continue
            rig.say("FINISHED", *done)
    trigger(rig)
    rig.acknowledge(3, *left)
    store: FakeStore = rig.store
    assert list(store.savepoints) == [build_savepoint_path(3)]
    # Another job has its own directory of checkpoints.
    fresh = FakeStore()
    fresh.savepoints = store.savepoints
    fresh.files = {f.path for f in _files(store, build_savepoint_path(3))}
    return fresh


def begun(store: FakeStore, graph: JobGraph | None = None, **conf: Any) -> MasterRig:
    return MasterRig(graph, store=store, conf={PATH: build_savepoint_path(3), **conf})


def test_begin_from_a_savepoint() -> None:
    """H4: the job begins with the savepoint's state and enumerators, never builds on its files, and counts checkpoints
    on above it."""
    rig = begun(with_savepoint())
    assert {t.restored_checkpoint_id for t in rig.deployed} == {3}
    assert not any(t.builds_on_restored for t in rig.deployed)
    assert (
        rig.deployed[2].restored["id-sink"].keyed["count"][0].files[0].path == f"{build_savepoint_path(3)}/state-1-0-0"
    )
    assert any(f"begins from {build_savepoint_path(3)}" in line for line in rig.logs)
    rig.run_all()
    rig.master.on_message(RequestSplit(rig.executions[0], "id-source"))
    assert b"split after 3" in rig.of(AssignSplits)[0].splits[0]
    rig.advance(1000)
    assert rig.triggered() == [4]
    assert {m.completed_id for m in rig.of(TriggerCheckpoint)} == {0}


def test_a_failure_before_and_after_the_first_own_checkpoint() -> None:
    """H4, G8: until the job has a checkpoint of its own it begins from the savepoint again, and never after."""
    rig = begun(with_savepoint())
    rig.run_all()
    rig.fail()
    restart(rig)
    assert {t.restored_checkpoint_id for t in rig.deployed} == {3}
    rig.run_all()
    rig.advance(1000)
    rig.acknowledge(4)
    rig.fail()
    restart(rig)
    assert {(t.restored_checkpoint_id, t.builds_on_restored) for t in rig.deployed} == {(4, True)}
    assert build_savepoint_path(3) in rig.store.savepoints


def test_no_task_starts_before_all_are_open() -> None:
    """H4: what does not fit is found when operators open, and by then nothing may have run; so all tasks are started
    together, in every attempt from the savepoint, and in none from a checkpoint of the job's own."""
    rig = begun(with_savepoint())
    for attempt in range(2):
        assert all(task.awaits_start for task in rig.deployed)
        *others, last = rig.executions
        for execution in others:
            rig.say("INITIALIZING", execution)
            rig.say("RUNNING", execution)
        rig.say("INITIALIZING", last)
        assert not [m for m in rig.of(StartTask) if m.execution.attempt == attempt]
        rig.say("RUNNING", last)
        assert [m.execution for m in rig.of(StartTask) if m.execution.attempt == attempt] == rig.executions
        if attempt == 0:
            rig.fail()
            restart(rig)
    rig.advance(1000)
    rig.acknowledge(4)
    rig.fail()
    restart(rig)
    assert not any(task.awaits_start for task in rig.deployed)


def test_a_savepoint_that_is_not_there() -> None:
    """H4: a job does not start without what it was told to begin from; the error has option, path and cause."""
    rig = MasterRig(store=FakeStore(), conf={PATH: "/sp/none"})
    assert rig.status == "FAILED"
    assert f"{PATH} /sp/none cannot be read: /sp/none/_metadata" in str(rig.master.failure)
    assert rig.deployed == []


def test_a_savepoint_that_is_damaged() -> None:
    """H4, G11: state files are read through before anything runs; the job does not start over instead."""
    store = with_savepoint()
    store.damaged = {3}
    rig = begun(store)
    assert rig.status == "FAILED"
    assert "the checksum does not match" in str(rig.master.failure)
    assert rig.deployed == []


def build_graph(*names: str, chained: bool = False, parallelism: int = 2, max_parallelism: int = 128) -> JobGraph:
    """Operators in a row, the first a source: each a vertex of its own with hash edges between, or all in one."""
    infos = [OperatorInfo(f"id-{name}", name, f"uid-{name}", True) for name in names]
    sources = {f"id-{names[0]}": Numbers()}

    def vertex(index: int, name: str, operators: tuple[OperatorInfo, ...]) -> JobVertex:
        return JobVertex(index, name, parallelism, max_parallelism, operators, b"", sources if index == 0 else {})

    if chained:
        return JobGraph("job", (vertex(0, " -> ".join(names), tuple(infos)),), ())
    vertices = tuple(vertex(i, info.name, (info,)) for i, info in enumerate(infos))
    edges = tuple(JobEdge(i, i, i + 1, 0, "HASH", False) for i in range(len(names) - 1))
    return JobGraph("job", vertices, edges)


def test_state_that_nobody_claims() -> None:
    """H4: state without an operator is an error that names it and the ways out; with the option it is left out."""
    store = with_savepoint(build_graph("source", "count", "sink"))
    rig = begun(store, two_vertices())
    assert rig.status == "FAILED"
    message = str(rig.master.failure)
    assert "does not fit the job" in message
    assert "'count' (uid 'uid-count')" in message
    assert f"{IGNORE_UNCLAIMED}: true" in message
    assert rig.requested == [], "it is said before anything runs"
    rig = begun(store, two_vertices(), **{IGNORE_UNCLAIMED: "true"})
    assert {t.restored_checkpoint_id for t in rig.deployed} == {3}
    assert any("dropped state that no operator claims: 'count'" in line for line in rig.logs)


def test_files_of_another_backend() -> None:
    """D3, H4: a checkpoint in a backend's own files is refused before anything runs when the job has another one."""
    store = with_savepoint()
    metadata = store.savepoints[build_savepoint_path(3)]
    native = NativeStateHandle("rocksdb", 0, 127, {"CURRENT": StateFile(1, 1, data=b"x")})
    operators = tuple(
        msgspec.structs.replace(o, subtasks={0: OperatorSubtaskState(native=(native,))}) if o.name == "sink" else o
        for o in metadata.operators
    )
    store.savepoints[build_savepoint_path(3)] = msgspec.structs.replace(metadata, operators=operators)
    rig = begun(store)
    assert rig.status == "FAILED"
    message = str(rig.master.failure)
    assert "operator 'sink' (id id-sink): the checkpoint holds its keyed state in files of the backend" in message
    assert "set state.backend.type: rocksdb, or start from a savepoint" in message
    assert rig.requested == [], "it is said before anything runs"
    with_rocksdb: Any = {"state.backend.type": "rocksdb"}
    assert begun(store, **with_rocksdb).deployed


def test_an_operator_that_is_new_begins_without_state() -> None:
    """H4: an operator that the savepoint does not know begins empty."""
    rig = begun(with_savepoint(), build_graph("source", "new", "sink"))
    assert [sorted(t.restored) for t in rig.deployed] == [
        ["id-source"],
        ["id-source"],
        [],
        [],
        ["id-sink"],
        ["id-sink"],
    ]


def test_another_max_parallelism() -> None:
    """H4, D4: keyed state lies in the key groups it was written with: another number is an error that says which."""
    rig = begun(with_savepoint(), build_graph("source", "sink", max_parallelism=64))
    assert rig.status == "FAILED"
    assert "pipeline.max-parallelism to 128" in str(rig.master.failure)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_finished_operators_stay_finished_at_another_parallelism(parallelism: int) -> None:
    """G10, H4: what had finished is skipped, at any parallelism; what had not runs with all of the state."""
    names = ("source", "count", "sink")
    rig = begun(with_savepoint(build_graph(*names), finished=2), build_graph(*names, parallelism=parallelism))
    by_vertex = {t.execution.vertex: t.finished_on_restore for t in rig.deployed}
    assert by_vertex == {0: True, 1: True, 2: False}
    files = {
        file.path
        for task in rig.deployed
        if task.execution.vertex == 2
        for handle in task.restored["id-sink"].keyed["count"]
        for file in handle.files
    }
    assert files == {f"{build_savepoint_path(3)}/state-2-{subtask}-0" for subtask in range(2)}
    assert any("'source' had finished and is skipped" in line for line in rig.logs)


def test_a_chain_of_which_half_had_finished() -> None:
    """G10, H4: operators that had finished cannot be chained with others that had not: the error says which, and how to
    part them."""
    names = ("source", "count", "sink")
    rig = begun(with_savepoint(build_graph(*names), finished=1), build_graph(*names, chained=True))
    assert rig.status == "FAILED"
    message = str(rig.master.failure)
    assert "'source' (uid 'uid-source') had finished, but is chained with count, sink" in message
    assert "start_new_chain" in message


def test_a_job_that_is_cancelled_while_it_reads_its_savepoint() -> None:
    """E5, H4: a job that is cancelled before it has read what it begins from never runs."""
    rig = MasterRig(store=with_savepoint(), conf={PATH: build_savepoint_path(3)}, hold=True)
    rig.master.cancel()
    rig.background.run()
    assert rig.status == "CANCELED"
    assert rig.deployed == []


def test_claimed_or_not() -> None:
    """H4: a claimed savepoint is deleted with the first checkpoint of the job's own, any other never."""
    for mode, deleted in (("NO_CLAIM", []), ("CLAIM", [build_savepoint_path(3)])):
        conf: Any = {"execution.state-recovery.claim-mode": mode}
        rig = begun(with_savepoint(), **conf)
        rig.run_all()
        assert rig.store.deleted_savepoints == []
        for checkpoint_id in (4, 5):
            rig.advance(1000)
            rig.acknowledge(checkpoint_id)
        assert rig.store.deleted_savepoints == deleted


def test_what_is_written_down_is_what_was_asked_for() -> None:
    """H3: the metadata of a savepoint names every operator with its uid, parallelism and state."""
    store = with_savepoint(build_graph("source", "sink"))
    metadata = store.savepoints[build_savepoint_path(3)]
    assert [(o.operator_id, o.uid, o.name, o.parallelism, o.max_parallelism) for o in metadata.operators] == [
        ("id-source", "uid-source", "source", 2, 128),
        ("id-sink", "uid-sink", "sink", 2, 128),
    ]
    assert metadata.operators[0].coordinator is not None
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(metadata), type=type(metadata)) == metadata
