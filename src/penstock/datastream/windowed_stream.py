"""A keyed stream cut into windows, and the ways to aggregate them (C1)."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.common.output_tag import OutputTag
from penstock.common.time import Duration, Time, to_millis
from penstock.common.typeinfo import TypeInformation
from penstock.core.operators.aligned_window import AlignedWindowOperator
from penstock.core.operators.session_window import SessionWindowOperator
from penstock.core.operators.window_contents import (
    AggregatingContents,
    ApplyResult,
    ListContents,
    ProcessResult,
    ReducingContents,
    WindowContents,
    WindowResult,
)
from penstock.core.windowing import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.datastream.data_stream import DataStream, KeyedStream


class WindowedStream:
    """Windows of a keyed stream; fires when the watermark passes a window's end."""

    def __init__(self, stream: KeyedStream, assigner: Any, key_selector: Callable[[Any], Any]) -> None:
        if not isinstance(assigner, TumblingEventTimeWindows | SlidingEventTimeWindows | EventTimeSessionWindows):
            raise NotImplementedError(
                f"window assigner {type(assigner).__name__} is not available yet; there are TumblingEventTimeWindows, "
                "SlidingEventTimeWindows and EventTimeSessionWindows"
            )
        self._stream = stream
        self._assigner = assigner
        self._key_selector = key_selector
        self._lateness_ms = 0
        self._late_tag: str | None = None

    def allowed_lateness(self, time_ms: int | Duration | Time | datetime.timedelta) -> WindowedStream:
        """For how long after its end (ms or a duration) a window takes late records, and fires again for each."""
        self._lateness_ms = to_millis(time_ms)
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> WindowedStream:
        """Send records that come too late for all their windows to a side output instead of dropping them."""
        self._late_tag = output_tag.tag_id
        return self

    def trigger(self, trigger: Any) -> WindowedStream:
        """Fire by another rule than the watermark."""
        raise NotImplementedError("triggers other than event time are not available yet")

    def reduce(
        self, reduce_function: Any, window_function: Any = None, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Fold each window's records into one; `window_function` may then see it with its key and window."""
        return self._add("Window Reduce", ReducingContents(reduce_function), window_function)

    def aggregate(
        self,
        aggregate_function: Any,
        window_function: Any = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Aggregate each window's records; `window_function` may then see the result with its key and window."""
        return self._add("Window Aggregate", AggregatingContents(aggregate_function), window_function)

    def process(self, process_window_function: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Keep each window's records and hand them all to a `ProcessWindowFunction`."""
        return self._add("Window Process", ListContents(), process_window_function)

    def apply(self, window_function: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Keep each window's records and hand them all to a `WindowFunction`."""
        return self._add("Window Apply", ListContents(), window_function)

    def _add(self, kind: str, contents: WindowContents, function: Any) -> DataStream:
        result: WindowResult | None = None
        is_list = isinstance(contents, ListContents)
        if function is not None:
            result = (ProcessResult if hasattr(function, "process") else ApplyResult)(function, is_list)
        operator: Any = (
            SessionWindowOperator if isinstance(self._assigner, EventTimeSessionWindows) else AlignedWindowOperator
        )
        factory = partial(
            operator, self._key_selector, self._assigner, contents, result, self._lateness_ms, self._late_tag
        )
        return self._stream._add(kind, factory, is_stateful=True)
