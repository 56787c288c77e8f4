"""The states of a job's life cycle."""

from penstock.base.job_status import (
    JobStatus,
)

__all__ = [
    "JobStatus",
]
