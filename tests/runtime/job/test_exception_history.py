"""What is remembered of failures: which task, where, what went with it, and what failed meanwhile (G8)."""

from __future__ import annotations

from tests.runtime.job.master_rig import MasterRig, running
from tests.runtime.job.test_regions import FORWARD, job

from penstock.runtime.job.job_master import JobMaster
from penstock.runtime.job.view import CONCURRENT_MAX, FailureRecord
from penstock.runtime.protocol import CancelTask, ExecutionId


def newest(rig: MasterRig) -> FailureRecord:
    master: JobMaster = rig.master
    return master.view().failures[0]


def test_a_failure_names_its_task_and_where_that_ran() -> None:
    """G8: time, attempt, task, worker, host and process."""
    rig = running()
    rig.clock.advance(7)
    rig.fail(ExecutionId(1, 1, 0))
    record = newest(rig)
    assert (record.at_ms, record.attempt, record.task) == (7, 0, "sink (2/2)")
    assert (record.worker_id, record.host, record.process_id) == ("w2", "host", 1002)
    assert (record.lost, record.part, record.concurrent) == ((), None, ())


def test_a_lost_worker_is_remembered_with_the_tasks_that_were_lost() -> None:
    """G8: the worker is gone by then, and what it had said of itself is known all the same."""
    rig = running()
    rig.lose("w1")
    record = newest(rig)
    assert (record.task, record.worker_id, record.host, record.process_id) == (None, "w1", "host", 1001)
    assert record.lost == ("source (1/2)", "sink (1/2)")
    assert "was lost: killed" in record.text


def test_what_fails_while_the_job_deals_with_a_failure_is_kept_with_it() -> None:
    """G8: Flink's concurrentExceptions; the failure that came first stays the one for which the job restarts."""
    rig = running()
    rig.fail(ExecutionId(0, 0, 0), reason="first")
    rig.fail(ExecutionId(1, 0, 0), reason="second")
    rig.lose("w2")
    (record,) = rig.master.view().failures
    assert "first" in record.text
    task, worker = record.concurrent
    assert (task.task, task.worker_id, task.process_id) == ("sink (1/2)", "w1", 1001)
    assert "second" in task.text
    assert (worker.task, worker.worker_id, worker.lost) == (None, "w2", ("source (2/2)", "sink (2/2)"))


def test_no_more_than_some_of_them_are_kept() -> None:
    """G8: a lost host may take thousands of tasks along."""
    rig = MasterRig(job(CONCURRENT_MAX + 5, edges=()), conf={"jobmanager.execution.failover-strategy": "full"})
    rig.run_all()
    for execution in rig.executions:
        rig.fail(execution)
    assert len(newest(rig).concurrent) == CONCURRENT_MAX


def test_what_a_cancelled_job_fails_with_is_nothing_to_remember() -> None:
    rig = running()
    rig.master.cancel()
    rig.fail(rig.executions[0])
    assert rig.master.view().failures == ()


def regions() -> MasterRig:
    """Three regions of two tasks each."""
    rig = MasterRig(job(3, 3, edges=FORWARD), conf={"restart-strategy.fixed-delay.delay": "1 s"})
    rig.run_all()
    return rig


def test_the_restart_of_a_region_is_a_record_that_says_so() -> None:
    """G8: with the attempt of its own tasks."""
    rig = regions()
    rig.fail(ExecutionId(0, 1, 0))
    record = newest(rig)
    assert (record.task, record.part, record.attempt) == ("v0 (2/3)", "2 of 6 tasks", 0)


def test_another_region_that_fails_meanwhile_is_a_record_of_its_own() -> None:
    """G8: and what fails within a region that is being cancelled is kept with the failure before."""
    rig = regions()
    rig.fail(ExecutionId(0, 1, 0), reason="first")
    rig.fail(ExecutionId(1, 1, 0), reason="in the same region")
    rig.fail(ExecutionId(1, 2, 0), reason="in another region")
    other, first = rig.master.view().failures
    assert (first.task, first.part) == ("v0 (2/3)", "2 of 6 tasks")
    assert [(c.task, c.part) for c in first.concurrent] == [("v1 (2/3)", None)]
    assert (other.task, other.part, other.concurrent) == ("v1 (3/3)", "4 of 6 tasks", ())


def test_a_region_is_remembered_by_the_attempt_of_its_tasks() -> None:
    """G8: other regions may be in a newer one."""
    rig = regions()
    rig.fail(ExecutionId(0, 0, 0))
    for message in rig.of(CancelTask):
        rig.say("CANCELED", message.execution)
    rig.advance(1_000)
    rig.run_all()
    rig.fail(ExecutionId(0, 2, 0))
    assert (newest(rig).task, newest(rig).attempt) == ("v0 (3/3)", 0)
