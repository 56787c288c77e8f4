"""Iteration aggregators: all subtasks of a superstep add to them, and the next superstep reads the result."""

from penstock.base.accumulators import (
    Aggregator,
    ConvergenceCriterion,
    DoubleMaxAggregator,
    DoubleMinAggregator,
    DoubleSumAggregator,
    DoubleZeroConvergence,
    LongMaxAggregator,
    LongMinAggregator,
    LongSumAggregator,
    LongZeroConvergence,
)

__all__ = [
    "Aggregator",
    "ConvergenceCriterion",
    "DoubleMaxAggregator",
    "DoubleMinAggregator",
    "DoubleSumAggregator",
    "DoubleZeroConvergence",
    "LongMaxAggregator",
    "LongMinAggregator",
    "LongSumAggregator",
    "LongZeroConvergence",
]
