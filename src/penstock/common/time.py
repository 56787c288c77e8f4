"""Lengths of time and points in time, and the one place that turns either into milliseconds."""

from penstock.base.time import (
    Duration,
    Instant,
    Time,
    format_duration,
    parse_duration,
    to_millis,
)

__all__ = [
    "Duration",
    "Instant",
    "Time",
    "format_duration",
    "parse_duration",
    "to_millis",
]
