"""What is known of a job that has finished."""

from penstock.base.job_execution_result import (
    JobExecutionResult,
)

__all__ = [
    "JobExecutionResult",
]
