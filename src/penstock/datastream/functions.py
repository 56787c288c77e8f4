"""The interfaces of user-defined functions, under PyFlink's names.

A plain callable is accepted wherever a function object is. Functions are pickled and sent to workers, so objects that
cannot be pickled (connections, locks) belong in `open`, which runs there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from penstock.base.errors import UnsupportedError
from penstock.datastream.async_retry_strategies import AsyncRetryPredicate, AsyncRetryStrategy
from penstock.datastream.function import AsyncFunction, Function, Subscripted
from penstock.runtime.operators.function_context import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateStore,
    RuntimeContext,
)
from penstock.runtime.operators.record.process import (
    BroadcastBaseContext,
    BroadcastContext,
    BroadcastOnTimerContext,
    KeyedBroadcastContext,
    KeyedProcessContext,
    KeyedReadOnlyContext,
    ProcessContext,
    ReadOnlyContext,
    TimerService,
)
from penstock.runtime.operators.record.process import OnTimerContext as KeyedTimerContext
from penstock.runtime.operators.window.base import WindowProcessContext

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointListener",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "MapFunction",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "TimerService",
    "WindowFunction",
]


class MapFunction(Function, ABC):
    """Transforms one record into one record."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """Return the record to emit."""


class FlatMapFunction(Function, ABC):
    """Transforms one record into any number of records."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any]:
        """Return the records to emit: a generator, any other iterable, or None."""


class FilterFunction(Function, ABC):
    """Keeps or drops records."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return whether to keep the record."""


class ReduceFunction(Function, ABC):
    """Combines two values into one.

    The function must be associative, and must not modify its arguments, which may have been emitted already.
    """

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """Return the combined value."""


class KeySelector(Function, ABC):
    """Extracts the key of a record."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """Return the key: a str, number, bytes, datetime, dataclass, Row or tuple of these; equal for equal records."""


class Partitioner(Function, ABC):
    """Selects the subtask that receives a key's records (B3)."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return a subtask index from 0 to `num_partitions` - 1, always the same for equal keys that are to meet."""


class AggregateFunction(Function, ABC):
    """Aggregates values in an accumulator, which may be modified in place."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with the value added."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the result of an accumulator."""

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Return the merge of two accumulators; only required for session windows."""
        raise UnsupportedError(f"{type(self).__name__}.merge is required for windows that merge")


class ProcessFunction(Function, ABC):
    """Processes each record with its context; yields results, and `(OutputTag, value)` for side outputs."""

    Context: TypeAlias = ProcessContext

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Return the records to emit: a generator, a list, an iterator, or None."""


class KeyedProcessFunction(Function, ABC):
    """Processes each record with the state and timers of its key (A1)."""

    Context: TypeAlias = KeyedProcessContext
    OnTimerContext: TypeAlias = KeyedTimerContext
    #: Whether processing-time timers that are pending at the final end of the input all fire then; otherwise they are
    #: dropped (F5).
    drain_processing_time_timers: ClassVar[bool] = False

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessContext) -> Iterable[Any] | None:
        """Return the records to emit: a generator, a list, an iterator, or None."""

    def on_timer(self, timestamp: int, ctx: KeyedTimerContext) -> Iterable[Any] | None:
        """Return the records to emit for a timer of the current key that is due at `timestamp` ms."""


class CoMapFunction(Function, ABC):
    """Transforms each record of either stream into one record; None emits nothing."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the record to emit for a record of the first stream."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the record to emit for a record of the second stream."""


class CoFlatMapFunction(Function, ABC):
    """Transforms each record of either stream into any number of records."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any]:
        """Return the records to emit for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any]:
        """Return the records to emit for a record of the second stream."""


class CoProcessFunction(Function, ABC):
    """Processes the records of two streams with their contexts."""

    Context: TypeAlias = ProcessContext

    @abstractmethod
    def process_element1(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Return the records to emit for a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Return the records to emit for a record of the second stream."""


class KeyedCoProcessFunction(Function, ABC):
    """Processes the records of two keyed streams, which share the state and timers of their keys (A1)."""

    Context: TypeAlias = KeyedProcessContext
    OnTimerContext: TypeAlias = KeyedTimerContext
    #: See `KeyedProcessFunction`.
    drain_processing_time_timers: ClassVar[bool] = False

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedProcessContext) -> Iterable[Any] | None:
        """Return the records to emit for a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedProcessContext) -> Iterable[Any] | None:
        """Return the records to emit for a record of the second stream."""

    def on_timer(self, timestamp: int, ctx: KeyedTimerContext) -> Iterable[Any] | None:
        """Return the records to emit for a timer of the current key that is due at `timestamp` ms."""


