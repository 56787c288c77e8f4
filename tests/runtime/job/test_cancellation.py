"""Tasks that do not end when they are cancelled: what is said of them, and when their workers are ended by force."""

from __future__ import annotations

from tests.runtime.job.master_rig import MasterRig, running

from penstock.runtime.job.tasks import PATIENCE_MS, TaskCancellation
from penstock.runtime.protocol import Heartbeat

AT = "operator 'Map', subtask 2/2, in spin (program.py:12)"


def hangs(**conf: str) -> MasterRig:
    """A cancelled job: the tasks of worker w2 do not end."""
    rig = running(conf={"task.cancellation.timeout": "60 s", "task.cancellation.interval": "20 s", **conf})
    rig.master.on_message(Heartbeat("w2", AT))
    rig.master.cancel()
    rig.say("CANCELED", rig.executions[0], rig.executions[2])
    return rig


def words(rig: MasterRig) -> list[str]:
    return [line for line in rig.logs if "have not ended" in line]


def test_tasks_that_do_not_end_are_named_now_and_then() -> None:
    """F4: after a few seconds, and then every task.cancellation.interval, with worker, function, and what follows."""
    rig = hangs()
    rig.advance(PATIENCE_MS - 1)
    assert words(rig) == []
    rig.advance(1)
    assert words(rig) == [
        f"tasks cancelled 5000 ms ago have not ended: source (2/2), sink (2/2) on worker w2, which does not "
        f"return from {AT}. Their workers are killed after 60000 ms (task.cancellation.timeout), or when the "
        "job is cancelled again"
    ]
    rig.advance(40_000)
    assert len(words(rig)) == 3


def test_their_workers_are_ended_by_force_after_the_timeout() -> None:
    """F4: and the job ends without them."""
    rig = hangs()
    rig.advance(59_999)
    assert rig.released == []
    rig.advance(1)
    assert "w2" in rig.released
    assert rig.status == "CANCELED"


def test_or_when_the_job_is_cancelled_again() -> None:
    """F4: asked again, a job gives an orderly end a few seconds in all, and no more."""
    rig = hangs()
    rig.advance(1000)
    rig.master.cancel()
    rig.advance(PATIENCE_MS - 1001)
    assert rig.released == []
    rig.advance(1)
    assert rig.status == "CANCELED"

    rig = hangs()
    rig.advance(30_000)
    rig.master.cancel()
    rig.advance(0)
    assert rig.status == "CANCELED"


def test_a_second_cancel_is_nothing_to_a_job_that_ends() -> None:
    """F4: a job whose tasks end in time ends in order, however often it is cancelled."""
    rig = running()
    rig.master.cancel()
    rig.master.cancel()
    rig.end_cancelled()
    assert rig.status == "CANCELED"
    rig.master.cancel()
    assert sorted(rig.released) == ["w1", "w2"]


def test_a_failed_job_names_them_too() -> None:
    """G8: no attempt begins before all tasks of the one before have ended; which have not is said, and why then."""
    rig = running(conf={"task.cancellation.timeout": "60 s"})
    rig.fail()
    rig.advance(PATIENCE_MS)
    assert "sink (2/2) on worker w2" in words(rig)[0]
    rig.advance(60_000 - PATIENCE_MS)
    assert rig.status in ("RESTARTING", "CREATED")


def test_no_limit() -> None:
    """F4: with a timeout of 0 a worker is ended by force only when the job is cancelled again."""
    watched = TaskCancellation(0, interval_ms=1000, timeout_ms=0)
    assert not watched.is_over(10**9)
    watched.hurry(10**9)
    assert watched.is_over(10**9)
