"""Accumulators: all subtasks of a job add to them, and the client reads the totals when the job has finished."""

from penstock.base.accumulators import (
    Accumulator,
    DoubleCounter,
    Histogram,
    IntCounter,
    ListAccumulator,
    LongCounter,
)

__all__ = [
    "Accumulator",
    "DoubleCounter",
    "Histogram",
    "IntCounter",
    "ListAccumulator",
    "LongCounter",
]
