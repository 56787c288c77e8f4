"""A checkpoint that fails as its metadata is written may be visible all the same: it is revoked before a restart."""

from __future__ import annotations

import pytest
from tests.runtime.job.master_rig import MasterRig, running

from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.protocol import NotifyCheckpointAborted, NotifyCheckpointComplete, StopMode

TIMEOUT = {"execution.checkpointing.timeout": "5000 ms"}
TOLERANT = {"execution.checkpointing.tolerable-failed-checkpoints": "100"}


def with_one_checkpoint(**conf: str) -> MasterRig:
    rig = running(conf={**TIMEOUT, **TOLERANT, **conf})
    rig.advance(1000)
    rig.acknowledge(1)
    rig.advance(1000)
    assert rig.triggered() == [1, 2]
    return rig


def restored(rig: MasterRig) -> set[int | None]:
    return {task.restored_checkpoint_id for task in rig.deployed}


def restart(rig: MasterRig) -> None:
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)


@pytest.mark.parametrize("is_written", [True, False])
def test_it_is_revoked_and_the_job_goes_on(is_written: bool) -> None:
    """G8, G11: its answer was lost, or it was not written at all: the job does not know which."""
    rig = with_one_checkpoint()
    (rig.store.unanswered if is_written else rig.store.unwritable).add(2)
    rig.acknowledge(2)
    assert rig.store.revoked == [2]
    assert rig.status == "RUNNING"
    assert {m.checkpoint_id for m in rig.of(NotifyCheckpointAborted)} == {2}
    assert rig.store.list_checkpoint_files(2) == ["job-1/chk-2/_metadata"], (
        "what says so stays: the metadata may yet come"
    )
    restart(rig)
    assert restored(rig) == {1}
    rig.run_all()
    rig.advance(1000)
    rig.acknowledge(3)
    assert "job-1/chk-2/_metadata" in rig.store.files
    assert {m.checkpoint_id for m in rig.of(NotifyCheckpointComplete)} == {1, 3}


def test_nothing_begins_before_it_is_revoked() -> None:
    """G8: else sinks remove what only the doubtful one holds, and a new job master may begin from it."""
    rig = with_one_checkpoint()
    rig.store.unanswered, rig.store.unrevokable = {2}, {2}
    rig.acknowledge(2)
    attempt = rig.executions[0].attempt
    restart(rig)
    assert rig.status == "CREATED"
    rig.advance(3000)
    assert (rig.status, rig.executions[0].attempt) == ("CREATED", attempt)
    assert [line for line in rig.logs if "may be visible all the same" in line] == [
        "checkpoint 2 failed and may be visible all the same: the job does not restart until the store has taken it "
        "back, which failed: OSError: still disk full"
    ]
    rig.store.unrevokable.clear()
    rig.advance(1000)
    assert (rig.status, rig.store.revoked, restored(rig)) == ("RUNNING", [2], {1})
    assert rig.executions[0].attempt == attempt + 1


def test_a_store_that_does_not_answer_fails_the_checkpoint_and_not_the_job() -> None:
    """G6, G8, G11: its time-out passes; after the next failure the job begins again; what comes late is refused."""
    rig = with_one_checkpoint()
    rig.background.hold = True
    rig.acknowledge(2)
    ((write, written),) = rig.background.waiting
    rig.background.waiting.clear()
    rig.background.hold = False
    rig.advance(4000)
    assert rig.triggered() == [1, 2]
    rig.advance(1000)
    assert rig.store.revoked == [2]
    assert rig.status == "RUNNING"
    last = rig.master.checkpoints.statistics.history[0]
    assert last.failure == "not complete within 5000 ms: the store has not yet answered for its metadata"
    restart(rig)
    assert (rig.status, restored(rig)) == ("RUNNING", {1})
    with pytest.raises(FileExistsError) as refused:
        write()
    written(None, refused.value)
    assert rig.status == "RUNNING"
    assert rig.store.checkpoints.keys() == {1}
    rig.run_all()
    rig.advance(1000)
    newest = rig.triggered()[-1]
    rig.acknowledge(newest)
    assert rig.store.checkpoints.keys() == {1, newest}


def test_it_is_revoked_again_when_the_store_does_not_answer_to_that() -> None:
    """G8: whichever call gets through; the job begins again once, and not once for each."""
    rig = with_one_checkpoint()
    rig.store.unwritable = {2}
    rig.background.hold = True
    rig.acknowledge(2)
    write, written = rig.background.waiting.popleft()
    with pytest.raises(OSError, match="disk full") as refused:
        write()
    written(None, refused.value)
    held = list(rig.background.waiting)
    rig.background.waiting.clear()
    rig.background.hold = False
    restart(rig)
    assert rig.status == "CREATED"
    rig.advance(10_000)
    assert (rig.status, restored(rig)) == ("RUNNING", {1})
    deployed = len(rig.deployed)
    for work, done in held:
        done(work(), None)
    assert (rig.status, len(rig.deployed)) == ("RUNNING", deployed)


def test_the_log_says_once_what_holds_the_job_up() -> None:
    """G8: also when the first call hangs, and only later ones are refused."""
    rig = with_one_checkpoint()
    rig.store.unwritable = {2}
    rig.background.hold = True
    rig.acknowledge(2)
    write, written = rig.background.waiting.popleft()
    with pytest.raises(OSError, match="disk full") as refused:
        write()
    written(None, refused.value)
    rig.background.waiting.clear()
    rig.background.hold = False
    rig.store.unrevokable = {2}
    rig.advance(13_000)
    (line,) = [line for line in rig.logs if "may be visible all the same" in line]
    assert line.startswith("checkpoint 2 failed")


def test_a_savepoint_is_taken_after_one_that_hung() -> None:
    """G6, H1: whoever asks for it does not hear that tasks are not running."""
    rig = with_one_checkpoint()
    rig.background.hold = True
    rig.acknowledge(2)
    rig.background.waiting.clear()
    rig.background.hold = False
    heard: list[tuple[str | None, str | None]] = []
    rig.master.take_savepoint(TakeSavepoint("/sp"), lambda path, error: heard.append((path, error)))
    rig.advance(3000)
    assert heard == []
    rig.advance(2000)
    (savepoint_id,) = rig.savepoint_paths()
    rig.acknowledge(savepoint_id)
    ((path, error),) = heard
    assert error is None
    assert path in rig.store.savepoints


@pytest.mark.parametrize(("stop", "revoked"), [(None, []), (StopMode.SUSPEND, [2])])
def test_a_savepoint_that_leaves_the_job_running_is_not_revoked(stop: StopMode | None, revoked: list[int]) -> None:
    """H1: no attempt begins from it. It is in a directory of its own, and nothing waits for it."""
    rig = running(conf={**TIMEOUT, **TOLERANT})
    rig.advance(1000)
    rig.acknowledge(1)
    rig.store.unwritable.add(2)
    heard: list[tuple[str | None, str | None]] = []
    rig.master.take_savepoint(TakeSavepoint("/sp", stop), lambda path, error: heard.append((path, error)))
    rig.acknowledge(2)
    ((path, error),) = heard
    assert path is None
    assert "disk full" in str(error)
    assert rig.store.revoked == revoked


def test_a_job_that_ends_does_not_wait() -> None:
    """G8: nothing begins after it that could be misled."""
    rig = with_one_checkpoint()
    rig.store.unanswered, rig.store.unrevokable = {2}, {2}
    rig.acknowledge(2)
    rig.master.cancel()
    rig.end_cancelled()
    assert rig.status == "CANCELED"
    assert rig.master.next_deadline() is None or rig.master.is_done
