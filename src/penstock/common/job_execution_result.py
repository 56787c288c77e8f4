"""The result of a finished job."""

from penstock.base.job_execution_result import (
    JobExecutionResult,
)

__all__ = [
    "JobExecutionResult",
]
