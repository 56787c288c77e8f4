"""Aggregators of iterations: values that all subtasks of a superstep add to, and the next superstep reads.

An aggregator is registered with an iteration under a name. In a superstep, each operator subtask that asks for it
(`RuntimeContext.get_iteration_aggregator`) adds to its own copy. When the superstep is complete, the copies' results
are aggregated, once per task, however often Spark ran it. The result is then available to the convergence criterion and
to the functions of the next superstep (`RuntimeContext.get_previous_iteration_aggregate`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

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

V = TypeVar("V")


class Aggregator(ABC, Generic[V]):
    """Aggregates values in any order; must be picklable.

    The copies' results are themselves aggregated like values: for a sum, the sum of the sums.
    """

    @abstractmethod
    def get_aggregate(self) -> V:
        """Return the aggregate of the values since the last `reset`; it must be picklable."""

    @abstractmethod
    def aggregate(self, element: V) -> None:
        """Add a value, or the aggregate of another copy."""

    @abstractmethod
    def reset(self) -> None:
        """Start over, as at the start of each superstep."""


class ConvergenceCriterion(ABC, Generic[V]):
    """Decides whether an iteration ends before its maximum number of supersteps. Runs in the user's program."""

    @abstractmethod
    def is_converged(self, iteration: int, value: V) -> bool:
        """Return whether to end the iteration.

        Args:
            iteration: the completed superstep, counted from 1.
            value: the aggregator's result in that superstep.
        """


class _Folding(Aggregator[V]):
    """Folds numbers into one; `nothing` is the result without any."""

    nothing: Any = 0

    def __init__(self) -> None:
        self._value: Any = self.nothing

    def get_aggregate(self) -> V:
        """Return the aggregate of the numbers."""
        value: V = self._value
        return value

    def reset(self) -> None:
        """Start over."""
        self._value = self.nothing


class LongSumAggregator(_Folding[int]):
    """The sum of integers; 0 without any."""

    def aggregate(self, element: int) -> None:
        """Add a number."""
        self._value += element


class DoubleSumAggregator(_Folding[float]):
    """The sum of floating-point numbers; 0.0 without any."""

    nothing = 0.0

    def aggregate(self, element: float) -> None:
        """Add a number."""
        self._value += element


class LongMinAggregator(_Folding[int]):
    """The minimum of integers; 2**63 - 1 without any."""

    nothing = 2**63 - 1

    def aggregate(self, element: int) -> None:
        """Add a number."""
        if element < self._value:
            self._value = element


class LongMaxAggregator(_Folding[int]):
    """The maximum of integers; -2**63 without any."""

    nothing = -(2**63)

    def aggregate(self, element: int) -> None:
        """Add a number."""
        if element > self._value:
            self._value = element


class DoubleMinAggregator(_Folding[float]):
    """The minimum of floating-point numbers; infinity without any."""

    nothing = float("inf")

    def aggregate(self, element: float) -> None:
        """Add a number."""
        if element < self._value:
            self._value = element


class DoubleMaxAggregator(_Folding[float]):
    """The maximum of floating-point numbers; minus infinity without any."""

    nothing = float("-inf")

    def aggregate(self, element: float) -> None:
        """Add a number."""
        if element > self._value:
            self._value = element


class LongZeroConvergence(ConvergenceCriterion[int]):
    """Ends the iteration when the aggregate, such as a count of changes, is 0."""

    def is_converged(self, iteration: int, value: int) -> bool:
        """Return whether the aggregate is 0."""
        return value == 0


class DoubleZeroConvergence(ConvergenceCriterion[float]):
    """Ends the iteration when the aggregate is 0.0."""

    def is_converged(self, iteration: int, value: float) -> bool:
        """Return whether the aggregate is 0.0."""
        return value == 0.0
