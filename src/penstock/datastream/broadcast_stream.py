"""A stream broadcast with state, and another one connected to it (A1, D2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.record.broadcast_process import (
    BROADCAST_INPUT,
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from penstock.datastream.keyed_stream import KeyedStream
from penstock.plan.nodes import declared
from penstock.plan.transformation import Transformation, Upstream
from penstock.state.descriptors import MapStateDescriptor


class BroadcastStream:
    """A stream of which every subtask gets all records, and the broadcast states made of them.

    Made by `DataStream.broadcast(descriptor, ...)`; connect another stream to it.
    """

    def __init__(self, input_stream: DataStream, broadcast_state_descriptors: Sequence[MapStateDescriptor]) -> None:
        names = set[str]()
        for descriptor in broadcast_state_descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise WrongTypeError(f"a broadcast state is declared by a MapStateDescriptor, not by {descriptor!r}")
            if descriptor.name in names:
                raise WrongValueError(f"two broadcast states have the name {descriptor.name!r}")
            names.add(descriptor.name)
        if not names:
            raise WrongValueError("a broadcast stream needs a MapStateDescriptor for each of its broadcast states")
        self.input_stream = input_stream.broadcast()
        self.broadcast_state_descriptors = tuple(broadcast_state_descriptors)


class BroadcastConnectedStream:
    """A stream, keyed or not, beside a broadcast one; made by `stream.connect(broadcast_stream)`."""

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = tuple(broadcast_state_descriptors)

    def process(
        self,
        func: BroadcastProcessFunction | KeyedBroadcastProcessFunction,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Apply a `KeyedBroadcastProcessFunction` when the stream is keyed, or else a `BroadcastProcessFunction`.

        Raises:
            TypeError: if the function is the wrong one of the two, or anything else.
        """
        stream, descriptors = self.non_broadcast_stream, self.broadcast_state_descriptors
        if isinstance(stream, KeyedStream):
            _check(func, KeyedBroadcastProcessFunction, "the stream is keyed")
            factory: Any = partial(KeyedBroadcastProcessOperator, func, stream.key_selector, descriptors)
            kind = "Keyed Broadcast Process"
        else:
            _check(func, BroadcastProcessFunction, "the stream is not keyed")
            factory = partial(BroadcastProcessOperator, func, descriptors)
            kind = "Broadcast Process"
        inputs = tuple(
            replace(u, input_index=input_index)
            for input_index, one in (
                (1 - BROADCAST_INPUT, stream),
                (BROADCAST_INPUT, self.broadcast_stream.input_stream),
            )
            for u in one.upstreams
        )
        environment = stream.get_execution_environment()
        factory = declared(factory, output_type)
        transformation = Transformation(kind, factory, inputs, is_stateful=True, output_type=output_type)
        environment.add(transformation)
        return DataStream(environment, (Upstream(transformation),))


def _check(func: Any, wanted: type, because: str) -> None:
    if not isinstance(func, wanted):
        raise WrongTypeError(f"{because}, so process() takes a {wanted.__name__}, not a {type(func).__name__}")
