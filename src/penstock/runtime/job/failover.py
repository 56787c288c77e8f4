"""Failures of a job: errors with their origin, labels, restart strategies, and the restart of a part (G8).

`build_error` and the functions after it convert failures to errors as the user reads them, with their origin.

`FailureLabels` requests labels from failure enrichers in the background, and merges them when they arrive. An enricher
is user code, and may hang or raise. So each enricher handles one failure at a time, and until it has answered, a few
later failures wait for it. The job never waits.

`RestartStrategy` decides whether, and after how long, a failed job restarts. Pure: failures in, delays out.

`Failover` decides between a delayed restart and the end of a failed job. Pure: failures in, decisions out. A restart
strategy counts failures, whatever they are. Two rules come before it, because a job that fails in the same way forever
is of no use:

- An error that would recur in every attempt ends the job at once (`runtime.failure` classifies errors).
- Identical failures are counted while the job makes no progress. A completed checkpoint, or an attempt that ran
  well for long, resets all counts. A failure outside the job that may resolve itself is not counted.

`PartRestart` restarts a part of a job from the last checkpoint while the others continue. Pure: which, and how far. Its
tasks are cancelled first. When all of them have ended, the restart strategy's delay passes; then they are placed:
missing workers are requested, the checkpoint is read, and the tasks are deployed. If another region fails in the
meantime, it joins the part, which begins with the cancellation again.

`JobFailures` records the failures of a job with labels, and asks the restart strategy about them.
"""

from __future__ import annotations

import enum
import re
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import CallError, JobExecutionError, PenstockError, UserFunctionError
from penstock.base.secrets import hide
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.connector import RecordError
from penstock.runtime.effects import Effects
from penstock.runtime.failure import FailureEnricherContext, FailureType, Labels, with_prospects
from penstock.runtime.graph import Execution, ExecutionGraph, JobGraph, Subtask
from penstock.runtime.job.slots import SlotPool
from penstock.runtime.job.view import FAILURES_MAX, FailureRecord, JobHistory
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.ports import Clock
from penstock.runtime.protocol import Failure, RegisterWorker
from penstock.runtime.task.failures import whereabouts

#: Errors that answer a call, or come from a user-defined function.
_OF_CALLS: Final = (CallError, UserCodeError, RecordError)


def build_error(failure: Failure, graph: ExecutionGraph, execution: Execution | None) -> PenstockError:
    """Return the error that the job fails with; `execution` is the task that failed, if any."""
    if execution is None:
        return _other_error(failure, graph.job_graph, "")
    if failure.user_code and failure.operator_name is not None:
        return _user_error(failure, graph.job_graph, execution.id.vertex, execution.id.subtask)
    return _other_error(failure, graph.job_graph, f"task {graph.get_subtask_name(execution)}: ")


def build_failure_record(
    at_ms: int,
    error: BaseException | None,
    graph: ExecutionGraph,
    execution: Execution | None = None,
    lost: Sequence[Execution] = (),
    worker: RegisterWorker | None = None,
    part: str | None = None,
) -> FailureRecord:
    """Return the record of a failure: of the failed task, or of the tasks lost with a worker; `worker` ran them."""
    failed = [*lost] if execution is None else [execution]
    return FailureRecord(
        at_ms,
        failed[0].id.attempt if failed else graph.attempt,
        hide(str(error)),
        None if execution is None else graph.get_subtask_name(execution),
        failed[0].worker_id if failed else None,
        None if worker is None else worker.host,
        None if worker is None else worker.process_id,
        tuple(graph.get_subtask_name(e) for e in lost),
        part,
    )


def batch_error(failure: Failure, job_graph: JobGraph, vertex: int, subtask: int) -> PenstockError:
    """Return the error that a batch job fails with because of a task."""
    if failure.user_code and failure.operator_name is not None:
        error = _user_error(failure, job_graph, vertex, subtask)
    else:
        at = job_graph.vertices[vertex]
        error = _other_error(failure, job_graph, f"task {at.name} ({subtask + 1}/{at.parallelism}): ")
    if failure.suppresses_restart:
        error.suppresses_restart = True
    return error


def to_failure(error: Exception) -> Failure:
    """Return the failure of a job without a job master, so that later failures can be compared with it."""
    if isinstance(error, UserFunctionError):
        operator_name = error.operator_name
        failure = Failure(error.cause_text, operator_name, traceback=error.traceback_text, user_code=True)
    else:
        failure = Failure(f"{type(error).__name__}: {error}")
    return with_prospects(failure, error)


