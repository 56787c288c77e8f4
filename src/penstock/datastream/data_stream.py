"""Streams and their operations, under PyFlink's names (A2).

Nothing runs while a program is being built: each call adds a transformation to the environment. Records are plain
Python values and need no types. Where a program declares a type (`output_type`), `get_type` returns it and `print`
formats records by it. With `Types.ROW`, the tuples, lists and dicts that a function emits become rows.

A stream can become a stream of any other kind, such as a windowed one, and those produce streams again. So all these
classes are in this module, and so is the environment. Most of their behaviour is in other modules, in classes that are
generic in the type of stream that they return; here it is bound to `DataStream`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.base.configuration import Configuration
from penstock.base.declared_values import typed_key
from penstock.base.errors import MisuseError, UnknownMethodError, WrongTypeError, WrongValueError
from penstock.base.output_tag import OutputTag
from penstock.base.time import Duration, Time, to_millis
from penstock.base.typeinfo import TypeInformation, Types
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream.cache import Cache
from penstock.datastream.closeable_iterator import CloseableIterator
from penstock.datastream.connected import BroadcastConnected, Connected, check_descriptors
from penstock.datastream.environment import Environment
from penstock.datastream.functions import Function as RichFunction
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction
from penstock.datastream.iterations import BulkLoop, DeltaLoop
from penstock.datastream.joined import CoGrouped, Joined, KeyedPair, PairInInterval
from penstock.datastream.operator_settings import DataStreamSink
from penstock.datastream.stream import Keyed, Partitioning, check_needs_no_key, projected_type
from penstock.datastream.stream_output import StreamOutput
from penstock.datastream.windowed import AllWindows, KeyedWindows, the_one_key
from penstock.drivers.global_configuration import default_configuration
from penstock.plan.transformation import Transformation, Upstream, with_declared_side
from penstock.runtime.columns import ColumnKey, Expression, col
from penstock.runtime.operators.columnar import column_operators
from penstock.runtime.operators.emitting import refuse_generator_function
from penstock.runtime.operators.function_context import CheckpointedFunction, is_listener
from penstock.runtime.operators.keyed.aggregates import KeyedFunctionOperator
from penstock.runtime.operators.record import stateless
from penstock.runtime.operators.record.process import KeyedProcessOperator, ProcessOperator
from penstock.runtime.task.channels.result_partition import BroadcastPartitioner, HashPartitioner, Partitioner
from penstock.runtime.windowing import WindowAssigner
from penstock.runtime.windowing.assigners import count_windows
from penstock.state.states import MapStateDescriptor

Function = Any

#: Kinds of transformations that write no side outputs.
_WITHOUT_SIDE_OUTPUTS = {
    "Cache",
    "Filter",
    "Keyed Max",
    "Keyed Max By",
    "Keyed Min",
    "Keyed Min By",
    "Keyed Reduce",
    "Keyed Sum",
    "Map",
    "Map Batches",
    "Projection",
    "Select",
    "Timestamps/Watermarks",
    "Where",
}

#: Methods of keyed streams, with the equivalent call without keys.
_NEEDS_KEY = {
    "window": "window_all(windows)",
    "count_window": "count_window_all(size)",
    "interval_join": "",
    "reduce": "window_all(windows).reduce(function)",
    **dict.fromkeys(("sum", "min", "max", "min_by", "max_by"), "window_all(windows).{}(field)"),
}

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "CoGroupedStreams",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "DeltaIteration",
    "IntervalJoin",
    "IntervalJoined",
    "IterativeStream",
    "JoinedStreams",
    "KeyedStream",
    "StreamExecutionEnvironment",
    "WindowedStream",
]


class DataStream(Partitioning["DataStream"], StreamOutput["DataStream"]):
    """A stream of records: the output of one transformation, or a union of several.

    Settings of a stream (name, parallelism, …) apply to the operator that produces it.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_elements("tea", "milk")
        >>> words.map(len).collect()
        [3, 4]
    """

    _environment: StreamExecutionEnvironment

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        upstreams: tuple[Upstream, ...],
        type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(environment, upstreams, type_info)

    if not TYPE_CHECKING:  # so that type checkers find misspelt methods

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError; for methods of keyed streams, the message explains how to get a keyed stream."""
            unkeyed = _NEEDS_KEY.get(name)
            if unkeyed is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            instead = f"; without keys, call stream.{unkeyed.format(name)}" if unkeyed else ""
            raise UnknownMethodError(
                f"{name}() works by key, but this stream has no key: call stream.key_by(…).{name}(…){instead}"
            )

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._environment

    # --- transformations ---------------------------------------------------------------------------------------------

    def map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Emit one record per input record, using a function or a `MapFunction`.

        Examples:
            >>> words.map(lambda word: (word, 1)).collect()
            [('tea', 1), ('milk', 1)]
        """
        refuse_generator_function(func, "map")
        return self._add("Map", partial(stateless.MapOperator, func), output_type=output_type)

    def flat_map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Emit any number of records per input record.

        Takes a function that yields them or returns any iterable of them, or a `FlatMapFunction`.

        Examples:
            >>> env.from_elements("tea and milk").flat_map(str.split).collect()
            ['tea', 'and', 'milk']
        """
        return self._add("Flat Map", partial(stateless.FlatMapOperator, func), output_type=output_type)

    def filter(self, func: Function | Expression) -> DataStream:
        """Keep the records for which a function, a `FilterFunction`, or an expression over columns is true.

        Examples:
            >>> words.filter(lambda word: word.startswith("m")).collect()
            ['milk']
        """
        if isinstance(func, Expression):
            return self._add("Where", partial(column_operators.WhereOperator, func), keeps_type=True)
        refuse_generator_function(func, "filter")
        return self._add("Filter", partial(stateless.FilterOperator, func), keeps_type=True)

    def map_batches(
        self,
        func: Function,
        format: Literal["arrow", "pandas", "polars"] = "arrow",
        timestamp_column: str | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Apply a vectorised function, which takes and returns batches of columns; the number of records may change.

        The number of records in a batch is not defined, so the function must not depend on it.

        Args:
            func: a function of a `pyarrow.RecordBatch` or a data frame, or an object with `map_batch` (and `open` and
                `close`); returns an Arrow record batch or table, or a data frame.
            format: the type of the function's argument: `arrow`, `pandas` or `polars`.
            timestamp_column: a column of the result with the timestamps of its records (ms, or datetime values).
                Without it, the function must return as many records as it gets, and they keep their timestamps.
            output_type: the type of the records.

        Raises:
            ValueError: for another format.
        """
        if format not in column_operators.BATCH_FORMATS:
            raise WrongValueError(f"map_batches hands over {', '.join(column_operators.BATCH_FORMATS)}, not {format!r}")
        factory = partial(column_operators.MapBatchesOperator, func, format, timestamp_column)
        return self._add("Map Batches", factory, output_type=output_type)

    def select(self, *expressions: Expression | str) -> DataStream:
        """Emit records with one field per expression or column.

        Vectorised kernels compute them; rows, dicts and tuples are read as columns.

        Raises:
            ValueError: if no expression is given, or two have the same name.
        """
        chosen = [col(expression) if isinstance(expression, str) else expression for expression in expressions]
        names = [expression.name for expression in chosen]
        if not names or len(set(names)) < len(names):
            raise WrongValueError(f"select needs expressions with distinct names, not {names}: name them with alias()")
        return self._add("Select", partial(column_operators.SelectOperator, chosen))

    def process(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Apply a `ProcessFunction`, which can read timestamps and write to side outputs.

        Raises:
            MisuseError: for a `KeyedProcessFunction`, which needs `key_by` before it.
        """
        check_needs_no_key(func, KeyedProcessFunction, ProcessFunction, "stream.key_by(…).process(…)")
        return self._add("Process", partial(ProcessOperator, func), output_type=output_type)

    def project(self, *field_indexes: int) -> DataStream:
        """Keep the fields at these positions, in this order: tuples and lists become tuples, rows stay rows.

        Raises:
            ValueError: if no position is given, or a negative one.
        """
        if not field_indexes or min(field_indexes) < 0:
            raise WrongValueError(f"project takes the positions of fields, from 0 on, not {field_indexes!r}")
        return self._add(
            "Projection",
            partial(stateless.MapOperator, stateless.Projection(field_indexes)),
            output_type=projected_type(self.declared_type, field_indexes),
        )

    def key_by(
        self, key_selector: Function | str | Sequence[str], key_type: TypeInformation | None = None
    ) -> KeyedStream:
        """Partition by a key: all records of a key go to the same subtask.

        Args:
            key_selector: a function of the record, a `KeySelector`, or the name or names of the columns or fields whose
                values are the key. With columns, records are not processed one by one.
            key_type: the type of the key. Rows that a function returns get its field order, so rows with the same
                fields are one key in any order. It has no effect if column names are the key.

        Examples:
            >>> words.map(lambda word: (len(word), 1)).key_by(lambda pair: pair[0]).sum(1).collect()
            [(3, 1), (4, 1)]
        """
        refuse_generator_function(key_selector, "get_key")
        selector: Callable[[Any], Any] = _column_key(key_selector) or typed_key(
            stateless.method(key_selector, "get_key"), key_type
        )
        upstreams = tuple(replace(u, key_type=key_type) for u in self._partition_upstreams(HashPartitioner(selector)))
        return KeyedStream(self._environment, upstreams, selector, self)

    def union(self, *streams: DataStream) -> DataStream:
        """Return a stream of the records of all these streams, in no particular order between them."""
        upstreams = self._upstreams + tuple(u for s in streams for u in s._upstreams)
        return DataStream(self._environment, upstreams, self.declared_type)

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Connect this stream with another, of any type and possibly broadcast, as two inputs of one function."""
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    def join(self, other_stream: DataStream) -> JoinedStreams:
        """Pair the records of this stream with the records of another one, by key and window."""
        return JoinedStreams(self, other_stream)

    def co_group(self, other_stream: DataStream) -> CoGroupedStreams:
        """Group the records of this stream with the records of another one, by key and window."""
        return CoGroupedStreams(self, other_stream)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Assign event timestamps to the records, and watermarks to the stream (C2).

        Directly after a source, the operator has the source's parallelism unless another one is set, so it sees the
        records in read order.

        Examples:
            >>> from penstock.common import WatermarkStrategy
            >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(len)
            >>> words.assign_timestamps_and_watermarks(strategy).collect()
            ['tea', 'milk']
        """
        factory = partial(stateless.TimestampsAndWatermarksOperator, watermark_strategy)
        stream = self._add("Timestamps/Watermarks", factory, keeps_type=True)
        stream._transformation.follows_source = True
        return stream

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Group all records into windows, in one subtask."""
        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Group all records into windows of `size` records, one every `slide` records; consecutive if `slide` is 0."""
        return self.window_all(count_windows(size, slide))

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """Return the records written to a side output; their rows and FLOATs are converted to the tag's type.

        Raises:
            MisuseError: if the operator writes no side output, such as a map, or if the side output is read elsewhere
                with another type and one of the two types contains a ROW or a FLOAT.
        """
        transformation = self._transformation
        if transformation.kind in _WITHOUT_SIDE_OUTPUTS:
            raise MisuseError(
                f"operator {transformation.display_name!r} ({transformation.kind}) writes no side outputs, so side "
                f"output {output_tag.tag_id!r} would be empty: only process() and window functions write side outputs"
            )
        transformation.node = with_declared_side(transformation.node, output_tag.tag_id, output_tag.type_info)
        upstream = Upstream(transformation, side_tag=output_tag.tag_id)
        return DataStream(self._environment, (upstream,), output_tag.type_info or Types.PICKLED_BYTE_ARRAY())

    def cache(self) -> CachedDataStream:
        """Store the records when a job computes them, for later jobs of this environment to read; bounded streams only.

        The records are stored in files: in a temporary directory of this machine, or below `penstock.cache.dir`, which
        must be set if workers run on other machines. `env.close()` deletes them.

        Raises:
            NotImplementedError: if the stream comes from an unbounded source.
        """
        if isinstance(self, KeyedStream):
            raise WrongTypeError(
                "a keyed stream is a partitioning and cannot be cached: cache the stream before key_by"
            )
        return CachedDataStream(self._environment, self._environment.create_cache(self._upstreams))

    def iterate(self, max_iterations: int) -> IterativeStream:
        """Begin a bulk iteration: a loop over this bounded stream, of at most `max_iterations` supersteps (I3).

        The returned stream represents the data at the start of a superstep. Its `close_with` takes the result of a
        superstep and returns a stream with the result of the last one.

        Raises:
            ConfigurationError: if the stream comes from an unbounded source.
            NotImplementedError: within the step of another loop.
        """
        return IterativeStream(self, max_iterations)

    def iterate_delta(self, initial_workset: DataStream, max_iterations: int, key_selector: Function) -> DeltaIteration:
        """Begin a delta iteration, whose supersteps update a solution set, which starts as this stream (I3).

        Args:
            initial_workset: the work of the first superstep; the loop ends when a workset is empty.
            max_iterations: the maximum number of supersteps.
            key_selector: the key of the solution set's records; there is one record per key.

        Raises:
            ConfigurationError: if a stream comes from an unbounded source.
            NotImplementedError: within the step of another loop.
        """
        return DeltaIteration(self, initial_workset, max_iterations, key_selector)

    # --- partitioning ------------------------------------------------------------------------------------------------

    @overload
    def broadcast(self) -> DataStream: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream:
        """Send every record to every subtask; with state descriptors, for connecting with another stream."""
        if broadcast_state_descriptor is not None:
            return BroadcastStream(self, (broadcast_state_descriptor, *other_broadcast_state_descriptors))
        return self._partitioned(BroadcastPartitioner())


class KeyedStream(Keyed[DataStream], DataStream):
    """A stream partitioned by key.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("bob", 1), ("ann", 3)).key_by(lambda cup: cup[0])
        >>> cups.sum(1).collect()
        [('ann', 2), ('bob', 1), ('ann', 5)]
    """

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        upstreams: tuple[Upstream, ...],
        key_selector: Callable[[Any], Any],
        original: DataStream,
    ) -> None:
        super().__init__(environment, upstreams, original._type_info)
        self._key_selector = key_selector
        self._original = original

    @property
    def _transformation(self) -> Transformation:
        raise WrongTypeError(
            "a keyed stream is a partitioning, not an operator: set this before key_by, or after the next operator"
        )

    def get_name(self) -> str:
        """Return the name of the operator before the partitioning."""
        return self._original.get_name()

    def _partitioned(self, partitioner: Partitioner) -> DataStream:
        raise WrongTypeError(f"a keyed stream is partitioned by its keys, which {partitioner.name} cannot replace")

    def _function(self, kind: str, func: Function, output_type: TypeInformation | None) -> DataStream | None:
        """Run a rich function under its record's key, as it may use keyed state; return None for a plain callable."""
        if not hasattr(func, "open"):
            return None
        is_plain = type(func).open is RichFunction.open and not is_listener(func)
        if is_plain and not isinstance(func, CheckpointedFunction):
            return None
        factory = partial(KeyedFunctionOperator, func, self._key_selector, kind)
        return self._add(kind.replace("_", " ").title(), factory, is_stateful=True, output_type=output_type)

    def map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Emit one record per input record; a `MapFunction` may use keyed state."""
        refuse_generator_function(func, "map")
        return self._function("map", func, output_type) or super().map(func, output_type)

    def flat_map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Emit any number of records per input record; a `FlatMapFunction` may use keyed state."""
        return self._function("flat_map", func, output_type) or super().flat_map(func, output_type)

    def filter(self, func: Function) -> DataStream:
        """Keep the records for which a function is true; a `FilterFunction` may use keyed state."""
        return self._function("filter", func, self.declared_type) or super().filter(func)

    def process(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Apply a `KeyedProcessFunction`, which has keyed state and timers."""
        factory = partial(KeyedProcessOperator, func, self._key_selector)
        return self._add("Keyed Process", factory, is_stateful=True, output_type=output_type)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Group each key's records into windows.

        Examples:
            >>> from penstock.datastream.window import CountTumblingWindowAssigner
            >>> cups.window(CountTumblingWindowAssigner.of(2)).sum(1).collect()
            [('ann', 5)]
        """
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Group each key's records into windows of `size`, one every `slide` records; consecutive if `slide` is 0."""
        return self.window(count_windows(size, slide))

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Pair the records of this stream with records of another keyed stream whose timestamps are close."""
        return IntervalJoin(self, other_stream)

    def key_by(
        self, key_selector: Function | str | Sequence[str], key_type: TypeInformation | None = None
    ) -> KeyedStream:
        """Partition by another key."""
        return self._original.key_by(key_selector, key_type)


class CachedDataStream(DataStream):
    """A stream that the first job to use it also writes to files, and that later jobs read instead of computing it.

    Records and their timestamps are stored, but not watermarks: assign them after this stream if windows need them.
    Until a job has reached its end with all records, every job computes the stream.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> upper = env.from_elements("tea").map(str.upper).cache()
        >>> upper.collect(), upper.collect()
        (['TEA'], ['TEA'])
    """

    def __init__(self, environment: StreamExecutionEnvironment, cache: Cache) -> None:
        super().__init__(environment, (Upstream(cache.transformation),))
        self._cache = cache

    def cache(self) -> CachedDataStream:
        """Return the stream itself, because it is already cached."""
        return self

    def invalidate(self) -> None:
        """Discard the cached records: the next job that uses the stream computes and caches it again."""
        self._cache.invalidate()


class WindowedStream(KeyedWindows[DataStream]):
    """Windows of a keyed stream: each key has its own.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("bob", 1), ("ann", 3)).key_by(lambda cup: cup[0])
        >>> windows = cups.count_window(2)
        >>> windows.sum(1).collect()
        [('ann', 5)]
    """

    _stream: KeyedStream

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(keyed_stream, keyed_stream.key_selector, window_assigner)

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._stream.get_execution_environment()


class AllWindowedStream(AllWindows[DataStream]):
    """Windows of all records of a stream.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements(1, 2, 3, 4).count_window_all(2).sum().collect()
        [3, 7]
    """

    _stream: KeyedStream

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(data_stream.key_by(the_one_key), the_one_key, window_assigner)

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._stream.get_execution_environment()


class ConnectedStreams(Connected[DataStream]):
    """Two connected streams. If both are keyed, they share state and timers by key.

    Examples:
        >>> from penstock.datastream import CoMapFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> class Describe(CoMapFunction):
        ...     def map1(self, value):
        ...         return f"word {value}"
        ...     def map2(self, value):
        ...         return f"number {value}"
        >>> connected = env.from_elements("tea").connect(env.from_elements(1))
        >>> sorted(connected.map(Describe()).collect())
        ['number 1', 'word tea']
    """

    stream1: DataStream
    stream2: DataStream

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: TypeInformation | None = None
    ) -> ConnectedStreams:
        """Partition both streams, each by its own key selector; equal keys meet in one subtask."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )


