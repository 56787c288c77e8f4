"""Streams and what can be done with them, under PyFlink's names (A2).

Nothing runs while a program is being built: each call adds a transformation to the environment. Type arguments
(`output_type`, `key_type`) are accepted and kept for the programs that have them; records are plain Python values.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from penstock.common.output_tag import OutputTag
from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.collect import CollectedRecords, CollectSink
from penstock.connectors.print import PrintSink
from penstock.core.connector import Sink
from penstock.core.operators.base import StreamOperator
from penstock.core.operators.checkpointed import CheckpointedFunction
from penstock.core.operators.keyed_functions import KeyedFunctionOperator
from penstock.core.operators.keyed_reduce import KeyedReduceOperator
from penstock.core.operators.process import KeyedProcessOperator, ProcessOperator
from penstock.core.operators.sink import SinkOperator
from penstock.core.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    TimestampsAndWatermarksOperator,
    method,
)
from penstock.core.task.partitioners import (
    BroadcastPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    HashPartitioner,
    Partitioner,
    RebalancePartitioner,
)
from penstock.core.windowing import WindowAssigner
from penstock.core.windowing.count_windows import count_windows
from penstock.datastream.functions import Function as RichFunction
from penstock.plan.transformation import Transformation, Upstream
from penstock.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from penstock.datastream.all_windowed_stream import AllWindowedStream
    from penstock.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
    from penstock.datastream.connected_streams import ConnectedStreams
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.windowed_stream import WindowedStream
    from penstock.drivers.running_job import RunningJob

Function = Any

__all__ = ["CloseableIterator", "DataStream", "DataStreamSink", "KeyedStream", "WindowedStream"]


class DataStream:
    """A stream of records: the output of one transformation, or several as a union."""

    def __init__(self, environment: StreamExecutionEnvironment, upstreams: tuple[Upstream, ...]) -> None:
        self._environment = environment
        self._upstreams = upstreams

    # --- about the transformation that made this stream --------------------------------------------------------------

    @property
    def _transformation(self) -> Transformation:
        if len(self._upstreams) != 1:
            raise TypeError("a union is not an operator: name it, or set its parallelism, before the union or after it")
        return self._upstreams[0].transformation

    def name(self, name: str) -> DataStream:
        """What plans, errors and metrics call the operator."""
        self._transformation.name = name
        return self

    def get_name(self) -> str:
        """The operator's name."""
        return self._transformation.display_name

    def uid(self, uid: str) -> DataStream:
        """The id under which the operator's state lies in savepoints; unique in the job (H3)."""
        self._transformation.uid = uid
        return self

    def set_parallelism(self, parallelism: int) -> DataStream:
        """How many subtasks the operator has."""
        if parallelism < 1:
            raise ValueError(f"parallelism must be at least 1, not {parallelism}")
        self._transformation.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> DataStream:
        """How many key groups the operator's state has; the bound of its parallelism."""
        self._transformation.max_parallelism = max_parallelism
        return self

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """What the stream reads; for those who add transformations."""
        return self._upstreams

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._environment

    # --- transformations ---------------------------------------------------------------------------------------------

    def _add(self, kind: str, factory: Callable[[], StreamOperator], is_stateful: bool = False) -> DataStream:
        transformation = Transformation(kind, factory, self._upstreams, is_stateful=is_stateful)
        self._environment.add(transformation)
        return DataStream(self._environment, (Upstream(transformation),))

    def map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """One record out for each record in: a function, or a `MapFunction`."""
        return self._add("Map", partial(MapOperator, func))

    def flat_map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Any number of records out for each one in: a function that returns or yields them, or a `FlatMapFunction`."""
        return self._add("Flat Map", partial(FlatMapOperator, func))

    def filter(self, func: Function) -> DataStream:
        """The records for which a function, or a `FilterFunction`, is true."""
        return self._add("Filter", partial(FilterOperator, func))

    def process(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Apply a `ProcessFunction`: sees timestamps, may write to side outputs."""
        return self._add("Process", partial(ProcessOperator, func))

    def key_by(self, key_selector: Function, key_type: TypeInformation | None = None) -> KeyedStream:
        """Partition by a key: a function of the record, or a `KeySelector`. All records of a key go to one subtask."""
        selector: Callable[[Any], Any] = method(key_selector, "get_key")
        return KeyedStream(self._environment, self._partitioned(HashPartitioner(selector)), selector, self)

    def union(self, *streams: DataStream) -> DataStream:
        """The records of all these streams, in no particular order between them."""
        upstreams = self._upstreams + tuple(u for s in streams for u in s._upstreams)
        return DataStream(self._environment, upstreams)

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

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Give the records event timestamps, and the stream watermarks (C2)."""
        return self._add("Timestamps/Watermarks", partial(TimestampsAndWatermarksOperator, watermark_strategy))

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Group all records into windows, in one subtask."""
        from penstock.datastream.all_windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Windows of `size` records, a new one every `slide` records; one behind the other when that is 0."""
        return self.window_all(count_windows(size, slide))

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """What the operator wrote to a side output."""
        transformation = self._transformation
        return DataStream(self._environment, (Upstream(transformation, side_tag=output_tag.tag_id),))

    # --- partitioning ------------------------------------------------------------------------------------------------

    def _partitioned(self, partitioner: Partitioner) -> tuple[Upstream, ...]:
        return tuple(Upstream(u.transformation, partitioner, u.side_tag) for u in self._upstreams)

    def rebalance(self) -> DataStream:
        """Deal records out evenly, round robin."""
        return DataStream(self._environment, self._partitioned(RebalancePartitioner()))

    def forward(self) -> DataStream:
        """Subtask i to subtask i; both sides must have the same parallelism."""
        return DataStream(self._environment, self._partitioned(ForwardPartitioner()))

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
        """Every record to every subtask; with descriptors of broadcast states, to be connected with another stream."""
        if broadcast_state_descriptor is not None:
            from penstock.datastream.broadcast_stream import BroadcastStream

            return BroadcastStream(self, (broadcast_state_descriptor, *other_broadcast_state_descriptors))
        return DataStream(self._environment, self._partitioned(BroadcastPartitioner()))

    def global_(self) -> DataStream:
        """Every record to the first subtask."""
        return DataStream(self._environment, self._partitioned(GlobalPartitioner()))

    # --- sinks -------------------------------------------------------------------------------------------------------

    def sink_to(self, sink: Sink[Any]) -> DataStreamSink:
        """Write the records to a sink."""
        return DataStreamSink(self._sink_transformation("Sink", sink))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print the records on the program's standard output, with the subtask's number when there are several."""
        return DataStreamSink(self._sink_transformation("Print", PrintSink(sink_identifier)))

    def _sink_transformation(self, kind: str, sink: Sink[Any]) -> Transformation:
        transformation = Transformation(kind, partial(SinkOperator, sink), self._upstreams, is_stateful=True, sink=sink)
        self._environment.add(transformation)
        return transformation

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the program and bring the records here: an iterator, or with `limit` a list of at most so many.

        With checkpoints on, each record comes exactly once, when the checkpoint that covers it has completed.
        """
        results = CloseableIterator()
        immediate = limit is not None or not self._environment.is_checkpointed
        self._sink_transformation("Collect", CollectSink(immediate)).client_handler = results.on_frame
        results.begin(self._environment.execute_async(job_execution_name))
        if limit is None:
            return results
        with results:
            return [value for _, value in zip(range(limit), results, strict=False)]


class DataStreamSink:
    """The end of a stream, to be named and set up."""

    def __init__(self, transformation: Transformation) -> None:
        self._transformation = transformation

    def name(self, name: str) -> DataStreamSink:
        """What plans, errors and metrics call the sink."""
        self._transformation.name = name
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """The id under which the sink's state lies in savepoints; unique in the job (H3)."""
        self._transformation.uid = uid
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """How many subtasks the sink has."""
        if parallelism < 1:
            raise ValueError(f"parallelism must be at least 1, not {parallelism}")
        self._transformation.parallelism = parallelism
        return self


