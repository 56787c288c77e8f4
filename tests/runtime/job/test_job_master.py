"""The job master: slots, deployment, failover, the end of jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.runtime.job.master_rig import MasterRig, running, two_vertices

from penstock.base.errors import CheckpointError, JobExecutionError, SlotsUnavailableError, UserFunctionError
from penstock.base.job import JobStatus
from penstock.runtime.graph import EXECUTION_MOVES, JOB_MOVES, Execution, ExecutionState
from penstock.runtime.job.slots import PATIENCE_MS
from penstock.runtime.job.view import job_progress
from penstock.runtime.protocol import (
    AssignSplits,
    CancelTask,
    ClientOutput,
    DeployTask,
    ExecutionId,
    Heartbeat,
    NotifyCheckpointComplete,
    RequestSplit,
    TaskMetrics,
    WorkerBlocked,
    WorkerRequestFailed,
)
from penstock.testing import VirtualClock

# --- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(ExecutionState))
def test_execution_states(state: ExecutionState) -> None:
    """E6: an execution moves as its table says, from every state to every other, and no state is forgotten."""
    assert set(EXECUTION_MOVES) == set(ExecutionState)
    for target in ExecutionState:
        execution = Execution(ExecutionId(0, 0, 0), VirtualClock())
        execution.state = state
        if target in EXECUTION_MOVES[state]:
            execution.move(target)
            assert execution.state is target
        else:
            with pytest.raises(AssertionError, match="cannot become"):
                execution.move(target)


def test_tables_end() -> None:
    """E5, E6: terminal states have no way out; from every other a terminal one can be reached."""
    for moves, terminal in (
        (EXECUTION_MOVES, {s for s in ExecutionState if s.is_terminal}),
        (JOB_MOVES, {s for s in JOB_MOVES if s.is_terminal_state()}),
    ):
        for state, targets in moves.items():
            assert bool(targets) == (state not in terminal)
            reached, new = {state}, {state}
            while new:
                new = {t for s in new for t in moves[s]} - reached  # type: ignore[index]
                reached |= new
            assert reached & terminal


@pytest.mark.parametrize(
    ("state", "globally"),
    [("FINISHED", True), ("CANCELED", True), ("FAILED", True), ("SUSPENDED", False)],
)
def test_terminal_job_states(state: str, globally: bool) -> None:
    """E5: failed, canceled and finished are terminal everywhere; suspended only locally."""
    assert JobStatus[state].is_terminal_state()
    assert JobStatus[state].is_globally_terminal_state() is globally


# --- slots ----------------------------------------------------------------------------------------------------------


def test_slots_are_requested_and_shared() -> None:
    """E3, E4: a job takes as many workers as its highest parallelism; subtask i of each vertex shares slot i."""
    rig = MasterRig(workers=1)
    assert rig.requested == [2]
    assert rig.deployed == []
    rig.register(1)
    assert [(w, m.execution) for w, m in rig.sent] == [
        ("w1", ExecutionId(0, 0, 0)),
        ("w2", ExecutionId(0, 1, 0)),
        ("w1", ExecutionId(1, 0, 0)),
        ("w2", ExecutionId(1, 1, 0)),
    ]
    sink = rig.deployed[2]
    assert sink.inputs[0].producers == ((0, "w1"), (1, "w2"))
    assert sink.peers == {"w1": "address-1", "w2": "address-2"}


def test_too_few_slots() -> None:
    """E3: when the cluster does not give the slots in time, the job fails with a message that names both numbers."""
    rig = MasterRig(two_vertices(4), workers=3, conf={"slot.request.timeout": "5000 ms"})
    rig.advance(4999)
    assert not rig.master.is_done
    rig.advance(1)
    assert rig.status == "FAILED"
    assert isinstance(rig.master.failure, SlotsUnavailableError)
    assert "wanted 4 slots, got 3: no more within 5000 ms (slot.request.timeout); give" in str(rig.master.failure)
    assert rig.released == ["w1", "w2", "w3"]


def test_waiting_for_slots_is_said() -> None:
    """E3: after a while, and then now and then: wanted, got, and the option that bounds the wait."""
    rig = MasterRig(two_vertices(4), workers=3, conf={"slot.request.timeout": "60 s"})
    said = len(rig.logs)
    rig.advance(PATIENCE_MS - 1)
    assert rig.logs[said:] == []
    rig.advance(1)
    assert rig.logs[said:] == [
        "waiting for slots for 10 s: wanted 4, got 3; the job fails in 50 s (slot.request.timeout)"
    ]
    rig.advance(49_999)
    assert len(rig.logs[said:]) == 2
    rig.register(1)
    assert rig.status == "RUNNING"
    rig.advance(100_000)
    assert len(rig.logs[said:]) == 2


def test_worker_that_cannot_be_had() -> None:
    """E3: a worker that cannot be started at all fails the job at once with the reason."""
    rig = MasterRig(workers=1)
    rig.master.on_message(WorkerRequestFailed("no such queue"))
    assert rig.status == "FAILED"
    assert "no such queue" in str(rig.master.failure)


def test_worker_lost_before_deployment_is_replaced() -> None:
    """E3: a worker that goes while the job still waits for others is asked for anew."""
    rig = MasterRig(workers=1)
    rig.lose("w1")
    assert rig.requested == [2, 1]
    rig.register(2)
    assert len(rig.deployed) == 4


# --- splits and output ----------------------------------------------------------------------------------------------


def test_splits_reach_the_reader_that_asked() -> None:
    """E1: a reader's request goes to its enumerator, and the answer to the reader."""
    rig = running()
    rig.master.on_message(RequestSplit(rig.executions[1], "id-source"))
    assert [(w, m.execution, m.no_more) for w, m in rig.sent if isinstance(m, AssignSplits)] == [
        ("w2", ExecutionId(0, 1, 0), False),
        ("w2", ExecutionId(0, 1, 0), True),
    ]