class BaseBroadcastProcessFunction(Subscripted, Function, ABC):
    """Base class of both broadcast process functions, with the contexts of the two sides."""

    BaseContext: TypeAlias = BroadcastBaseContext
    Context: TypeAlias = BroadcastContext
    ReadOnlyContext: TypeAlias = ReadOnlyContext


class BroadcastProcessFunction(BaseBroadcastProcessFunction):
    """Processes the records of a stream, and in every subtask all records of a broadcast stream (A1, D2).

    The broadcast side stores rules, prices or models in broadcast state, and the other side reads them.

    Penstock enforces only the first of these rules:

    - Only `process_broadcast_element` writes broadcast state. It must write the same values in every subtask, so it may
      depend on the record and the state alone, not on a clock, random numbers, the subtask index or the records of the
      other side. Subtasks do not communicate. A checkpoint contains the state of each subtask, and after rescaling each
      subtask restores any one of the copies.
    - Records of several producers reach each subtask in a different order. Do not let the state depend on that order:
      store a version in the value, or give the broadcast stream parallelism 1.
    - Records of one side may overtake the other side's. A function that needs the rules first must buffer records.
    - Broadcast state is held in memory, once per subtask, whatever the state backend. Every checkpoint contains all of
      it.
    - A broadcast stream without watermarks holds back event time; `WatermarkStrategy.with_idleness` lets event time
      advance.
    """

    Context: TypeAlias = BroadcastContext
    ReadOnlyContext: TypeAlias = ReadOnlyContext

    @abstractmethod
    def process_element(self, value: Any, ctx: ReadOnlyContext) -> Iterable[Any] | None:
        """Return the records to emit for a non-broadcast record; `(OutputTag, value)` for side outputs."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        """Return the records to emit for a record of the broadcast stream. Every subtask emits them."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """A `BroadcastProcessFunction` for a keyed stream: `process_element` also has the state and timers of its key.

    `process_broadcast_element` has no key; `ctx.apply_to_key_state` visits the state of all keys of the subtask.
    """

    Context: TypeAlias = KeyedBroadcastContext
    ReadOnlyContext: TypeAlias = KeyedReadOnlyContext
    OnTimerContext: TypeAlias = BroadcastOnTimerContext
    #: See `KeyedProcessFunction`.
    drain_processing_time_timers: ClassVar[bool] = False

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedReadOnlyContext) -> Iterable[Any] | None:
        """Return the records to emit for a keyed record, under its key; `(OutputTag, value)` for side outputs."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastContext) -> Iterable[Any] | None:
        """Return the records to emit for a record of the broadcast stream. Every subtask emits them."""

    def on_timer(self, timestamp: int, ctx: BroadcastOnTimerContext) -> Iterable[Any] | None:
        """Return the records to emit for a timer of the current key that is due at `timestamp` ms."""


#: The type parameters of window functions, as in `WindowFunction[tuple, int, str, TimeWindow]`.
IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")


class WindowFunction(Function, ABC, Generic[IN, OUT, KEY, W]):
    """Processes all records of a key and window when the window fires."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return the records to emit."""


class AllWindowFunction(Function, ABC, Generic[IN, OUT, W]):
    """Processes all records of a window of a non-keyed stream when the window fires."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return the records to emit."""


class ProcessWindowFunction(Function, ABC, Generic[IN, OUT, KEY, W]):
    """Processes all records of a key and window, with a context, when the window fires."""

    Context: TypeAlias = WindowProcessContext

    @abstractmethod
    def process(self, key: KEY, context: WindowProcessContext[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """Return the records to emit."""

    def clear(self, context: WindowProcessContext[W]) -> None:
        """Clear the state in `context.window_state()` of a window that is cleaned up. Nothing else removes it."""


class ProcessAllWindowFunction(Function, ABC, Generic[IN, OUT, W]):
    """Processes all records of a window of a non-keyed stream, with a context, when the window fires."""

    Context: TypeAlias = WindowProcessContext

    @abstractmethod
    def process(self, context: WindowProcessContext[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """Return the records to emit."""

    def clear(self, context: WindowProcessContext[W]) -> None:
        """Clear the state in `context.window_state()` of a window that is cleaned up. Nothing else removes it."""
