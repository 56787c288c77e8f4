"""The handle of a submitted job."""

from penstock.drivers.running_job import (
    JobClient,
)

__all__ = [
    "JobClient",
]
