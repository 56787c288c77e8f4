"""Operations on bounded streams that graph methods are made of; all give the same results in every execution mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from penstock.base.errors import WrongTypeError
from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch
from penstock.core.windowing import EventTimeTrigger, GlobalWindows
from penstock.datastream.data_stream import DataStream
from penstock.datastream.function import Function
from penstock.datastream.functions import FlatMapFunction, MapFunction, RuntimeContext, WindowFunction
from penstock.plan.transformation import upstream_first

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
