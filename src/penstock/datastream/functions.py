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
    """Transforms one record into one record.

    Examples:
        >>> from penstock.datastream import MapFunction, StreamExecutionEnvironment
        >>> class Upper(MapFunction):
        ...     def map(self, value):
        ...         return value.upper()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements("tea").map(Upper()).collect()
        ['TEA']
    """

    @abstractmethod
    def map(self, value: Any) -> Any:
        """Return the record to emit."""


class FlatMapFunction(Function, ABC):
    """Transforms one record into any number of records.

    Examples:
        >>> from penstock.datastream import FlatMapFunction, StreamExecutionEnvironment
        >>> class Words(FlatMapFunction):
        ...     def flat_map(self, value):
        ...         yield from value.split()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements("tea and milk").flat_map(Words()).collect()
        ['tea', 'and', 'milk']
    """

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any]:
        """Return the records to emit: a generator, any other iterable, or None."""


class FilterFunction(Function, ABC):
    """Keeps or drops records.

    Examples:
        >>> from penstock.datastream import FilterFunction, StreamExecutionEnvironment
        >>> class Short(FilterFunction):
        ...     def filter(self, value):
        ...         return len(value) < 4
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements("tea", "milk").filter(Short()).collect()
        ['tea']
    """

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return whether to keep the record."""


class ReduceFunction(Function, ABC):
    """Combines two values into one.

    The function must be associative, and must not modify its arguments, which may have been emitted already.

    Examples:
        >>> from penstock.datastream import ReduceFunction, StreamExecutionEnvironment
        >>> class Longer(ReduceFunction):
        ...     def reduce(self, value1, value2):
        ...         return max(value1, value2, key=len)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements("tea", "tonic").key_by(lambda word: word[0]).reduce(Longer()).collect()
        ['tea', 'tonic']
    """

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """Return the combined value."""


class KeySelector(Function, ABC):
    """Extracts the key of a record.

    Examples:
        >>> from penstock.datastream import KeySelector, StreamExecutionEnvironment
        >>> class Drinker(KeySelector):
        ...     def get_key(self, value):
        ...         return value[0]
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements(("ann", 2), ("ann", 3)).key_by(Drinker()).sum(1).collect()
        [('ann', 2), ('ann', 5)]
    """

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """Return the key: a str, number, bytes, datetime, dataclass, Row or tuple of these; equal for equal records."""


class Partitioner(Function, ABC):
    """Selects the subtask that receives a key's records (B3).

    Examples:
        >>> from penstock.datastream import Partitioner, StreamExecutionEnvironment
        >>> class ByLength(Partitioner):
        ...     def partition(self, key, num_partitions):
        ...         return len(key) % num_partitions
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_elements("tea", "milk").partition_custom(ByLength(), lambda word: word)
        >>> sorted(words.map(str.upper).set_parallelism(2).collect())
        ['MILK', 'TEA']
    """

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return a subtask index from 0 to `num_partitions` - 1, always the same for equal keys that are to meet."""


class AggregateFunction(Function, ABC):
    """Aggregates values in an accumulator, which may be modified in place.

    Examples:
        >>> from penstock.datastream import AggregateFunction, StreamExecutionEnvironment
        >>> class Mean(AggregateFunction):
        ...     def create_accumulator(self):
        ...         return 0, 0
        ...     def add(self, value, accumulator):
        ...         return accumulator[0] + value, accumulator[1] + 1
        ...     def get_result(self, accumulator):
        ...         return accumulator[0] / accumulator[1]
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements(1, 2).count_window_all(2).aggregate(Mean()).collect()
        [1.5]
    """

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
    """Processes each record with its context; yields results, and `(OutputTag, value)` for side outputs.

    Examples:
        >>> from penstock.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment
        >>> short = OutputTag("short")
        >>> class Split(ProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield (short, value) if len(value) < 4 else value
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements("tea", "milk").process(Split()).get_side_output(short).collect()
        ['tea']
    """

    Context: TypeAlias = ProcessContext

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Return the records to emit: a generator, a list, an iterator, or None."""


class KeyedProcessFunction(Function, ABC):
    """Processes each record with the state and timers of its key (A1).

    Examples:
        >>> from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
        >>> from penstock.datastream.state import ValueStateDescriptor
        >>> class Count(KeyedProcessFunction):
        ...     def open(self, runtime_context):
        ...         self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        ...     def process_element(self, value, ctx):
        ...         self.count.update((self.count.value() or 0) + 1)
        ...         yield ctx.get_current_key(), self.count.value()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements("tea", "milk", "tea").key_by(lambda word: word).process(Count()).collect()
        [('tea', 1), ('milk', 1), ('tea', 2)]
    """

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
    """Transforms each record of either stream into one record; None emits nothing.

    Examples:
        >>> from penstock.datastream import CoMapFunction, StreamExecutionEnvironment
        >>> class Describe(CoMapFunction):
        ...     def map1(self, value):
        ...         return f"word {value}"
        ...     def map2(self, value):
        ...         return f"number {value}"
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> sorted(env.from_elements("tea").connect(env.from_elements(1)).map(Describe()).collect())
        ['number 1', 'word tea']
    """

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the record to emit for a record of the first stream."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the record to emit for a record of the second stream."""


