"""When a running job changes its parallelism, and from where it goes on (D4, E3, G8)."""

from typing import Any

import pytest
from tests.runtime.job.master_rig import MasterRig, two_vertices

from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.graph import ExecutionGraph
from penstock.runtime.job.view import RescaleCause, RescaleEnd
from penstock.runtime.protocol import DeclineCheckpoint, StopMode, TriggerCheckpoint, WorkerRequestFailed

ADAPTIVE: dict[str, str | None] = {"jobmanager.scheduler": "adaptive"}
STABLE_MS, COOLDOWN_MS, SOON_MS = 10_000, 30_000, 60_000


class Rig(MasterRig):
    """A job of two vertices that exchange records, and who asks for other parallelisms."""

    def __init__(
        self,
        workers: int = 2,
        parallelism: int = 2,
        conf: dict[str, str | None] | None = None,
        slots_max: int | None = None,
    ) -> None:
        super().__init__(two_vertices(parallelism), workers=workers, conf=conf, slots_max=slots_max)
        self.answers: list[tuple[Any, str | None]] = []

    def ask(self, **parallelism: int) -> None:
        self.master.rescale(parallelism, lambda result, error: self.answers.append((result, error)))

    def complete(self) -> None:
        """The last checkpoint that was triggered becomes complete."""
        self.acknowledge(self.of(TriggerCheckpoint)[-1].checkpoint_id, *self.executions)

    def checkpoint(self) -> None:
        self.master.trigger_checkpoint()
        self.complete()

    @property
    def parallelism(self) -> list[int]:
        return [vertex.parallelism for vertex in self.master.view().vertices]

    @property
    def graph_of_now(self) -> ExecutionGraph:
        return self.master._graph

    def has_begun_attempt(self, attempt: int, parallelism: list[int]) -> bool:
        """Whether the newest tasks are of that attempt, one for each subtask."""
        subtasks = sorted((e.vertex, e.subtask) for e in self.executions)
        wanted = [(vertex, i) for vertex, count in enumerate(parallelism) for i in range(count)]
        return {e.attempt for e in self.executions} == {attempt} and subtasks == wanted


# --- asked for -------------------------------------------------------------------------------------------------------


def test_a_running_job_is_rescaled_from_a_checkpoint_of_that_moment() -> None:
    rig = Rig()
    rig.run_all()
    rig.ask(sink=3)
    assert rig.requested == [2, 1]
    assert rig.statuses[-1] == "RUNNING", "the job goes on until the slot is there"
    rig.register(1)
    assert len(rig.of(TriggerCheckpoint)) == 2, "a barrier for each source"
    rig.complete()
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [2, 3])
    assert {task.restored_checkpoint_id for task in rig.deployed} == {1}
    assert rig.statuses[-3:] == ["RESTARTING", "CREATED", "RUNNING"]
    assert rig.answers == []
    rig.run_all()
    assert rig.answers == [({"source": 2, "sink": 3}, None)]


def test_a_request_is_open_until_the_job_runs_as_was_asked() -> None:
    rig = Rig()
    rig.run_all()
    rig.ask(sink=1)
    [request] = rig.master.view().rescale_requests
    assert (request.wanted, request.end, request.ended_ms) == ({"sink": (2, 1)}, None, None)
    rig.complete()
    rig.end_cancelled()
    rig.run_all()
    assert rig.master.view().rescale_requests == ()
    assert len(rig.master.view().rescales) == 1


def test_no_restart_is_counted_and_no_failure() -> None:
    rig = Rig()
    rig.run_all()
    rig.ask(sink=1)
    rig.complete()
    rig.end_cancelled()
    rig.run_all()
    view = rig.master.view()
    assert (view.restarts, view.failures) == (0, ())
    [rescale] = view.rescales
    assert (rescale.cause, rescale.changed) == (RescaleCause.UPDATE_REQUIREMENT, {"sink": (2, 1)})
    assert (rescale.checkpoint_id, rescale.attempt) == (1, 1)


def test_workers_that_are_not_needed_any_more_are_released() -> None:
    rig = Rig()
    rig.run_all()
    rig.ask(source=1, sink=1)
    rig.complete()
    rig.end_cancelled()
    assert rig.released == ["w2"]
    assert rig.has_begun_attempt(1, [1, 1])