def test_enumerator_error_fails_the_job_with_its_text() -> None:
    """E1: what a source's enumerator raises is the job's failure, not the master's death."""
    rig = running(conf={"restart-strategy.type": "none"})
    rig.master._sources.coordinators["id-source"]._enumerator.breaks = True  # type: ignore[union-attr]
    rig.master.on_message(RequestSplit(rig.executions[0], "id-source"))
    rig.end_cancelled()
    assert rig.status == "FAILED"
    assert "listing failed" in str(rig.master.failure)


def test_client_output_reaches_the_listener() -> None:
    """E1: what a sink sends to the client is handed on; what a former attempt sends is not."""
    rig = running()
    rig.master.on_message(ClientOutput(rig.executions[2], "id-sink", b"hello"))
    rig.master.on_message(ClientOutput(ExecutionId(1, 0, 7), "id-sink", b"stale"))
    assert rig.client == [("id-sink", 0, b"hello")]


def test_progress() -> None:
    """E1: progress sums what subtasks report; the watermark is the lowest, once each has said one."""
    rig = running()
    rig.master.on_message(TaskMetrics(rig.executions[0], 10, 9, 100, {"dropped": 1}))
    assert job_progress(rig.master.view()).vertices[0].watermark_ms == -(2**63)
    rig.master.on_message(TaskMetrics(rig.executions[1], 5, 4, 70, {"dropped": 2}))
    progress = job_progress(rig.master.view())
    assert (progress.source_records, progress.vertices[0].records_out) == (15, 13)
    assert progress.vertices[0].watermark_ms == 70
    assert progress.counters == {"dropped": 3}
    assert [w[0] for w in progress.workers] == ["w1", "w2"]


# --- the end --------------------------------------------------------------------------------------------------------


