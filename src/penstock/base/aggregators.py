"""Aggregators of iterations: figures that all subtasks of a superstep add to, and the next superstep reads.

An aggregator is registered with an iteration under a name. In a superstep each operator's subtask that asks for it
(`RuntimeContext.get_iteration_aggregator`) adds to a copy of its own. When the superstep is complete, the results of
the copies are aggregated, once for each task, however often Spark ran it. The convergence criterion then sees the
result, and so do the functions of the next superstep (`RuntimeContext.get_previous_iteration_aggregate`).
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
    """Takes values in, in any order, and gives their aggregate; must be picklable.

    The aggregates of copies in several subtasks are aggregated as values are: for a sum, the sum of the sums.
    """

    @abstractmethod
    def get_aggregate(self) -> V:
        """The aggregate of the values since the last `reset`; picklable."""

    @abstractmethod
    def aggregate(self, element: V) -> None:
        """Take in a value, or the aggregate of another copy."""

    @abstractmethod
    def reset(self) -> None:
        """Begin again, as each superstep does."""


class ConvergenceCriterion(ABC, Generic[V]):
    """Says whether an iteration ends before its maximum of supersteps. It is asked in the program."""

    @abstractmethod
    def is_converged(self, iteration: int, value: V) -> bool:
        """Whether to end.

        Args:
            iteration: the superstep that is complete, from 1.
            value: the aggregator's result in it.
        """


class _Folding(Aggregator[V]):
    """One number, folded with each further one; `nothing` where there was none."""

    nothing: Any = 0

    def __init__(self) -> None:
        self._value: Any = self.nothing

    def get_aggregate(self) -> V:
        """The aggregate of the numbers."""
        value: V = self._value
        return value

    def reset(self) -> None:
        """Forget the numbers."""
        self._value = self.nothing


class LongSumAggregator(_Folding[int]):
    """The sum of whole numbers; 0 where there were none."""

    def aggregate(self, element: int) -> None:
        """Add a number."""
        self._value += element


class DoubleSumAggregator(_Folding[float]):
    """The sum of floating-point numbers; 0.0 where there were none."""

    nothing = 0.0

    def aggregate(self, element: float) -> None:
        """Add a number."""
        self._value += element


class LongMinAggregator(_Folding[int]):
    """The least of whole numbers; 2**63 - 1 where there were none."""

    nothing = 2**63 - 1

    def aggregate(self, element: int) -> None:
        """Take a number in."""
        if element < self._value:
            self._value = element


class LongMaxAggregator(_Folding[int]):
    """The greatest of whole numbers; -2**63 where there were none."""

    nothing = -(2**63)

    def aggregate(self, element: int) -> None:
        """Take a number in."""
        if element > self._value:
            self._value = element


class DoubleMinAggregator(_Folding[float]):
    """The least of floating-point numbers; infinity where there were none."""

    nothing = float("inf")

    def aggregate(self, element: float) -> None:
        """Take a number in."""
        if element < self._value:
            self._value = element


class DoubleMaxAggregator(_Folding[float]):
    """The greatest of floating-point numbers; minus infinity where there were none."""

    nothing = float("-inf")

    def aggregate(self, element: float) -> None:
        """Take a number in."""
        if element > self._value:
            self._value = element


class LongZeroConvergence(ConvergenceCriterion[int]):
    """Ends the iteration when the aggregate is 0, such as a count of what has changed."""

    def is_converged(self, iteration: int, value: int) -> bool:
        """Whether it is 0."""
        return value == 0


class DoubleZeroConvergence(ConvergenceCriterion[float]):
    """Ends the iteration when the aggregate is 0.0."""

    def is_converged(self, iteration: int, value: float) -> bool:
        """Whether it is 0.0."""
        return value == 0.0
