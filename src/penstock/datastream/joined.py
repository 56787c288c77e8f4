"""Window joins and co-groups: two streams that meet by key and window (A2, C1).

    orders.join(payments).where(order_id).equal_to(paid_order).window(TumblingEventTimeWindows.of(...)).apply(Pay())
    orders.co_group(payments).where(...).equal_to(...).window(...).apply(Compare())
    people.join(cities).where(lives_in).equal_to(name).apply(Tell())

Both streams become one, whose records know which stream they come from, and which is windowed as any keyed stream. All
that windows do (late records, triggers) is therefore the same here. A join gives, for each key and window, each pair;
records without a partner give nothing. The records that a window holds for a key are kept until it fires. Bounded
streams need no window: without one all records of a key meet, at the end of both streams.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeAlias

from penstock.base.declared_values import typed_key
from penstock.base.output_tag import OutputTag
from penstock.base.time import Duration, Time
from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.record.stateless import MapOperator, method
from penstock.core.operators.returned import NO_VALUES, results_of, wrong_value
from penstock.core.task.channels.partitioners import HashPartitioner
from penstock.core.windowing import EventTimeTrigger, GlobalWindows
from penstock.datastream.environment import StreamT
from penstock.datastream.functions import Function, RuntimeContext, WindowFunction
from penstock.datastream.join_functions import FlatJoinFunction
from penstock.datastream.stream import Stream
from penstock.datastream.windowed import KeyedWindows
from penstock.plan.iterations import check_bounded
from penstock.plan.transformation import Transformation, Upstream

#: What a record of the union is: the number of its stream (0 or 1), and the record.
Tagged = tuple[int, Any]
#: What is made of the windows with a function, whose results may have a type.
_Make: TypeAlias = Callable[[KeyedWindows[StreamT], Any, TypeInformation | None], StreamT]


class _TwoStreams(Generic[StreamT]):
    """Two streams on the way to a common window."""

    def __init__(self, input1: Stream[StreamT], input2: Stream[StreamT]) -> None:
        self._inputs = (input1, input2)

    def where(self, key_selector: Any, key_type: TypeInformation | None = None) -> Where[StreamT]:
        """The key of the first stream's records: a function, or a `KeySelector`."""
        return Where(self._inputs, typed_key(method(key_selector, "get_key"), key_type), self._make)

    def _make(self, windowed: KeyedWindows[StreamT], function: Any, output_type: TypeInformation | None) -> StreamT:
        raise NotImplementedError


class Joined(_TwoStreams[StreamT]):
    """Two streams whose records are to be paired by key and window."""

    def _make(self, windowed: KeyedWindows[StreamT], function: Any, output_type: TypeInformation | None) -> StreamT:
        return windowed.apply(_Pairs(function), output_type).name("Window Join")


class CoGrouped(_TwoStreams[StreamT]):
    """Two streams whose records are to be grouped by key and window."""

    def _make(self, windowed: KeyedWindows[StreamT], function: Any, output_type: TypeInformation | None) -> StreamT:
        return windowed.apply(_Groups(function), output_type).name("Co-Group")


class Where(Generic[StreamT]):
    """The first stream has its key; set that of the second with `equal_to`."""

    def __init__(
        self,
        inputs: tuple[Stream[StreamT], Stream[StreamT]],
        key_selector: Callable[[Any], Any],
        make: _Make[StreamT],
    ) -> None:
        self._inputs = inputs
        self._key_selector = key_selector
        self._make = make

    def equal_to(self, key_selector: Any, key_type: TypeInformation | None = None) -> EqualTo[StreamT]:
        """The key of the second stream's records: a function, or a `KeySelector`."""
        second = typed_key(method(key_selector, "get_key"), key_type)
        return EqualTo(self._inputs, (self._key_selector, second), self._make)


class EqualTo(Generic[StreamT]):
    """Both streams have their keys; set the windows with `window`, or `apply` a function to bounded streams."""

    def __init__(
        self,
        inputs: tuple[Stream[StreamT], Stream[StreamT]],
        key_selectors: tuple[Callable[[Any], Any], Callable[[Any], Any]],
        make: _Make[StreamT],
    ) -> None:
        self._inputs = inputs
        self._key_selectors = key_selectors
        self._make = make

    def window(self, assigner: Any) -> WithWindow[StreamT]:
        """The windows in which records of both streams meet."""
        return WithWindow(self._windows, assigner, self._make)

    def apply(self, function: Any, output_type: TypeInformation | None = None) -> StreamT:
        """Without windows: all records of a key of both streams, which are bounded; see `WithWindow.apply`.

        Raises:
            ConfigurationError: if a stream comes from a source that never ends.
        """
        upstreams = [upstream for stream in self._inputs for upstream in stream.upstreams]
        check_bounded(upstreams, "a join or co-group without windows")
        return self.window(GlobalWindows.create()).trigger(EventTimeTrigger.create()).apply(function, output_type)

    def _windows(self, assigner: Any) -> KeyedWindows[StreamT]:
        key_selector = _TaggedKey(*self._key_selectors)
        tagged = [_tagged(stream, number) for number, stream in enumerate(self._inputs)]
        by_key = tuple(Upstream(one, HashPartitioner(key_selector)) for one in tagged)
        union = Stream(self._inputs[0].get_execution_environment(), by_key)
        return KeyedWindows(union, key_selector, assigner)


