"""The unique id of a job."""

from penstock.base.job import (
    JobID,
)

__all__ = [
    "JobID",
]
