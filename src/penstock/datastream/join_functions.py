"""The interfaces of join functions. PyFlink has no joins, so the names are Flink's Java names in Python spelling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeAlias

from penstock.datastream.functions import Function
from penstock.runtime.operators.keyed.interval_join import ProcessJoinContext

__all__ = ["CoGroupFunction", "FlatJoinFunction", "JoinFunction", "ProcessJoinFunction"]


class JoinFunction(Function, ABC):
    """Produces one record for each pair of a window."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """Return the record to emit for a pair."""


class FlatJoinFunction(Function, ABC):
    """Produces any number of records for each pair of a window."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Iterable[Any] | None:
        """Return the records to emit for a pair; `(OutputTag, value)` for a side output."""


class CoGroupFunction(Function, ABC):
    """Processes all records of a key and window from both streams; one of the two lists may be empty."""

    @abstractmethod
    def co_group(self, first: list[Any], second: list[Any]) -> Iterable[Any] | None:
        """Return the records to emit; `(OutputTag, value)` for a side output."""


class ProcessJoinFunction(Function, ABC):
    """Processes each pair of an interval join, with its timestamps."""

    Context: TypeAlias = ProcessJoinContext

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinContext) -> Iterable[Any] | None:
        """Return the records to emit for a pair; `(OutputTag, value)` for a side output."""
