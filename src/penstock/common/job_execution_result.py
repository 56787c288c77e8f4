"""The result of a finished job."""

from penstock.base.job import (
    JobExecutionResult,
)

__all__ = [
    "JobExecutionResult",
]
