"""What a program can do with a job it has submitted."""

from penstock.drivers.job_client import (
    JobClient,
)

__all__ = [
    "JobClient",
]
