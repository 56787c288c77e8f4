"""Interval joins of two keyed streams, as they are built (A2).

pairs = orders.key_by(order_id).interval_join(payments.key_by(order_id))
paid = pairs.between(Time.seconds(0), Time.minutes(10)).process(Pay())
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError
from penstock.base.output_tag import OutputTag
from penstock.base.time import Duration, Time, to_millis
from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.keyed.interval_join import IntervalJoinOperator
from penstock.datastream.data_stream import DataStream
from penstock.datastream.keyed_stream import KeyedStream
from penstock.plan.nodes import declared
from penstock.plan.transformation import Transformation, Upstream

__all__ = ["IntervalJoin", "IntervalJoined"]


class IntervalJoin:
    """Two keyed streams to be joined; `between` says how close together."""

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        for stream in (left, right):
            if not isinstance(stream, KeyedStream):
                raise WrongTypeError(f"an interval join needs two keyed streams, not {stream!r}: call key_by on both")
        self._left = left
        self._right = right

    def in_event_time(self) -> IntervalJoin:
        """Go by event time, as interval joins do anyway."""
        return self

    def in_processing_time(self) -> IntervalJoin:
        """Interval joins go by event time alone; raises NotImplementedError."""
        raise UnsupportedError("an interval join works in event time only: give both streams timestamps")

    def between(
        self,
        lower_bound: int | Duration | Time | datetime.timedelta,
        upper_bound: int | Duration | Time | datetime.timedelta,
    ) -> IntervalJoined:
        """Pair left records at `t` with right records from `t + lower_bound` to `t + upper_bound`, bounds included.

        Args:
            lower_bound: ms or a duration; may be negative.
            upper_bound: ms or a duration; may be negative, but not below the lower bound.

        Raises:
            ValueError: if the upper bound is below the lower.
        """
        return IntervalJoined(self._left, self._right, to_millis(lower_bound), to_millis(upper_bound))


class IntervalJoined:
    """Two keyed streams and the interval that joins them; `process` handles the pairs."""

    def __init__(self, left: KeyedStream, right: KeyedStream, lower_bound_ms: int, upper_bound_ms: int) -> None:
        if lower_bound_ms > upper_bound_ms:
            raise WrongValueError(
                f"interval join: the lower bound ({lower_bound_ms} ms) is above the upper ({upper_bound_ms} ms)"
            )
        self._left = left
        self._right = right
        self._bounds_ms = (lower_bound_ms, upper_bound_ms)
        self._exclusive = [False, False]
        self._late_tags: list[str | None] = [None, None]

    def lower_bound_exclusive(self) -> IntervalJoined:
        """Leave out pairs exactly at the lower bound."""
        self._exclusive[0] = True
        return self

    def upper_bound_exclusive(self) -> IntervalJoined:
        """Leave out pairs exactly at the upper bound."""
        self._exclusive[1] = True
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Send left records that the watermark has passed to a side output instead of dropping them."""
        self._late_tags[0] = output_tag.tag_id
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Send right records that the watermark has passed to a side output instead of dropping them."""
        self._late_tags[1] = output_tag.tag_id
        return self

    def process(self, process_join_function: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Apply a `ProcessJoinFunction` to every pair, under the pair's key.

        Raises:
            ValueError: if exclusive bounds leave no room between them.
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
        return DataStream(environment, (Upstream(transformation),))
