"""The base classes of user-defined aggregate functions.

An accumulator is the function's state for the rows of a group: a list, a `Row`, a view, or any other object that is
mutable and picklable. `accumulate` and `retract` change it in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from penstock.base.errors import UnsupportedError
from penstock.table.user_functions.classes import UserDefinedFunction

T = TypeVar("T")
ACC = TypeVar("ACC")


class ImperativeAggregateFunction(UserDefinedFunction, ABC, Generic[T, ACC]):
    """The base class of functions over all rows of a group."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Create the accumulator of a group without rows; it must not be None."""

    @abstractmethod
    def accumulate(self, accumulator: ACC, *args: Any) -> None:
        """Add a row. `args`: its operands; NULL is None."""

    def retract(self, accumulator: ACC, *args: Any) -> None:
        """Retract a row. Required for inputs with updates or deletes, and for bounded OVER windows."""
        raise UnsupportedError(f"{type(self).__name__} does not implement retract")

    def merge(self, accumulator: ACC, accumulators: Iterable[ACC]) -> None:
        """Merge other accumulators into one. Never called: sessions are known before their rows are aggregated."""
        raise UnsupportedError(f"{type(self).__name__} does not implement merge")

    def get_result_type(self) -> Any:
        """Return the result type, one of `DataTypes` or its text, if neither `udaf` nor an annotation declares it."""
        raise UnsupportedError(f"{type(self).__name__} does not implement get_result_type")

    def get_accumulator_type(self) -> Any:
        """Return the type of an accumulator. Optional: accumulators are pickled."""
        raise UnsupportedError(f"{type(self).__name__} does not implement get_accumulator_type")


class AggregateFunction(ImperativeAggregateFunction[T, ACC]):
    """Returns one value for all rows of a group. Flink: "Aggregate Functions"."""

    @abstractmethod
    def get_value(self, accumulator: ACC) -> T:
        """Return the value for the rows so far."""


class TableAggregateFunction(ImperativeAggregateFunction[T, ACC]):
    """Returns any number of rows for all rows of a group. Flink: "Table Aggregate Functions"."""

    @abstractmethod
    def emit_value(self, accumulator: ACC) -> Iterable[T]:
        """Return the output for the rows so far, as an iterator or a list. A row is a tuple, a `Row`, or its only
        column.
        """


def implements(function: object, method: str) -> bool:
    """Return whether an aggregate function overrides a method of the base class."""
    if not isinstance(function, ImperativeAggregateFunction):
        return False
    return getattr(type(function), method) is not getattr(ImperativeAggregateFunction, method)
