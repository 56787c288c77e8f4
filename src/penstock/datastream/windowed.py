"""Windowed streams, with or without keys, and their aggregations (C1).

A stream of `AllWindows` is a keyed stream with a single key, in one subtask. State, timers and snapshots therefore work
as for keyed windows, and batch execution sorts its records by time, as for any key. The operator is limited to one
subtask, because all records share its windows.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Self

from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError
from penstock.base.output_tag import OutputTag
from penstock.base.time import Duration, Time, to_millis
from penstock.base.typeinfo import TypeInformation
from penstock.datastream.environment import Environment, StreamT
from penstock.datastream.functions import ProcessAllWindowFunction, ProcessWindowFunction
from penstock.datastream.stream import Stream
from penstock.plan.transformation import ColumnWindowNode, WindowNode
from penstock.runtime.columns import Aggregate, ColumnKey
from penstock.runtime.operators.emitting import refuse_generator_function
from penstock.runtime.operators.keyed.aggregates import AccumulateType, FieldReduce, check_field
from penstock.runtime.operators.window import base
from penstock.runtime.windowing import EventTimeTrigger, Evictor, MergingWindowAssigner, Trigger, WindowAssigner


class Windows(Generic[StreamT]):
    """Base class of windows of keyed and non-keyed streams."""

    _process_result: ClassVar[type[base.WindowResult]]
    _apply_result: ClassVar[type[base.WindowResult]]

    def __init__(
        self, stream: Stream[StreamT], key_selector: Callable[[Any], Any], assigner: WindowAssigner[Any, Any]
    ) -> None:
        if not isinstance(assigner, WindowAssigner):
            raise WrongTypeError(
                f"expected a WindowAssigner, such as TumblingEventTimeWindows.of(...), not {assigner!r}"
            )
        self._stream = stream
        self._key_selector = key_selector
        self._assigner = assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor | None = None
        self._lateness_ms = 0
        self._late_tag: str | None = None

    def get_execution_environment(self) -> Environment[StreamT]:
        """Return the environment of the stream."""
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Return the type of the records that enter the windows, if the program declares it."""
        return self._stream.get_type()

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set a trigger that replaces the assigner's default.

        Raises:
            ValueError: if windows merge and the trigger does not support merging.

        Examples:
            >>> from penstock.datastream.window import CountTrigger, GlobalWindows
            >>> cups.window(GlobalWindows.create()).trigger(CountTrigger.of(1)).sum(1).collect()
            [('ann', 2), ('bob', 1), ('ann', 5)]
        """
        if not isinstance(trigger, Trigger):
            raise WrongTypeError(f"expected a Trigger, such as CountTrigger.of(10), not {trigger!r}")
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise WrongValueError(
                f"{type(self._assigner).__name__} merges windows, but {type(trigger).__name__} does not support that "
                "(can_merge): implement can_merge and on_merge, or use another trigger"
            )
        self._trigger = trigger
        return self

    def evictor(self, evictor: Evictor) -> Self:
        """Set an evictor, which removes records when a window fires. Even aggregating windows then keep all records."""
        if not isinstance(evictor, Evictor):
            raise WrongTypeError(f"expected an Evictor, such as CountEvictor.of(10), not {evictor!r}")
        self._evictor = evictor
        return self

    def allowed_lateness(self, time_ms: int | Duration | Time | datetime.timedelta) -> Self:
        """Set how long after its end (ms or a duration) a window accepts late records; 0 by default.

        With the default trigger, the window fires again for each of them. Processing-time windows have no late records.

        Examples:
            >>> from penstock.common import Duration
            >>> from penstock.datastream.window import TumblingEventTimeWindows
            >>> hours = cups.window(TumblingEventTimeWindows.of(Duration.of_hours(1)))
            >>> totals = hours.allowed_lateness(Duration.of_minutes(5)).sum(1)
        """
        lateness_ms = to_millis(time_ms)
        if lateness_ms < 0:
            raise WrongValueError(f"the allowed lateness must be at least 0 ms, not {lateness_ms}")
        self._lateness_ms = lateness_ms
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send records that are too late for all their windows to a side output instead of dropping them.

        Examples:
            >>> from penstock.datastream import OutputTag
            >>> from penstock.datastream.window import TumblingEventTimeWindows
            >>> late = OutputTag("late")
            >>> totals = cups.window(TumblingEventTimeWindows.of(60_000)).side_output_late_data(late).sum(1)
            >>> too_late = totals.get_side_output(late)
        """
        self._late_tag = output_tag.tag_id
        return self

    def reduce(
        self, reduce_function: Any, window_function: Any = None, output_type: TypeInformation | None = None
    ) -> StreamT:
        """Reduce each window's records to one, and optionally pass it to `window_function` with its window.

        Without a window function, the results have the type of the records unless `output_type` is given.

        Args:
            reduce_function: a function of two records, or a `ReduceFunction`.
            window_function: a window function, which gets the one reduced record; None to emit that record itself.
            output_type: the type of the results.

        Examples:
            >>> windows.reduce(lambda one, other: (one[0], one[1] + other[1])).collect()
            [('ann', 5)]
        """
        refuse_generator_function(reduce_function, "reduce")
        if window_function is None and output_type is None:
            output_type = self._stream.declared_type
        return self._add(
            "Window Reduce",
            base.ReducingContents(reduce_function, self._stream.declared_type),
            window_function,
            output_type,
        )

    def aggregate(
        self,
        aggregate_function: Any,
        window_function: Any = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> StreamT:
        """Aggregate each window's records, and optionally pass the result to `window_function` with its window.

        Args:
            aggregate_function: an `AggregateFunction`.
            window_function: a window function, which gets the one result; None to emit that result itself.
            accumulator_type: accepted as in PyFlink, without effect.
            output_type: the type of the results; None if it is not declared.

        Examples:
            >>> from penstock.datastream import AggregateFunction
            >>> class Mean(AggregateFunction):
            ...     def create_accumulator(self):
            ...         return []
            ...     def add(self, value, accumulator):
            ...         return [*accumulator, value[1]]
            ...     def get_result(self, accumulator):
            ...         return sum(accumulator) / len(accumulator)
            >>> windows.aggregate(Mean()).collect()
            [2.5]
        """
        return self._add("Window Aggregate", base.AggregatingContents(aggregate_function), window_function, output_type)

    def sum(self, position_to_sum: int | str = 0) -> StreamT:
        """Compute the sum of a field over each window; other fields keep the values of the window's first record.

        Args:
            position_to_sum: the field by position or name, as in `KeyedStream.sum`.

        Examples:
            >>> windows.sum(1).collect()
            [('ann', 5)]
        """
        return self._accumulate(AccumulateType.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> StreamT:
        """Compute the minimum of a field (see `sum`) in each window; other fields come from its first record."""
        return self._accumulate(AccumulateType.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> StreamT:
        """Compute the maximum of a field (see `sum`) in each window; other fields come from its first record."""
        return self._accumulate(AccumulateType.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> StreamT:
        """Emit the record of each window with the smallest field (see `sum`), the first one in case of ties."""
        return self._accumulate(AccumulateType.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> StreamT:
        """Emit the record of each window with the greatest field (see `sum`), the first one in case of ties."""
        return self._accumulate(AccumulateType.MAX_BY, position_to_max_by)

    def _accumulate(self, kind: AccumulateType, field: int | str) -> StreamT:
        check_field(field)
        type_info = self._stream.declared_type
        contents = base.FieldContents(FieldReduce(kind, field, type_info))
        return self._add(f"Window {kind.name.replace('_', ' ').title()}", contents, None, type_info)

    def process(self, process_window_function: Any, output_type: TypeInformation | None = None) -> StreamT:
        """Store each window's records and pass them to a process window function.

        Args:
            process_window_function: a `ProcessWindowFunction`; without keys, a `ProcessAllWindowFunction`.
            output_type: the type of the results; None if it is not declared.

        Examples:
            >>> from penstock.datastream import ProcessWindowFunction
            >>> class Count(ProcessWindowFunction):
            ...     def process(self, key, context, elements):
            ...         yield key, len(list(elements))
            >>> windows.process(Count()).collect()
            [('ann', 2)]
        """
        return self._add("Window Process", base.ListContents(), process_window_function, output_type)

    def apply(self, window_function: Any, output_type: TypeInformation | None = None) -> StreamT:
        """Store each window's records and pass them to a window function.

        Args:
            window_function: a `WindowFunction`, without keys an `AllWindowFunction`, or a function like its `apply`.
            output_type: the type of the results; None if it is not declared.

        Examples:
            >>> windows.apply(lambda key, window, cups: [(key, [cup[1] for cup in cups])]).collect()
            [('ann', [2, 3])]
        """
        return self._add("Window Apply", base.ListContents(), window_function, output_type)

    def _add(
        self, kind: str, contents: base.WindowContents, function: Any, output_type: TypeInformation | None
    ) -> StreamT:
        result: base.WindowResult | None = None
        if function is not None:
            kind_of_result = self._process_result if hasattr(function, "process") else self._apply_result
            result = kind_of_result(function, isinstance(contents, base.ListContents))
        node = WindowNode(
            self._key_selector,
            self._assigner,
            self._trigger or self._assigner.get_default_trigger(self.get_execution_environment()),
            contents,
            result,
            self._lateness_ms,
            self._late_tag,
            self._evictor,
            _clears(function),
        )
        return self._stream._add(kind, node, True, output_type)

    def _has_default_trigger(self) -> bool:
        return self._trigger is None or type(self._trigger) is EventTimeTrigger


def _clears(function: Any) -> bool:
    """Return whether a window function overrides `clear`, which is called when a window is cleaned up."""
    clear = getattr(type(function), "clear", None)
    return clear is not None and clear not in (ProcessWindowFunction.clear, ProcessAllWindowFunction.clear)


class KeyedWindows(Windows[StreamT]):
    """Windows of a keyed stream: each key has its own."""

    _process_result = base.ProcessResult
    _apply_result = base.ApplyResult

    def select(self, *aggregates: Aggregate, output_type: TypeInformation | None = None) -> StreamT:
        """Aggregate the columns of each window with kernels: `lit(1).count`, `col("price").max.alias("highest")`, ….

        The result is one record for each key and window: the key columns, `window_start` and `window_end` (ms), and one
        column for each aggregate. The stream must be keyed by column names, and the windows must be event-time windows.
        Each window fires once.

        Raises:
            TypeError: if the key is not made of columns, or an argument is not an aggregate.
            ValueError: if two aggregates have the same name.
            NotImplementedError: for other windows, triggers, evictors, and allowed lateness.
        """
        key = self._key_selector
        if not isinstance(key, ColumnKey):
            raise WrongTypeError(
                "select aggregates columns, so its keys must be columns too: call key_by('name') before the window"
            )
        for aggregate in aggregates:
            if not isinstance(aggregate, Aggregate):
                raise WrongTypeError(
                    f"{aggregate} is not an aggregate: call one, such as col('price').sum or lit(1).count"
                )
        names = [*key.names, "window_start", "window_end", *(aggregate.name for aggregate in aggregates)]
        if not aggregates or len(set(names)) < len(names):
            raise WrongValueError(f"select needs aggregates with distinct names, not {names[len(key.names) + 2 :]}")
        if not self._has_default_trigger() or self._evictor is not None or self._lateness_ms:
            raise UnsupportedError(
                "windows of columns fire once, at their end: they do not support triggers, evictors or allowed "
                "lateness; use aggregate()"
            )
        node = ColumnWindowNode(key, self._assigner, aggregates, self._late_tag)
        return self._stream._add("Window Select", node, True, output_type)


class AllWindows(Windows[StreamT]):
    """Windows of all records of a stream that is partitioned by `the_one_key`."""

    _process_result = base.ProcessAllResult
    _apply_result = base.ApplyAllResult

    def _add(
        self, kind: str, contents: base.WindowContents, function: Any, output_type: TypeInformation | None
    ) -> StreamT:
        stream = super()._add(f"All-{kind}", contents, function, output_type)
        transformation = stream._transformation
        transformation.parallelism = transformation.parallelism_limit = 1
        return stream


def the_one_key(value: Any) -> None:
    """Return the key of every record."""
    return None
