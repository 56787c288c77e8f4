"""Joins and co-groups of two streams by key and window (A2, C1), and interval joins of two keyed streams (A2).

    orders.join(payments).where(order_id).equal_to(paid_order).window(TumblingEventTimeWindows.of(...)).apply(Pay())
    orders.co_group(payments).where(...).equal_to(...).window(...).apply(Compare())
    people.join(cities).where(lives_in).equal_to(name).apply(Tell())

For a window join or a co-group, both streams are tagged with their number, merged, and windowed like any keyed stream,
so late records and triggers behave as in other windows. A join emits every pair of each key and window, and nothing for
records without a partner. A window keeps the records of a key until it fires. Bounded streams need no window: without
one, all records of a key meet at the end of both streams.

`KeyedPair` begins an interval join:

    pairs = orders.key_by(order_id).interval_join(payments.key_by(order_id))
    paid = pairs.between(Time.seconds(0), Time.minutes(10)).process(Pay())
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Self, TypeAlias

from penstock.base.declared_values import typed_key
from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError
from penstock.base.output_tag import OutputTag
from penstock.base.time import Duration, Time
from penstock.base.typeinfo import TypeInformation
from penstock.datastream.environment import StreamT
from penstock.datastream.functions import Function, RuntimeContext, WindowFunction
from penstock.datastream.join_functions import FlatJoinFunction
from penstock.datastream.stream import Keyed, Stream
from penstock.datastream.windowed import KeyedWindows
from penstock.plan.job_graph import check_bounded
from penstock.plan.transformation import Transformation, Upstream, declared
from penstock.runtime.operators.emitting import NO_VALUES, check_results, wrong_value
from penstock.runtime.operators.keyed.interval_join import IntervalJoinOperator
from penstock.runtime.operators.record.stateless import MapOperator, method
from penstock.runtime.task.channels.result_partition import HashPartitioner
from penstock.runtime.windowing import EventTimeTrigger, GlobalWindows

#: A record of the union: the number of its stream (0 or 1), and the record.
Tagged = tuple[int, Any]
#: Applies a function, with an optional result type, to the windows.
_Make: TypeAlias = Callable[[KeyedWindows[StreamT], Any, TypeInformation | None], StreamT]


class _TwoStreams(Generic[StreamT]):
    """Two streams without a common window yet."""

    def __init__(self, input1: Stream[StreamT], input2: Stream[StreamT]) -> None:
        self._inputs = (input1, input2)

    def where(self, key_selector: Any, key_type: TypeInformation | None = None) -> Where[StreamT]:
        """Set the key of the first stream's records: a function, or a `KeySelector`."""
        return Where(self._inputs, typed_key(method(key_selector, "get_key"), key_type), self._make)

    def _make(self, windowed: KeyedWindows[StreamT], function: Any, output_type: TypeInformation | None) -> StreamT:
        raise NotImplementedError


class Joined(_TwoStreams[StreamT]):
    """Two streams to join by key and window."""

    def _make(self, windowed: KeyedWindows[StreamT], function: Any, output_type: TypeInformation | None) -> StreamT:
        return windowed.apply(_Pairs(function), output_type).name("Window Join")


class CoGrouped(_TwoStreams[StreamT]):
    """Two streams to co-group by key and window."""

    def _make(self, windowed: KeyedWindows[StreamT], function: Any, output_type: TypeInformation | None) -> StreamT:
        return windowed.apply(_Groups(function), output_type).name("Co-Group")


class Where(Generic[StreamT]):
    """A join whose first stream has its key; `equal_to` sets the key of the second one."""

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
        """Set the key of the second stream's records: a function, or a `KeySelector`."""
        second = typed_key(method(key_selector, "get_key"), key_type)
        return EqualTo(self._inputs, (self._key_selector, second), self._make)