def test_a_checkpoint_that_is_being_taken_will_do() -> None:
    rig = Rig()
    rig.run_all()
    rig.master.trigger_checkpoint()
    rig.ask(sink=1)
    assert len({trigger.checkpoint_id for trigger in rig.of(TriggerCheckpoint)}) == 1
    rig.complete()
    assert rig.statuses[-1] == "RESTARTING"


def test_a_job_that_takes_no_checkpoints_takes_one_to_be_rescaled() -> None:
    rig = Rig(conf={"execution.checkpointing.interval": None})
    rig.run_all()
    rig.ask(sink=1)
    rig.complete()
    rig.end_cancelled()
    assert {task.restored_checkpoint_id for task in rig.deployed} == {1}


def test_without_slots_the_job_goes_on_as_it_was_and_who_asked_is_told() -> None:
    rig = Rig(conf={"slot.request.timeout": "5 s"})
    rig.run_all()
    rig.ask(sink=4)
    rig.clock.advance(5_000)
    rig.master.on_time()
    [(result, error)] = rig.answers
    assert result is None
    assert error is not None
    assert "it needs 4 slots, and there are 2 within 5000 ms (slot.request.timeout); the job goes on" in error
    [request] = rig.master.view().rescale_requests
    assert (request.wanted, request.end) == ({"sink": (2, 4)}, RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE)
    assert (request.ended_ms, request.reason) == (request.at_ms + 5_000, error)
    assert rig.withdrawn == 2
    assert rig.statuses[-1] == "RUNNING"


def test_who_asked_is_told_also_when_the_time_is_over_while_a_checkpoint_is_awaited() -> None:
    """G8: a failure keeps the job as it was, because the slot is gone."""
    rig = Rig(conf={"slot.request.timeout": "5 s"})
    rig.run_all()
    rig.ask(sink=3)
    rig.register(1)
    rig.clock.advance(5_000)
    rig.master.on_time()
    assert rig.answers == []
    rig.lose("w3")
    rig.fail()
    rig.end_cancelled()
    rig.clock.advance(200)
    rig.master.on_time()
    [(result, error)] = rig.answers
    assert result is None
    assert error is not None
    assert "the job goes on as it was" in error


def test_a_failure_meanwhile_does_not_wait_for_the_slots_that_were_asked_for() -> None:
    """G8: the job begins again at the parallelism that it had; when the slots come, it is rescaled."""
    rig = Rig()
    rig.run_all()
    rig.checkpoint()
    rig.ask(sink=3)
    rig.fail()
    rig.end_cancelled()
    rig.clock.advance(100)
    rig.master.on_time()
    assert rig.has_begun_attempt(1, [2, 2])
    rig.run_all()
    rig.register(1)
    rig.complete()
    rig.end_cancelled()
    assert rig.has_begun_attempt(2, [2, 3])


def test_a_failure_takes_the_new_parallelism_where_the_slots_are_there() -> None:
    """G8: tasks that begin again anyway begin as was asked."""
    rig = Rig()
    rig.run_all()
    rig.checkpoint()
    rig.ask(sink=3)
    rig.register(1)
    rig.fail()
    rig.end_cancelled()
    rig.clock.advance(100)
    rig.master.on_time()
    assert rig.has_begun_attempt(1, [2, 3])
    assert rig.master.view().rescales[0].cause is RescaleCause.RECOVERABLE_FAILOVER


def test_a_task_that_fails_while_tasks_are_ended_changes_nothing() -> None:
    rig = Rig()
    rig.run_all()
    rig.ask(sink=1)
    rig.complete()
    rig.fail()
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [2, 1])
    assert rig.master.view().restarts == 0


def test_a_worker_that_is_lost_while_tasks_are_ended_is_replaced() -> None:
    rig = Rig()
    rig.run_all()
    rig.ask(sink=1)
    rig.complete()
    rig.lose("w2")
    rig.end_cancelled()
    assert rig.statuses[-1] == "CREATED"
    rig.register(1)
    assert rig.has_begun_attempt(1, [2, 1])


def test_without_a_checkpoint_it_goes_on_from_an_older_one() -> None:
    """As Flink does, after `max-checkpoint-failures`."""
    rig = Rig(conf={"execution.checkpointing.tolerable-failed-checkpoints": "9"})
    rig.run_all()
    rig.checkpoint()
    rig.ask(sink=1)
    for _ in range(2):
        last = rig.of(TriggerCheckpoint)[-1]
        rig.master.on_message(DeclineCheckpoint(last.execution, last.checkpoint_id, "broken", is_failure=True))
        rig.clock.advance(100)
        rig.master.on_time()
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [2, 1])
    assert {task.restored_checkpoint_id for task in rig.deployed} == {1}


