"""Operations on bounded streams that graph methods are made of; all give the same results in every execution mode.

Assigns vertices to partitions by a hash of their ids, the same for all streams of a graph.

An operator whose subtasks work in lockstep, as a bounded stream: it runs as a separate batch job, once (I3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import xxhash

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.datastream.function import Function
from penstock.datastream.functions import FlatMapFunction, MapFunction, RuntimeContext, WindowFunction
from penstock.plan.transformation import Transformation, Upstream, upstream_first
from penstock.runtime.columns.batch import ColumnBatch
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch
from penstock.runtime.task.channels.partitioners import BroadcastPartitioner, Partitioner, SelectingPartitioner
from penstock.runtime.windowing import EventTimeTrigger, GlobalWindows
from penstock.state.key_bytes import key_bytes

Key = Callable[[Any], Any]

#: Key functions of vertices and edges.
FIRST: Key = itemgetter(0)
SECOND: Key = itemgetter(1)
BOTH: Key = itemgetter(0, 1)

_T = TypeVar("_T")


def lazy(stream: DataStream) -> DataStream:
    """Mark a stream to be computed only if a job reads it: many streams of a graph are never read. Return it."""
    environment = stream.get_execution_environment()
    environment.leave_out(upstream_first(upstream.transformation for upstream in stream.upstreams))
    return stream


class Wrapped(Function):
    """Wraps a user-defined function, which it opens and closes.

    Args:
        function: the user-defined function, or its object.
        name: the method of the object.
    """

    def __init__(self, function: Any, name: str = "") -> None:
        self.function = function
        has_method = name and not isinstance(function, type)
        self.call: Callable[..., Any] = getattr(function, name, function) if has_method else function

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the user-defined function."""
        if isinstance(self.function, Function):
            self.function.open(runtime_context)

    def close(self) -> None:
        """Close the user-defined function."""
        if isinstance(self.function, Function):
            self.function.close()


class WrappedMap(Wrapped, MapFunction):
    """A map function that wraps a user-defined function."""

    def __init__(self, make: Callable[[Callable[..., Any], Any], Any], function: Any, name: str = "map") -> None:
        super().__init__(function, name)
        self._make = make

    def map(self, value: Any) -> Any:
        """Return the result of `make(function, value)`."""
        return self._make(self.call, value)


class WrappedFlatMap(Wrapped, FlatMapFunction):
    """A flat-map function that wraps a user-defined function."""

    def __init__(self, make: Callable[[Callable[..., Any], Any], Any], function: Any, name: str = "flat_map") -> None:
        super().__init__(function, name)
        self._make = make

    def flat_map(self, value: Any) -> Any:
        """Return the results of `make(function, value)`."""
        return self._make(self.call, value)


class _Group(Wrapped, WindowFunction[Any, Any, Any, Any]):
    def __init__(self, make: Callable[..., Iterable[Any]], function: Any, name: str) -> None:
        super().__init__(function, name)
        self._make = make

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return self._make(self.call, key, inputs)


def of_groups(
    stream: DataStream, key: Key, make: Callable[..., Iterable[Any]], function: Any = None, name: str = ""
) -> DataStream:
    """Return the results of `make(function, key, records)` for all records of each key."""
    windows = stream.key_by(key).window(GlobalWindows.create()).trigger(EventTimeTrigger.create())
    return lazy(windows.apply(_Group(make, function, name)))


class _CoGroup(Wrapped):
    """Passes both sides to `make(function, ones, others)`."""

    def __init__(self, make: Callable[..., Iterable[Any]], function: Any, name: str) -> None:
        super().__init__(function, name)
        self._make = make

    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any]:
        return list(self._make(self.call, first, second))


def co_grouped(
    ones: DataStream,
    others: DataStream,
    keys: tuple[Key, Key],
    make: Callable[..., Iterable[Any]],
    function: Any = None,
    name: str = "",
) -> DataStream:
    """Return the results of `make(function, ones, others)` for the records of each key of either stream."""
    return lazy(ones.co_group(others).where(keys[0]).equal_to(keys[1]).apply(_CoGroup(make, function, name)))


def _unmatched(_: Any, ones: Iterable[Any], others: Iterable[Any]) -> Iterator[Any]:
    return iter([] if list(others) else list(ones))


def _matched(_: Any, ones: Iterable[Any], others: Iterable[Any]) -> Iterator[Any]:
    return iter(list(ones) if list(others) else [])


def without(ones: DataStream, others: DataStream, key: Key, other_key: Key) -> DataStream:
    """Return the records of the first stream whose key the second one does not have."""
    return co_grouped(ones, others, (key, other_key), _unmatched)


def semi_join(ones: DataStream, others: DataStream, key: Key, other_key: Key) -> DataStream:
    """Return the records of the first stream whose key the second one has, once or several times."""
    return co_grouped(ones, others, (key, other_key), _matched)


def distinct_values(records: Iterable[_T]) -> list[_T]:
    """Return the distinct records in the order of their first appearance; they need not be hashable."""
    distinct: list[_T] = []
    try:
        return list(dict.fromkeys(records))
    except TypeError:
        for record in records:
            if record not in distinct:
                distinct.append(record)
        return distinct


def _distinct(_: Any, key: Any, records: Iterable[Any]) -> Iterable[Any]:
    return distinct_values(list(records))


def distinct(stream: DataStream, key: Key) -> DataStream:
    """Return the distinct records; equal ones must have equal keys."""
    return of_groups(stream, key, _distinct)


class _CountOperator(StreamOperator):
    """Emits the number of its subtask's records at the end."""

    def open(self) -> None:
        self._count = 0

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._count += len(batch)

    def end_input(self, input_index: int = 0) -> None:
        self.output.collect(Batch([self._count]))