def test_finish() -> None:
    """E5: the job is finished when all its tasks are; its workers and checkpoints go."""
    rig = running()
    rig.advance(1000)
    rig.acknowledge(1)
    rig.say("FINISHED", *rig.executions)
    assert rig.statuses == ["CREATED", "RUNNING", "FINISHED"]
    assert sorted(rig.released) == ["w1", "w2"]
    assert rig.store.discarded == [1]
    assert rig.master.failure is None


def test_last_checkpoint_does_not_wait_for_the_interval() -> None:
    """F6: when all data was processed the checkpoint that commits it is triggered at once."""
    rig = running()
    rig.end_of_data()
    rig.advance(0)
    assert rig.triggered() == [1]
    rig.acknowledge(1, finished=True)
    assert len(rig.of(NotifyCheckpointComplete)) == 4


def test_cancel() -> None:
    """E5: cancelling cancels every task and waits for each to end."""
    rig = running()
    rig.master.cancel()
    rig.master.cancel()
    assert rig.status == "CANCELLING"
    assert [m.execution for m in rig.of(CancelTask)] == rig.executions
    rig.end_cancelled()
    assert rig.status == "CANCELED"
    assert sorted(rig.released) == ["w1", "w2"]


@pytest.mark.parametrize("retention", ["NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION"])
def test_checkpoints_of_a_failed_job(retention: str) -> None:
    """E5, G11: they outlive a job that failed, unless no checkpoint is to outlive any."""
    conf = {"execution.checkpointing.externalized-checkpoint-retention": retention, "restart-strategy.type": "none"}
    rig = running(conf=conf)
    rig.advance(1000)
    rig.acknowledge(1)
    rig.fail()
    rig.end_cancelled()
    assert rig.status == "FAILED"
    rig.master.sweep()
    assert rig.store.discarded == ([1] if retention == "NO_EXTERNALIZED_CHECKPOINTS" else [])


@pytest.mark.parametrize("retention", ["DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"])
def test_checkpoints_of_a_cancelled_job(retention: str) -> None:
    """G6: checkpoints of a cancelled job are deleted, or kept when asked for."""
    rig = running(conf={"execution.checkpointing.externalized-checkpoint-retention": retention})
    rig.advance(1000)
    rig.acknowledge(1)
    rig.master.cancel()
    rig.end_cancelled()
    assert rig.store.discarded == ([1] if retention == "DELETE_ON_CANCELLATION" else [])


@pytest.mark.parametrize("when", ["waiting for slots", "restarting", "failing"])
def test_cancel_at_any_time(when: str) -> None:
    """E5: a job can be cancelled before it runs, while it fails, and while it waits to restart."""
    rig = MasterRig(workers=0) if when == "waiting for slots" else running()
    if when != "waiting for slots":
        rig.fail()
        if when == "restarting":
            rig.end_cancelled()
            assert rig.status == "RESTARTING"
    rig.master.cancel()
    rig.end_cancelled()
    assert rig.status == "CANCELED"
    rig.advance(10_000)
    assert rig.status == "CANCELED"


def test_task_that_finishes_instead_of_cancelling() -> None:
    """E6: a task that had finished when the cancel reached it counts as ended."""
    rig = running()
    rig.master.cancel()
    rig.say("FINISHED", *rig.executions[:2])
    rig.say("CANCELED", *rig.executions[2:])
    assert rig.status == "CANCELED"


def test_stuck_tasks_are_ended_by_force() -> None:
    """F4: a worker whose tasks do not end when cancelled is released, and the job goes on without it."""
    rig = running()
    rig.master.cancel()
    rig.say("CANCELED", rig.executions[0], rig.executions[2])
    rig.advance(180_000)
    assert "w2" in rig.released
    assert rig.status == "CANCELED"


# --- failures -------------------------------------------------------------------------------------------------------


