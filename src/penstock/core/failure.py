"""Failure enrichers, for programs to implement: they put labels on the failures of a job (Flink's FLIP-304).

    class Team(FailureEnricher):
        def get_output_keys(self):
            return {"team"}

        def process_failure(self, cause, context):
            return {"team": "storage" if "s3://" in str(cause) else "stream"}

The option `jobmanager.failure-enrichers` names such classes. The process of the job's driver makes one of each, and
calls it for each failure, beside the job.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Set
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.base.errors import CallError, ConfigurationError, MisuseError, UserFunctionError

Labels: TypeAlias = Mapping[str, str]


class FailureType(enum.Enum):
    """What has failed."""

    GLOBAL = "GLOBAL"
    """Something that is no task, such as a checkpoint."""
    TASK = "TASK"
    """A task, which said so."""
    TASK_MANAGER = "TASK_MANAGER"
    """A worker, which was lost."""


@dataclass(frozen=True)
class FailureEnricherContext:
    """Of which job the failure is, and what has failed."""

    job_id: str
    job_name: str
    failure_type: FailureType

    def get_job_id(self) -> str:
        """The job's id, as 32 hexadecimal digits."""
        return self.job_id

    def get_job_name(self) -> str:
        """The job's name."""
        return self.job_name

    def get_failure_type(self) -> FailureType:
        """What has failed."""
        return self.failure_type


class FailureEnricher(ABC):
    """See the module's text. It is made without arguments."""

    Context = FailureEnricherContext

    @abstractmethod
    def get_output_keys(self) -> Set[str]:
        """The keys of its labels. No two enrichers of a job have one in common."""

    @abstractmethod
    def process_failure(self, cause: BaseException, context: FailureEnricherContext) -> Labels | Awaitable[Labels]:
        """The labels of a failure; a coroutine is awaited. It may take long: the job does not wait for it.

        Labels with other keys than those of `get_output_keys` are ignored.

        Args:
            cause: the error for which the job would fail if no restart was left. What a function of the program raised
                is a `UserFunctionError` with operator, record and traceback as text.
            context: about the job.
        """


#: The one label of `TypeFailureEnricher`.
KEY_TYPE: Final = "type"


class TypeFailureEnricher(FailureEnricher):
    """Says whose a failure is: the label `type` is USER or SYSTEM.

    USER is what a function of the program raised, or an option or a call that cannot be taken. All else is SYSTEM:
    workers that were lost, checkpoints that failed, sources and sinks.
    """

    def get_output_keys(self) -> Set[str]:
        """`type`."""
        return {KEY_TYPE}

    def process_failure(self, cause: BaseException, context: FailureEnricherContext) -> Labels:
        """By the class of the error."""
        is_users = isinstance(cause, UserFunctionError | MisuseError | ConfigurationError | CallError)
        return {KEY_TYPE: "USER" if is_users else "SYSTEM"}
