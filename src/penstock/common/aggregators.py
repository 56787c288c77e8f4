"""Aggregators of iterations: figures that all subtasks of a superstep add to, and the next superstep reads."""

from penstock.base.aggregators import (
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
