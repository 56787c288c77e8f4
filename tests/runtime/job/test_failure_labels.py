"""G8: failure enrichers put labels on failures, and nothing that they do is felt by the job."""

from __future__ import annotations

from typing import Any

from tests.runtime.job.master_rig import MasterRig, running

from penstock.base.errors import JobExecutionError, UserFunctionError
from penstock.runtime.failure import FailureEnricherContext, FailureType, Labels, TypeFailureEnricher
from penstock.runtime.job.failover import PATIENCE_MS
from penstock.runtime.protocol import ExecutionId


class Asked:
    """An enricher that notes what it is asked, and says what the test says."""

    def __init__(self, key: str = "seen", complaint: str | None = None, error: Exception | None = None) -> None:
        self.name = f"Asked-{key}"
        self.key = key
        self.complaint = complaint
        self.error = error
        self.asked: list[tuple[BaseException, FailureEnricherContext]] = []

    def label(self, cause: BaseException, context: FailureEnricherContext) -> tuple[Labels, str | None]:
        self.asked.append((cause, context))
        if self.error is not None:
            raise self.error
        return {self.key: str(len(self.asked))}, self.complaint


def labels(rig: MasterRig) -> list[Any]:
    """Of all failures, newest first."""
    return [dict(record.labels) for record in rig.master.view().failures]


def words(rig: MasterRig) -> list[str]:
    return [line for line in rig.logs if line.startswith("failure enricher")]


def fail_again(rig: MasterRig, **failure: Any) -> None:
    rig.end_cancelled()
    rig.advance(100)
    rig.run_all()
    rig.fail(**failure)


def test_labels_of_all_enrichers_are_in_the_record() -> None:
    """G8: and those of the next failure in the next one."""
    rig = running(labellers=[Asked("one"), Asked("other")])
    rig.fail()
    fail_again(rig)
    assert labels(rig) == [{"one": "2", "other": "2"}, {"one": "1", "other": "1"}]


def test_enrichers_hear_what_failed() -> None:
    """G8: the error for which the job would fail, of which job it is, and whether it was a task or a worker."""
    enricher = Asked()
    rig = running(labellers=[enricher])
    rig.fail(ExecutionId(1, 0, 0), user_code=True, operator_name="sum", traceback="ZeroDivisionError")
    rig.end_cancelled()
    rig.advance(100)
    rig.run_all()
    rig.lose("w2")
    (cause, context), (other, of_worker) = enricher.asked
    assert isinstance(cause, UserFunctionError)
    assert (context.get_job_id(), context.get_job_name()) == ("job-1", "job")
    assert context.get_failure_type() is FailureType.TASK
    assert "worker w2" in str(other)
    assert of_worker.get_failure_type() is FailureType.TASK_MANAGER


def test_what_fails_meanwhile_has_labels_too() -> None:
    """G8."""
    rig = running(labellers=[Asked()])
    rig.fail(rig.executions[0])
    rig.fail(rig.executions[1])
    (record,) = rig.master.view().failures
    assert (record.labels, [one.labels for one in record.concurrent]) == ({"seen": "1"}, [{"seen": "2"}])


def test_an_enricher_that_raises_is_named_and_others_count() -> None:
    """G8."""
    rig = running(labellers=[Asked("bad", error=ValueError("no idea")), Asked("good")])
    rig.fail()
    assert labels(rig) == [{"good": "1"}]
    assert words(rig) == ["failure enricher Asked-bad: ValueError: no idea"]
    rig.end_cancelled()
    rig.advance(100)
    rig.run_all()
    assert rig.status == "RUNNING"


def test_what_is_amiss_with_its_labels_is_said() -> None:
    """G8: those that it may give count."""
    rig = running(labellers=[Asked(complaint="labels ['x'] are ignored")])
    rig.fail()
    assert (labels(rig), words(rig)) == ([{"seen": "1"}], ["failure enricher Asked-seen: labels ['x'] are ignored"])


def test_the_job_does_not_wait_for_labels() -> None:
    """G8: an enricher is asked for one failure at a time, the later ones wait, and it is named once when it is late."""
    enricher = Asked()
    rig = running(labellers=[enricher], conf={"execution.checkpointing.interval": None})
    rig.background.hold = True
    for execution in rig.executions[:3]:
        rig.fail(execution)
        rig.advance(PATIENCE_MS - 1)
    assert (labels(rig), len(rig.background.waiting)) == ([{}], 1)
    assert words(rig) == [f"failure enricher Asked-seen has not answered for {2 * PATIENCE_MS - 2} ms"]
    rig.background.run()
    (record,) = rig.master.view().failures
    assert [one.labels["seen"] for one in (record, *record.concurrent)] == ["1", "2", "3"]


def test_labels_that_come_late_do_not_change_a_view() -> None:
    """G8: it is a value."""
    rig = running(labellers=[Asked()], conf={"execution.checkpointing.interval": None})
    rig.background.hold = True
    rig.fail()
    view = rig.master.view()
    rig.background.run()
    assert view.failures[0].labels == {}
    assert labels(rig) == [{"seen": "1"}]


def test_whose_a_failure_is() -> None:
    """G8: the enricher that comes with Penstock."""
    enricher = TypeFailureEnricher()
    context = FailureEnricherContext("id", "job", FailureType.TASK)
    users = UserFunctionError("job", "map", 0, 1, "1", "ZeroDivisionError")
    assert enricher.process_failure(users, context) == {"type": "USER"}
    assert enricher.process_failure(JobExecutionError("job", "a worker was lost"), context) == {"type": "SYSTEM"}
    assert enricher.get_output_keys() == {"type"}
