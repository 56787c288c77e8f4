"""The handle of a submitted job."""

from penstock.drivers.job_client import (
    JobClient,
)

__all__ = [
    "JobClient",
]
