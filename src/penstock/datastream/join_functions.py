"""The functions of joins. PyFlink has no joins, so the names are those of Flink's Java API, in Python's spelling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeAlias

from penstock.core.operators.keyed.interval_join import ProcessJoinContext
from penstock.datastream.functions import Function

__all__ = ["CoGroupFunction", "FlatJoinFunction", "JoinFunction", "ProcessJoinFunction"]


class JoinFunction(Function, ABC):
    """One record out for each pair of a window."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """The record to emit for a pair."""


class FlatJoinFunction(Function, ABC):
    """Any number of records out for each pair of a window."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Iterable[Any] | None:
        """The records to emit for a pair; `(OutputTag, value)` for a side output."""


class CoGroupFunction(Function, ABC):
    """Sees all records of a key in a window, of both streams; one of the two lists may be empty."""

    @abstractmethod
    def co_group(self, first: list[Any], second: list[Any]) -> Iterable[Any] | None:
        """The records to emit; `(OutputTag, value)` for a side output."""


class ProcessJoinFunction(Function, ABC):
    """Sees each pair of an interval join, with its timestamps."""

    Context: TypeAlias = ProcessJoinContext

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinContext) -> Iterable[Any] | None:
        """The records to emit for a pair; `(OutputTag, value)` for a side output."""