def ending(job_name: str, error: BaseException) -> PenstockError:
    """Return the error of a job whose own thread met an error; an error about the job is returned unchanged.

    An error that answers a call, or comes from a user-defined function, does not name the job, so it becomes the cause
    of a new error that does.
    """
    return error if isinstance(error, PenstockError) and not isinstance(error, _OF_CALLS) else broken(job_name, error)


def broken(job_name: str, error: BaseException) -> JobExecutionError:
    """Return the error of a job whose own thread met an error that no task has handled."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    at = None if isinstance(error, PenstockError) and not isinstance(error, _OF_CALLS) else whereabouts(frames)
    where = "" if at is None else f", raised at {at}"
    failure = JobExecutionError(job_name, f"{type(error).__name__}: {error}{where}")
    failure.__cause__ = error
    return failure


def _user_error(failure: Failure, job_graph: JobGraph, vertex: int, subtask: int) -> PenstockError:
    assert failure.operator_name is not None
    return UserFunctionError(
        job_graph.name,
        failure.operator_name,
        subtask,
        job_graph.vertices[vertex].parallelism,
        hide(failure.record or ""),
        hide(failure.traceback or failure.reason),
        failure.what,
    )


def _other_error(failure: Failure, job_graph: JobGraph, where: str) -> PenstockError:
    details = f"\n{failure.traceback}" if failure.traceback else ""
    return JobExecutionError(job_graph.name, hide(f"{where}{failure.reason}{details}"))


#: How long (ms) an enricher may take before the log names it.
PATIENCE_MS: Final = 30_000


class Labeller(Protocol):
    """An enricher, as its callers see it."""

    @property
    def name(self) -> str:
        """The name of its class."""
        ...

    def label(self, cause: BaseException, context: FailureEnricherContext) -> tuple[Labels, str | None]:
        """Return the labels of a failure, and a complaint about ignored labels, if any; raise if the enricher does.

        It runs user code, so it belongs in `Background`.
        """
        ...


@dataclass
class _Asked:
    """An enricher, and the failures that it has not been asked about yet."""

    labeller: Labeller
    waiting: deque[tuple[int, BaseException, FailureEnricherContext]] = field(
        default_factory=lambda: deque(maxlen=FAILURES_MAX)
    )
    #: since when (ms) it has been at work
    since_ms: int | None = None
    is_named: bool = False


class FailureLabels:
    """Requests labels from a job's enrichers, and adds them to the job's history."""

    def __init__(
        self,
        labellers: Iterable[Labeller],
        job_id: str,
        job_name: str,
        history: JobHistory,
        effects: Effects,
        clock: Clock,
    ) -> None:
        self._asked = [_Asked(labeller) for labeller in labellers]
        self._job_id = job_id
        self._job_name = job_name
        self._history = history
        self._effects = effects
        self._clock = clock

    def on_failure(self, number: int, cause: BaseException | None, failure_type: FailureType) -> None:
        """Request labels for a failure that was recorded under a number."""
        if cause is None:
            return
        context = FailureEnricherContext(self._job_id, self._job_name, failure_type)
        for enricher in self._asked:
            enricher.waiting.append((number, cause, context))
            self._ask(enricher)

    def _ask(self, enricher: _Asked) -> None:
        now_ms, name = self._clock.steady_ms(), enricher.labeller.name
        if enricher.since_ms is not None:
            if now_ms - enricher.since_ms >= PATIENCE_MS and not enricher.is_named:
                enricher.is_named = True
                self._effects.log(f"failure enricher {name} has not answered for {now_ms - enricher.since_ms} ms")
            return
        if not enricher.waiting:
            return
        number, cause, context = enricher.waiting.popleft()
        enricher.since_ms, enricher.is_named = now_ms, False

        def done(answer: tuple[Labels, str | None] | None, error: BaseException | None) -> None:
            enricher.since_ms = None
            labels, complaint = answer or ({}, f"{type(error).__name__}: {error}")
            if complaint is not None:
                self._effects.log(f"failure enricher {name}: {complaint}")
            self._history.labelled(number, labels)
            self._ask(enricher)

        self._effects.run(lambda: enricher.labeller.label(cause, context), done)


class RestartStrategy(ABC):
    """Decides about restarts from the failures so far."""

    @abstractmethod
    def on_failure(self, now_ms: int) -> int | None:
        """Return the delay (ms) before the job restarts, or None if it must fail."""


class NoRestart(RestartStrategy):
    """Fails the job at the first failure."""

    def on_failure(self, now_ms: int) -> int | None:
        return None


class FixedDelayRestart(RestartStrategy):
    """Allows a number of restarts, each after the same delay."""

    def __init__(self, attempts: int, delay_ms: int) -> None:
        self._left = attempts
        self._delay_ms = delay_ms

    def on_failure(self, now_ms: int) -> int | None:
        if self._left <= 0:
            return None
        self._left -= 1
        return self._delay_ms


class FailureRateRestart(RestartStrategy):
    """Restarts unless there were too many failures within an interval."""

    def __init__(self, failures_max: int, interval_ms: int, delay_ms: int) -> None:
        self._interval_ms = interval_ms
        self._delay_ms = delay_ms
        self._failures_max = failures_max
        self._failures: deque[int] = deque()

    def on_failure(self, now_ms: int) -> int | None:
        failures = self._failures
        failures.append(now_ms)
        while failures[0] <= now_ms - self._interval_ms:
            failures.popleft()
        return self._delay_ms if len(failures) <= self._failures_max else None


class ExponentialDelayRestart(RestartStrategy):
    """Restarts after a delay that grows with each failure and is reset after a time without one."""

    def __init__(
        self, initial_ms: int, max_ms: int, multiplier: float, reset_ms: int, jitter: float, attempts_max: int
    ) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._multiplier = multiplier
        self._reset_ms = reset_ms
        self._jitter = jitter
        self._attempts_max = attempts_max
        self._next_ms = float(initial_ms)
        self._attempts = 0
        self._last_restart_ms: int | None = None

    def on_failure(self, now_ms: int) -> int | None:
        if self._last_restart_ms is not None and now_ms - self._last_restart_ms >= self._reset_ms:
            self._next_ms, self._attempts = float(self._initial_ms), 0
        if self._attempts >= self._attempts_max:
            return None
        self._attempts += 1
        # Spread the restarts of many jobs without a random source: the time of the failure is random enough.
        spread = (now_ms * 2654435761 % 2001 - 1000) / 1000 * self._jitter
        delay_ms = int(min(self._next_ms, self._max_ms) * (1 + spread))
        self._next_ms = min(self._next_ms * self._multiplier, float(self._max_ms))
        self._last_restart_ms = now_ms + delay_ms
        return delay_ms


def make_restart_strategy(configuration: Configuration) -> RestartStrategy:
    """Return the configured strategy; by default exponential delay if checkpointing is on, otherwise none."""
    kind = configuration.read(options.RESTART_STRATEGY)
    if kind is None:
        kind = "none" if configuration.read(options.CHECKPOINTING_INTERVAL_MS) is None else "exponential-delay"
    if kind == "none":
        return NoRestart()
    if kind == "fixed-delay":
        return FixedDelayRestart(
            configuration.read(options.FIXED_DELAY_ATTEMPTS), configuration.read(options.FIXED_DELAY_MS)
        )
    if kind == "failure-rate":
        return FailureRateRestart(
            configuration.read(options.FAILURE_RATE_MAX_FAILURES),
            configuration.read(options.FAILURE_RATE_INTERVAL_MS),
            configuration.read(options.FAILURE_RATE_DELAY_MS),
        )
    return ExponentialDelayRestart(
        configuration.read(options.EXPONENTIAL_INITIAL_BACKOFF_MS),
        configuration.read(options.EXPONENTIAL_MAX_BACKOFF_MS),
        configuration.read(options.EXPONENTIAL_MULTIPLIER),
        configuration.read(options.EXPONENTIAL_RESET_THRESHOLD_MS),
        configuration.read(options.EXPONENTIAL_JITTER_FACTOR),
        configuration.read(options.EXPONENTIAL_ATTEMPTS_MAX),
    )


#: How many distinct failures are remembered; the least recent one is forgotten first.
_REMEMBERED_MAX: Final = 100
#: In user texts: addresses of objects, which differ between processes.
_ADDRESSES: Final = re.compile(r"0x[0-9a-f]+")
#: In Penstock's own texts: ids of workers, processes, checkpoints and attempts, which differ each time.
_NUMBERS: Final = re.compile(r"worker-\d+-[0-9a-f]{8}|\d+")


def likeness(failure: Failure, task_name: str | None) -> str:
    """Return a text that is equal for two occurrences of the same failure.

    It excludes the subtask and the record: if a function fails for all records, chance decides which record comes
    first.
    """
    if failure.blocked_at:
        return f"blocked at {failure.blocked_at}"
    origin = failure.operator_name or task_name or ""
    if failure.user_code or failure.traceback is not None:
        return _ADDRESSES.sub("0x", f"{origin}\n{failure.reason}\n{failure.traceback or ''}")
    return _NUMBERS.sub("#", f"{origin}\n{failure.reason}")


class IdenticalFailures:
    """Counts identical failures.

    Args:
        failures_max: the number of identical failures at which the job fails; 0 for never.
        reset_ms: how long an attempt must run to count as progress.
    """

    def __init__(self, failures_max: int, reset_ms: int) -> None:
        self.failures_max = failures_max
        self._reset_ms = reset_ms
        self._counts: dict[str, int] = {}
        self._completed = 0
        self._running_since_ms: int | None = None

    def on_running(self, now_ms: int) -> None:
        """Record that an attempt runs."""
        self._running_since_ms = now_ms

    def on_failure(self, alike: str, completed: int, now_ms: int) -> bool:
        """Count a failure by its `likeness`, given the checkpoints so far; return whether it occurred too often."""
        since_ms, self._running_since_ms = self._running_since_ms, None
        if completed != self._completed or (since_ms is not None and now_ms - since_ms >= self._reset_ms):
            self._counts.clear()
        self._completed = completed
        count = self._counts[alike] = self._counts.pop(alike, 0) + 1
        if len(self._counts) > _REMEMBERED_MAX:
            del self._counts[next(iter(self._counts))]
        return 0 < self.failures_max <= count


class Failover:
    """See the module's docstring.

    Attributes:
        verdict: why the last failure ends the job, unless the restart strategy ends it.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.verdict: str | None = None
        self._strategy = make_restart_strategy(configuration)
        self._identical = IdenticalFailures(
            configuration.read(options.IDENTICAL_FAILURES_MAX),
            configuration.read(options.EXPONENTIAL_RESET_THRESHOLD_MS),
        )

    def on_running(self, now_ms: int) -> None:
        """Record that an attempt runs."""
        self._identical.on_running(now_ms)

    def restart_delay_ms(
        self, failure: Failure, task_name: str | None, completed: int, has_worked: bool, now_ms: int
    ) -> int | None:
        """Return the delay (ms) before the job restarts; None if it fails for good.

        Args:
            failure: the failure.
            task_name: the task that failed, if any.
            completed: how many checkpoints have completed since the job began.
            has_worked: whether there is a checkpoint to return to.
            now_ms: the current time.
        """
        self.verdict = None
        alike = likeness(failure, task_name)
        is_repeated = not failure.is_outside and self._identical.on_failure(alike, completed, now_ms)
        if failure.suppresses_restart or (failure.is_final_at_first and not has_worked):
            self.verdict = "not restarted: every attempt would fail with the same error"
        elif is_repeated:
            self.verdict = (
                f"not restarted: the same failure occurred {self._identical.failures_max} times with no checkpoint in "
                f"between ({options.IDENTICAL_FAILURES_MAX.key()})"
            )
        return None if self.verdict else self._strategy.on_failure(now_ms)