class BroadcastStream:
    """A stream whose records go to every subtask, and the broadcast states built from them.

    Created by `DataStream.broadcast(descriptor, ...)`; connect another stream to it.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.state import MapStateDescriptor
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> prices = env.from_elements(("tea", 2)).broadcast(MapStateDescriptor("prices"))
        >>> connected = env.from_elements("tea").connect(prices)
    """

    def __init__(self, input_stream: DataStream, broadcast_state_descriptors: Sequence[MapStateDescriptor]) -> None:
        check_descriptors(broadcast_state_descriptors)
        self.input_stream = input_stream.broadcast()
        self.broadcast_state_descriptors = tuple(broadcast_state_descriptors)


class BroadcastConnectedStream(BroadcastConnected[DataStream]):
    """A stream, keyed or not, connected to a broadcast one; created by `stream.connect(broadcast_stream)`.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.state import MapStateDescriptor
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> prices = env.from_elements(("tea", 2)).broadcast(MapStateDescriptor("prices"))
        >>> connected = env.from_elements("tea").connect(prices)
        >>> [descriptor.name for descriptor in connected.broadcast_state_descriptors]
        ['prices']
    """

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        super().__init__(non_broadcast_stream, broadcast_stream.input_stream, broadcast_state_descriptors)
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream


