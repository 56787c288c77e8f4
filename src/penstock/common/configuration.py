"""`Configuration`: the settings of a job, by key."""

from penstock.base.configuration import (
    Configuration,
)

__all__ = [
    "Configuration",
]
