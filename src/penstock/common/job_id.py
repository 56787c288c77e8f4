"""The unique id of a job."""

from penstock.base.job_id import (
    JobID,
)

__all__ = [
    "JobID",
]
