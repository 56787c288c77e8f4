"""What is known of a job that has finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.job_id import JobID

__all__ = ["JobExecutionResult"]


class JobExecutionResult:
    """The outcome of a job that finished.

    Args:
        job_id: the job.
        net_runtime_ms: how long it ran, in milliseconds, without the time before its start.
        accumulators: the final value of each accumulator, by name.
    """

    def __init__(self, job_id: JobID, net_runtime_ms: int, accumulators: Mapping[str, Any] | None = None) -> None:
        self._job_id = job_id
        self._net_runtime_ms = net_runtime_ms
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobID:
        """The job."""
        return self._job_id

    def get_net_runtime(self) -> int:
        """How long the job ran, in milliseconds."""
        return self._net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """The final value of an accumulator; None when the job had none of this name."""
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """The final values of all accumulators, by name."""
        return dict(self._accumulators)

    def __repr__(self) -> str:
        return f"JobExecutionResult({self._job_id}, {self._net_runtime_ms} ms, {self._accumulators!r})"