def test_failure_restarts_from_the_last_checkpoint() -> None:
    """G8: after a failure all tasks are cancelled; when all have ended, the next attempt starts from the checkpoint."""
    rig = running()
    rig.advance(1000)
    rig.acknowledge(1)
    rig.fail()
    assert rig.status == "FAILING"
    assert len(rig.of(CancelTask)) == 3
    rig.end_cancelled()
    assert rig.status == "RESTARTING"
    rig.advance(99)
    assert rig.deployed[0].execution.attempt == 0
    rig.advance(1)
    assert {t.execution.attempt for t in rig.deployed} == {1}
    assert {t.restored_checkpoint_id for t in rig.deployed} == {1}
    assert rig.deployed[2].restored["id-sink"].keyed["count"][0].files[0].path == "job-1/chk-1/state-1-0-0"
    assert rig.requested == [2]
    assert rig.statuses == ["CREATED", "RUNNING", "FAILING", "RESTARTING", "CREATED", "RUNNING"]
    rig.master.on_message(RequestSplit(rig.executions[0], "id-source"))
    assert b"split after 1" in rig.of(AssignSplits)[-2].splits[0]


def test_failure_before_any_checkpoint_starts_over() -> None:
    """G8: without a checkpoint the job starts from the beginning."""
    rig = running()
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    assert {t.restored_checkpoint_id for t in rig.deployed} == {None}


def test_no_two_attempts_at_once() -> None:
    """G8: as long as one task of the failed attempt has not ended, nothing is deployed."""
    rig = running()
    rig.fail()
    rig.say("CANCELED", *rig.executions[1:3])
    rig.advance(10_000)
    assert rig.status == "FAILING"
    assert rig.deployed[0].execution.attempt == 0


def test_restarts_run_out() -> None:
    """G8: when the strategy gives no restart the job fails, with the last error, and keeps its checkpoints."""
    rig = running(conf={"restart-strategy.fixed-delay.attempts": "1"})
    rig.advance(1000)
    rig.acknowledge(1)
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    rig.run_all()
    rig.fail(reason="broken again")
    rig.end_cancelled()
    assert rig.status == "FAILED"
    assert "broken again" in str(rig.master.failure)
    assert rig.store.discarded == []
    assert sorted(rig.released) == ["w1", "w2"]


def test_user_error() -> None:
    """A2: a failure in user code becomes a `UserFunctionError` with operator, subtask, record and traceback."""
    rig = running(conf={"restart-strategy.type": "none"})
    rig.fail(
        rig.executions[1], operator_name="My Map", record="42", traceback="Traceback\nValueError: no", user_code=True
    )
    rig.end_cancelled()
    error = rig.master.failure
    assert isinstance(error, UserFunctionError)
    assert (error.operator_name, error.subtask_index, error.parallelism, error.record_text) == ("My Map", 1, 2, "42")
    assert str(error) == "operator 'My Map', subtask 2/2\nrecord: 42\nTraceback\nValueError: no"


def test_other_error_names_the_task() -> None:
    """E1: a failure of the runtime names the task and its subtask."""
    rig = running(conf={"restart-strategy.type": "none"})
    rig.fail(rig.executions[3], reason="the disk is full")
    rig.end_cancelled()
    assert isinstance(rig.master.failure, JobExecutionError)
    assert "task sink (2/2): the disk is full" in str(rig.master.failure)


def test_worker_lost() -> None:
    """G8: a lost worker fails its tasks; a new one is asked for, and the job goes on from its checkpoint."""
    rig = running()
    rig.advance(1000)
    rig.acknowledge(1)
    rig.lose("w2")
    assert rig.status == "FAILING"
    assert "w2 (process 1002 on host) was lost: killed" in str(rig.master.failure)
    assert [w for w, m in rig.sent if isinstance(m, CancelTask)] == ["w1", "w1"]
    rig.end_cancelled()
    rig.advance(100)
    assert rig.requested == [2, 1]
    rig.register(1)
    assert {t.restored_checkpoint_id for t in rig.deployed} == {1}
    assert {w for w, m in rig.sent if getattr(m, "execution", ExecutionId(0, 0, 0)).attempt == 1} == {"w1", "w3"}


