"""Durations and instants, and the only conversion of either to milliseconds."""

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