def test_without_any_checkpoint_it_is_not_rescaled() -> None:
    """G8: it would begin anew."""
    rig = Rig(conf={"jobmanager.adaptive-scheduler.rescale-trigger.max-delay": "300 ms"})
    rig.run_all()
    rig.ask(sink=1)
    for _ in range(3):
        rig.clock.advance(100)
        rig.master.on_time()
    assert rig.answers == [(None, "no checkpoint could be completed, and without one the job would begin anew")]
    assert [one.end for one in rig.master.view().rescale_requests] == [RescaleEnd.EXCEPTION_OCCURRED]
    assert rig.parallelism == [2, 2]


def test_a_job_that_is_being_cancelled_is_not_rescaled() -> None:
    rig = Rig()
    rig.run_all()
    rig.ask(sink=1)
    rig.complete()
    rig.master.cancel()
    rig.end_cancelled()
    assert rig.statuses[-1] == "CANCELED"
    assert rig.answers == [(None, "the job is CANCELED")]
    assert [one.end for one in rig.master.view().rescale_requests] == [RescaleEnd.JOB_CANCELED]


def test_a_job_that_is_being_stopped_is_not_rescaled() -> None:
    """H1: its sources have come to their end for the savepoint that is in the making."""
    rig = Rig()
    rig.run_all()
    rig.master.take_savepoint(TakeSavepoint("/savepoints", StopMode.SUSPEND), lambda path, error: None)
    rig.ask(sink=1)
    assert rig.answers == [(None, "the job is coming to its end")]


def test_the_last_who_asks_counts() -> None:
    rig = Rig()
    rig.run_all()
    rig.ask(sink=3)
    rig.ask(sink=1)
    assert rig.answers == [(None, "it was asked for another parallelism since")]
    ends = [one.end for one in rig.master.view().rescale_requests]
    assert ends == [None, RescaleEnd.RESOURCE_REQUIREMENTS_UPDATED]
    assert rig.withdrawn == 1
    rig.complete()
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [2, 1])


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"nobody": 2}, "no operator has the uid, id or name 'nobody'; the job's vertices are 'source', 'sink'"),
        ({"sink": 0}, "'sink' can have a parallelism from 1 to 128, not 0"),
    ],
)
def test_what_cannot_be_is_refused_at_once(wanted: dict[str, int], error: str) -> None:
    rig = Rig()
    rig.run_all()
    rig.ask(**wanted)
    assert rig.answers == [(None, error)]


# --- the adaptive scheduler ------------------------------------------------------------------------------------------


def test_a_job_begins_with_the_slots_that_there_are() -> None:
    """E3: once no more have come for a while."""
    rig = Rig(workers=2, parallelism=3, conf=ADAPTIVE)
    assert rig.requested == [3]
    assert rig.deployed == []
    rig.clock.advance(STABLE_MS)
    rig.master.on_time()
    assert rig.has_begun_attempt(0, [2, 2])


def test_it_begins_at_once_with_all_it_wants() -> None:
    assert Rig(workers=3, parallelism=3, conf=ADAPTIVE).has_begun_attempt(0, [3, 3])


def test_it_does_not_wait_for_slots_that_cannot_come() -> None:
    """On a local master the number of slots is known."""
    rig = Rig(workers=2, parallelism=3, conf=ADAPTIVE, slots_max=2)
    assert rig.requested == [2]
    assert rig.has_begun_attempt(0, [2, 2])


def test_more_than_there_can_ever_be_is_refused_at_once() -> None:
    rig = Rig(slots_max=3)
    rig.run_all()
    rig.ask(sink=4)
    assert rig.answers == [(None, "the job would need 4 slots, but Spark has 3")]


def test_it_waits_for_the_lowest_parallelism() -> None:
    rig = Rig(workers=1, parallelism=3, conf={**ADAPTIVE, "penstock.adaptive-scheduler.min-parallelism": "2"})
    rig.clock.advance(STABLE_MS)
    rig.master.on_time()
    assert rig.deployed == []
    rig.clock.advance(300_000)
    rig.master.on_time()
    assert rig.statuses[-1] == "FAILED"
    assert "submission.resource-wait-timeout" in str(rig.master.failure)


