"""Accumulators: all subtasks of a job add to them, and the client reads them when the job has finished.

Each subtask adds to its own copy; the copies are merged when the client asks for them. Accumulators count processed
records, so after a failure they may count some records twice. A failed attempt's contributions are lost with that
attempt. For exact results, use state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, Generic, TypeVar

__all__ = ["Accumulator", "DoubleCounter", "Histogram", "IntCounter", "ListAccumulator", "LongCounter"]

V = TypeVar("V")
R = TypeVar("R")


class Accumulator(ABC, Generic[V, R]):
    """Collects values and merges with others of its class; must be picklable."""

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
    """A sum of integers."""


class LongCounter(IntCounter):
    """A sum of integers, like `IntCounter`: integers have a single size here."""


class DoubleCounter(_Sum[float]):
    """A sum of floating-point numbers."""

    zero = 0.0


class ListAccumulator(Accumulator[Any, list[Any]]):
    """A list of all values, in no particular order across subtasks.

    The values travel to the client, so keep them few.
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
    """Counts the occurrences of each integer."""

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
