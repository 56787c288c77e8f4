"""The masters of jobs that run step by step: life cycle, beginning, driving of the steps, and batch execution.

`StepwiseMaster` is the life cycle, with the status transitions that all execution modes share (E6). Its work is a
generator of steps (`runtime.master.steps`). When the work fails, the restart strategy decides about a restart.

`begin_from_latest` and `begin_from_path` find where a stepwise job begins: at the newest checkpoint of its name, at a
given path, or from nothing (G8, H2).

`Driving` drives a stepwise master: it carries out its steps one after another, and hands it each result or error.

`BatchMaster` is the master of a job in batch execution: it runs all tasks to their end, then delivers all output or
none (I1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError, JobExecutionError, PenstockError, UserFunctionError
from penstock.base.job import JobStatus
from penstock.base.options import RECOVERY_FROM_LATEST, RECOVERY_PATH
from penstock.base.secrets import hide
from penstock.runtime.batch.exchange import JobFigures
from penstock.runtime.checkpoint.restore import check_fit, to_initial_metadata
from penstock.runtime.checkpoint.savepoints import (
    Choice,
    Forerunners,
    choose_latest,
    fallen_back,
    finished_before,
    forerunners,
    must_not_fall_back,
    refusal_of_latest,
    refusal_to_fall_back,
)
from penstock.runtime.checkpoint.statistics import CheckpointSettings
from penstock.runtime.graph import JOB_MOVES, JobGraph
from penstock.runtime.job.failover import Failover, ending, to_failure
from penstock.runtime.job.tasks import unwritten_side_outputs
from penstock.runtime.job.view import FailureRecord, JobHistory, JobView, SubtaskView, job_view
from penstock.runtime.master import steps
from penstock.runtime.ports import Clock
from penstock.storage.leadership import DeposedError, LeftByJobs
from penstock.storage.metadata import CheckpointMetadata

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
    def work(self) -> steps.Steps[None]:
        """Do all the work of the job. A `PenstockError` from here fails the job."""

    def run(self) -> steps.Steps[None]:
        """Run the job from its beginning to its end."""
        try:
            yield from self._begin_attempt()
            yield steps.PrepareSources()
            yield from self.work()
            for line in unwritten_side_outputs(self.job_graph, self.figures.tasks.values()):
                yield steps.Log(line)
        except GeneratorExit:
            raise
        except steps.Cancelled:
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

    def restart(self, error: Exception, has_worked: bool, point: str) -> steps.Steps[None]:
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
                yield steps.Log(self._failover.verdict)
            raise error
        self._remember(error)
        yield from self._move(_S.FAILING, str(error))
        yield from self._move(_S.RESTARTING, f"in {delay_ms} ms, from {point}")
        yield steps.Wait(delay_ms)
        self.history.restarts += 1
        yield from self._move(_S.CREATED)
        yield from self._begin_attempt()

    def _begin_attempt(self) -> steps.Steps[None]:
        yield from self._move(_S.RUNNING)
        self._failover.on_running(self.clock.steady_ms())

    def _remember(self, error: BaseException) -> None:
        task = None
        if isinstance(error, UserFunctionError):
            task = f"{error.operator_name} ({error.subtask_index + 1}/{error.parallelism})"
        record = FailureRecord(self.clock.now_ms(), self.history.restarts, hide(str(error)), task)
        self.on_failure(self.history.failed(record), error)

    def _move(self, status: JobStatus, reason: str | None = None) -> steps.Steps[None]:
        assert status in JOB_MOVES[self.status], f"{self.status.name} cannot become {status.name}"
        self.status = status
        self.history.moved(status, self.clock.now_ms())
        yield steps.Report(status, reason)


class HasEnded(Exception):
    """A job of this name has already ended, so nothing is left to do."""


class Latest(NamedTuple):
    """The checkpoint that a job continues from, if any, and the jobs that it continues."""

    metadata: CheckpointMetadata | None
    forerunners: Forerunners


def begin_from_latest(job_graph: JobGraph, job_id: str, configuration: Configuration) -> steps.Steps[Latest]:
    """Return the newest intact checkpoint of the job's name, and the jobs that this one continues.

    Raises:
        HasEnded: if nothing is left to do.
        JobExecutionError: if the checkpoint cannot be read or does not fit the job, or if falling back past a damaged
            one would commit something again.
    """
    name, option = job_graph.name, RECOVERY_FROM_LATEST.key()
    try:
        left: LeftByJobs = yield steps.TakeOver(name)
        if left.damaged:
            raise CheckpointError(left.damaged[0])
        choice = choose_latest(left)
        before = forerunners(left, choice, CheckpointSettings.of(configuration).retain_on_cancel, job_id)
        for line in choice.damaged:
            yield steps.Log(line)
        if choice.damaged and must_not_fall_back(job_graph, configuration):
            raise JobExecutionError(name, refusal_of_latest(choice))
        if choice.end is not None:
            raise HasEnded(f"{option}: {finished_before(choice.end)}")
        if choice.is_empty:
            yield steps.Log(f"{option}: no job named {name!r} has left a checkpoint")
            return Latest(None, before)
        metadata, skipped = yield from _newest_whole(choice, job_graph, configuration)
        if skipped:
            yield steps.Log(fallen_back(skipped, str(metadata.external_path)))
    except (CheckpointError, OSError) as error:
        raise JobExecutionError(name, f"{option}: cannot read what jobs of this name have left: {error}") from error
    fitting = yield from _fitting(metadata, option, job_graph, configuration)
    return Latest(fitting, before)


def _newest_whole(
    choice: Choice, job_graph: JobGraph, configuration: Configuration
) -> steps.Steps[tuple[CheckpointMetadata, list[str]]]:
    """Return the newest readable checkpoint, and the paths of the newer ones, which are skipped."""
    skipped = list(choice.skipped)
    candidates = list(choice.checkpoints)
    if choice.path is not None:
        candidates = [(yield steps.Load(choice.path, job_graph.name, claims(configuration)))]
    while True:
        metadata = candidates.pop(0)
        try:
            yield steps.ReadThrough(metadata)
        except CheckpointError as error:
            damage = f"{metadata.external_path} cannot be restored: {error}"
            yield steps.Log(damage)
            skipped.append(str(metadata.external_path))
            if not candidates:
                raise
            if must_not_fall_back(job_graph, configuration):
                before = str(candidates[0].external_path)
                raise JobExecutionError(job_graph.name, refusal_to_fall_back(damage, before)) from error
        else:
            return metadata, skipped


def claims(configuration: Configuration) -> bool:
    """Return whether the job deletes the snapshot it begins from, once it has a checkpoint of its own."""
    return CheckpointSettings.of(configuration).claims_initial


def begin_from_path(job_graph: JobGraph, configuration: Configuration) -> steps.Steps[CheckpointMetadata | None]:
    """Return the checkpoint or savepoint that the configuration names; None if it names nothing.

    Raises:
        JobExecutionError: if it cannot be read, or does not fit the job.
    """
    path, option = configuration.read(RECOVERY_PATH), RECOVERY_PATH.key()
    if path is None:
        return None
    try:
        metadata: CheckpointMetadata = yield steps.Load(path, job_graph.name, claims(configuration))
        yield steps.ReadThrough(metadata)
    except Exception as error:
        raise JobExecutionError(job_graph.name, f"{option} {path} cannot be read: {error}") from error
    return (yield from _fitting(metadata, option, job_graph, configuration))


def _fitting(
    metadata: CheckpointMetadata, option: str, job_graph: JobGraph, configuration: Configuration
) -> steps.Steps[CheckpointMetadata]:
    try:
        lines = check_fit(metadata, job_graph, configuration)
    except CheckpointError as misfit:
        where = f"{option} {metadata.external_path}"
        raise JobExecutionError(job_graph.name, f"{where} does not fit the job: {misfit}") from misfit
    for line in lines:
        yield steps.Log(line)
    yield steps.Log(f"begins from {metadata.external_path}")
    return to_initial_metadata(metadata, configuration)


T = TypeVar("T")


class Driving(Generic[T]):
    """Drives a master's work step by step, as far as its owner wants.

    Args:
        work: the master's work.
        perform: carries out a step.
        ends_driver: errors of `perform` that are not thrown into the master, because its driver is dead.
    """

    def __init__(
        self,
        work: steps.Steps[T],
        perform: Callable[[steps.Step], Any],
        ends_driver: type[BaseException] | tuple[()] = (),
    ) -> None:
        self._work = work
        self._perform = perform
        self._ends_driver = ends_driver
        self._result: Any = None
        self._error: BaseException | None = None
        #: the result of the work, once `advance` has returned False
        self.outcome: list[T] = []

    def advance(self) -> bool:
        """Carry out the next step; returns whether there was one.

        Raises:
            BaseException: an error of the work itself, or one of `ends_driver`; no step follows it.
        """
        try:
            step = self._work.send(self._result) if self._error is None else self._work.throw(self._error)
            self._result = self._error = None
            try:
                self._result = self._perform(step)
            except self._ends_driver:
                raise
            except BaseException as raised:  # noqa: BLE001 - the master decides what becomes of it
                self._error = raised
        except StopIteration as ended:
            self.outcome.append(ended.value)
            return False
        except BaseException:
            self._work.close()
            raise
        return True


def drive(
    work: steps.Steps[T], perform: Callable[[steps.Step], Any], ends_driver: type[BaseException] | tuple[()] = ()
) -> T:
    """Drive a master's work to its end and return its result; see `Driving`."""
    driving = Driving(work, perform, ends_driver)
    while driving.advance():
        pass
    return driving.outcome[0]


class BatchMaster(StepwiseMaster):
    """See the module docstring. The engine that runs the tasks retries failed ones; the job as a whole runs once."""

    def work(self) -> steps.Steps[None]:
        """Run all tasks, and deliver their output when every one has ended."""
        try:
            yield steps.BeginCommits()
            last: list[steps.Last] = yield steps.RunTasks()
            yield steps.Deliver(tuple(last))
        except GeneratorExit:
            raise
        except BaseException:
            yield steps.EndSinks()
            raise
        yield steps.EndSinks()
