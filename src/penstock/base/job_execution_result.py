"""The result of a finished job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.job_id import JobID

__all__ = ["JobExecutionResult"]


class JobExecutionResult:
    """The result of a finished job.

    Args:
        job_id: the job's id.
        net_runtime_ms: the runtime in milliseconds, without the time before the job's start.
        accumulators: the final value of each accumulator, by name.
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
