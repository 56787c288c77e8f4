"""Accumulators: what all subtasks of a job add to, and the client reads when the job has finished."""

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
