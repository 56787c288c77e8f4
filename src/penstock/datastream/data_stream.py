"""Streams and what can be done with them, under PyFlink's names (A2).

Nothing runs while a program is being built: each call adds a transformation to the environment. Records are plain
Python values and need no types. Where a program declares a type (`output_type`), `get_type` returns it and `print`
formats records by it. With `Types.ROW`, the tuples, lists and dicts that a function emits become rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.base.errors import MisuseError, WrongTypeError, WrongValueError
from penstock.base.execution_config import ExecutionConfig
from penstock.base.output_tag import OutputTag
from penstock.base.typeinfo import TypeInformation, Types
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collect import CollectSink
from penstock.connectors.print import PrintSink
from penstock.core.columns.expressions import Expression, col
from penstock.core.columns.keys import ColumnKey
from penstock.core.connector import Sink
from penstock.core.operators.columnar.column_operators import (
    BATCH_FORMATS,
    MapBatchesOperator,
    SelectOperator,
    WhereOperator,
)
from penstock.core.operators.record.process import ProcessOperator
from penstock.core.operators.record.stateless import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    Projection,
    TimestampsAndWatermarksOperator,
    method,
)
from penstock.core.operators.returned import refuse_generator_function
from penstock.core.operators.sink.sink import SinkOperator
from penstock.core.task.channels.custom_partitioner import CustomPartitioner
from penstock.core.task.channels.partitioners import (
    BroadcastPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    HashPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from penstock.core.windowing import WindowAssigner
from penstock.core.windowing.count_windows import count_windows
from penstock.datastream.closeable_iterator import CloseableIterator
from penstock.datastream.data_stream_sink import DataStreamSink
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction
from penstock.datastream.functions import Partitioner as PartitionerFunction
from penstock.datastream.keyed_functions import check_needs_no_key
from penstock.datastream.operator_settings import OperatorSettings
from penstock.datastream.projected_type import projected_type
from penstock.plan.description import Plan
from penstock.plan.nodes import Node, declared
from penstock.plan.transformation import Transformation, Upstream
from penstock.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from penstock.datastream.all_windowed_stream import AllWindowedStream
    from penstock.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
    from penstock.datastream.cached_data_stream import CachedDataStream
    from penstock.datastream.connected_streams import ConnectedStreams
    from penstock.datastream.iterations import DeltaIteration, IterativeStream
    from penstock.datastream.joined_streams import CoGroupedStreams, JoinedStreams
    from penstock.datastream.keyed_stream import KeyedStream
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.windowed_stream import WindowedStream

Function = Any

#: Kinds of transformations that emit one record for each, or pass the same ones on.
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

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]


class DataStream(OperatorSettings):
    """A stream of records: the output of one transformation, or several as a union.

    Settings of a stream (name, parallelism, …) apply to the operator that made it.
    """

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        upstreams: tuple[Upstream, ...],
        type_info: TypeInformation | None = None,
    ) -> None:
        self._environment = environment
        self._upstreams = upstreams
        self._type_info = type_info

    # --- about the transformation that made this stream --------------------------------------------------------------

    @property
    def _transformation(self) -> Transformation:
        if len(self._upstreams) != 1:
            raise WrongTypeError("a union is not an operator: set a name or parallelism before the union or after it")
        return self._upstreams[0].transformation

    def get_name(self) -> str:
        """The operator's name."""
        return self._transformation.display_name

    def get_type(self) -> TypeInformation:
        """The type of the records if the program declares one, else `Types.PICKLED_BYTE_ARRAY()`, which is any."""
        declared = self._type_info or self._upstreams[0].transformation.output_type
        return Types.PICKLED_BYTE_ARRAY() if declared is None else declared

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """What the stream reads; for code that adds transformations."""
        return self._upstreams

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """The execution settings of the environment."""
        return self._environment.get_config()

    def plan(self) -> Plan:
        """The plan of this stream, to look at: as text, Mermaid or SVG; in a notebook, a picture."""
        return self._environment.plan_of(self._upstreams)

    def explain(self) -> str:
        """The plan of this stream, as text: tasks, the operators chained in each, and how records travel."""
        return self.plan().to_text()

    def _repr_html_(self) -> str:
        return self.plan().to_svg()

    # --- transformations ---------------------------------------------------------------------------------------------

    def _add(
        self,
        kind: str,
        node: Node,
        is_stateful: bool = False,
        output_type: TypeInformation | None = None,
        keeps_type: bool = False,
    ) -> DataStream:
        if keeps_type:
            output_type = self.declared_type
        else:
            node = declared(node, output_type)
        transformation = Transformation(kind, node, self._upstreams, is_stateful=is_stateful, output_type=output_type)
        self._environment.add(transformation)
        return DataStream(self._environment, (Upstream(transformation),))

    def map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """One record out for each record in: a function, or a `MapFunction`."""
        refuse_generator_function(func, "map")
        return self._add("Map", partial(MapOperator, func), output_type=output_type)

    def flat_map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Any number of records out for each record in.

        Takes a function that yields them or returns a list, or a `FlatMapFunction`.
        """
        return self._add("Flat Map", partial(FlatMapOperator, func), output_type=output_type)

    def filter(self, func: Function | Expression) -> DataStream:
        """The records for which a function, a `FilterFunction`, or an expression over columns is true."""
        if isinstance(func, Expression):
            return self._add("Where", partial(WhereOperator, func), keeps_type=True)
        refuse_generator_function(func, "filter")
        return self._add("Filter", partial(FilterOperator, func), keeps_type=True)

    def map_batches(
        self,
        func: Function,
        format: Literal["arrow", "pandas", "polars"] = "arrow",
        timestamp_column: str | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Apply a vectorised function: batches of columns in, batches of columns out, of any number of records.

        The number of records in a batch is not defined, so the function must not depend on it.

        Args:
            func: a function of a `pyarrow.RecordBatch` or a data frame, or an object with `map_batch` (and `open` and
                `close`); returns an Arrow record batch or table, or a data frame.
            format: what the function is given: `arrow`, `pandas` or `polars`.
            timestamp_column: a column of the result with the timestamps of its records (ms, or moments); without it, as
                many records must come out as went in, and they keep their timestamps.
            output_type: what the records are.

        Raises:
            ValueError: for another format.
        """
        if format not in BATCH_FORMATS:
            raise WrongValueError(f"map_batches hands over {', '.join(BATCH_FORMATS)}, not {format!r}")
        factory = partial(MapBatchesOperator, func, format, timestamp_column)
        return self._add("Map Batches", factory, output_type=output_type)

    def select(self, *expressions: Expression | str) -> DataStream:
        """A record with a field for each expression or column, computed by kernel; rows, dicts and tuples as columns.

        Raises:
            ValueError: if there is none, or two have one name.
        """
        chosen = [col(one) if isinstance(one, str) else one for one in expressions]
        names = [one.name for one in chosen]
        if not names or len(set(names)) < len(names):
            raise WrongValueError(f"select needs expressions with distinct names, not {names}: name them with alias()")
        return self._add("Select", partial(SelectOperator, chosen))

    def process(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Apply a `ProcessFunction`, which sees timestamps and may write to side outputs.

        Raises:
            MisuseError: for a `KeyedProcessFunction`, which needs `key_by` before it.
        """
        check_needs_no_key(func, KeyedProcessFunction, ProcessFunction, "stream.key_by(…).process(…)")
        return self._add("Process", partial(ProcessOperator, func), output_type=output_type)

    def project(self, *field_indexes: int) -> DataStream:
        """Keep the fields at these positions, in this order: of tuples and lists as a tuple, of rows as a row.

        Raises:
            ValueError: if no position is given, or a negative one.
        """
        if not field_indexes or min(field_indexes) < 0:
            raise WrongValueError(f"project takes the positions of fields, from 0 on, not {field_indexes!r}")
        return self._add(
            "Projection",
            partial(MapOperator, Projection(field_indexes)),
            output_type=projected_type(self.declared_type, field_indexes),
        )

    def key_by(
        self, key_selector: Function | str | Sequence[str], key_type: TypeInformation | None = None
    ) -> KeyedStream:
        """Partition by a key: all records of a key go to one subtask.

        Args:
            key_selector: a function of the record, a `KeySelector`, or the name or names of the columns or fields whose
                values are the key. With columns, records are not looked at one by one.
            key_type: the type of the key.
        """
        from penstock.datastream.keyed_stream import KeyedStream

        refuse_generator_function(key_selector, "get_key")
        selector: Callable[[Any], Any] = _column_key(key_selector) or method(key_selector, "get_key")
        upstreams = tuple(replace(u, key_type=key_type) for u in self._upstreams_by(HashPartitioner(selector)))
        return KeyedStream(self._environment, upstreams, selector, self)

    def union(self, *streams: DataStream) -> DataStream:
        """The records of all these streams, in no particular order between them."""
        upstreams = self._upstreams + tuple(u for s in streams for u in s._upstreams)
        return DataStream(self._environment, upstreams, self.declared_type)

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """This stream and another one, of any type, as the two inputs of one function; the other may be broadcast."""
        from penstock.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
        from penstock.datastream.connected_streams import ConnectedStreams

        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    def join(self, other_stream: DataStream) -> JoinedStreams:
        """Pair the records of this stream with another's, by key and window."""
        from penstock.datastream.joined_streams import JoinedStreams

        return JoinedStreams(self, other_stream)

    def co_group(self, other_stream: DataStream) -> CoGroupedStreams:
        """Group the records of this stream with another's, by key and window."""
        from penstock.datastream.joined_streams import CoGroupedStreams

        return CoGroupedStreams(self, other_stream)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Give the records event timestamps, and the stream watermarks (C2).

        Directly after a source, the operator has the source's parallelism unless another one is set, so it sees the
        records in the order in which they were read.
        """
        factory = partial(TimestampsAndWatermarksOperator, watermark_strategy)
        stream = self._add("Timestamps/Watermarks", factory, keeps_type=True)
        stream._transformation.follows_source = True
        return stream

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Group all records into windows, in one subtask."""
        from penstock.datastream.all_windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Windows of `size` records, a new one every `slide` records; one after the other when that is 0."""
        return self.window_all(count_windows(size, slide))

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """What the operator wrote to a side output.

        Raises:
            MisuseError: if the operator writes no side output, such as a map.
        """
        transformation = self._transformation
        if transformation.kind in _WITHOUT_SIDE_OUTPUTS:
            raise MisuseError(
                f"operator {transformation.display_name!r} ({transformation.kind}) writes no side outputs, so side "
                f"output {output_tag.tag_id!r} would be empty: only process() and window functions write side outputs"
            )
        upstream = Upstream(transformation, side_tag=output_tag.tag_id)
        return DataStream(self._environment, (upstream,), output_tag.type_info or Types.PICKLED_BYTE_ARRAY())

    def cache(self) -> CachedDataStream:
        """Keep the records when a job computes them, for later jobs of this environment to read; bounded streams only.

        The records lie in files: in a temporary directory of this machine, or below `penstock.cache.dir`, which must be
        set if workers run on other machines. `env.close()` deletes them.

        Raises:
            NotImplementedError: if the stream comes from a source that never ends.
        """
        return self._environment.cached(self)

    def iterate(self, max_iterations: int) -> IterativeStream:
        """Begin a bulk iteration: a loop over this bounded stream, of at most `max_iterations` supersteps (I3).

        The returned stream stands for the data at the start of a superstep. Its `close_with` takes the result of a
        superstep and returns the stream of the last one's result.

        Raises:
            ConfigurationError: if the stream comes from a source that never ends.
            NotImplementedError: within the step of another loop.
        """
        from penstock.datastream.iterations import IterativeStream

        return IterativeStream(self, max_iterations)

    def iterate_delta(self, initial_workset: DataStream, max_iterations: int, key_selector: Function) -> DeltaIteration:
        """Begin a delta iteration, whose supersteps replace parts of a solution set: at first this stream (I3).

        Args:
            initial_workset: what the first superstep has to work on; the loop ends when a workset is empty.
            max_iterations: how many supersteps there are at most.
            key_selector: the key of the solution set's records; there is one record of each key.

        Raises:
            ConfigurationError: if a stream comes from a source that never ends.
            NotImplementedError: within the step of another loop.
        """
        from penstock.datastream.iterations import DeltaIteration

        return DeltaIteration(self, initial_workset, max_iterations, key_selector)

    # --- partitioning ------------------------------------------------------------------------------------------------

    @property
    def declared_type(self) -> TypeInformation | None:
        """The type of the records where the program says one."""
        return self._type_info or self._upstreams[0].transformation.output_type

    def _upstreams_by(self, partitioner: Partitioner) -> tuple[Upstream, ...]:
        return tuple(Upstream(u.transformation, partitioner, u.side_tag) for u in self._upstreams)

    def _partitioned(self, partitioner: Partitioner) -> DataStream:
        return DataStream(self._environment, self._upstreams_by(partitioner), self._type_info)

    def rebalance(self) -> DataStream:
        """Deal records out evenly, round robin."""
        return self._partitioned(RebalancePartitioner())

    def rescale(self) -> DataStream:
        """Deal records out round robin among neighbours only: each subtask of the narrower side has its own group.

        From parallelism 2 to 4, the first subtask feeds the first two and the second one the others; back from 4 to 2,
        each of the two reads from its own two. This is cheaper than `rebalance`, but evens out load within a group
        only.
        """
        return self._partitioned(RescalePartitioner())

    def shuffle(self) -> DataStream:
        """Send each record to a random subtask, uniformly; each sender draws the same random numbers in every run."""
        return self._partitioned(ShufflePartitioner())

    def partition_custom(
        self, partitioner: PartitionerFunction | Callable[[Any, int], int], key_selector: Function
    ) -> DataStream:
        """Send each record to the subtask that a `Partitioner`, or a function of (key, number of subtasks), returns."""
        selector: Callable[[Any], Any] = method(key_selector, "get_key")
        return self._partitioned(CustomPartitioner(partitioner, selector))

    def forward(self) -> DataStream:
        """Send records from subtask i to subtask i; both sides must have the same parallelism."""
        return self._partitioned(ForwardPartitioner())

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
        """Send every record to every subtask; with state descriptors, for connection with another stream."""
        if broadcast_state_descriptor is not None:
            from penstock.datastream.broadcast_stream import BroadcastStream

            return BroadcastStream(self, (broadcast_state_descriptor, *other_broadcast_state_descriptors))
        return self._partitioned(BroadcastPartitioner())

    def global_(self) -> DataStream:
        """Send every record to the first subtask."""
        return self._partitioned(GlobalPartitioner())

    # --- sinks -------------------------------------------------------------------------------------------------------

    def sink_to(self, sink: Sink[Any]) -> DataStreamSink:
        """Write the records to a sink."""
        sink = sink.for_type(self.declared_type)
        if sink.commits_globally:
            from penstock.datastream.global_sink import add_global_sink

            return add_global_sink(self, sink)
        return DataStreamSink(self._sink_transformation("Sink", sink))

    def add_sink(self, sink_func: Sink[Any]) -> DataStreamSink:
        """The older name of `sink_to`; there is one kind of sink.

        Raises:
            TypeError: if it is not a `Sink`.
        """
        if not isinstance(sink_func, Sink):
            raise WrongTypeError(
                f"{sink_func!r} is not a Sink: implement penstock.core.connector.Sink, or call process() with a "
                "function"
            )
        return self.sink_to(sink_func)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print the records on the program's standard output, with the subtask's number when there are several.

        Records of a declared type look as in Flink: `+I[1, a]` for a ROW, `(1,a)` for a TUPLE; others as `str` writes
        them.
        """
        return DataStreamSink(self._sink_transformation("Print", PrintSink(sink_identifier, self.declared_type)))

    def _sink_transformation(self, kind: str, sink: Sink[Any]) -> Transformation:
        transformation = Transformation(kind, partial(SinkOperator, sink), self._upstreams, is_stateful=True, sink=sink)
        self._environment.add(transformation)
        return transformation

    def collect(self, limit: int | None = None) -> list[Any]:
        """Run the program and collect the records of this stream, all of them or at most `limit`.

        Without a limit this waits for the end of the job, so it never returns if the stream never ends.
        `execute_and_collect` says what becomes of the rest of the job at the limit.
        """
        if limit is not None:
            return list(self.execute_and_collect(limit=limit))
        with self._results(None, False)[0] as results:
            return list(results)

    def to_dataframe(self, schema: Any = None) -> Any:
        """The records as a Spark data frame, for further work in Spark; for batch execution (I2).

        As with any data frame, nothing runs until Spark is asked for a result, and then it runs each time. A frame that
        is used several times may be cached. `execute` leaves out what leads only to data frames.

        Args:
            schema: the columns, as DDL such as `"name STRING, count BIGINT"` or a `StructType`. Records are rows,
                tuples or dicts with one field for each column, or single values for one column. None if the
                `output_type` of the operator before gives the columns, or if the records are those of a data frame.

        Raises:
            ConfigurationError: if nothing says what the columns are, or the program is not for batch execution on
                Spark.
        """
        from penstock.datastream.data_frames import dataframe_of

        return dataframe_of(self, schema)

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the program and collect the records: an iterator, or with `limit` a list of at most this many.

        With checkpoints on, each record arrives exactly once, when the checkpoint that covers it has completed. With a
        limit, records arrive at once, and after a failure perhaps again.

        At the limit the job is cancelled, unless it is bounded and the program has other sinks: then it goes on to its
        end, so that they get all records. A warning names the sinks that are cancelled with a job that never ends.

        Raises:
            ValueError: if the limit is less than 1.
            JobExecutionError: if the job fails.
        """
        if limit is not None and limit < 1:
            raise WrongValueError(f"the limit must be at least 1, not {limit}")
        results, is_bounded = self._results(job_execution_name, limit is not None)
        return results if limit is None else results.take(limit, is_bounded)

    def _results(self, job_name: str | None, has_limit: bool) -> tuple[CloseableIterator, bool]:
        """Run the program; return its results, and whether it ends."""
        other_sinks, is_bounded = self._environment.ends_so_far()
        results = CloseableIterator(other_sinks)
        immediate = has_limit or not self._environment.is_checkpointed
        self._sink_transformation("Collect", CollectSink(immediate)).client_handler = results.on_frame
        results.begin(self._environment.execute_async(job_name))
        return results, is_bounded


#: Names that PyFlink has in this module too; their modules need this one.
_ELSEWHERE = {
    "AllWindowedStream": "all_windowed_stream",
    "BroadcastConnectedStream": "broadcast_stream",
    "BroadcastStream": "broadcast_stream",
    "CachedDataStream": "cached_data_stream",
    "ConnectedStreams": "connected_streams",
    "KeyedStream": "keyed_stream",
    "WindowedStream": "windowed_stream",
}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(f"penstock.datastream.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _column_key(key_selector: Any) -> ColumnKey | None:
    """The key that names stand for; None when it is a function.

    Raises:
        ValueError: if there is no name.
    """
    names = (key_selector,) if isinstance(key_selector, str) else key_selector
    if not isinstance(names, tuple | list):
        return None
    if not names or not all(isinstance(name, str) for name in names):
        raise WrongValueError(f"key_by takes a function or column names, not {key_selector!r}")
    return ColumnKey(tuple(names))
