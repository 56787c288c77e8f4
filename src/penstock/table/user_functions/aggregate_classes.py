"""The classes that aggregate functions of a program derive from.

An accumulator is what such a function keeps of the rows of a group: a list, a `Row`, a view, or any other object that
can be changed and pickled. `accumulate` and `retract` change it in place.
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
    """The base of functions of all rows of a group."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """What is kept of no row. None is no accumulator."""

    @abstractmethod
    def accumulate(self, accumulator: ACC, *args: Any) -> None:
        """Take a row in. `args`: its operands; NULL is None."""

    def retract(self, accumulator: ACC, *args: Any) -> None:
        """Take a row back. It is needed where rows change or go, and in OVER windows with a bound."""
        raise UnsupportedError(f"{type(self).__name__} does not implement retract")

    def merge(self, accumulator: ACC, accumulators: Iterable[ACC]) -> None:
        """Put other accumulators into one. Nothing calls it: sessions are known before their rows are aggregated."""
        raise UnsupportedError(f"{type(self).__name__} does not implement merge")

    def get_result_type(self) -> Any:
        """The type of the result, one of `DataTypes` or its text, where neither `udaf` nor an annotation says it."""
        raise UnsupportedError(f"{type(self).__name__} does not implement get_result_type")

    def get_accumulator_type(self) -> Any:
        """The type of an accumulator. It may be left out: accumulators are pickled."""
        raise UnsupportedError(f"{type(self).__name__} does not implement get_accumulator_type")


class AggregateFunction(ImperativeAggregateFunction[T, ACC]):
    """Gives one value for all rows of a group. Flink: "Aggregate Functions"."""

    @abstractmethod
    def get_value(self, accumulator: ACC) -> T:
        """The value for the rows so far."""


class TableAggregateFunction(ImperativeAggregateFunction[T, ACC]):
    """Gives any number of rows for all rows of a group. Flink: "Table Aggregate Functions"."""

    @abstractmethod
    def emit_value(self, accumulator: ACC) -> Iterable[T]:
        """The rows for the rows so far, as an iterator or a list. A row is a tuple, a `Row`, or its only column."""


def implements(function: object, method: str) -> bool:
    """Whether an aggregate function has a method of its own that the base only names."""
    if not isinstance(function, ImperativeAggregateFunction):
        return False
    return getattr(type(function), method) is not getattr(ImperativeAggregateFunction, method)
