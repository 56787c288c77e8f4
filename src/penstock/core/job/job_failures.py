"""What has failed in a job: remembered with its labels, and judged by the restart strategy (G8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.configuration import Configuration
from penstock.base.errors import PenstockError
from penstock.core.checkpoint.coordinator import CheckpointCoordinator
from penstock.core.effects import Effects
from penstock.core.failure import FailureType
from penstock.core.graph.execution_graph import Execution, ExecutionGraph
from penstock.core.job.failover import Failover
from penstock.core.job.failure_labels import FailureLabels, Labeller
from penstock.core.job.failures import error_of, record_of
from penstock.core.job.history import FailureRecord, JobHistory
from penstock.core.job.slot_pool import SlotPool
from penstock.core.ports import Clock
from penstock.core.protocol import Failure, RegisterWorker


@dataclass(frozen=True, slots=True)
class FailureEvent:
    """Something has failed: a task that said so, tasks that were lost with their worker, or something that is no task.

    Attributes:
        failure: what happened.
        error: the same as the job's error.
        execution: the task that said so.
        lost: the tasks that were lost with their worker.
        worker: where it was.
    """

    failure: Failure
    error: PenstockError
    execution: Execution | None = None
    lost: Sequence[Execution] = ()
    worker: RegisterWorker | None = None

    @property
    def failed(self) -> Sequence[Execution]:
        """The tasks that have failed, if any have."""
        return self.lost if self.execution is None else (self.execution,)

    @property
    def type(self) -> FailureType:
        """What kind of thing has failed."""
        if self.execution is not None:
            return FailureType.TASK
        return FailureType.TASK_MANAGER if self.lost else FailureType.GLOBAL


class JobFailures:
    """The failures of one job, and what follows from the last one."""

    def __init__(
        self,
        graph: ExecutionGraph,
        job_id: str,
        configuration: Configuration,
        slot_pool: SlotPool,
        history: JobHistory,
        labellers: Sequence[Labeller],
        effects: Effects,
        clock: Clock,
    ) -> None:
        self._graph = graph
        self._slot_pool = slot_pool
        self._history = history
        self._effects = effects
        self._clock = clock
        self._labels = FailureLabels(labellers, job_id, graph.job_graph.name, history, effects, clock)
        self._failover = Failover(configuration)
        #: what the attempt fails for
        self._last: FailureEvent | None = None

    def event(
        self,
        failure: Failure,
        execution: Execution | None = None,
        lost: Sequence[Execution] = (),
        worker: RegisterWorker | None = None,
    ) -> FailureEvent:
        """What is known of a failure."""
        worker = worker or self._slot_pool.registration(None if execution is None else execution.worker_id)
        return FailureEvent(failure, error_of(failure, self._graph, execution), execution, lost, worker)

    def remember(self, event: FailureEvent, part: str | None = None) -> None:
        """The attempt, or a part of the job, fails for that."""
        self._last = event
        self._labels.on_failure(self._history.failed(self._record(event, part)), event.error, event.type)

    def remember_too(self, event: FailureEvent) -> None:
        """That has failed as well, while something else was being recovered from."""
        self._labels.on_failure(self._history.failed_too(self._record(event)), event.error, event.type)

    def remember_end(self, error: PenstockError) -> None:
        """The job ends for that, and no attempt can help."""
        event = FailureEvent(Failure(str(error)), error)
        self._labels.on_failure(self._history.failed(self._record(event)), event.error, event.type)

    def _record(self, event: FailureEvent, part: str | None = None) -> FailureRecord:
        now_ms = self._clock.now_ms()
        return record_of(now_ms, event.error, self._graph, event.execution, event.lost, event.worker, part)

    def on_running(self) -> None:
        """All tasks run."""
        self._failover.on_running(self._clock.steady_ms())

    def restart_delay_ms(self, checkpoints: CheckpointCoordinator) -> int | None:
        """After how long (ms) what has failed begins again; None when the job fails for good."""
        last = self._last
        assert last is not None, "something has failed"
        execution = last.execution
        name = None if execution is None else self._graph.job_graph.vertices[execution.id.vertex].name
        completed, has_worked = checkpoints.statistics.completed, bool(checkpoints.completed)
        now_ms = self._clock.steady_ms()
        delay_ms = self._failover.restart_delay_ms(last.failure, name, completed, has_worked, now_ms)
        if self._failover.verdict is not None:
            last.error.add_note(self._failover.verdict)
            self._effects.log(self._failover.verdict)
        return delay_ms
