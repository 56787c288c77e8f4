"""Interval joins of two keyed streams (A2).

pairs = orders.key_by(order_id).interval_join(payments.key_by(order_id))
paid = pairs.between(Time.seconds(0), Time.minutes(10)).process(Pay())
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Generic, Self

from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError
from penstock.base.output_tag import OutputTag
from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.keyed.interval_join import IntervalJoinOperator
from penstock.datastream.environment import StreamT
from penstock.datastream.keyed import Keyed
from penstock.plan.nodes import declared
from penstock.plan.transformation import Transformation, Upstream


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