def test_all_workers_lost() -> None:
    """G8: losing every worker at once ends every task, and the job restarts on new ones."""
    rig = running()
    rig.lose("w1")
    rig.lose("w2")
    assert rig.status == "RESTARTING"
    rig.advance(100)
    assert rig.requested == [2, 2]


def test_worker_lost_while_restarting() -> None:
    """G8: a worker that goes while the job waits to restart is replaced before the next attempt."""
    rig = running()
    rig.fail()
    rig.end_cancelled()
    rig.lose("w1")
    rig.advance(100)
    assert rig.requested == [2, 1]
    rig.register(1)
    assert rig.status == "RUNNING"


def test_worker_reported_lost_twice_is_replaced_once() -> None:
    """E2: a worker that was given up for its silence, and is then reported dead, is replaced by one worker."""
    rig = running()
    rig.lose("w2")
    rig.end_cancelled()
    rig.advance(100)
    assert rig.requested == [2, 1]
    rig.lose("w2")
    assert rig.requested == [2, 1]


def test_worker_lost_with_output_that_others_still_need() -> None:
    """G8: when a worker goes whose tasks have finished, but whose consumers have not, what was on its way is lost:
    the job must recover instead of waiting for ever."""
    rig = running()
    rig.say("FINISHED", rig.executions[1], rig.executions[3])  # everything on w2
    rig.lose("w2")
    assert rig.status == "FAILING"


def test_silent_worker() -> None:
    """E2: a worker that is silent for the heartbeat time-out is lost; one that speaks is not."""
    rig = running(conf={"heartbeat.timeout": "500 ms", "execution.checkpointing.interval": None})
    for _ in range(4):
        rig.advance(200)
        rig.master.on_message(Heartbeat("w1"))
        rig.master.on_message(Heartbeat("nobody"))
    assert rig.released == ["w2"]
    assert rig.status == "FAILING"
    assert "silent for 500 ms" in str(rig.master.failure)


def test_worker_whose_process_is_blocked_is_lost_with_the_function_that_blocks_it() -> None:
    """E2: a call that holds Python's lock stops the heartbeats, and only the driver can name it."""
    rig = running(conf={"heartbeat.timeout": "500 ms", "execution.checkpointing.interval": None})
    rig.master.on_message(WorkerBlocked("nobody", "f (a.py:1)", ""))
    for at in ("f (a.py:1)", "f (a.py:1)"):
        rig.master.on_message(WorkerBlocked("w2", at, "the stack"))
    assert len([line for line in rig.logs if "f (a.py:1)" in line]) == 1
    rig.advance(200)
    for worker_id in ("w1", "w2"):
        rig.master.on_message(Heartbeat(worker_id))
    rig.advance(400)
    rig.master.on_message(Heartbeat("w1"))
    rig.master.on_message(WorkerBlocked("w2", "g (b.py:2)", "the stack of g\n"))
    rig.advance(200)
    assert rig.released == ["w2"]
    failure = str(rig.master.failure)
    assert "silent for 500 ms (heartbeat.timeout). The call in g (b.py:2) does not return and holds Python's" in failure
    assert "the stack of g" in failure
    assert "a.py" not in failure


def test_messages_of_former_attempts_are_not_heard() -> None:
    """E6: nothing that a former attempt says has any effect."""
    rig = running()
    stale = rig.executions
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    rig.run_all()
    sent = len(rig.sent)
    rig.say("FAILED", *stale)
    rig.say("FINISHED", *stale)
    rig.master.on_message(RequestSplit(stale[0], "id-source"))
    rig.master.on_message(TaskMetrics(stale[0], 99, 99, 99))
    rig.advance(1000)
    rig.acknowledge(1, *stale)
    assert rig.status == "RUNNING"
    assert job_progress(rig.master.view()).source_records == 0
    assert rig.store.stored == []
    assert rig.of(AssignSplits) == []
    assert len(rig.sent) == sent + 2  # the two triggers of checkpoint 1
    for nonsense in (ExecutionId(9, 0, 1), ExecutionId(0, 9, 1), ExecutionId(-1, 0, 1)):
        rig.say("FAILED", nonsense)
    assert rig.status == "RUNNING"


