"""The failures of a job: recorded with labels, and judged by the restart strategy (G8)."""

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
from penstock.core.job.failures import build_error, build_failure_record
from penstock.core.job.history import FailureRecord, JobHistory
from penstock.core.job.slot_pool import SlotPool
from penstock.core.ports import Clock
from penstock.core.protocol import Failure, RegisterWorker


@dataclass(frozen=True, slots=True)
class FailureEvent:
    """A failure of a task that reported it, of tasks lost with their worker, or of something other than a task.

    Attributes:
        failure: the failure.
        error: the same as the job's error.
        execution: the task that reported it.
        lost: the tasks that were lost with their worker.
        worker: the worker that ran the tasks.
    """

    failure: Failure
    error: PenstockError
    execution: Execution | None = None
    lost: Sequence[Execution] = ()
    worker: RegisterWorker | None = None

    @property
    def failed(self) -> Sequence[Execution]:
        """The failed tasks, if any."""
        return self.lost if self.execution is None else (self.execution,)

    @property
    def type(self) -> FailureType:
        """The kind of component that failed."""
        if self.execution is not None:
            return FailureType.TASK
        return FailureType.TASK_MANAGER if self.lost else FailureType.GLOBAL


class JobFailures:
    """The failures of one job, and the consequences of the last one."""

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
        #: the failure that ends the attempt
        self._last: FailureEvent | None = None

    def event(
        self,
        failure: Failure,
        execution: Execution | None = None,
        lost: Sequence[Execution] = (),
        worker: RegisterWorker | None = None,
    ) -> FailureEvent:
        """Build the event for a failure."""
        worker = worker or self._slot_pool.registration(None if execution is None else execution.worker_id)
        return FailureEvent(failure, build_error(failure, self._graph, execution), execution, lost, worker)

    def remember(self, event: FailureEvent, part: str | None = None) -> None:
        """Record the failure that ends the attempt, or restarts a part of the job."""
        self._last = event
        self._labels.on_failure(self._history.failed(self._record(event, part)), event.error, event.type)

    def remember_too(self, event: FailureEvent) -> None:
        """Record another failure during the recovery from the last one."""
        self._labels.on_failure(self._history.failed_too(self._record(event)), event.error, event.type)

    def remember_end(self, error: PenstockError) -> None:
        """Record the error that ends the job and that no further attempt can avoid."""
        event = FailureEvent(Failure(str(error)), error)
        self._labels.on_failure(self._history.failed(self._record(event)), event.error, event.type)

    def _record(self, event: FailureEvent, part: str | None = None) -> FailureRecord:
        now_ms = self._clock.now_ms()
        return build_failure_record(now_ms, event.error, self._graph, event.execution, event.lost, event.worker, part)

    def on_running(self) -> None:
        """Record that all tasks run."""
        self._failover.on_running(self._clock.steady_ms())

    def restart_delay_ms(self, checkpoints: CheckpointCoordinator) -> int | None:
        """Return the delay (ms) before the failed tasks restart; None if the job fails for good."""
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
