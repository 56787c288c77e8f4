"""A job as its client sees it: its id, its states, its result, and the future that asynchronous client calls return."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from penstock.base.errors import WrongValueError

__all__ = ["CompletableFuture", "JobExecutionResult", "JobID", "JobStatus"]


_FORM = re.compile(r"[0-9a-f]{32}\Z")


@dataclass(frozen=True, slots=True, order=True)
class JobID:
    """A job's id: 32 lower-case hexadecimal digits.

    Raises:
        ValueError: if `hex_text` has another form.

    Examples:
        >>> from penstock.common import JobID
        >>> str(JobID("0123456789abcdef0123456789abcdef"))
        '0123456789abcdef0123456789abcdef'
        >>> len(str(JobID.generate()))
        32
    """

    hex_text: str

    def __post_init__(self) -> None:
        if not _FORM.match(self.hex_text):
            raise WrongValueError(f"a job id is 32 lower-case hexadecimal digits, not {self.hex_text!r}")

    @classmethod
    def generate(cls) -> JobID:
        """Return a new random id."""
        return cls(secrets.token_hex(16))

    def __str__(self) -> str:
        return self.hex_text


class JobStatus(Enum):
    """The state of a job.

    FINISHED, CANCELED and FAILED are final everywhere, and the job may be cleaned up. SUSPENDED is final only for the
    job master that reports it: another one may resume the job.

    Examples:
        >>> from penstock.common import JobStatus
        >>> JobStatus.FINISHED.is_globally_terminal_state(), JobStatus.RESTARTING.is_terminal_state()
        (True, False)
    """

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9
    INITIALIZING = 10

    def is_globally_terminal_state(self) -> bool:
        """Return whether the job has ended for good: finished, canceled or failed."""
        return self in _GLOBALLY_TERMINAL

    def is_terminal_state(self) -> bool:
        """Return whether the job has ended at least for the job master that reports it: as above, or suspended."""
        return self in _TERMINAL


# Built once, because looking up enum members is slow.
_GLOBALLY_TERMINAL: Final = (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)
_TERMINAL: Final = (*_GLOBALLY_TERMINAL, JobStatus.SUSPENDED)


class JobExecutionResult:
    """The result of a finished job.

    Args:
        job_id: the job's id.
        net_runtime_ms: the runtime in milliseconds, without the time before the job's start.
        accumulators: the final value of each accumulator, by name.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements("tea").print()
        >>> result = env.execute("cups")
        tea
        >>> result.get_net_runtime() >= 0, result.get_all_accumulator_results()
        (True, {})
    """

    def __init__(self, job_id: JobID, net_runtime_ms: int, accumulators: Mapping[str, Any] | None = None) -> None:
        self._job_id = job_id
        self._net_runtime_ms = net_runtime_ms
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobID:
        """Return the job's id."""
        return self._job_id

    def get_net_runtime(self) -> int:
        """Return the job's runtime in milliseconds."""
        return self._net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Return the final value of an accumulator, or None if the job had none of this name."""
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Return the final values of all accumulators, by name."""
        return dict(self._accumulators)

    def __repr__(self) -> str:
        return f"JobExecutionResult({self._job_id}, {self._net_runtime_ms} ms, {self._accumulators!r})"


T = TypeVar("T")


class CompletableFuture(Future[T]):
    """A `concurrent.futures.Future` that its creator completes; the first completion wins.

    Readers use `result(timeout_seconds)`, `exception`, `done`, `cancel`, `cancelled` as on any future.

    Examples:
        >>> from penstock.common import CompletableFuture
        >>> future = CompletableFuture()
        >>> future.complete("first"), future.complete("second")
        (True, False)
        >>> future.result(timeout=1)
        'first'
    """

    def complete(self, value: T) -> bool:
        """Set the result; return False if the future was already done."""
        try:
            self.set_result(value)
        except InvalidStateError:
            return False
        return True

    def complete_exceptionally(self, error: BaseException) -> bool:
        """Set the error that `result` raises; return False if the future was already done."""
        try:
            self.set_exception(error)
        except InvalidStateError:
            return False
        return True
