"""Time-outs and delays of a job master go on evenly, whatever becomes of the host's clock (E6, G8)."""

from __future__ import annotations

from tests.runtime.job.master_rig import MasterRig, running

from penstock.runtime.checkpoint.savepoints import TakeSavepoint

HOUR_MS = 3_600_000


def test_nothing_times_out_because_the_clock_was_set() -> None:
    """E6, G6, H1: no worker is silent, no checkpoint or savepoint too late."""
    rig = running(conf={"heartbeat.timeout": "50000 ms", "execution.checkpointing.timeout": "10000 ms"})
    rig.advance(1000)
    rig.clock.jump(HOUR_MS)
    rig.advance(0)
    assert rig.released == []
    rig.acknowledge(1)
    assert [metadata.checkpoint_id for metadata in rig.master.checkpoints.completed] == [1]
    refused: list[str | None] = []
    rig.master.take_savepoint(TakeSavepoint("/sp", None), lambda path, error: refused.append(error))
    rig.clock.jump(HOUR_MS)
    rig.advance(0)
    assert refused == []


def test_checkpoints_come_at_their_interval() -> None:
    """G6."""
    rig = running()
    rig.clock.jump(HOUR_MS)
    rig.advance(999)
    assert not rig.master.checkpoints.in_progress()
    rig.advance(1)
    (pending,) = rig.master.checkpoints.in_progress()
    assert pending.triggered_ms >= HOUR_MS, "people read when it was, by the host's clock"


def test_a_restart_waits_for_its_delay() -> None:
    """G8."""
    rig: MasterRig = running()
    rig.fail()
    rig.end_cancelled()
    rig.clock.jump(HOUR_MS)
    rig.advance(99)
    assert rig.status == "RESTARTING"
    rig.advance(1)
    assert rig.status != "RESTARTING"
