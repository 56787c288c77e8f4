"""A job that continues what others of its name have left owns that, and deletes it when it needs it no more (E7)."""

from __future__ import annotations

import pytest
from tests.runtime.job.master_rig import FakeStore, MasterRig

from penstock.runtime.checkpoint.savepoints import TakeSavepoint


def continuing(conf: dict[str, str]) -> MasterRig:
    """A job that begins from nothing, because the driver before it died before it had a checkpoint."""
    store = FakeStore()
    store.former = ((1, "job-0"),)
    conf = {"penstock.recovery.from-latest": "true", "execution.checkpointing.dir": "/c", **conf}
    rig = MasterRig(store=store, conf=conf)
    rig.run_all()
    return rig


@pytest.fixture
def rig() -> MasterRig:
    return continuing({})


def test_it_needs_them_until_it_has_a_checkpoint_of_its_own(rig: MasterRig) -> None:
    """E7, G8: a savepoint is none, because nobody begins from it who is not told to."""
    assert {task.forerunners for task in rig.deployed} == {("job-0",)}
    rig.master.take_savepoint(TakeSavepoint("/sp", None), lambda path, error: None)
    rig.acknowledge(1)
    assert rig.store.savepoints
    assert rig.store.deleted_jobs == []
    rig.advance(1000)
    rig.acknowledge(2)
    assert rig.store.deleted_jobs == ["job-0"]
    rig.advance(1000)
    rig.acknowledge(3)
    assert rig.store.deleted_jobs == ["job-0"]


def test_later_attempts_have_none(rig: MasterRig) -> None:
    """E7, G9: what the sinks of those jobs have prepared was removed by the first attempt."""
    rig.advance(1000)
    rig.acknowledge(1)
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    assert {task.execution.attempt for task in rig.deployed} != {0}
    assert {task.forerunners for task in rig.deployed} == {()}


def test_a_failed_deletion_is_tried_again(rig: MasterRig) -> None:
    """E7, G8."""
    delete, rig.store.delete_jobs = rig.store.delete_jobs, lambda job_ids: 1 / 0
    rig.advance(1000)
    rig.acknowledge(1)
    rig.store.delete_jobs = delete
    rig.advance(1000)
    rig.acknowledge(2)
    assert rig.store.deleted_jobs == ["job-0"]


@pytest.mark.parametrize("retention", ["DELETE_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"])
def test_a_job_that_never_had_a_checkpoint_leaves_them(retention: str) -> None:
    """E7, G8: it fails for good, and the next program, which may be mended, begins where it began."""
    rig = continuing({"execution.checkpointing.externalized-checkpoint-retention": retention})
    for _ in range(5):
        rig.fail()
        rig.end_cancelled()
        rig.advance(100)
    assert rig.status == "FAILED"
    rig.master.sweep()
    assert rig.store.deleted_jobs == []
    assert rig.store.marks == {}


def test_a_job_that_is_cancelled_does_not(rig: MasterRig) -> None:
    """E5, E7: as with checkpoints of its own, unless they are to be retained."""
    rig.master.cancel()
    rig.end_cancelled()
    assert rig.status == "CANCELED"
    rig.master.sweep()
    assert set(rig.store.deleted_jobs) == {"job-0"}
    assert rig.store.mark_of_job().status == "CANCELED"
