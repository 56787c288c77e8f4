"""Accumulators of jobs and aggregators of iterations: values that all subtasks add to.

**Accumulators.** Each subtask adds to its own copy; the copies are merged when the client asks for them, while the job
runs or when it has finished. Accumulators count processed records, so after a failure they may count some records
twice. A failed attempt's contributions are lost with that attempt. For exact results, use state.

**Aggregators.** An aggregator is registered with an iteration under a name. In a superstep, each operator subtask that
asks for it (`RuntimeContext.get_iteration_aggregator`) adds to its own copy. When the superstep is complete, the
copies' results are aggregated, once per task, however often Spark ran it. The result is then available to the
convergence criterion and to the functions of the next superstep (`RuntimeContext.get_previous_iteration_aggregate`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, Generic, TypeVar

__all__ = [
    "Accumulator",
    "Aggregator",
    "ConvergenceCriterion",
    "DoubleCounter",
    "DoubleMaxAggregator",
    "DoubleMinAggregator",
    "DoubleSumAggregator",
    "DoubleZeroConvergence",
    "Histogram",
    "IntCounter",
    "ListAccumulator",
    "LongCounter",
    "LongMaxAggregator",
    "LongMinAggregator",
    "LongSumAggregator",
    "LongZeroConvergence",
]


V = TypeVar("V")
R = TypeVar("R")


class Accumulator(ABC, Generic[V, R]):
    """Collects values and merges with others of its class; must be picklable.

    Examples:
        >>> from penstock.common.accumulators import Accumulator
        >>> class Longest(Accumulator):
        ...     def __init__(self):
        ...         self.reset_local()
        ...     def add(self, value):
        ...         self.word = max(self.word, value, key=len)
        ...     def get_local_value(self):
        ...         return self.word
        ...     def reset_local(self):
        ...         self.word = ""
        ...     def merge(self, other):
        ...         self.add(other.word)
        >>> longest = Longest()
        >>> longest.add("tea")
        >>> longest.get_local_value()
        'tea'
    """

    @abstractmethod
    def add(self, value: V) -> None:
        """Add a value."""

    @abstractmethod
    def get_local_value(self) -> R:
        """Return the result for the values added so far; at the end, for those of all subtasks."""

    @abstractmethod
    def reset_local(self) -> None:
        """Start over."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Merge another accumulator into this one, leaving the other unchanged."""


class _Sum(Accumulator[V, V]):
    zero: Any = 0

    def __init__(self, value: Any = None) -> None:
        self._value: Any = self.zero if value is None else value

    def add(self, value: V) -> None:
        """Add a number."""
        self._value += value

    def get_local_value(self) -> V:
        """Return the sum."""
        value: V = self._value
        return value

    def reset_local(self) -> None:
        """Reset to zero."""
        self._value = self.zero

    def merge(self, other: _Sum[V]) -> None:
        """Add the other's sum."""
        self._value += other._value


class IntCounter(_Sum[int]):
    """A sum of integers.

    Examples:
        >>> from penstock.common.accumulators import IntCounter
        >>> counter = IntCounter()
        >>> counter.add(2)
        >>> counter.get_local_value()
        2
    """


class LongCounter(IntCounter):
    """A sum of integers, like `IntCounter`: integers have a single size here.

    Examples:
        >>> from penstock.common.accumulators import LongCounter
        >>> counter = LongCounter()
        >>> counter.add(1 << 40)
        >>> counter.get_local_value()
        1099511627776
    """


class DoubleCounter(_Sum[float]):
    """A sum of floating-point numbers.

    Examples:
        >>> from penstock.common.accumulators import DoubleCounter
        >>> counter = DoubleCounter()
        >>> counter.add(0.5)
        >>> counter.get_local_value()
        0.5
    """

    zero = 0.0


class ListAccumulator(Accumulator[Any, list[Any]]):
    """A list of all values, in no particular order across subtasks.

    The values travel to the client, so keep them few.

    Examples:
        >>> from penstock.common.accumulators import ListAccumulator
        >>> words = ListAccumulator()
        >>> words.add("tea")
        >>> words.get_local_value()
        ['tea']
    """

    def __init__(self) -> None:
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        """Append a value."""
        self._values.append(value)

    def get_local_value(self) -> list[Any]:
        """Return the values."""
        return list(self._values)

    def reset_local(self) -> None:
        """Clear the values."""
        self._values = []

    def merge(self, other: ListAccumulator) -> None:
        """Append the other's values."""
        self._values += other._values


class Histogram(Accumulator[int, dict[int, int]]):
    """Counts the occurrences of each integer.

    Examples:
        >>> from penstock.common.accumulators import Histogram
        >>> lengths = Histogram()
        >>> for word in ("tea", "milk", "rum"):
        ...     lengths.add(len(word))
        >>> lengths.get_local_value()
        {3: 2, 4: 1}
    """

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, value: int) -> None:
        """Count a number."""
        self._counts[value] += 1

    def get_local_value(self) -> dict[int, int]:
        """Return the count of each number, sorted by number."""
        return dict(sorted(self._counts.items()))

    def reset_local(self) -> None:
        """Clear the counts."""
        self._counts.clear()

    def merge(self, other: Histogram) -> None:
        """Add the other's counts."""
        self._counts += other._counts


