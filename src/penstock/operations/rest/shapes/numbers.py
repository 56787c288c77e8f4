"""Numbers in Flink's JSON: distributions of durations and sizes, and NaN as a string."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

#: A number, or the string for NaN.
Number: TypeAlias = float | Literal["NaN"]


class Summary(msgspec.Struct, frozen=True):
    """The distribution of durations or sizes of checkpoints or rescales."""

    min: int
    max: int
    avg: int
    p50: Number
    p90: Number
    p95: Number
    p99: Number
    p999: Number


class Spread(msgspec.Struct, frozen=True):
    """The distribution of a metric over subtasks."""

    min: int
    max: int
    avg: int
    sum: int
    median: int
    p25: int
    p75: int
    p95: int


def percentile(ordered: Sequence[int], part: float) -> float:
    """Return a percentile, interpolated between neighbours as Commons Math does by default."""
    position = part * (len(ordered) + 1)
    if position < 1:
        return float(ordered[0])
    if position >= len(ordered):
        return float(ordered[-1])
    below = math.floor(position)
    lower, upper = ordered[below - 1], ordered[below]
    return lower + (position - below) * (upper - lower)


def summary(values: Sequence[int]) -> Summary:
    """Summarize any number of values; percentiles of no values are NaN."""
    if not values:
        return Summary(0, 0, 0, "NaN", "NaN", "NaN", "NaN", "NaN")
    ordered = sorted(values)
    parts = (percentile(ordered, part) for part in (0.5, 0.9, 0.95, 0.99, 0.999))
    return Summary(ordered[0], ordered[-1], sum(ordered) // len(ordered), *parts)


def spread(values: Sequence[int]) -> Spread:
    """Summarize the values of some subtasks; all zeros without values."""
    if not values:
        return Spread(0, 0, 0, 0, 0, 0, 0, 0)
    ordered = sorted(values)
    median, p25, p75, p95 = (round(percentile(ordered, part)) for part in (0.5, 0.25, 0.75, 0.95))
    return Spread(ordered[0], ordered[-1], sum(ordered) // len(ordered), sum(ordered), median, p25, p75, p95)


def number(value: float) -> Number:
    """Convert a number for JSON: NaN and infinities become "NaN"."""
    return value if math.isfinite(value) else "NaN"
