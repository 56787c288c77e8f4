"""A job master that was deposed is SUSPENDED: it stops, and leaves the job and its files to the other one (E7)."""

from __future__ import annotations

from tests.runtime.job.master_rig import FakeStore, MasterRig, running

from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.protocol import NotifyCheckpointAborted, NotifyCheckpointComplete

WORDS = "another job master has taken it over"


def with_one_checkpoint(**conf: str) -> MasterRig:
    rig = running(conf=conf)
    rig.advance(1000)
    rig.acknowledge(1)
    rig.store.is_deposed = True
    return rig


def stopped(rig: MasterRig) -> bool:
    """It has let all workers go, and deleted nothing."""
    rig.advance(60_000)
    rig.master.sweep()
    return rig.status == "SUSPENDED" and not rig.store.deleted and "job-1/chk-1/_metadata" in rig.store.files


def test_one_that_takes_over_keeps_the_number_that_it_took() -> None:
    """E7: though it begins with nothing. A number that it took later could be another one's."""
    store = FakeStore()
    MasterRig(store=store)
    assert (store.number, store.joined) == (0, 1)
    other = MasterRig(store=store, recover=True)
    assert other.requested
    assert (store.number, store.joined) == (1, 1)


def test_it_lets_nothing_be_committed() -> None:
    """E7, G9: checkpoint 2 is visible, and the other master may have begun from checkpoint 1."""
    rig = with_one_checkpoint()
    rig.advance(1000)
    rig.acknowledge(2)
    assert stopped(rig)
    assert {m.checkpoint_id for m in rig.of(NotifyCheckpointComplete)} == {1}
    assert rig.of(NotifyCheckpointAborted) == []
    assert str(rig.master.failure) == f"job 'words' was suspended: {WORDS}"


def test_it_begins_no_attempt() -> None:
    """E7, G8: the new tasks would remove what the other master's sinks have written."""
    rig = with_one_checkpoint()
    deployed = len(rig.deployed)
    rig.fail()
    rig.end_cancelled()
    rig.advance(1000)
    assert stopped(rig)
    assert len(rig.deployed) == deployed


def test_it_begins_no_attempt_from_nothing_either() -> None:
    """E7, G8: no checkpoint has to be read for that, so it looks for nothing but who leads."""
    rig = running()
    rig.store.is_deposed = True
    deployed = len(rig.deployed)
    rig.fail()
    rig.end_cancelled()
    rig.advance(1000)
    assert rig.status == "SUSPENDED"
    assert len(rig.deployed) == deployed


def test_who_waits_for_a_savepoint_hears_of_it() -> None:
    """E7, H1."""
    rig = with_one_checkpoint()
    rig.advance(1000)
    heard: list[tuple[str | None, str | None]] = []
    rig.master.take_savepoint(TakeSavepoint("/sp"), lambda path, error: heard.append((path, error)))
    rig.acknowledge(2)
    assert stopped(rig)
    assert heard == [(None, "the job was suspended, because another job master leads")]


def test_a_job_that_ends_deletes_nothing_that_is_another_s() -> None:
    """E7, G8: it is over for this master, which had the lead when its last checkpoint completed."""
    rig = with_one_checkpoint()
    rig.master.cancel()
    rig.end_cancelled()
    rig.advance(1000)
    rig.master.sweep()
    assert rig.store.deleted == []
    assert "job-1/chk-1/_metadata" in rig.store.files
