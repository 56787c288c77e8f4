"""The life cycle of a job that runs step by step, with the status transitions that all execution modes share (E6).

Its work is a generator of steps (`core.master.steps`). When the work fails, the restart strategy decides about a
restart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.errors import PenstockError, UserFunctionError
from penstock.base.job_status import JobStatus
from penstock.base.secrets import hide
from penstock.core.batch.figures import JobFigures
from penstock.core.graph.job_graph import JobGraph
from penstock.core.graph.states import JOB_MOVES
from penstock.core.job.failover import Failover
from penstock.core.job.failures import ending, to_failure
from penstock.core.job.history import FailureRecord, JobHistory
from penstock.core.job.side_outputs import unwritten_side_outputs
from penstock.core.job.view import JobView, SubtaskView, job_view
from penstock.core.master.steps import Cancelled, Log, PrepareSources, Report, Steps, Wait
from penstock.core.ports import Clock
from penstock.storage.leadership import DeposedError

_S: Final = JobStatus


class StepwiseMaster(ABC):
    """Base of the stepwise masters. Drive `run` to its end; `status` and `failure` then say how the job ended.

    Args:
        job_graph: the job.
        job_id: its id.
        configuration: its options.
        clock: processing time.
    """

    def __init__(self, job_graph: JobGraph, job_id: str, configuration: Configuration, clock: Clock) -> None:
        self.job_graph = job_graph
        self.job_id = job_id
        self.status = _S.CREATED
        self.failure: PenstockError | None = None
        #: the figures of tasks whose output was delivered; the driver adds to it
        self.figures = JobFigures(job_graph)
        self.history = JobHistory()
        #: called with each failure and its number; the driver sets it
        self.on_failure: Callable[[int, BaseException], None] = lambda number, error: None
        self.configuration = configuration
        self.clock = clock
        self._failover = Failover(configuration)

    def view(self) -> JobView:
        """Return the job's current view for outside observers. Any thread may call this."""
        figures, attempt = dict(self.figures.tasks), self.history.restarts
        subtasks = {
            vertex.index: [
                SubtaskView(index, attempt, metrics=figures.get((vertex.index, index)))
                for index in range(vertex.parallelism)
            ]
            for vertex in self.job_graph.vertices
        }
        return job_view(
            self.job_id,
            self.job_graph,
            self.status,
            self.history,
            subtasks,
            self.figures.checkpoints,
            now_ms=self.clock.now_ms(),
            configuration=self.configuration,
        )

    def validate(self) -> None:
        """Assert the invariants between two steps. The simulator calls this; a running job never does."""
        assert self.status is not _S.FAILED or self.failure is not None, "a failed job has a failure"
        assert self.status is not _S.FINISHED or self.failure is None, "a finished job has none"

    @abstractmethod
    def work(self) -> Steps[None]:
        """Do all the work of the job. A `PenstockError` from here fails the job."""

    def run(self) -> Steps[None]:
        """Run the job from its beginning to its end."""
        try:
            yield from self._begin_attempt()
            yield PrepareSources()
            yield from self.work()
            for line in unwritten_side_outputs(self.job_graph, self.figures.tasks.values()):
                yield Log(line)
        except GeneratorExit:
            raise
        except Cancelled:
            yield from self._move(_S.CANCELLING)
            yield from self._move(_S.CANCELED)
        except DeposedError as error:
            self.failure = error
            self._remember(error)
            yield from self._move(_S.SUSPENDED, str(error))
        except BaseException as error:  # noqa: BLE001 - whatever it is ends the job, and its waiter must hear of it
            self.failure = ending(self.job_graph.name, error)
            self._remember(self.failure)
            if self.status is not _S.FAILING:
                yield from self._move(_S.FAILING, str(self.failure))
            yield from self._move(_S.FAILED, str(self.failure))
        else:
            yield from self._move(_S.FINISHED)

    def restart(self, error: Exception, has_worked: bool, point: str) -> Steps[None]:
        """Wait for the next attempt after a failure.

        Args:
            error: the failure.
            has_worked: whether there is a checkpoint to go back to.
            point: a description of where the next attempt begins.

        Raises:
            Exception: the failure, when no attempt is left.
            Cancelled: if the job is cancelled meanwhile.
        """
        completed = self.figures.checkpoints.completed
        delay_ms = self._failover.restart_delay_ms(
            to_failure(error), None, completed, has_worked, self.clock.steady_ms()
        )
        if delay_ms is None:
            if self._failover.verdict is not None:
                error.add_note(self._failover.verdict)
                yield Log(self._failover.verdict)
            raise error
        self._remember(error)
        yield from self._move(_S.FAILING, str(error))
        yield from self._move(_S.RESTARTING, f"in {delay_ms} ms, from {point}")
        yield Wait(delay_ms)
        self.history.restarts += 1
        yield from self._move(_S.CREATED)
        yield from self._begin_attempt()

    def _begin_attempt(self) -> Steps[None]:
        yield from self._move(_S.RUNNING)
        self._failover.on_running(self.clock.steady_ms())

    def _remember(self, error: BaseException) -> None:
        task = None
        if isinstance(error, UserFunctionError):
            task = f"{error.operator_name} ({error.subtask_index + 1}/{error.parallelism})"
        record = FailureRecord(self.clock.now_ms(), self.history.restarts, hide(str(error)), task)
        self.on_failure(self.history.failed(record), error)

    def _move(self, status: JobStatus, reason: str | None = None) -> Steps[None]:
        assert status in JOB_MOVES[self.status], f"{self.status.name} cannot become {status.name}"
        self.status = status
        self.history.moved(status, self.clock.now_ms())
        yield Report(status, reason)
