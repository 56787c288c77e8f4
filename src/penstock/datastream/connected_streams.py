"""Two streams of different types, handled by one function that may share state between them (A1, A2)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.record.co_process import CoProcessOperator, KeyedCoProcessOperator
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import CoProcessFunction, KeyedCoProcessFunction
from penstock.datastream.keyed_functions import check_needs_no_key
from penstock.datastream.keyed_stream import KeyedStream
from penstock.plan.nodes import declared
from penstock.plan.transformation import Transformation, Upstream


class ConnectedStreams:
    """Two connected streams; if both are keyed, state and timers belong to the key, whichever stream it is from."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: TypeInformation | None = None
    ) -> ConnectedStreams:
        """Partition both streams, each by its own key selector; equal keys meet in one subtask."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )

    def map(self, func: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Apply a `CoMapFunction`; a result of None stands for no record."""
        return self._add("Co-Map", func, "map", output_type)

    def flat_map(self, func: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Apply a `CoFlatMapFunction`."""
        return self._add("Co-Flat Map", func, "flat_map", output_type)

    def process(self, func: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Apply a `CoProcessFunction`, or on keyed streams a `KeyedCoProcessFunction`."""
        return self._add("Co-Process", func, "process", output_type)

    def _add(self, name: str, func: Any, kind: str, output_type: TypeInformation | None) -> DataStream:
        one, other = self.stream1, self.stream2
        keyed = isinstance(one, KeyedStream) and isinstance(other, KeyedStream)
        if keyed:
            selectors = (one.key_selector, other.key_selector)  # type: ignore[attr-defined]
            factory: Any = partial(KeyedCoProcessOperator, func, kind, *selectors)
        else:
            remedy = "one.key_by(…).connect(other.key_by(…)).process(…)"
            check_needs_no_key(func, KeyedCoProcessFunction, CoProcessFunction, remedy)
            factory = partial(CoProcessOperator, func, kind)
        inputs = tuple(
            replace(u, input_index=input_index)
            for input_index, stream in enumerate((one, other))
            for u in stream.upstreams
        )
        factory = declared(factory, output_type)
        transformation = Transformation(name, factory, inputs, is_stateful=keyed, output_type=output_type)
        one.get_execution_environment().add(transformation)
        return DataStream(one.get_execution_environment(), (Upstream(transformation),))