class EqualTo(Generic[StreamT]):
    """A join with both keys: set the windows with `window`, or `apply` a function to bounded streams."""

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
        """Set the assigner of the windows that join the two streams."""
        return WithWindow(self._windows, assigner, self._make)

    def apply(self, function: Any, output_type: TypeInformation | None = None) -> StreamT:
        """Apply a function to all records of each key of two bounded streams, without windows; see `WithWindow.apply`.

        Raises:
            ConfigurationError: if a source is unbounded.
        """
        upstreams = [upstream for stream in self._inputs for upstream in stream.upstreams]
        check_bounded(upstreams, "a join or co-group without windows")
        return self.window(GlobalWindows.create()).trigger(EventTimeTrigger.create()).apply(function, output_type)

    def _windows(self, assigner: Any) -> KeyedWindows[StreamT]:
        key_selector = _TaggedKey(*self._key_selectors)
        tagged = [_tagged(stream, number) for number, stream in enumerate(self._inputs)]
        by_key = tuple(Upstream(stream, HashPartitioner(key_selector)) for stream in tagged)
        union = Stream(self._inputs[0].get_execution_environment(), by_key)
        return KeyedWindows(union, key_selector, assigner)


class WithWindow(Generic[StreamT]):
    """Two streams in common windows: set up the windows, then handle their records with `apply`."""

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
        """Set the trigger of the windows, which replaces the assigner's default."""
        return self._set("trigger", trigger)

    def evictor(self, evictor: Any) -> WithWindow[StreamT]:
        """Set an evictor, which removes records before or after a window fires; it sees (stream number, record)."""
        return self._set("evictor", evictor)

    def allowed_lateness(self, time_ms: int | Duration | Time | datetime.timedelta) -> WithWindow[StreamT]:
        """Set how long after its end (ms or a duration) a window accepts late records, and fires again for each."""
        return self._set("allowed_lateness", time_ms)

    def side_output_late_data(self, output_tag: OutputTag) -> WithWindow[StreamT]:
        """Send late records to a side output, as (number of the stream: 0 or 1, record)."""
        return self._set("side_output_late_data", output_tag)

    def apply(self, function: Any, output_type: TypeInformation | None = None) -> StreamT:
        """Apply a `JoinFunction` or `FlatJoinFunction` (join), or a `CoGroupFunction` (co-group), to the windows.

        A plain callable of two arguments is treated as a `JoinFunction`, or as a `CoGroupFunction`.
        """
        windowed = self._windows(self._assigner)
        for name, value in self._settings:
            windowed = getattr(windowed, name)(value)
        return self._make(windowed, function, output_type)


def _tagged(stream: Stream[StreamT], number: int) -> Transformation:
    """Return the stream with its number added to every record; parallelism and order are unchanged."""
    transformation = Transformation("Tag", partial(MapOperator, _Tag(number)), stream.upstreams)
    if len(stream.upstreams) == 1:
        upstream = stream.upstreams[0].transformation
        transformation.parallelism = upstream.parallelism
        transformation.parallelism_limit = upstream.parallelism_limit
    stream.get_execution_environment().add(transformation)
    return transformation


class _Tag:
    """Adds the number of its stream to a record."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, value: Any) -> Tagged:
        return self._number, value


class _TaggedKey:
    """Extracts the key of a tagged record with the selector of its stream."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> None:
        self._selectors = (first, second)

    def __call__(self, tagged: Tagged) -> Any:
        return self._selectors[tagged[0]](tagged[1])


class _OfBothStreams(WindowFunction[Any, Any, Any, Any]):
    """A window function that wraps the user-defined function, and opens and closes it."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the user-defined function."""
        if isinstance(self._function, Function):
            self._function.open(runtime_context)

    def close(self) -> None:
        """Close the user-defined function."""
        if isinstance(self._function, Function):
            self._function.close()