class JoinedStreams(Joined[DataStream]):
    """Two streams whose records are paired by key and window.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> people, cities = env.from_elements(("ann", 1)), env.from_elements((1, "Bern"))
        >>> joined = people.join(cities).where(lambda one: one[1]).equal_to(lambda city: city[0])
        >>> joined.apply(lambda one, city: (one[0], city[1])).collect()
        [('ann', 'Bern')]
    """


class CoGroupedStreams(CoGrouped[DataStream]):
    """Two streams whose records are grouped by key and window.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words, numbers = env.from_elements("tea", "rum"), env.from_elements(3)
        >>> groups = words.co_group(numbers).where(len).equal_to(lambda number: number)
        >>> groups.apply(lambda words, numbers: [(sorted(words), list(numbers))]).collect()
        [(['rum', 'tea'], [3])]
    """


class IntervalJoin(KeyedPair[DataStream]):
    """Two keyed streams to be joined; `between` sets the time interval.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> orders, payments = env.from_elements("tea").key_by(len), env.from_elements("rum").key_by(len)
        >>> within_a_minute = orders.interval_join(payments).between(0, 60_000)
    """

    def between(
        self,
        lower_bound: int | Duration | Time | datetime.timedelta,
        upper_bound: int | Duration | Time | datetime.timedelta,
    ) -> IntervalJoined:
        """Pair left records at `t` with right records from `t + lower_bound` to `t + upper_bound`, bounds included.

        Args:
            lower_bound: ms or a duration; may be negative.
            upper_bound: ms or a duration; may be negative, but not less than the lower bound.

        Raises:
            ValueError: if the upper bound is less than the lower one.
        """
        return IntervalJoined(self._left, self._right, to_millis(lower_bound), to_millis(upper_bound))