class Aggregator(ABC, Generic[V]):
    """Aggregates values in any order; must be picklable.

    The copies' results are themselves aggregated like values: for a sum, the sum of the sums.

    Examples:
        >>> from penstock.common.aggregators import Aggregator
        >>> class Longest(Aggregator):
        ...     def __init__(self):
        ...         self.reset()
        ...     def get_aggregate(self):
        ...         return self.word
        ...     def aggregate(self, element):
        ...         self.word = max(self.word, element, key=len)
        ...     def reset(self):
        ...         self.word = ""
        >>> longest = Longest()
        >>> longest.aggregate("tea")
        >>> longest.get_aggregate()
        'tea'
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
    """Decides whether an iteration ends before its maximum number of supersteps. Runs in the user's program.

    Examples:
        >>> from penstock.common.aggregators import ConvergenceCriterion
        >>> class Small(ConvergenceCriterion):
        ...     def is_converged(self, iteration, value):
        ...         return iteration > 3 and value < 0.01
        >>> Small().is_converged(4, 0.001)
        True
    """

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
    """The sum of integers; 0 without any.

    Examples:
        >>> from penstock.common.aggregators import LongSumAggregator
        >>> aggregator = LongSumAggregator()
        >>> for number in (2, 3):
        ...     aggregator.aggregate(number)
        >>> aggregator.get_aggregate()
        5
    """

    def aggregate(self, element: int) -> None:
        """Add a number."""
        self._value += element


class DoubleSumAggregator(_Folding[float]):
    """The sum of floating-point numbers; 0.0 without any.

    Examples:
        >>> from penstock.common.aggregators import DoubleSumAggregator
        >>> aggregator = DoubleSumAggregator()
        >>> for number in (0.5, 1.5):
        ...     aggregator.aggregate(number)
        >>> aggregator.get_aggregate()
        2.0
    """

    nothing = 0.0

    def aggregate(self, element: float) -> None:
        """Add a number."""
        self._value += element


class LongMinAggregator(_Folding[int]):
    """The minimum of integers; 2**63 - 1 without any.

    Examples:
        >>> from penstock.common.aggregators import LongMinAggregator
        >>> aggregator = LongMinAggregator()
        >>> for number in (2, 3):
        ...     aggregator.aggregate(number)
        >>> aggregator.get_aggregate()
        2
    """

    nothing = 2**63 - 1

    def aggregate(self, element: int) -> None:
        """Add a number."""
        if element < self._value:
            self._value = element


class LongMaxAggregator(_Folding[int]):
    """The maximum of integers; -2**63 without any.

    Examples:
        >>> from penstock.common.aggregators import LongMaxAggregator
        >>> aggregator = LongMaxAggregator()
        >>> for number in (2, 3):
        ...     aggregator.aggregate(number)
        >>> aggregator.get_aggregate()
        3
    """

    nothing = -(2**63)

    def aggregate(self, element: int) -> None:
        """Add a number."""
        if element > self._value:
            self._value = element


class DoubleMinAggregator(_Folding[float]):
    """The minimum of floating-point numbers; infinity without any.

    Examples:
        >>> from penstock.common.aggregators import DoubleMinAggregator
        >>> aggregator = DoubleMinAggregator()
        >>> for number in (0.5, 1.5):
        ...     aggregator.aggregate(number)
        >>> aggregator.get_aggregate()
        0.5
    """

    nothing = float("inf")

    def aggregate(self, element: float) -> None:
        """Add a number."""
        if element < self._value:
            self._value = element


class DoubleMaxAggregator(_Folding[float]):
    """The maximum of floating-point numbers; minus infinity without any.

    Examples:
        >>> from penstock.common.aggregators import DoubleMaxAggregator
        >>> aggregator = DoubleMaxAggregator()
        >>> for number in (0.5, 1.5):
        ...     aggregator.aggregate(number)
        >>> aggregator.get_aggregate()
        1.5
    """

    nothing = float("-inf")

    def aggregate(self, element: float) -> None:
        """Add a number."""
        if element > self._value:
            self._value = element


class LongZeroConvergence(ConvergenceCriterion[int]):
    """Ends the iteration when the aggregate, such as a count of changes, is 0.

    Examples:
        >>> from penstock.common.aggregators import LongSumAggregator, LongZeroConvergence
        >>> from penstock.datastream import MapFunction, StreamExecutionEnvironment
        >>> class Halved(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.changes = runtime_context.get_iteration_aggregator("changes")
        ...     def map(self, value):
        ...         self.changes.aggregate(value - value // 2)
        ...         return value // 2
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> loop = env.from_elements(7, 12).iterate(max_iterations=100)
        >>> loop = loop.register_aggregation_convergence_criterion(
        ...     "changes", LongSumAggregator(), LongZeroConvergence()
        ... )
        >>> loop.close_with(loop.map(Halved())).collect()
        [0, 0]
    """

    def is_converged(self, iteration: int, value: int) -> bool:
        """Return whether the aggregate is 0."""
        return value == 0


class DoubleZeroConvergence(ConvergenceCriterion[float]):
    """Ends the iteration when the aggregate is 0.0.

    Examples:
        >>> from penstock.common.aggregators import DoubleZeroConvergence
        >>> DoubleZeroConvergence().is_converged(iteration=1, value=0.0)
        True
    """

    def is_converged(self, iteration: int, value: float) -> bool:
        """Return whether the aggregate is 0.0."""
        return value == 0.0
