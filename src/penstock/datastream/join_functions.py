"""The interfaces of join functions. PyFlink has no joins, so the names are Flink's Java names in Python spelling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeAlias

from penstock.datastream.functions import Function
from penstock.runtime.operators.keyed.interval_join import ProcessJoinContext

__all__ = ["CoGroupFunction", "FlatJoinFunction", "JoinFunction", "ProcessJoinFunction"]


class JoinFunction(Function, ABC):
    """Produces one record for each pair of a window.

    Examples:
        >>> from penstock.datastream import JoinFunction, StreamExecutionEnvironment
        >>> class Lives(JoinFunction):
        ...     def join(self, first, second):
        ...         return f"{first[0]} in {second[1]}"
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> joined = env.from_elements(("ann", 1)).join(env.from_elements((1, "Bern")))
        >>> joined.where(lambda one: one[1]).equal_to(lambda city: city[0]).apply(Lives()).collect()
        ['ann in Bern']
    """

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """Return the record to emit for a pair."""


class FlatJoinFunction(Function, ABC):
    """Produces any number of records for each pair of a window.

    Examples:
        >>> from penstock.datastream import FlatJoinFunction, StreamExecutionEnvironment
        >>> class Differ(FlatJoinFunction):
        ...     def join(self, first, second):
        ...         if first != second:
        ...             yield first, second
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_elements("tea", "rum")
        >>> sorted(words.join(words).where(len).equal_to(len).apply(Differ()).collect())
        [('rum', 'tea'), ('tea', 'rum')]
    """

    @abstractmethod
    def join(self, first: Any, second: Any) -> Iterable[Any] | None:
        """Return the records to emit for a pair; `(OutputTag, value)` for a side output."""


class CoGroupFunction(Function, ABC):
    """Processes all records of a key and window from both streams; one of the two lists may be empty.

    Examples:
        >>> from penstock.datastream import CoGroupFunction, StreamExecutionEnvironment
        >>> class Alone(CoGroupFunction):
        ...     def co_group(self, first, second):
        ...         return [] if list(second) else list(first)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> groups = env.from_elements("tea", "milk").co_group(env.from_elements("rum"))
        >>> groups.where(len).equal_to(len).apply(Alone()).collect()
        ['milk']
    """

    @abstractmethod
    def co_group(self, first: list[Any], second: list[Any]) -> Iterable[Any] | None:
        """Return the records to emit; `(OutputTag, value)` for a side output."""


class ProcessJoinFunction(Function, ABC):
    """Processes each pair of an interval join, with its timestamps.

    Examples:
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import ProcessJoinFunction, StreamExecutionEnvironment
        >>> class Pair(ProcessJoinFunction):
        ...     def process_element(self, left, right, ctx):
        ...         yield left, right
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_ms = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda ms: ms)
        >>> times = env.from_elements(1, 5).assign_timestamps_and_watermarks(in_ms).key_by(lambda ms: 0)
        >>> times.interval_join(times).between(1, 10).process(Pair()).collect()
        [(1, 5)]
    """

    Context: TypeAlias = ProcessJoinContext

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinContext) -> Iterable[Any] | None:
        """Return the records to emit for a pair; `(OutputTag, value)` for a side output."""