def test_messages_after_the_end_are_not_heard() -> None:
    """E5: a job that has ended stays as it is."""
    rig = running()
    executions = rig.executions
    rig.master.cancel()
    rig.end_cancelled()
    rig.say("FAILED", *executions)
    rig.lose("w1")
    rig.register(1)
    rig.advance(10**7)
    assert rig.statuses[-1] == "CANCELED"


# --- damaged checkpoints --------------------------------------------------------------------------------------------


def with_two_checkpoints(retained: int = 2) -> MasterRig:
    rig = running(conf={"execution.checkpointing.num-retained": str(retained)})
    for checkpoint_id in (1, 2):
        rig.advance(1000)
        rig.acknowledge(checkpoint_id, data=b"%d" % checkpoint_id)
    return rig


def test_damaged_checkpoint_falls_back() -> None:
    """G11: a damaged checkpoint is passed over for the one before, with a clear report."""
    rig = with_two_checkpoints()
    rig.store.damaged = {2}
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    assert {t.restored_checkpoint_id for t in rig.deployed} == {1}
    assert rig.deployed[2].restored["id-sink"].keyed["count"][0].files[0].path == "job-1/chk-1/state-1-0-0"
    assert any("checkpoint 2 cannot be restored: chk-2/state" in line for line in rig.logs)
    assert "falls back: skips checkpoint 2 as damaged, and takes checkpoint 1" in rig.logs


def test_no_good_checkpoint_fails_the_job() -> None:
    """G11: when no checkpoint is whole the job fails and says why, instead of starting over and losing output."""
    rig = with_two_checkpoints()
    rig.store.damaged = {1, 2}
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    assert rig.status == "FAILED"
    assert "no checkpoint is left to recover from" in str(rig.master.failure)
    assert "num-retained" in str(rig.master.failure)


def committing(**options: str) -> MasterRig:
    """Two checkpoints of a job whose sink commits, the newer one damaged, and a failure."""
    graph = two_vertices()
    sink = replace(graph.vertices[1], operators=(replace(graph.vertices[1].operators[0], commits=True),))
    conf = {"execution.checkpointing.num-retained": "2", **options}
    rig = running(graph=replace(graph, vertices=(graph.vertices[0], sink)), conf=conf)
    for checkpoint_id in (1, 2):
        rig.advance(1000)
        rig.acknowledge(checkpoint_id, data=b"%d" % checkpoint_id)
    rig.store.damaged = {2}
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    return rig


def test_what_was_committed_is_not_repeated() -> None:
    """G9, G11: a job with a sink that commits fails rather than go back past a damaged checkpoint; the error names it,
    its file, the one before, and the choice; and both stay, to be mended or begun from."""
    rig = committing()
    assert rig.status == "FAILED"
    failure = str(rig.master.failure)
    assert "checkpoint 2 cannot be restored: chk-2/state: the checksum does not match" in failure
    assert "checkpoint 1 is intact" in failure
    assert "penstock.recovery.past-damaged-checkpoint: fall-back" in failure
    rig.master.sweep()
    assert rig.store.list_checkpoint_files(2)
    assert rig.store.list_checkpoint_files(1)


def test_going_back_can_be_chosen() -> None:
    """G11: then it is as for a job without such a sink."""
    rig = committing(**{"penstock.recovery.past-damaged-checkpoint": "fall-back"})
    assert {t.restored_checkpoint_id for t in rig.deployed} == {1}
    assert any("checkpoint 2 cannot be restored: chk-2/state" in line for line in rig.logs)