class KeyedStream(DataStream):
    """A stream partitioned by key."""

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        upstreams: tuple[Upstream, ...],
        key_selector: Callable[[Any], Any],
        original: DataStream,
    ) -> None:
        super().__init__(environment, upstreams)
        self._key_selector = key_selector
        self._original = original

    @property
    def key_selector(self) -> Callable[[Any], Any]:
        """The function that takes the key out of a record."""
        return self._key_selector

    def _function(self, kind: str, func: Function) -> DataStream | None:
        """A rich function may use keyed state, so it runs under its record's key; a plain callable need not."""
        if not hasattr(func, "open"):
            return None
        if type(func).open is RichFunction.open and not isinstance(func, CheckpointedFunction):
            return None
        factory = partial(KeyedFunctionOperator, func, self._key_selector, kind)
        return self._add(kind.replace("_", " ").title(), factory, is_stateful=True)

    def map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """One record out for each record in; a `MapFunction` may use keyed state."""
        return self._function("map", func) or super().map(func, output_type)

    def flat_map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Any number of records out for each one in; a `FlatMapFunction` may use keyed state."""
        return self._function("flat_map", func) or super().flat_map(func, output_type)

    def filter(self, func: Function) -> DataStream:
        """The records for which a function is true; a `FilterFunction` may use keyed state."""
        return self._function("filter", func) or super().filter(func)

    def reduce(self, func: Function) -> DataStream:
        """Fold each record into its key's value; emits the new value for every record."""
        return self._add("Keyed Reduce", partial(KeyedReduceOperator, func, self._key_selector), is_stateful=True)

    def process(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Apply a `KeyedProcessFunction`: keyed state and timers."""
        return self._add("Keyed Process", partial(KeyedProcessOperator, func, self._key_selector), is_stateful=True)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Group each key's records into windows."""
        from penstock.datastream.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Windows of `size` records of a key, a new one every `slide` records; one behind the other when that is 0."""
        return self.window(count_windows(size, slide))

    def key_by(self, key_selector: Function, key_type: TypeInformation | None = None) -> KeyedStream:
        """Partition by another key."""
        return self._original.key_by(key_selector, key_type)


class CloseableIterator:
    """Results of a running job, as they come. Closing it (or leaving its `with` block) cancels the job."""

    def __init__(self) -> None:
        self._records = CollectedRecords()
        self._arrived: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._current: Iterator[Any] = iter(())
        self._job: RunningJob | None = None
        self._ended = False

    def on_frame(self, subtask_index: int, frame: bytes) -> None:
        """A frame of the job's collecting sink."""
        records = self._records.take(frame)
        if records:
            self._arrived.put(records)

    def begin(self, job: RunningJob) -> None:
        """The job runs; when it ends, so do the results."""
        self._job = job
        job.get_job_execution_result().add_done_callback(lambda future: self._arrived.put([]))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next result; waits for it. Raises what made the job fail."""
        while True:
            for value in self._current:
                return value
            if self._ended:
                raise StopIteration
            arrived = self._arrived.get()
            self._current = iter(arrived)
            if not arrived:
                self._ended = True
                if self._job is not None:
                    self._job.wait()

    def close(self) -> None:
        """Cancel the job, when it still runs, and wait for its end."""
        job, self._job = self._job, None
        if job is not None:
            job.end()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


#: Names that PyFlink has in this module too; their modules need this one.
_ELSEWHERE = {
    "AllWindowedStream": "all_windowed_stream",
    "BroadcastConnectedStream": "broadcast_stream",
    "BroadcastStream": "broadcast_stream",
    "ConnectedStreams": "connected_streams",
    "WindowedStream": "windowed_stream",
}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(f"penstock.datastream.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