class CoFlatMapFunction(Function, ABC):
    """Transforms each record of either stream into any number of records.

    Examples:
        >>> from penstock.datastream import CoFlatMapFunction, StreamExecutionEnvironment
        >>> class Words(CoFlatMapFunction):
        ...     def flat_map1(self, value):
        ...         yield from value.split()
        ...     def flat_map2(self, value):
        ...         yield str(value)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> sorted(env.from_elements("hot tea").connect(env.from_elements(1)).flat_map(Words()).collect())
        ['1', 'hot', 'tea']
    """

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any]:
        """Return the records to emit for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any]:
        """Return the records to emit for a record of the second stream."""


class CoProcessFunction(Function, ABC):
    """Processes the records of two streams with their contexts.

    Examples:
        >>> from penstock.datastream import CoProcessFunction, StreamExecutionEnvironment
        >>> class Both(CoProcessFunction):
        ...     def process_element1(self, value, ctx):
        ...         yield "word", value
        ...     def process_element2(self, value, ctx):
        ...         yield "number", value
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> sorted(env.from_elements("tea").connect(env.from_elements(1)).process(Both()).collect())
        [('number', 1), ('word', 'tea')]
    """

    Context: TypeAlias = ProcessContext

    @abstractmethod
    def process_element1(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Return the records to emit for a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Return the records to emit for a record of the second stream."""


class KeyedCoProcessFunction(Function, ABC):
    """Processes the records of two keyed streams, which share the state and timers of their keys (A1).

    Examples:
        >>> from penstock.datastream import KeyedCoProcessFunction, StreamExecutionEnvironment
        >>> from penstock.datastream.state import ValueStateDescriptor
        >>> class Total(KeyedCoProcessFunction):
        ...     def open(self, runtime_context):
        ...         self.total = runtime_context.get_state(ValueStateDescriptor("total"))
        ...     def process_element1(self, value, ctx):
        ...         self.total.update((self.total.value() or 0) + value)
        ...         yield self.total.value()
        ...     process_element2 = process_element1
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> by_sign = env.from_elements(1, 2).key_by(lambda number: number > 0)
        >>> by_sign.connect(by_sign).process(Total()).collect()[-1]
        6
    """

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

    Examples:
        >>> from penstock.datastream import BroadcastProcessFunction, StreamExecutionEnvironment
        >>> from penstock.datastream.state import MapStateDescriptor
        >>> PRICES = MapStateDescriptor("prices")
        >>> class Price(BroadcastProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         price = ctx.get_broadcast_state(PRICES).get(value)
        ...         yield value if price is None else f"{value} for {price}"
        ...     def process_broadcast_element(self, value, ctx):
        ...         ctx.get_broadcast_state(PRICES).put(*value)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> prices = env.from_elements(("tea", 2)).broadcast(PRICES)
        >>> env.from_elements("milk").connect(prices).process(Price()).collect()
        ['milk']
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

    Examples:
        >>> from penstock.datastream import KeyedBroadcastProcessFunction, StreamExecutionEnvironment
        >>> from penstock.datastream.state import MapStateDescriptor
        >>> PRICES = MapStateDescriptor("prices")
        >>> class Price(KeyedBroadcastProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield ctx.get_current_key(), ctx.get_broadcast_state(PRICES).get(value)
        ...     def process_broadcast_element(self, value, ctx):
        ...         ctx.get_broadcast_state(PRICES).put(*value)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> prices = env.from_elements(("tea", 2)).broadcast(PRICES)
        >>> env.from_elements("milk").key_by(len).connect(prices).process(Price()).collect()
        [(4, None)]
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
    """Processes all records of a key and window when the window fires.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment, WindowFunction
        >>> class Total(WindowFunction):
        ...     def apply(self, key, window, inputs):
        ...         yield key, sum(number for _, number in inputs)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3)).key_by(lambda cup: cup[0])
        >>> cups.count_window(2).apply(Total()).collect()
        [('ann', 5)]
    """

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return the records to emit."""


class AllWindowFunction(Function, ABC, Generic[IN, OUT, W]):
    """Processes all records of a window of a non-keyed stream when the window fires.

    Examples:
        >>> from penstock.datastream import AllWindowFunction, StreamExecutionEnvironment
        >>> class Total(AllWindowFunction):
        ...     def apply(self, window, inputs):
        ...         yield sum(inputs)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements(2, 3).count_window_all(2).apply(Total()).collect()
        [5]
    """

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return the records to emit."""


class ProcessWindowFunction(Function, ABC, Generic[IN, OUT, KEY, W]):
    """Processes all records of a key and window, with a context, when the window fires.

    Examples:
        >>> from penstock.datastream import ProcessWindowFunction, StreamExecutionEnvironment
        >>> class Total(ProcessWindowFunction):
        ...     def process(self, key, context, elements):
        ...         yield key, context.window().id, sum(number for _, number in elements)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3)).key_by(lambda cup: cup[0])
        >>> cups.count_window(2).process(Total()).collect()
        [('ann', 0, 5)]
    """

    Context: TypeAlias = WindowProcessContext

    @abstractmethod
    def process(self, key: KEY, context: WindowProcessContext[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """Return the records to emit."""

    def clear(self, context: WindowProcessContext[W]) -> None:
        """Clear the state in `context.window_state()` of a window that is cleaned up. Nothing else removes it."""


class ProcessAllWindowFunction(Function, ABC, Generic[IN, OUT, W]):
    """Processes all records of a window of a non-keyed stream, with a context, when the window fires.

    Examples:
        >>> from penstock.datastream import ProcessAllWindowFunction, StreamExecutionEnvironment
        >>> class Total(ProcessAllWindowFunction):
        ...     def process(self, context, elements):
        ...         yield context.window().id, sum(elements)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements(2, 3).count_window_all(2).process(Total()).collect()
        [(0, 5)]
    """

    Context: TypeAlias = WindowProcessContext

    @abstractmethod
    def process(self, context: WindowProcessContext[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """Return the records to emit."""

    def clear(self, context: WindowProcessContext[W]) -> None:
        """Clear the state in `context.window_state()` of a window that is cleaned up. Nothing else removes it."""