class WithWindow(Generic[StreamT]):
    """Two streams in common windows; settings made here are those of the windows, and `apply` handles their records."""

    def __init__(
        self,
        windows: Callable[[Any], KeyedWindows[StreamT]],
        assigner: Any,
        make: _Make[StreamT],
    ) -> None:
        self._windows = windows
        self._assigner = assigner
        self._make = make
        self._settings: list[tuple[str, Any]] = []

    def _set(self, name: str, value: Any) -> WithWindow[StreamT]:
        self._settings.append((name, value))
        return self

    def trigger(self, trigger: Any) -> WithWindow[StreamT]:
        """When windows fire, instead of the assigner's own rule."""
        return self._set("trigger", trigger)

    def evictor(self, evictor: Any) -> WithWindow[StreamT]:
        """Which records a window gives up before or after it fires; it sees pairs (number of the stream, record)."""
        return self._set("evictor", evictor)

    def allowed_lateness(self, time_ms: int | Duration | Time | datetime.timedelta) -> WithWindow[StreamT]:
        """For how long after its end (ms or a duration) a window takes late records, and fires again for each."""
        return self._set("allowed_lateness", time_ms)

    def side_output_late_data(self, output_tag: OutputTag) -> WithWindow[StreamT]:
        """Send records that are too late, as (number of the stream: 0 or 1, record), to a side output."""
        return self._set("side_output_late_data", output_tag)

    def apply(self, function: Any, output_type: TypeInformation | None = None) -> StreamT:
        """Handle the windows: a join by a `JoinFunction` or `FlatJoinFunction`, a co-group by a `CoGroupFunction`.

        A plain callable of two arguments is taken for a `JoinFunction`, or for a `CoGroupFunction`.
        """
        windowed = self._windows(self._assigner)
        for name, value in self._settings:
            windowed = getattr(windowed, name)(value)
        return self._make(windowed, function, output_type)


def _tagged(stream: Stream[StreamT], number: int) -> Transformation:
    """The stream with the number on every record, in its own parallelism and order."""
    transformation = Transformation("Tag", partial(MapOperator, _Tag(number)), stream.upstreams)
    if len(stream.upstreams) == 1:
        upstream = stream.upstreams[0].transformation
        transformation.parallelism = upstream.parallelism
        transformation.parallelism_limit = upstream.parallelism_limit
    stream.get_execution_environment().add(transformation)
    return transformation


class _Tag:
    """Puts the number of its stream on a record."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, value: Any) -> Tagged:
        return self._number, value


class _TaggedKey:
    """The key of a tagged record, by its own stream's selector."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> None:
        self._selectors = (first, second)

    def __call__(self, tagged: Tagged) -> Any:
        return self._selectors[tagged[0]](tagged[1])


class _OfBothStreams(WindowFunction[Any, Any, Any, Any]):
    """A window function around the user's function; opens and closes it."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the user's function."""
        if isinstance(self._function, Function):
            self._function.open(runtime_context)

    def close(self) -> None:
        """Close the user's function."""
        if isinstance(self._function, Function):
            self._function.close()


class _Groups(_OfBothStreams):
    """Hands a `CoGroupFunction` the records of both streams."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Tagged]) -> Iterable[Any]:
        co_group: Callable[..., Iterable[Any] | None] = method(self._function, "co_group")
        returned = co_group(*_apart(inputs))
        return [] if returned is None else results_of(returned, co_group)


class _Pairs(_OfBothStreams):
    """Hands a `JoinFunction` or `FlatJoinFunction` each pair."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Tagged]) -> Iterable[Any]:
        first, second = _apart(inputs)
        join = method(self._function, "join")
        if isinstance(self._function, FlatJoinFunction):
            for one in first:
                for other in second:
                    returned = join(one, other)
                    if returned is not None:
                        yield from results_of(returned, join)
        else:
            for one in first:
                for other in second:
                    record = join(one, other)
                    if type(record) in NO_VALUES:
                        raise wrong_value(record, "join()")
                    yield record


def _apart(inputs: Iterable[Tagged]) -> tuple[list[Any], list[Any]]:
    both: tuple[list[Any], list[Any]] = ([], [])
    for number, value in inputs:
        both[number].append(value)
    return both