def count(stream: DataStream, job_name: str) -> int:
    """Return the number of records of a bounded stream; runs a job."""
    counts = stream._add("Count", partial(_CountOperator))
    return sum(collected(counts, job_name))


def collected(stream: DataStream, job_name: str) -> list[Any]:
    """Return all records of a bounded stream; runs a job."""
    results = stream.execute_and_collect(job_name)
    if isinstance(results, list):
        return results
    with results:
        return list(results)


def check_stream(stream: Any, label: str) -> DataStream:
    """Return the stream; raise `TypeError` for anything else."""
    if not isinstance(stream, DataStream):
        raise WrongTypeError(f"{label} must be a DataStream, not {type(stream).__name__}; see Graph.from_collection")
    return stream


_MIX: Final = 0x9E3779B97F4A7C15
_M64: Final = (1 << 64) - 1
_ID_MIN: Final = -(1 << 63)
_ID_MAX: Final = (1 << 63) - 1


def assign_integer_owners(ids: Any, partitions: int) -> Any:
    """Return the partition of each id of a numpy array of 64-bit integers."""
    mixed = ids.astype(np.int64, copy=False).view(np.uint64) * np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(32)
    return (mixed % np.uint64(partitions)).astype(np.uint16)


def assign_owner(vertex_id: Any, partitions: int) -> int:
    """Return the partition of an id of any kind; equal ids have the same owner, such as the numbers 1 and 1.0."""
    is_whole = isinstance(vertex_id, int) or (isinstance(vertex_id, float) and vertex_id.is_integer())
    if is_whole and _ID_MIN <= vertex_id <= _ID_MAX:
        mixed = int(vertex_id) * _MIX & _M64
        return (mixed ^ mixed >> 32) % partitions
    return xxhash.xxh3_64_intdigest(key_bytes(vertex_id)) % partitions


class Owners(dict[Any, int]):
    """The owner of each id, computed on the first request."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self._partitions = partitions

    def __missing__(self, vertex_id: Any) -> int:
        owner = self[vertex_id] = assign_owner(vertex_id, self._partitions)
        return owner


class IdPartitioner(SelectingPartitioner):
    """Partitions by the owner of the id at a position of each record."""

    name = "HASH"

    def __init__(self, position: int) -> None:
        self._position = position

    def set_up(self, subtask_index: int, channels: int, max_parallelism: int, consumer: str = "") -> None:
        """Set up the partitioner, without known owners."""
        super().set_up(subtask_index, channels, max_parallelism, consumer)
        self._consumer = consumer
        self._owners = Owners(channels)

    def select_channels(self, values: list[Any]) -> Sequence[int]:
        """Return the owner of each record's id."""
        ids = [value[self._position] for value in values]
        try:
            if set(map(type, ids)) == {int}:
                return [int(owner) for owner in assign_integer_owners(np.array(ids, np.int64), self.channels)]
        except OverflowError:
            pass
        try:
            return list(map(self._owners.__getitem__, ids))
        except Exception as error:
            raise WrongValueError(f"{self._consumer}: an id of the graph cannot be a key: {error}") from error

    def channels_of_columns(self, batch: ColumnBatch) -> Any:
        """Return the owner of each record's id, as a numpy array."""
        column = batch.columns.column(self._position)
        if pa.types.is_integer(column.type) and column.type != pa.uint64() and not column.null_count:
            return assign_integer_owners(column.to_numpy(zero_copy_only=False), self.channels)
        encoded = column.dictionary_encode()
        of_each = [self._owners[vertex_id] for vertex_id in encoded.dictionary.to_pylist()]
        return np.array(of_each, np.uint16)[encoded.indices.to_numpy(zero_copy_only=False)]


@dataclass(frozen=True)
class Input:
    """An input stream of the operator, and its partitioner; `index` is the number of the input."""

    stream: DataStream
    partitioner: Partitioner
    index: int


def by_id(position: int) -> Partitioner:
    """Partition by the owner of the id at this position."""
    return IdPartitioner(position)


def to_all() -> Partitioner:
    """Broadcast to all partitions."""
    return BroadcastPartitioner()


def in_step(
    operator: Callable[[], StreamOperator], inputs: Sequence[Input], name: str, parallelism: int | None
) -> DataStream:
    """Return the operator's output. The loop runs once, when a job that reads it begins, in any execution mode.

    Args:
        operator: creates the operator.
        inputs: its inputs: bounded streams.
        name: its name in plans, logs and errors.
        parallelism: how many subtasks it has; None for the environment's number.

    Raises:
        ConfigurationError: if a stream comes from an unbounded source.
    """
    environment = inputs[0].stream.get_execution_environment()
    upstreams: list[Upstream] = []
    for stream_input in inputs:
        for upstream in _plain(stream_input).upstreams:
            upstreams.append(
                Upstream(upstream.transformation, stream_input.partitioner, upstream.side_tag, stream_input.index)
            )
    transformation = Transformation(
        "Lockstep", partial(operator), tuple(upstreams), name=name, parallelism=parallelism, is_stateful=True
    )
    environment.add(transformation)
    loop = environment.build_stream((Upstream(transformation),)).iterate(0).name(name)
    return lazy(loop.close_with(loop))


def _plain(stream_input: Input) -> DataStream:
    if isinstance(stream_input.partitioner, BroadcastPartitioner):
        return stream_input.stream
    return stream_input.stream._add("Plain Tuples", partial(_PlainTuplesOperator))


class _PlainTuplesOperator(StreamOperator):
    """Converts records to plain tuples, which are pickled in half the time of named ones; columns stay unchanged."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if not isinstance(batch, ColumnBatch):
            batch = Batch(list(map(tuple, batch.values)))
        self.output.collect(batch)