class _Groups(_OfBothStreams):
    """Passes the records of both streams to a `CoGroupFunction`."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Tagged]) -> Iterable[Any]:
        co_group: Callable[..., Iterable[Any] | None] = method(self._function, "co_group")
        returned = co_group(*_apart(inputs))
        return [] if returned is None else check_results(returned, co_group)


class _Pairs(_OfBothStreams):
    """Passes each pair to a `JoinFunction` or `FlatJoinFunction`."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Tagged]) -> Iterable[Any]:
        first, second = _apart(inputs)
        join = method(self._function, "join")
        if isinstance(self._function, FlatJoinFunction):
            for value in first:
                for other in second:
                    returned = join(value, other)
                    if returned is not None:
                        yield from check_results(returned, join)
        else:
            for value in first:
                for other in second:
                    record = join(value, other)
                    if type(record) in NO_VALUES:
                        raise wrong_value(record, "join()")
                    yield record


def _apart(inputs: Iterable[Tagged]) -> tuple[list[Any], list[Any]]:
    both: tuple[list[Any], list[Any]] = ([], [])
    for number, value in inputs:
        both[number].append(value)
    return both


class KeyedPair(Generic[StreamT]):
    """Two keyed streams to join."""

    def __init__(self, left: Keyed[StreamT], right: Keyed[StreamT]) -> None:
        for stream in (left, right):
            if not isinstance(stream, Keyed):
                raise WrongTypeError(f"an interval join needs two keyed streams, not {stream!r}: call key_by on both")
        self._left = left
        self._right = right

    def in_event_time(self) -> Self:
        """Use event time, which is the default."""
        return self

    def in_processing_time(self) -> Self:
        """Raise `NotImplementedError`: interval joins support event time only."""
        raise UnsupportedError("an interval join works in event time only: give both streams timestamps")


class PairInInterval(Generic[StreamT]):
    """Two keyed streams and the interval of their join."""

    def __init__(self, left: Keyed[StreamT], right: Keyed[StreamT], lower_bound_ms: int, upper_bound_ms: int) -> None:
        if lower_bound_ms > upper_bound_ms:
            raise WrongValueError(
                f"interval join: the lower bound ({lower_bound_ms} ms) is above the upper ({upper_bound_ms} ms)"
            )
        self._left = left
        self._right = right
        self._bounds_ms = (lower_bound_ms, upper_bound_ms)
        self._exclusive = [False, False]
        self._late_tags: list[str | None] = [None, None]

    def lower_bound_exclusive(self) -> Self:
        """Exclude pairs exactly at the lower bound."""
        self._exclusive[0] = True
        return self

    def upper_bound_exclusive(self) -> Self:
        """Exclude pairs exactly at the upper bound."""
        self._exclusive[1] = True
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the left stream to a side output instead of dropping them."""
        self._late_tags[0] = output_tag.tag_id
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the right stream to a side output instead of dropping them."""
        self._late_tags[1] = output_tag.tag_id
        return self

    def process(self, process_join_function: Any, output_type: TypeInformation | None = None) -> StreamT:
        """Apply a `ProcessJoinFunction` to every pair, under the pair's key.

        Raises:
            ValueError: if the exclusive bounds leave an empty interval.
        """
        lower_ms, upper_ms = self._bounds_ms
        lower_ms += self._exclusive[0]
        upper_ms -= self._exclusive[1]
        if lower_ms > upper_ms:
            raise WrongValueError(
                f"interval join: no timestamp lies between {self._bounds_ms} ms with these bounds excluded"
            )
        selectors = (self._left.key_selector, self._right.key_selector)
        factory = partial(
            IntervalJoinOperator,
            process_join_function,
            selectors,
            lower_ms,
            upper_ms,
            (self._late_tags[0], self._late_tags[1]),
        )
        inputs = tuple(
            replace(u, input_index=input_index)
            for input_index, stream in enumerate((self._left, self._right))
            for u in stream.upstreams
        )
        transformation = Transformation(
            "Interval Join", declared(factory, output_type), inputs, is_stateful=True, output_type=output_type
        )
        environment = self._left.get_execution_environment()
        environment.add(transformation)
        return environment.build_stream((Upstream(transformation),))
