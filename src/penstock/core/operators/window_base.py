"""What window operators share: user functions, late records, and emitting what fires."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.operators.base import FunctionOperator
from penstock.core.operators.emitting import split_side_outputs
from penstock.core.operators.window_contents import WindowContents, WindowResult
from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.core.windowing import TimeWindow
from penstock.state.states import NO_KEY

LATE_RECORDS = "late_records_dropped"


class WindowOperatorBase(FunctionOperator):
    """Common part of aligned and session windows; fires by event time only."""

    is_keyed = True

    def __init__(
        self,
        key_selector: Callable[[Any], Any],
        contents: WindowContents,
        result: WindowResult | None,
        allowed_lateness_ms: int,
        late_tag: str | None,
    ) -> None:
        super().__init__(contents.function)
        self._key_selector = key_selector
        self._contents = contents
        self._result = result
        self._lateness_ms = allowed_lateness_ms
        self._late_tag = late_tag
        self._watermark = MIN_TIMESTAMP
        self._fired: list[Any] = []
        self._fired_times: list[int] = []
        self._late: list[Any] = []
        self._late_times: list[int] = []

    def user_functions(self) -> tuple[Any, ...]:
        """The function that aggregates and the one that sees the result."""
        return (self.function, self._result and self._result.function)

    def open(self) -> None:
        """Open both user functions."""
        super().open()
        opener = getattr(self._result and self._result.function, "open", None)
        if opener is not None:
            self.call_user(opener, self.runtime_context(), what="open()")

    def close(self) -> None:
        """Close both user functions."""
        opened = self._opened
        super().close()
        closer = getattr(self._result and self._result.function, "close", None)
        if closer is not None and opened:
            self.call_user(closer, what="close()")

    def end_keys(self) -> None:
        """Fire all windows."""
        super().end_keys()
        self._watermark = MIN_TIMESTAMP

    def require_timestamps(self, batch: Batch) -> list[int]:
        """The batch's timestamps; raises when its records carry none."""
        if batch.timestamps is None:
            raise TypeError(
                f"{self.context.operator_name}: event-time windows need timestamps, and these records carry none; "
                "give the source a WatermarkStrategy with a timestamp assigner, or call "
                "assign_timestamps_and_watermarks before key_by"
            )
        return batch.timestamps

    def fire(self, key: Any, start: int, end: int, contents: Any) -> None:
        """Add a window's result to what is emitted next."""
        result = self._contents.result(contents)
        fired = self._fired
        if self._result is None:
            fired.append(result)
        else:
            self.context.keyed.current_key = key
            fired.extend(
                self._result.emit(key, TimeWindow(start, end), result, self._watermark, self.context.clock.now_ms)
            )
        times = self._fired_times
        while len(times) < len(fired):
            times.append(end - 1)

    def is_late(self, end: int) -> bool:
        """Whether a window has been cleaned up already."""
        return end - 1 + self._lateness_ms <= self._watermark

    def late_record(self, value: Any, timestamp: int) -> None:
        """A record all of whose windows are gone."""
        self._late.append(value)
        self._late_times.append(timestamp)

    def emit_collected(self) -> None:
        """Emit what fired, and the late records."""
        self.context.keyed.current_key = NO_KEY
        if self._fired:
            fired, times = self._fired, self._fired_times
            self._fired, self._fired_times = [], []
            out = split_side_outputs(self.output, fired, times)
            if len(out):
                self.output.collect(out)
        if self._late:
            late, late_times = self._late, self._late_times
            self._late, self._late_times = [], []
            if self._late_tag is None:
                self.context.count(LATE_RECORDS, len(late))
            else:
                self.output.collect_side(self._late_tag, Batch(late, late_times))
