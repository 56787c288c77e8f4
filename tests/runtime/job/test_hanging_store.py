"""A store that never answers: some calls are given up, and for the others the log says what the job waits for (G8)."""

from __future__ import annotations

from unittest import mock

from tests.runtime.job.master_rig import MasterRig, running

CONF = {"execution.checkpointing.timeout": "5000 ms"}


def hanging(rig: MasterRig) -> None:
    """From now on the store answers nothing."""
    rig.background.hold = True


def restarting() -> MasterRig:
    """With a checkpoint to begin from, which the store does not read."""
    rig = running(conf=CONF)
    rig.advance(1000)
    rig.acknowledge(1)
    hanging(rig)
    rig.fail()
    rig.end_cancelled()
    rig.advance(100)
    assert rig.status == "CREATED"
    return rig


def test_a_checkpoint_that_is_not_read_is_read_again() -> None:
    """G8: with the next restart, after a time-out; the answer of the call that was given up changes nothing."""
    rig = restarting()
    rig.advance(4_999)
    assert rig.status == "CREATED"
    rig.advance(1)
    assert rig.status == "RESTARTING"
    assert str(rig.master.failure) == (
        "job 'job' failed: "
        "checkpoint 1 could not be read: the checkpoint store has not answered for 5 s "
        "(execution.checkpointing.timeout)"
    )
    attempts = len(rig.deployed)
    rig.background.hold = False
    rig.background.run()
    assert rig.status == "RESTARTING"
    assert len(rig.deployed) == attempts
    rig.advance(100)
    assert rig.status == "RUNNING"
    assert {task.restored_checkpoint_id for task in rig.deployed} == {1}


def test_old_checkpoints_are_deleted_by_a_later_call() -> None:
    """G6: though the first one never comes back."""
    rig = running(conf=CONF)
    rig.advance(1000)
    rig.acknowledge(1)
    rig.advance(1000)
    hanging(rig)
    rig.acknowledge(2)
    complete, done = rig.background.waiting.popleft()
    done(complete(), None)
    (deletion,) = rig.background.waiting
    rig.background.waiting.clear()
    rig.background.hold = False
    rig.advance(4_999)
    rig.acknowledge(3)
    assert rig.store.list_checkpoint_files(1)
    rig.advance(1)
    assert not rig.store.list_checkpoint_files(1)
    work, done = deletion
    done(work(), None)
    assert rig.store.list_checkpoint_files(3), "it deletes what was not needed then, which nobody needs now"


def test_a_job_waits_for_the_store_to_begin() -> None:
    """E7: a call that deposes others must not be made when nobody waits for it; so the job says that it waits."""
    rig = MasterRig(
        conf={**CONF, "penstock.recovery.from-latest": "true", "execution.checkpointing.dir": "/c"}, hold=True
    )
    rig.advance(11_000)
    assert rig.status == "CREATED"
    words = "; the job waits until it has said what jobs of this name have left"
    assert [line for line in rig.logs if "store" in line] == [
        f"the checkpoint store has not answered for {seconds} s{words}" for seconds in (5, 10)
    ]


def test_a_store_that_refuses_requests_for_long() -> None:
    """G8: the job tries again for as long as it takes: that the store cannot be read says nothing about the program."""
    rig = running(conf={**CONF, "restart-strategy.fixed-delay.attempts": "1000"})
    rig.advance(1000)
    rig.acknowledge(1)
    with mock.patch.object(type(rig.store), "verify", side_effect=OSError("503, Slow Down")):
        rig.fail()
        rig.end_cancelled()
        for _ in range(30):
            rig.advance(100)
            assert rig.status == "RESTARTING"
    rig.advance(100)
    assert rig.status == "RUNNING"
    assert {task.restored_checkpoint_id for task in rig.deployed} == {1}