class IntervalJoined(PairInInterval[DataStream]):
    """Two keyed streams and the interval that joins them; `process` handles the pairs.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> orders, payments = env.from_elements("tea").key_by(len), env.from_elements("rum").key_by(len)
        >>> less_than_a_minute = orders.interval_join(payments).between(0, 60_000).upper_bound_exclusive()
    """


class IterativeStream(BulkLoop[DataStream], DataStream):
    """The data at the start of a superstep of a bulk iteration; created by `DataStream.iterate`.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> loop = env.from_elements(1, 3).iterate(max_iterations=3)
        >>> loop.close_with(loop.map(lambda number: number * 2)).collect()
        [8, 24]
    """


class DeltaIteration(DeltaLoop[DataStream]):
    """A solution set, partly replaced by each superstep, and a workset; created by `DataStream.iterate_delta`.

    A superstep sees the solution set left by the previous supersteps. Its delta replaces records with equal keys and
    adds records with new keys. The iteration ends when the workset is empty; its result is the solution set.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> start = env.from_elements(("tea", 3))
        >>> loop = start.iterate_delta(start, 5, lambda pair: pair[0])
        >>> less = loop.workset.map(lambda pair: (pair[0], pair[1] - 1))
        >>> loop.close_with(less, less.filter(lambda pair: pair[1] > 0)).collect()
        [('tea', 0)]
    """

    def __init__(
        self, initial_solution_set: DataStream, initial_workset: DataStream, max_iterations: int, key_selector: Any
    ) -> None:
        super().__init__(initial_solution_set, initial_workset, max_iterations, key_selector)
        self._initial_solution_set = initial_solution_set
        self._initial_workset = initial_workset

    def get_initial_solution_set(self) -> DataStream:
        """Return the initial solution set."""
        return self._initial_solution_set

    def get_initial_workset(self) -> DataStream:
        """Return the initial workset."""
        return self._initial_workset