def begun_with(workers: int, parallelism: int, conf: dict[str, str] | None = None) -> Rig:
    rig = Rig(workers=workers, parallelism=parallelism, conf={**ADAPTIVE, **(conf or {})})
    rig.clock.advance(STABLE_MS)
    rig.master.on_time()
    rig.run_all()
    return rig


def test_a_request_ends_without_the_slots_and_the_requirements_stay() -> None:
    rig = begun_with(2, 2, {"slot.request.timeout": "5 s"})
    rig.ask(sink=3)
    rig.clock.advance(5_000)
    rig.master.on_time()
    assert rig.answers == [({"source": 2, "sink": 2}, None)], "what the job runs at"
    [request] = rig.master.view().rescale_requests
    assert request.end is RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE
    assert request.reason == "there are 2 of 3 slots"
    rig.register(1)
    rig.complete()
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [2, 3])


def test_it_is_rescaled_when_the_slots_come_that_it_lacks() -> None:
    rig = begun_with(2, 3)
    rig.register(1)
    rig.complete()
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [3, 3])
    assert rig.master.view().rescales[0].cause is RescaleCause.NEW_RESOURCE_AVAILABLE


def test_it_waits_for_the_rest_when_some_come() -> None:
    rig = begun_with(1, 3)
    rig.register(1)
    assert rig.of(TriggerCheckpoint) == []
    rig.clock.advance(SOON_MS)
    rig.master.on_time()
    rig.complete()
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [2, 2])


def test_it_runs_a_while_before_it_is_rescaled_again() -> None:
    rig = begun_with(1, 3, {"jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0"})
    rig.register(1)
    rig.complete()
    rig.end_cancelled()
    rig.run_all()
    rig.register(1)
    assert rig.statuses[-1] == "RUNNING"
    rig.clock.advance(COOLDOWN_MS)
    rig.master.on_time()
    rig.complete()
    rig.end_cancelled()
    assert rig.has_begun_attempt(2, [3, 3])


def test_when_a_worker_is_lost_it_goes_on_with_those_that_are_left() -> None:
    """G8: if no other comes in its place."""
    rig = Rig(workers=3, parallelism=3, conf=ADAPTIVE)
    rig.run_all()
    rig.checkpoint()
    rig.lose("w3")
    rig.end_cancelled()
    rig.clock.advance(100)
    rig.master.on_time()
    assert rig.statuses[-1] == "CREATED"
    rig.clock.advance(STABLE_MS)
    rig.master.on_time()
    assert rig.has_begun_attempt(1, [2, 2])
    assert {task.restored_checkpoint_id for task in rig.deployed} == {1}
    assert rig.master.view().rescales[0].cause is RescaleCause.RECOVERABLE_FAILOVER


def test_one_that_comes_in_its_place_is_not_waited_for_longer() -> None:
    rig = Rig(workers=3, parallelism=3, conf=ADAPTIVE)
    rig.run_all()
    rig.lose("w3")
    rig.end_cancelled()
    rig.clock.advance(100)
    rig.master.on_time()
    rig.register(1)
    assert rig.has_begun_attempt(1, [3, 3])


def test_an_upper_bound_holds_for_slots_that_come_later() -> None:
    rig = begun_with(2, 3)
    rig.ask(sink=2, source=1)
    assert rig.withdrawn == 1
    rig.complete()
    rig.end_cancelled()
    rig.run_all()
    assert rig.answers == [({"source": 1, "sink": 2}, None)]
    rig.register(1)
    assert rig.released == ["w3"]
    assert rig.parallelism == [1, 2]


def test_a_worker_that_cannot_be_started_does_not_end_a_job_that_has_enough() -> None:
    rig = Rig(workers=2, parallelism=3, conf=ADAPTIVE)
    rig.master.on_message(WorkerRequestFailed("no more executors"))
    rig.clock.advance(STABLE_MS)
    rig.master.on_time()
    assert rig.has_begun_attempt(0, [2, 2])


def test_in_reactive_mode_it_asks_on_until_no_more_workers_come() -> None:
    rig = Rig(workers=0, conf={"scheduler-mode": "reactive"})
    assert rig.requested == [2]
    rig.register(1)
    assert rig.has_begun_attempt(0, [1, 1])
    rig.run_all()
    rig.register(1)
    assert sum(rig.requested) == 4, "as many are on their way as are there"
    rig.complete()
    rig.end_cancelled()
    assert rig.has_begun_attempt(1, [2, 2])