def test_a_file_that_is_whole_at_the_second_reading() -> None:
    """G11: what was read wrongly once is not taken for damage."""
    rig = with_two_checkpoints()
    verify, calls = rig.store.verify, []

    def wrong_once(metadata: object) -> None:
        calls.append(metadata)
        if len(calls) == 1:
            raise CheckpointError("chk-2/state: the checksum does not match")
        verify(metadata)

    rig.store.verify = wrong_once
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    assert {t.restored_checkpoint_id for t in rig.deployed} == {2}


def test_damaged_checkpoints_outlive_a_job_that_has_none_left() -> None:
    """G11: somebody may have a copy of the file."""
    rig = with_two_checkpoints()
    rig.store.damaged = {1, 2}
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    assert rig.status == "FAILED"
    rig.master.sweep()
    assert rig.store.list_checkpoint_files(1)
    assert rig.store.list_checkpoint_files(2)


def test_a_store_that_is_out_of_reach_at_a_takeover() -> None:
    """G8, G11: a job master that could not see what there is ends without deleting any of it."""
    rig = with_two_checkpoints()
    store = rig.store
    store.take_over = lambda name: 1 / 0
    other = MasterRig(store=store, recover=True)
    assert other.status == "FAILED"
    other.master.sweep()
    assert store.list_checkpoint_files(2)


def test_a_takeover_does_not_go_back_either() -> None:
    """G9, G11: metadata that is damaged when another job master looks."""
    rig = committing()
    store = rig.store
    load = store.load_checkpoint

    def damaged(checkpoint_id: int) -> object:
        if checkpoint_id == 2:
            raise CheckpointError("chk-2/_metadata: the checksum does not match")
        return load(checkpoint_id)

    store.load_checkpoint, store.damaged = damaged, set()
    other = MasterRig(graph=rig.graph, store=store, recover=True, conf={"execution.checkpointing.num-retained": "2"})
    assert other.status == "FAILED"
    assert "chk-2/_metadata: the checksum does not match. checkpoint 1 is intact" in str(other.master.failure)
    other.master.sweep()
    assert store.list_checkpoint_files(1)
    conf = {"penstock.recovery.past-damaged-checkpoint": "fall-back", "execution.checkpointing.num-retained": "2"}
    third = MasterRig(graph=rig.graph, store=store, recover=True, conf=conf)
    assert {t.restored_checkpoint_id for t in third.deployed} == {1}


def test_cancel_while_a_checkpoint_is_being_read() -> None:
    """E5, G11: a job that is cancelled while it reads its checkpoint is not deployed afterwards."""
    rig = with_two_checkpoints()
    rig.fail()
    rig.end_cancelled()
    rig.background.run()
    rig.background.hold = True
    rig.advance(100)
    rig.master.cancel()
    rig.background.run()
    assert rig.status == "CANCELED"
    assert {t.execution.attempt for t in rig.deployed} == {0}


def test_worker_lost_while_a_checkpoint_is_being_read() -> None:
    """G8: a worker that goes in that moment is replaced before the deployment."""
    rig = with_two_checkpoints()
    rig.fail()
    rig.end_cancelled()
    rig.background.run()
    rig.background.hold = True
    rig.advance(100)
    rig.lose("w1")
    rig.background.run()
    assert rig.requested == [2, 1]
    assert rig.status == "CREATED"
    rig.background.hold = False
    rig.register(1)
    assert {t.restored_checkpoint_id for t in rig.deployed} == {2}


def test_recovery_after_the_last_checkpoint_still_commits() -> None:
    """F6, G9, G10: when the checkpoint after finish completed, but a worker died before it was told, the tasks of the
    next attempt come back with what they had prepared, told that they need do no more than commit it."""
    rig = running()
    rig.end_of_data()
    rig.advance(0)
    prepared = b"prepared, not committed"
    rig.acknowledge(1, finished=True, data=prepared)
    rig.lose("w2")
    rig.end_cancelled()
    rig.advance(100)
    rig.register(1)
    sinks = [t for t in rig.deployed if t.execution.vertex == 1]
    assert {t.restored_checkpoint_id for t in sinks} == {1}
    assert all(t.finished_on_restore for t in sinks)
    assert [t.restored["id-sink"].keyed["count"][0].files[-1].length for t in sinks] == [len(prepared)] * 2


