"""Two streams of different types, handled by one function that may share state between them (A1, A2)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Generic

from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.record.co_process import CoProcessOperator, KeyedCoProcessOperator
from penstock.datastream.environment import StreamT
from penstock.datastream.functions import CoProcessFunction, KeyedCoProcessFunction
from penstock.datastream.keyed import Keyed
from penstock.datastream.keyed_functions import check_needs_no_key
from penstock.datastream.stream import Stream
from penstock.plan.nodes import declared
from penstock.plan.transformation import Transformation, Upstream


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
        """Apply a `CoProcessFunction`, or a `KeyedCoProcessFunction` on keyed streams."""
        return self._add("Co-Process", func, "process", output_type)

    def _add(self, name: str, func: Any, kind: str, output_type: TypeInformation | None) -> StreamT:
        first, other = self.stream1, self.stream2
        is_keyed = False
        if isinstance(first, Keyed) and isinstance(other, Keyed):
            is_keyed = True
            factory: Any = partial(KeyedCoProcessOperator, func, kind, first.key_selector, other.key_selector)
        else:
            remedy = "one.key_by(…).connect(other.key_by(…)).process(…)"
            check_needs_no_key(func, KeyedCoProcessFunction, CoProcessFunction, remedy)
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
