"""Failures as the user reads them: errors with their origin.

Labels from failure enrichers, requested in the background and merged when they arrive.

An enricher is user code, and may hang or raise. So each enricher handles one failure at a time, and until it has
answered, a few later failures wait for it. The job never waits.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.base.errors import CallError, JobExecutionError, PenstockError, UserFunctionError
from penstock.base.secrets import hide
from penstock.runtime.connector import RecordError
from penstock.runtime.effects import Effects
from penstock.runtime.failure import FailureEnricherContext, FailureType, Labels, with_prospects
from penstock.runtime.graph.execution_graph import Execution, ExecutionGraph
from penstock.runtime.graph.job_graph import JobGraph
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