# --- guarantees -----------------------------------------------------------------------------------------------------


def test_guarantees_are_said() -> None:
    """J: the job says whether it takes checkpoints, and which sources cannot be replayed."""
    assert "checkpointing is off" in MasterRig(conf={"execution.checkpointing.interval": None}).logs[0]
    rig = MasterRig(two_vertices(replayable=False))
    assert "checkpoints every 1000 ms" in rig.logs[0]
    assert "source 'source' cannot be replayed" in rig.logs[-1]


def test_an_error_that_suppresses_restarts_fails_the_job() -> None:
    """E5: what would only happen again is not tried again, whatever the restart strategy says."""
    rig = running()
    rig.fail(reason="the state does not fit", suppresses_restart=True)
    rig.end_cancelled()
    assert rig.status == "FAILED"
    assert "the state does not fit" in str(rig.master.failure)


def test_a_worker_whose_death_is_known_before_it_registers_is_not_used() -> None:
    """E2, E4: nobody would ever say again that it is lost."""
    rig = MasterRig(workers=0)
    rig.lose("w1")
    rig.register(3)
    assert {worker for worker, message in rig.sent if isinstance(message, DeployTask)} == {"w2", "w3"}


# --- a job that has ended, and another job master --------------------------------------------------------------------


@pytest.mark.parametrize("status", ["FINISHED", "CANCELED"])
def test_a_job_that_has_ended_is_not_begun_again(status: str) -> None:
    """E5, G8: the mark is there before the checkpoints go; whoever takes the job over finds it, and asks for nobody."""
    rig = with_two_checkpoints()
    delete, at_deletion = rig.store.delete, []

    def deleted(paths: list[str]) -> None:
        at_deletion.append(rig.store.mark_of_job())
        delete(paths)

    rig.store.delete = deleted
    if status == "CANCELED":
        rig.master.cancel()
        rig.end_cancelled()
    else:
        rig.say("FINISHED", *rig.executions)
    assert rig.status == status
    assert at_deletion[-1].status == status
    assert rig.store.list_checkpoint_files(2) == []
    other = MasterRig(store=rig.store, recover=True)
    assert other.status == status
    assert other.requested == []
    assert other.deployed == []


def test_the_mark_of_the_end_waits_for_that_of_the_beginning() -> None:
    """G8: a store that is slow to note the beginning does not put that over the end."""
    rig = MasterRig(hold=True)
    ((join, joined),) = rig.background.waiting
    rig.background.waiting.clear()
    joined(join(), None)
    begin, look_who_leads = rig.background.waiting
    rig.background.waiting.clear()
    rig.background.hold = False
    rig.background.submit(*look_who_leads)
    rig.run_all()
    rig.advance(1000)
    rig.acknowledge(1)
    rig.say("FINISHED", *rig.executions)
    assert rig.status == "FINISHED"
    assert rig.store.marks == {}
    assert rig.store.list_checkpoint_files(1), "without a mark the checkpoint stays"
    rig.background.submit(*begin)
    assert [mark.status for mark in rig.store.marks.values()] == ["FINISHED"]
    assert not rig.store.list_checkpoint_files(1)


def test_checkpoints_stay_until_the_mark_is_there() -> None:
    """G8: where it cannot be written, a job master that takes over goes on from the last checkpoint."""
    rig = with_two_checkpoints()

    def refused(mark: object) -> None:
        raise OSError("disk full")

    rig.store.mark_job = refused
    rig.say("FINISHED", *rig.executions)
    rig.master.sweep()
    assert rig.status == "FINISHED"
    assert rig.store.list_checkpoint_files(2)
    assert any("checkpoint files may be left: OSError: disk full" in line for line in rig.logs)
