"""The states in the life of a job."""

from penstock.base.job_status import (
    JobStatus,
)

__all__ = [
    "JobStatus",
]
