"""The states of a job's life cycle."""

from penstock.base.job import (
    JobStatus,
)

__all__ = [
    "JobStatus",
]
