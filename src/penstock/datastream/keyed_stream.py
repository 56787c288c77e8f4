"""Streams partitioned by key, and what can be done with each key's records (A1, A2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.checkpointed import CheckpointedFunction
from penstock.core.operators.keyed.keyed_aggregate import AccumulateType, KeyedAggregateOperator
from penstock.core.operators.keyed.keyed_functions import KeyedFunctionOperator
from penstock.core.operators.keyed.keyed_reduce import KeyedReduceOperator
from penstock.core.operators.record.process import KeyedProcessOperator
from penstock.core.operators.returned import refuse_generator_function
from penstock.core.task.channels.partitioners import Partitioner
from penstock.core.windowing import WindowAssigner
from penstock.core.windowing.count_windows import count_windows
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import Function as RichFunction
from penstock.plan.transformation import Transformation, Upstream

if TYPE_CHECKING:
    from penstock.datastream.interval_join import IntervalJoin
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.windowed_stream import WindowedStream

Function = Any

__all__ = ["KeyedStream"]


class KeyedStream(DataStream):
    """A stream partitioned by key."""

    AccumulateType: TypeAlias = AccumulateType

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        upstreams: tuple[Upstream, ...],
        key_selector: Callable[[Any], Any],
        original: DataStream,
    ) -> None:
        super().__init__(environment, upstreams, original._type_info)
        self._key_selector = key_selector
        self._original = original

    @property
    def _transformation(self) -> Transformation:
        raise WrongTypeError(
            "a keyed stream is a partitioning, not an operator: set this before key_by, or after the next operator"
        )

    def get_name(self) -> str:
        """The name of the operator ahead of the partitioning."""
        return self._original.get_name()

    def _partitioned(self, partitioner: Partitioner) -> DataStream:
        raise WrongTypeError(f"a keyed stream is partitioned by its keys, which {partitioner.name} cannot replace")

    @property
    def key_selector(self) -> Callable[[Any], Any]:
        """The function that takes the key out of a record."""
        return self._key_selector

    def _function(self, kind: str, func: Function, output_type: TypeInformation | None) -> DataStream | None:
        """A rich function may use keyed state, so it runs under its record's key; a plain callable need not."""
        if not hasattr(func, "open"):
            return None
        if type(func).open is RichFunction.open and not isinstance(func, CheckpointedFunction):
            return None
        factory = partial(KeyedFunctionOperator, func, self._key_selector, kind)
        return self._add(kind.replace("_", " ").title(), factory, is_stateful=True, output_type=output_type)

    def map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """One record out for each record in; a `MapFunction` may use keyed state."""
        refuse_generator_function(func, "map")
        return self._function("map", func, output_type) or super().map(func, output_type)

    def flat_map(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Any number of records out for each one in; a `FlatMapFunction` may use keyed state."""
        return self._function("flat_map", func, output_type) or super().flat_map(func, output_type)

    def filter(self, func: Function) -> DataStream:
        """The records for which a function is true; a `FilterFunction` may use keyed state."""
        return self._function("filter", func, self.declared_type) or super().filter(func)

    def reduce(self, func: Function) -> DataStream:
        """Fold each record into its key's value; emits the new value for every record."""
        refuse_generator_function(func, "reduce")
        factory = partial(KeyedReduceOperator, func, self._key_selector, self.declared_type)
        return self._add("Keyed Reduce", factory, is_stateful=True, keeps_type=True)

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """The running sum of a field, in the key's first record, whose other fields stay.

        Args:
            position_to_sum: the field by position, in tuples, lists, rows and dataclasses; or by name, in rows, named
                tuples, dataclasses and dicts (`f0`, `f1`, … in tuples). A plain number is its own field 0.
        """
        return self._accumulate(self.AccumulateType.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """The least of a field so far, in the key's first record, whose other fields stay; the field as for `sum`."""
        return self._accumulate(self.AccumulateType.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """The greatest of a field so far, in the key's first record, whose others stay; the field as for `sum`."""
        return self._accumulate(self.AccumulateType.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """The record with the least field so far, whole; the first one of several. The field as for `sum`."""
        return self._accumulate(self.AccumulateType.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """The record with the greatest field so far, whole; the first one of several. The field as for `sum`."""
        return self._accumulate(self.AccumulateType.MAX_BY, position_to_max_by)

    def _accumulate(self, kind: AccumulateType, field: int | str) -> DataStream:
        if isinstance(field, int) and field < 0:
            raise WrongValueError(f"the field to aggregate must be a position from 0 on, or a name, not {field!r}")
        factory = partial(KeyedAggregateOperator, kind, field, self._key_selector, self.declared_type)
        name = f"Keyed {kind.name.replace('_', ' ').title()}"
        return self._add(name, factory, is_stateful=True, keeps_type=True)

    def process(self, func: Function, output_type: TypeInformation | None = None) -> DataStream:
        """Apply a `KeyedProcessFunction`: keyed state and timers."""
        factory = partial(KeyedProcessOperator, func, self._key_selector)
        return self._add("Keyed Process", factory, is_stateful=True, output_type=output_type)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Group each key's records into windows."""
        from penstock.datastream.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Windows of `size` records of a key, a new one every `slide` records; one after the other when that is 0."""
        return self.window(count_windows(size, slide))

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Pair the records of this stream with those of another keyed stream whose timestamps are close."""
        from penstock.datastream.interval_join import IntervalJoin

        return IntervalJoin(self, other_stream)

    def key_by(
        self, key_selector: Function | str | Sequence[str], key_type: TypeInformation | None = None
    ) -> KeyedStream:
        """Partition by another key."""
        return self._original.key_by(key_selector, key_type)
