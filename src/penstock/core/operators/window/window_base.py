"""What window operators share: user functions, late records, and emitting what fires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import repeat
from types import GeneratorType
from typing import Any

from penstock.base.errors import WrongTypeError
from penstock.core.operators.base import FunctionOperator
from penstock.core.operators.emitting import split_side_outputs
from penstock.core.operators.returned import results_of
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.operators.window.window_contents import WindowContents, WindowEnvironment, WindowResult
from penstock.core.operators.window.window_states import WINDOW_STATES, WindowStates
from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.core.windowing.windows import TimeWindow, WindowTokens
from penstock.state.states import NO_KEY


class WindowOperatorBase(FunctionOperator):
    """What `AlignedWindowOperator`, `SessionWindowOperator` and the general `WindowOperator` share."""

    #: Whether windows may become one.
    merges = False

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

    def late_outputs(self) -> tuple[str, ...]:
        """That of the operator, when it has one."""
        return () if self._late_tag is None else (self._late_tag,)

    def initialize_state(self) -> None:
        """Find what contexts of window functions reach."""
        super().initialize_state()
        states = None if self.merges else WindowStates(self.context, WINDOW_STATES)
        self._environment = WindowEnvironment(self.context, self.window_tokens(), states)

    def window_tokens(self) -> WindowTokens:
        """What stands for windows in state."""
        return WindowTokens(None)

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

    def advance_keys(self, timestamp: int) -> None:
        """Fire the windows that are due."""
        before = self._watermark
        self.process_watermark(timestamp)
        self._watermark = before

    def require_timestamps(self, batch: Batch) -> list[int]:
        """The batch's timestamps; raises when its records carry none."""
        if batch.timestamps is None:
            raise WrongTypeError(
                f"{self.context.operator_name}: event-time windows need timestamps, but these records have none; give "
                "the source a WatermarkStrategy with a timestamp assigner, or call assign_timestamps_and_watermarks "
                "before key_by"
            )
        return batch.timestamps

    def fire_all(self, start: int, end: int, pane: Mapping[Any, Any]) -> None:
        """Add the results of a window for all its keys to what is emitted next.

        Raises:
            UserCodeError: if a function raises.
        """
        fired, keyed, result_of = self._fired, self.context.keyed, self._contents.result_function()
        key: Any = None
        try:
            if self._result is None:
                for key, contents in pane.items():  # noqa: B007 - an error names it
                    fired.append(result_of(contents))
            else:
                is_list = self._result.is_list
                call, beside = self._result.call(TimeWindow(start, end), self._watermark, self._environment)
                for key, contents in pane.items():
                    keyed.current_key = key
                    result = result_of(contents)
                    emitted = call(key, beside, result if is_list else [result])
                    if emitted is not None:
                        if emitted.__class__ is not GeneratorType and emitted.__class__ is not list:
                            emitted = results_of(emitted, call)
                        fired.extend(emitted)
        except Exception as error:
            raise self.failed(("window of key", key)) from error
        self._fired_times.extend(repeat(end - 1, len(fired) - len(self._fired_times)))
        self.context.fired_timers += len(pane)

    def fire(self, key: Any, start: int, end: int, contents: Any) -> None:
        """Add a window's result to what is emitted next."""
        result = self._contents.result(contents)
        if self._result is None:
            self._fired.append(result)
            self._fired_times.append(end - 1)
        else:
            self.emit_result(key, TimeWindow(start, end), result)

    def emit_result(self, key: Any, window: Any, result: Any) -> None:
        """Add what the window function makes of a window's result to what is emitted next."""
        fired, times = self._fired, self._fired_times
        if self._result is None:
            fired.append(result)
        else:
            self.context.keyed.current_key = key
            emitted = self._result.emit(key, window, result, self._watermark, self._environment)
            if emitted is not None:
                fired.extend(emitted)
        timestamp = window.max_timestamp()
        while len(times) < len(fired):
            times.append(timestamp)

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