class StreamExecutionEnvironment(Environment[DataStream]):
    """Collects a program's transformations and runs them.

    By default, `execute` runs on Spark: on the active SparkSession, or else on one that it starts on this machine.
    `execution.target: local` runs everything in this process, without Java.

    Examples:
        >>> from penstock.common import Configuration
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> local = Configuration.from_dict({"execution.target": "local"})
        >>> env = StreamExecutionEnvironment.get_execution_environment(local)
        >>> env.from_elements("tea", "milk").map(str.upper).collect()
        ['TEA', 'MILK']
    """

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Create an environment with a copy of these settings.

        `config.yaml` and the options of `penstock run` provide the others.
        """
        copied = default_configuration()
        if configuration is not None:
            copied.add_all(configuration)
        return StreamExecutionEnvironment(copied)

    def build_stream(self, upstreams: tuple[Upstream, ...], type_info: TypeInformation | None = None) -> DataStream:
        """Create the stream that reads `upstreams`; called by streams."""
        return DataStream(self, upstreams, type_info)


def _column_key(key_selector: Any) -> ColumnKey | None:
    """Return the key for column names; None for a function.

    Raises:
        ValueError: if no name is given.
    """
    names = (key_selector,) if isinstance(key_selector, str) else key_selector
    if not isinstance(names, tuple | list):
        return None
    if not names or not all(isinstance(name, str) for name in names):
        raise WrongValueError(f"key_by takes a function or column names, not {key_selector!r}")
    return ColumnKey(tuple(names))
