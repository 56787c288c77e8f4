"""A failure as the user reads it: an error with its place."""

from __future__ import annotations

import traceback
from typing import Final

from penstock.base.errors import CallError, JobExecutionError, PenstockError, UserFunctionError
from penstock.core.connector import RecordError
from penstock.core.graph.execution_graph import Execution, ExecutionGraph
from penstock.core.graph.job_graph import JobGraph
from penstock.core.healing import with_prospects
from penstock.core.operators.base import UserCodeError
from penstock.core.protocol import Failure
from penstock.core.task.whereabouts import whereabouts

#: What answers a call, or comes from a user function.
_OF_CALLS: Final = (CallError, UserCodeError, RecordError)


def error_of(failure: Failure, graph: ExecutionGraph, execution: Execution | None) -> PenstockError:
    """The error with which the job fails; `execution` is the task that failed, if it was one."""
    if execution is None:
        return _other_error(failure, graph.job_graph, "")
    if failure.user_code and failure.operator_name is not None:
        return _user_error(failure, graph.job_graph, execution.id.vertex, execution.id.subtask)
    return _other_error(failure, graph.job_graph, f"task {graph.name_of(execution)}: ")


def batch_error(failure: Failure, job_graph: JobGraph, vertex: int, subtask: int) -> PenstockError:
    """The same for a task of a batch job."""
    if failure.user_code and failure.operator_name is not None:
        error = _user_error(failure, job_graph, vertex, subtask)
    else:
        at = job_graph.vertices[vertex]
        error = _other_error(failure, job_graph, f"task {at.name} ({subtask + 1}/{at.parallelism}): ")
    if failure.suppresses_restart:
        error.suppresses_restart = True
    return error


def failure_from(error: Exception) -> Failure:
    """Why a job without a job master failed, so that later failures can be compared with it."""
    if isinstance(error, UserFunctionError):
        place = error.operator_name
        failure = Failure(error.cause_text, place, traceback=error.traceback_text, user_code=True)
    else:
        failure = Failure(f"{type(error).__name__}: {error}")
    return with_prospects(failure, error)


def ending(job_name: str, error: BaseException) -> PenstockError:
    """The error of a job whose own thread met an error: an error about the job stays as it is.

    One that answers a call, or comes from a user function, does not name the job, so it becomes the cause of one that
    does.
    """
    return error if isinstance(error, PenstockError) and not isinstance(error, _OF_CALLS) else broken(job_name, error)


def broken(job_name: str, error: BaseException) -> JobExecutionError:
    """The error of a job whose own thread met an error that no task has handled."""
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
        failure.record or "",
        failure.traceback or failure.reason,
        failure.what,
    )


def _other_error(failure: Failure, job_graph: JobGraph, where: str) -> PenstockError:
    details = f"\n{failure.traceback}" if failure.traceback else ""
    return JobExecutionError(job_graph.name, f"{where}{failure.reason}{details}")
