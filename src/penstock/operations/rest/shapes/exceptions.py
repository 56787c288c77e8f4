"""The failures of a job, newest first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.core.job.history import FailureRecord
from penstock.core.job.view import JobView

#: An error's class, in the last line of a traceback or at the beginning of an error's text.
_NAMED: Final = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Warning))(?::|\s*$)", re.MULTILINE)
_UNNAMED: Final = "JobExecutionError"


class ExceptionEntry(msgspec.Struct, frozen=True, rename="camel"):
    """A failure that occurred while the job handled another one."""

    exception_name: str
    stacktrace: str
    timestamp: int
    failure_labels: Mapping[str, str]
    task_name: str | None
    endpoint: str | None
    task_manager_id: str | None


class RootException(ExceptionEntry, frozen=True, rename="camel", kw_only=True):
    """A failure of the job."""

    concurrent_exceptions: list[ExceptionEntry]


class ExceptionHistory(msgspec.Struct, frozen=True):
    """The failures of a job, newest first."""

    entries: list[RootException]
    truncated: bool


class JobExceptions(msgspec.Struct, frozen=True):
    """Flink's exception history, and the top-level fields that it deprecates."""

    exception_history: ExceptionHistory = msgspec.field(name="exceptionHistory")
    root_exception: str | None = msgspec.field(name="root-exception", default=None)
    timestamp: int | None = None
    all_exceptions: list[Any] = msgspec.field(name="all-exceptions", default_factory=list)
    truncated: bool = False


def exception_name(text: str) -> str:
    """Return the class of the error in a failure's text: the last error class that begins a line."""
    names = _NAMED.findall(text)
    return str(names[-1]) if names else _UNNAMED


def job_exceptions(view: JobView, count_max: int, labels: Mapping[str, str]) -> JobExceptions:
    """Return the newest failures with these labels, at most `count_max`."""
    failures = [failure for failure in view.failures if labels.items() <= failure.labels.items()]
    entries = [
        RootException(
            **_fields(failure),
            concurrent_exceptions=[ExceptionEntry(**_fields(concurrent)) for concurrent in failure.concurrent],
        )
        for failure in failures[:count_max]
    ]
    truncated = len(failures) > count_max
    if not view.failures:
        return JobExceptions(ExceptionHistory(entries, truncated))
    newest = view.failures[0]
    return JobExceptions(ExceptionHistory(entries, truncated), newest.text, newest.at_ms, [], truncated)


def _fields(failure: FailureRecord) -> dict[str, Any]:
    endpoint = None if failure.host is None else f"{failure.host}:{failure.process_id}"
    return {
        "exception_name": exception_name(failure.text),
        "stacktrace": failure.text,
        "timestamp": failure.at_ms,
        "failure_labels": failure.labels,
        "task_name": failure.task,
        "endpoint": endpoint,
        "task_manager_id": failure.worker_id,
    }
