"""Accumulators: what all subtasks of a job add to, and the client reads when the job has finished.

Each subtask adds to its own; they are merged when the client asks for them. They count what was processed, which after
a failure may include some records twice. What a subtask added in a failed attempt is lost with that attempt. For
answers that must be exact, use state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, Generic, TypeVar

__all__ = ["Accumulator", "DoubleCounter", "Histogram", "IntCounter", "ListAccumulator", "LongCounter"]

V = TypeVar("V")
R = TypeVar("R")


class Accumulator(ABC, Generic[V, R]):
    """Takes values in and can be merged with others of its class; must be picklable."""

    @abstractmethod
    def add(self, value: V) -> None:
        """Take a value in."""

    @abstractmethod
    def get_local_value(self) -> R:
        """The value of what was taken in; in the end, of all subtasks."""

    @abstractmethod
    def reset_local(self) -> None:
        """Begin again."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Take in the content of another one, which stays as it is."""


class _Sum(Accumulator[V, V]):
    zero: Any = 0

    def __init__(self, value: Any = None) -> None:
        self._value: Any = self.zero if value is None else value

    def add(self, value: V) -> None:
        """Add a number."""
        self._value += value

    def get_local_value(self) -> V:
        """The sum."""
        value: V = self._value
        return value

    def reset_local(self) -> None:
        """Back to zero."""
        self._value = self.zero

    def merge(self, other: _Sum[V]) -> None:
        """Add the other's sum."""
        self._value += other._value


class IntCounter(_Sum[int]):
    """A sum of whole numbers."""


class LongCounter(IntCounter):
    """A sum of whole numbers; there is one size of them."""


class DoubleCounter(_Sum[float]):
    """A sum of floating-point numbers."""

    zero = 0.0


class ListAccumulator(Accumulator[Any, list[Any]]):
    """All values, in no particular order between subtasks; they travel to the client, so there should be few."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        """Append a value."""
        self._values.append(value)

    def get_local_value(self) -> list[Any]:
        """The values."""
        return list(self._values)

    def reset_local(self) -> None:
        """Forget them."""
        self._values = []

    def merge(self, other: ListAccumulator) -> None:
        """Append the other's values."""
        self._values += other._values


class Histogram(Accumulator[int, dict[int, int]]):
    """How often each whole number came."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, value: int) -> None:
        """Count a number."""
        self._counts[value] += 1

    def get_local_value(self) -> dict[int, int]:
        """Numbers in their order, with how often each came."""
        return dict(sorted(self._counts.items()))

    def reset_local(self) -> None:
        """Forget them."""
        self._counts.clear()

    def merge(self, other: Histogram) -> None:
        """Add the other's counts."""
        self._counts += other._counts
