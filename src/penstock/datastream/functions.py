"""The functions that users write, under PyFlink's names.

Wherever a function object is expected, a plain callable does as well. Functions are pickled and sent to workers: what
cannot be pickled (connections, locks) is made in `open`, which runs there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from penstock.base.errors import UnsupportedError
from penstock.core.operators.checkpoint_listener import CheckpointListener
from penstock.core.operators.checkpointed import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from penstock.core.operators.record.broadcast_contexts import (
    BroadcastBaseContext,
    BroadcastContext,
    BroadcastOnTimerContext,
    KeyedBroadcastContext,
    KeyedReadOnlyContext,
    ReadOnlyContext,
)
from penstock.core.operators.record.process import KeyedProcessContext, ProcessContext, TimerService
from penstock.core.operators.record.process import OnTimerContext as KeyedTimerContext
from penstock.core.operators.runtime_context import KeyedStateStore, RuntimeContext
from penstock.core.operators.window.window_contents import WindowProcessContext
from penstock.datastream.async_functions import AsyncFunction
from penstock.datastream.async_retry_strategies import AsyncRetryPredicate, AsyncRetryStrategy
from penstock.datastream.function import Function, Subscripted

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
    """One record in, one out."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """The record to emit."""


class FlatMapFunction(Function, ABC):
    """One record in, any number out."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any]:
        """The records to emit: a generator, any other iterable, or None."""


class FilterFunction(Function, ABC):
    """Keeps or drops records."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Whether to keep the record."""


class ReduceFunction(Function, ABC):
    """Folds two values into one; must be associative, and must not change its arguments, which were emitted before."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """The folded value."""


class KeySelector(Function, ABC):
    """Takes the key out of a record."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key: a str, number, bytes, datetime, dataclass, Row or tuple of these; equal records give equal keys."""


class Partitioner(Function, ABC):
    """Says to which subtask a key's records go (B3)."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """A number from 0 to `num_partitions` - 1; equal keys must have the same one if they are to meet."""


class AggregateFunction(Function, ABC):
    """Aggregates into an accumulator, which may be changed in place."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """A new, empty accumulator."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with the value added."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """The result for an accumulator."""

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Two accumulators merged into one; needed for session windows only."""
        raise UnsupportedError(f"{type(self).__name__}.merge is required for windows that merge")


class ProcessFunction(Function, ABC):
    """Sees each record with its context; yields results, and `(OutputTag, value)` for side outputs."""

    Context: TypeAlias = ProcessContext

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit: a generator, a list, an iterator, or None."""


class KeyedProcessFunction(Function, ABC):
    """Sees each record with its key's state and timers (A1)."""

    Context: TypeAlias = KeyedProcessContext
    OnTimerContext: TypeAlias = KeyedTimerContext
    #: What becomes of processing-time timers that wait when the input ends for good: dropped, or all fired then (F5).
    drain_processing_time_timers: ClassVar[bool] = False

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessContext) -> Iterable[Any] | None:
        """The records to emit: a generator, a list, an iterator, or None."""

    def on_timer(self, timestamp: int, ctx: KeyedTimerContext) -> Iterable[Any] | None:
        """A timer of the current key is due, at `timestamp` ms; the records to emit."""


class CoMapFunction(Function, ABC):
    """One record out for each record of either stream; None stands for no record."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """The record to emit for one of the first stream."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """The record to emit for one of the second stream."""


class CoFlatMapFunction(Function, ABC):
    """Any number of records out for each record of either stream."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any]:
        """The records to emit for one of the first stream."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any]:
        """The records to emit for one of the second stream."""


class CoProcessFunction(Function, ABC):
    """Sees the records of two streams with their contexts."""

    Context: TypeAlias = ProcessContext

    @abstractmethod
    def process_element1(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit for one of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit for one of the second stream."""


