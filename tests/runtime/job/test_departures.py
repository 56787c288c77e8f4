"""Workers that are announced as leaving while they live: their tasks move in order, which is no failure (E2)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.job.test_rescaling import ADAPTIVE, STABLE_MS, Rig

from penstock.runtime.job.view import RescaleCause
from penstock.runtime.protocol import (
    DeclineCheckpoint,
    DeployTask,
    TriggerCheckpoint,
    WorkerLeaving,
    WorkerRequestFailed,
)

REASON = "Spark decommissions its executor 7 on host-a"


class LeavingRig(Rig):
    def leave(self, worker_id: str) -> None:
        self.master.on_message(WorkerLeaving(worker_id, REASON))

    def deployed_on(self) -> set[str]:
        """The workers of the newest attempt."""
        newest = {task.execution for task in self.deployed}
        return {w for w, m in self.sent if isinstance(m, DeployTask) and m.execution in newest}

    def fail_and_restart(self) -> None:
        self.fail()
        self.end_cancelled()
        self.clock.advance(100)
        self.master.on_time()


def running(workers: int = 2, parallelism: int = 2, **more: Any) -> LeavingRig:
    rig = LeavingRig(workers, parallelism, **more)
    rig.run_all()
    assert rig.statuses[-1] == "RUNNING"
    return rig


def test_tasks_move_from_a_checkpoint_once_another_worker_is_there() -> None:
    """E2, G8: on the worker that leaves the job goes on until then."""
    rig = running()
    rig.leave("w2")
    assert rig.requested == [2, 1]
    assert rig.of(TriggerCheckpoint) == []
    rig.register(1)
    assert rig.of(TriggerCheckpoint) != []
    assert rig.statuses[-1] == "RUNNING"
    rig.complete()
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [2, 2])
    assert rig.deployed_on() == {"w1", "w3"}
    assert {task.restored_checkpoint_id for task in rig.deployed} == {1}
    assert rig.released == ["w2"]


def test_it_is_no_failure_and_no_restart() -> None:
    """E2: and the log and the view name worker, host and reason."""
    rig = running(conf={"restart-strategy.type": "none"})
    rig.leave("w2")
    rig.register(1)
    rig.complete()
    rig.end_cancelled()
    rig.run_all()
    view = rig.master.view()
    assert (view.restarts, view.failures, view.rescales) == (0, (), ())
    [departure] = view.departures
    assert (departure.worker_id, departure.host, departure.process_id) == ("w2", "host", 1002)
    assert (departure.reason, departure.tasks) == (REASON, ("source (2/2)", "sink (2/2)"))
    assert (departure.checkpoint_id, departure.moved_ms) == (1, rig.clock.now_ms())
    assert (
        f"worker w2 (host host, process 1002) is leaving: {REASON}; 'source (2/2)' and 'sink (2/2)' move to another "
        "worker"
    ) in rig.logs
    assert "is to be moved off workers that are leaving, once a checkpoint is complete" in rig.logs


def test_without_another_slot_it_stays_until_it_is_gone() -> None:
    """G8: then it is lost like any other."""
    rig = running()
    rig.checkpoint()
    rig.leave("w2")
    rig.master.on_message(WorkerRequestFailed("no executors"))
    assert "tasks stay on w2 until it is gone: a worker could not be started: no executors" in rig.logs
    assert rig.statuses[-1] == "RUNNING"
    rig.lose("w2")
    assert rig.statuses[-1] == "FAILING"
    [departure] = rig.master.view().departures
    assert departure.moved_ms is None


def test_it_gets_no_new_tasks_after_a_failure() -> None:
    """E2, G8: it is let go instead, and the job waits for another worker."""
    rig = running()
    rig.checkpoint()
    rig.leave("w2")
    rig.fail_and_restart()
    assert rig.statuses[-1] == "CREATED"
    assert rig.released == ["w2"]
    rig.register(1)
    assert rig.has_begun_attempt(1, [2, 2])
    assert rig.deployed_on() == {"w1", "w3"}
    assert rig.master.view().departures[0].checkpoint_id == 1


def test_one_that_has_no_tasks_yet_is_let_go_and_another_one_asked_for() -> None:
    rig = LeavingRig(workers=1)
    rig.leave("w1")
    assert rig.released == ["w1"]
    assert rig.requested == [2, 1]
    rig.register(2)
    assert rig.deployed_on() == {"w2", "w3"}


def test_one_that_leaves_before_it_has_registered_is_never_used() -> None:
    rig = LeavingRig(workers=0)
    rig.leave("w1")
    rig.register(3)
    assert rig.deployed_on() == {"w2", "w3"}


def test_one_that_leaves_while_the_checkpoint_is_read_gets_no_tasks() -> None:
    rig = running()
    rig.checkpoint()
    rig.background.hold = True
    rig.fail_and_restart()
    rig.leave("w2")
    rig.background.hold = False
    rig.background.run()
    assert rig.statuses[-1] == "CREATED"
    rig.register(1)
    assert rig.deployed_on() == {"w1", "w3"}


def test_news_that_comes_twice_changes_nothing() -> None:
    rig = running()
    rig.leave("w2")
    rig.leave("w2")
    assert rig.requested == [2, 1]
    assert len(rig.master.view().departures) == 1
    rig.register(1)
    rig.complete()
    rig.leave("w2")
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [2, 2])
    rig.leave("w2")
    assert rig.statuses[-1] == "RUNNING"


def test_two_that_leave_one_after_the_other_move_together() -> None:
    rig = running()
    rig.leave("w1")
    rig.leave("w2")
    assert rig.requested == [2, 1, 1]
    rig.register(1)
    assert rig.of(TriggerCheckpoint) == []
    rig.register(1)
    rig.complete()
    rig.end_cancelled()
    assert rig.deployed_on() == {"w3", "w4"}
    assert sorted(rig.released) == ["w1", "w2"]


def test_when_the_other_worker_is_gone_before_the_checkpoint_is_complete_tasks_stay() -> None:
    rig = running()
    rig.leave("w2")
    rig.register(1)
    rig.lose("w3")
    rig.complete()
    assert rig.statuses[-1] == "RUNNING"
    assert rig.requested == [2, 1, 1]
    rig.register(1)
    rig.complete()
    rig.end_cancelled()
    assert rig.deployed_on() == {"w1", "w4"}


def test_when_it_is_gone_before_the_checkpoint_is_complete_it_is_a_failure() -> None:
    """G8: the worker that has come takes its place."""
    rig = running()
    rig.checkpoint()
    rig.leave("w2")
    rig.register(1)
    rig.lose("w2")
    rig.end_cancelled()
    rig.clock.advance(100)
    rig.master.on_time()
    assert rig.has_begun_attempt(1, [2, 2])
    assert rig.master.view().restarts == 1
    assert rig.master.view().departures[0].moved_ms is None


def test_without_any_checkpoint_tasks_stay_and_it_is_tried_again() -> None:
    """G8: they would begin anew."""
    conf: dict[str, str | None] = {
        "jobmanager.adaptive-scheduler.rescale-trigger.max-delay": "200 ms",
        "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "1 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "9",
    }
    rig = running(conf=conf)
    rig.leave("w2")
    rig.register(1)
    for _ in range(2):
        last = rig.of(TriggerCheckpoint)[-1]
        rig.master.on_message(DeclineCheckpoint(last.execution, last.checkpoint_id, "broken", is_failure=True))
        rig.clock.advance(100)
        rig.master.on_time()
    assert "is not moved: no checkpoint could be completed" in rig.logs
    assert rig.statuses[-1] == "RUNNING"
    before = len(rig.of(TriggerCheckpoint))
    rig.clock.advance(1_000)
    rig.master.on_time()
    assert len(rig.of(TriggerCheckpoint)) > before
    rig.complete()
    rig.end_cancelled()
    assert rig.deployed_on() == {"w1", "w3"}


def test_a_job_that_is_being_cancelled_does_not_move() -> None:
    rig = running()
    rig.leave("w2")
    rig.master.cancel()
    rig.register(1)
    rig.end_cancelled()
    assert rig.statuses[-1] == "CANCELED"
    assert sorted(rig.released) == ["w1", "w2", "w3"]


# --- the adaptive scheduler ------------------------------------------------------------------------------------------


def test_with_the_adaptive_scheduler_it_goes_on_with_fewer_slots() -> None:
    """E3: if no other worker comes for as long as it would wait after a loss."""
    rig = running(3, 3, conf=ADAPTIVE)
    rig.leave("w3")
    assert rig.requested == [3, 1]
    assert rig.of(TriggerCheckpoint) == []
    rig.clock.advance(STABLE_MS)
    rig.master.on_time()
    rig.complete()
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [2, 2])
    assert rig.deployed_on() == {"w1", "w2"}
    assert rig.released == ["w3"]
    rig.run_all()
    view = rig.master.view()
    assert (view.restarts, view.failures) == (0, ())
    assert view.rescales[0].cause is RescaleCause.WORKER_LEAVING


@pytest.mark.parametrize("cooldown", ["0", "30 s"])
def test_with_the_adaptive_scheduler_one_that_comes_in_its_place_takes_its_tasks(cooldown: str) -> None:
    """E3: at once, however lately the job was rescaled."""
    option = "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling"
    rig = running(3, 3, conf={**ADAPTIVE, option: cooldown})
    rig.leave("w3")
    rig.register(1)
    rig.complete()
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [3, 3])
    assert rig.deployed_on() == {"w1", "w2", "w4"}