class PartPhase(enum.Enum):
    """The phases of a part's restart."""

    CANCELLING = "CANCELLING"
    WAITING = "WAITING"
    PLACING = "PLACING"


class PartRestart:
    """The part of a job that restarts, if any.

    Attributes:
        phase: None if no part restarts.
    """

    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self._part: frozenset[Subtask] = frozenset()
        self.phase: PartPhase | None = None

    @property
    def part(self) -> frozenset[Subtask] | None:
        """The subtasks of the part; None if no part restarts."""
        return None if self.phase is None else self._part

    @property
    def has_ended(self) -> bool:
        """Whether all cancelled tasks have ended."""
        is_cancelling = self.phase is PartPhase.CANCELLING
        return is_cancelling and all(e.state.is_terminal for e in self._graph.executions(self._part))

    def expects(self, failed: Collection[Execution]) -> bool:
        """Return whether these tasks are already being cancelled, so that their failure is expected."""
        return self.phase is PartPhase.CANCELLING and all(_subtask(e) in self._part for e in failed)

    def expand_to_regions(self, failed: Collection[Execution]) -> frozenset[Subtask] | None:
        """Return the part to restart, with the one already restarting; None for the whole job, or without tasks."""
        part = self._part | self._graph.regions.of(_subtask(e) for e in failed)
        return part if failed and len(part) < len(self._graph.executions()) else None

    def begin(self, part: frozenset[Subtask]) -> None:
        """Begin to restart a part, whose tasks are being cancelled."""
        self._part, self.phase = part, PartPhase.CANCELLING

    def end(self) -> None:
        """End the restart: the part runs, or the whole job restarts or ends."""
        self._part, self.phase = frozenset(), None

    def __str__(self) -> str:
        return f"{len(self._part)} of {len(self._graph.executions())} tasks"


def _subtask(execution: Execution) -> Subtask:
    return execution.id.vertex, execution.id.subtask


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
