"""Failure enrichers, which programs implement to label failures (Flink's FLIP-304), and a classification of errors.

    class Team(FailureEnricher):
        def get_output_keys(self):
            return {"team"}

        def process_failure(self, cause, context):
            return {"team": "storage" if "s3://" in str(cause) else "stream"}

The option `jobmanager.failure-enrichers` names such classes. The job's driver process creates one instance of each, and
calls it for each failure, without holding up the job.

`is_final`, `is_final_at_first` and `is_outside` classify errors by whether another attempt may avoid them. They
distinguish three kinds, by the error and its causes:

- *Final* errors recur whatever happens: a program that cannot be loaded, a record that is too large.
- Errors that are *final at first* recur as long as the job has never worked: an unwritable directory, a missing
  module. A job that has worked before may work again once the user has repaired what changed.
- Errors from *outside* resolve themselves, sooner or later: a server that refuses connections, a full disk.

All other errors may or may not recur: see `runtime.job.failover`.
"""

from __future__ import annotations

import enum
import errno
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from penstock.base.errors import CallError, ConfigurationError, MisuseError, PenstockError, UserFunctionError
from penstock.runtime.protocol import Failure

Labels: TypeAlias = Mapping[str, str]


class FailureType(enum.Enum):
    """The kind of component that failed."""

    GLOBAL = "GLOBAL"
    """Something that is no task, such as a checkpoint."""
    TASK = "TASK"
    """A task, which said so."""
    TASK_MANAGER = "TASK_MANAGER"
    """A worker, which was lost."""


@dataclass(frozen=True)
class FailureEnricherContext:
    """The job that a failure belongs to, and the kind of component that failed."""

    job_id: str
    job_name: str
    failure_type: FailureType

    def get_job_id(self) -> str:
        """Return the job's id as 32 hexadecimal digits."""
        return self.job_id

    def get_job_name(self) -> str:
        """Return the job's name."""
        return self.job_name

    def get_failure_type(self) -> FailureType:
        """Return the kind of component that failed."""
        return self.failure_type


class FailureEnricher(ABC):
    """See the module's docstring. Created without arguments."""

    Context = FailureEnricherContext

    @abstractmethod
    def get_output_keys(self) -> Set[str]:
        """Return the keys of its labels. No two enrichers of a job may share a key."""

    @abstractmethod
    def process_failure(self, cause: BaseException, context: FailureEnricherContext) -> Labels | Awaitable[Labels]:
        """Return the labels of a failure; a coroutine is awaited. This may take long: the job does not wait for it.

        Labels whose keys `get_output_keys` does not return are ignored.

        Args:
            cause: the error that the job would fail with if no restart was left. An exception raised by a user-defined
                function is a `UserFunctionError` with operator, record and traceback as text.
            context: about the job.
        """


#: The only label of `TypeFailureEnricher`.
KEY_TYPE: Final = "type"


class TypeFailureEnricher(FailureEnricher):
    """Labels the `type` of a failure as USER or SYSTEM.

    USER is an exception of a user-defined function, or an invalid option or call. Everything else is SYSTEM: lost
    workers, failed checkpoints, sources and sinks.
    """

    def get_output_keys(self) -> Set[str]:
        """`type`."""
        return {KEY_TYPE}

    def process_failure(self, cause: BaseException, context: FailureEnricherContext) -> Labels:
        """Return the label for the class of the error."""
        is_users = isinstance(cause, UserFunctionError | MisuseError | ConfigurationError | CallError)
        return {KEY_TYPE: "USER" if is_users else "SYSTEM"}


#: Operating system errors that mean that a path is unusable rather than that something is out of order.
_OF_PLACES: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
_OF_PATHS: Final = _OF_PLACES | {errno.ENOENT, errno.EEXIST}


def with_prospects(failure: Failure, error: BaseException) -> Failure:
    """Return the failure with the prospects of another attempt, judged by its error."""
    return msgspec.structs.replace(
        failure,
        suppresses_restart=is_final(error),
        is_final_at_first=is_final_at_first(error),
        is_outside=is_outside(error),
    )


def is_final(error: BaseException) -> bool:
    """Return whether every attempt would fail with the same error."""
    return any(isinstance(cause, PenstockError) and cause.suppresses_restart for cause in _causes(error))


def is_final_at_first(error: BaseException) -> bool:
    """Return whether every attempt of a job that has never worked would fail with the same error."""
    return any(
        isinstance(cause, ImportError) or (isinstance(cause, OSError) and cause.errno in _OF_PLACES)
        for cause in _causes(error)
    )


def is_outside(error: BaseException) -> bool:
    """Return whether the cause lies outside the job and may resolve itself."""
    return any(isinstance(cause, OSError) and cause.errno not in _OF_PATHS for cause in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__