class KeyedCoProcessFunction(Function, ABC):
    """Sees the records of two keyed streams, which share their keys' state and timers (A1)."""

    Context: TypeAlias = KeyedProcessContext
    OnTimerContext: TypeAlias = KeyedTimerContext
    #: As in `KeyedProcessFunction`.
    drain_processing_time_timers: ClassVar[bool] = False

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedProcessContext) -> Iterable[Any] | None:
        """The records to emit for one of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedProcessContext) -> Iterable[Any] | None:
        """The records to emit for one of the second stream."""

    def on_timer(self, timestamp: int, ctx: KeyedTimerContext) -> Iterable[Any] | None:
        """A timer of the current key is due, at `timestamp` ms; the records to emit."""


class BaseBroadcastProcessFunction(Subscripted, Function, ABC):
    """What both broadcast process functions share: the contexts of the two sides."""

    BaseContext: TypeAlias = BroadcastBaseContext
    Context: TypeAlias = BroadcastContext
    ReadOnlyContext: TypeAlias = ReadOnlyContext


class BroadcastProcessFunction(BaseBroadcastProcessFunction):
    """Sees the records of a stream, and in every subtask all records of a broadcast one (A1, D2).

    The broadcast side keeps what it learns in broadcast states, which the other side reads: rules, prices, models.

    Rules, of which Penstock enforces only the first:

    - Only `process_broadcast_element` writes broadcast state. It must write the same in every subtask: from the record
      and the state alone, not from a clock, chance, the subtask's index or what the other side has seen. Subtasks do
      not talk to each other, a checkpoint keeps the state of each, and after a rescaling each subtask takes the copy of
      any one.
    - Records of several producers reach each subtask in a different order. Do not let the state depend on that order:
      keep a version in the value, or give the broadcast stream parallelism 1.
    - A record of either side may overtake one of the other: a function that needs the rules first keeps records
      waiting.
    - Broadcast state lies in memory, once per subtask, whatever the state backend. Every checkpoint holds all of it.
    - A broadcast stream without watermarks holds event time back; `WatermarkStrategy.with_idleness` lets event time
      pass.
    """

    Context: TypeAlias = BroadcastContext
    ReadOnlyContext: TypeAlias = ReadOnlyContext

    @abstractmethod
    def process_element(self, value: Any, ctx: ReadOnlyContext) -> Iterable[Any] | None:
        """The records to emit for one of the stream that is not broadcast; `(OutputTag, value)` for side outputs."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        """The records to emit for one of the broadcast stream: every subtask emits them."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """As `BroadcastProcessFunction` beside a keyed stream: `process_element` has its key's state and timers too.

    `process_broadcast_element` has no key; `ctx.apply_to_key_state` visits the state of all keys of the subtask.
    """

    Context: TypeAlias = KeyedBroadcastContext
    ReadOnlyContext: TypeAlias = KeyedReadOnlyContext
    OnTimerContext: TypeAlias = BroadcastOnTimerContext
    #: As in `KeyedProcessFunction`.
    drain_processing_time_timers: ClassVar[bool] = False

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedReadOnlyContext) -> Iterable[Any] | None:
        """The records to emit for one of the keyed stream, under its key; `(OutputTag, value)` for side outputs."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastContext) -> Iterable[Any] | None:
        """The records to emit for one of the broadcast stream: every subtask emits them."""

    def on_timer(self, timestamp: int, ctx: BroadcastOnTimerContext) -> Iterable[Any] | None:
        """A timer of the current key is due, at `timestamp` ms; the records to emit."""


#: What window functions may be subscripted with, as in `WindowFunction[tuple, int, str, TimeWindow]`.
IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")


class WindowFunction(Function, ABC, Generic[IN, OUT, KEY, W]):
    """Sees all records of a key and window when the window fires."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """The records to emit."""


class AllWindowFunction(Function, ABC, Generic[IN, OUT, W]):
    """Sees all records of a window of a stream without keys when the window fires."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """The records to emit."""


class ProcessWindowFunction(Function, ABC, Generic[IN, OUT, KEY, W]):
    """Sees all records of a key and window, with a context, when the window fires."""

    Context: TypeAlias = WindowProcessContext

    @abstractmethod
    def process(self, key: KEY, context: WindowProcessContext[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """The records to emit."""

    def clear(self, context: WindowProcessContext[W]) -> None:
        """Remove what `context.window_state()` holds for a window that is cleaned up. Nothing else removes it."""


class ProcessAllWindowFunction(Function, ABC, Generic[IN, OUT, W]):
    """Sees all records of a window of a stream without keys, with a context, when the window fires."""

    Context: TypeAlias = WindowProcessContext

    @abstractmethod
    def process(self, context: WindowProcessContext[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """The records to emit."""

    def clear(self, context: WindowProcessContext[W]) -> None:
        """Remove what `context.window_state()` holds for a window that is cleaned up. Nothing else removes it."""
