"""Connected streams: two streams of different types in one function (A1, A2), and broadcast streams with state.

The function of `Connected` streams may share state between both. A `BroadcastConnected` stream, keyed or not, is
connected to a broadcast stream with state (A1, D2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.typeinfo import TypeInformation
from penstock.datastream import functions
from penstock.datastream.environment import StreamT
from penstock.datastream.stream import Keyed, Stream, check_needs_no_key
from penstock.plan.transformation import Transformation, Upstream, declared
from penstock.runtime.operators.record.process import (
    BROADCAST_INPUT,
    BroadcastProcessOperator,
    CoProcessOperator,
    KeyedBroadcastProcessOperator,
    KeyedCoProcessOperator,
)
from penstock.state.states import MapStateDescriptor


class Connected(Generic[StreamT]):
    """The operations on two connected streams."""

    def __init__(self, stream1: Stream[StreamT], stream2: Stream[StreamT]) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def map(self, func: Any, output_type: TypeInformation | None = None) -> StreamT:
        """Apply a `CoMapFunction`; a result of None emits no record."""
        return self._add("Co-Map", func, "map", output_type)

    def flat_map(self, func: Any, output_type: TypeInformation | None = None) -> StreamT:
        """Apply a `CoFlatMapFunction`."""
        return self._add("Co-Flat Map", func, "flat_map", output_type)

    def process(self, func: Any, output_type: TypeInformation | None = None) -> StreamT:
        """Apply a `CoProcessFunction`, or a `KeyedCoProcessFunction` on keyed streams.

        Examples:
            >>> from penstock.datastream import CoProcessFunction
            >>> class Both(CoProcessFunction):
            ...     def process_element1(self, value, ctx):
            ...         yield value, 1
            ...     def process_element2(self, value, ctx):
            ...         yield value, 2
            >>> sorted(connected.process(Both()).collect(), key=str)
            [('tea', 1), (1, 2)]
        """
        return self._add("Co-Process", func, "process", output_type)

    def _add(self, name: str, func: Any, kind: str, output_type: TypeInformation | None) -> StreamT:
        first, other = self.stream1, self.stream2
        is_keyed = False
        if isinstance(first, Keyed) and isinstance(other, Keyed):
            is_keyed = True
            factory: Any = partial(KeyedCoProcessOperator, func, kind, first.key_selector, other.key_selector)
        else:
            remedy = "one.key_by(…).connect(other.key_by(…)).process(…)"
            check_needs_no_key(func, functions.KeyedCoProcessFunction, functions.CoProcessFunction, remedy)
            factory = partial(CoProcessOperator, func, kind)
        inputs = tuple(
            replace(u, input_index=input_index)
            for input_index, stream in enumerate((first, other))
            for u in stream.upstreams
        )
        factory = declared(factory, output_type)
        transformation = Transformation(name, factory, inputs, is_stateful=is_keyed, output_type=output_type)
        environment = first.get_execution_environment()
        environment.add(transformation)
        return environment.build_stream((Upstream(transformation),))


def check_descriptors(broadcast_state_descriptors: Sequence[MapStateDescriptor]) -> None:
    """Check that the descriptors declare the states of a broadcast stream.

    Raises:
        TypeError: if one is not a `MapStateDescriptor`.
        ValueError: if the list is empty, or two have the same name.
    """
    names = set[str]()
    for descriptor in broadcast_state_descriptors:
        if not isinstance(descriptor, MapStateDescriptor):
            raise WrongTypeError(f"a broadcast state is declared by a MapStateDescriptor, not by {descriptor!r}")
        if descriptor.name in names:
            raise WrongValueError(f"two broadcast states have the name {descriptor.name!r}")
        names.add(descriptor.name)
    if not names:
        raise WrongValueError("a broadcast stream needs a MapStateDescriptor for each of its broadcast states")


class BroadcastConnected(Generic[StreamT]):
    """The operations on a stream, keyed or not, that is connected to a broadcast one."""

    def __init__(
        self,
        stream: Stream[StreamT],
        broadcast: Stream[StreamT],
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        self._stream = stream
        self._broadcast = broadcast
        self.broadcast_state_descriptors = tuple(broadcast_state_descriptors)

    def process(
        self,
        func: functions.BroadcastProcessFunction | functions.KeyedBroadcastProcessFunction,
        output_type: TypeInformation | None = None,
    ) -> StreamT:
        """Apply a `KeyedBroadcastProcessFunction` if the stream is keyed, or else a `BroadcastProcessFunction`.

        Raises:
            TypeError: if the function is the wrong one of the two, or anything else.
        """
        stream, descriptors = self._stream, self.broadcast_state_descriptors
        if isinstance(stream, Keyed):
            _check(func, functions.KeyedBroadcastProcessFunction, "the stream is keyed")
            factory: Any = partial(KeyedBroadcastProcessOperator, func, stream.key_selector, descriptors)
            kind = "Keyed Broadcast Process"
        else:
            _check(func, functions.BroadcastProcessFunction, "the stream is not keyed")
            factory = partial(BroadcastProcessOperator, func, descriptors)
            kind = "Broadcast Process"
        inputs = tuple(
            replace(u, input_index=input_index)
            for input_index, connected in ((1 - BROADCAST_INPUT, stream), (BROADCAST_INPUT, self._broadcast))
            for u in connected.upstreams
        )
        environment = stream.get_execution_environment()
        factory = declared(factory, output_type)
        transformation = Transformation(kind, factory, inputs, is_stateful=True, output_type=output_type)
        environment.add(transformation)
        return environment.build_stream((Upstream(transformation),))


def _check(func: Any, expected: type, because: str) -> None:
    if not isinstance(func, expected):
        raise WrongTypeError(f"{because}, so process() takes a {expected.__name__}, not a {type(func).__name__}")
