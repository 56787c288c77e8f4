"""The common base of window operators: user functions, late records, and emitting the results of fired windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import GeneratorType
from typing import Any

from penstock.base.copies import detached
from penstock.base.errors import WrongTypeError
from penstock.core.operators.base import FunctionOperator
from penstock.core.operators.emitted_values import TRUSTED, ResultCheck, Results, as_emitted, can_never_change
from penstock.core.operators.returned import check_results
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.operators.window.window_contents import WindowContents, WindowEnvironment, WindowResult
from penstock.core.operators.window.window_states import WINDOW_STATES, WindowStates
from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.core.windowing.windows import TimeWindow, WindowTokens
from penstock.state.states import NO_KEY


class WindowOperatorBase(FunctionOperator):
    """Base class of `AlignedWindowOperator`, `SessionWindowOperator` and the general `WindowOperator`."""

    #: Whether windows may merge.
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
        #: whether state, or another window, still has the contents of a window that has fired
        self._keeps_fired = allowed_lateness_ms > 0
        self._fired = Results()
        self._late: list[Any] = []
        self._late_times: list[int] = []

    def share_records(self) -> None:
        """Copy records and results, because windows may share a record or fire several times."""
        self._keeps_fired = True
        self._contents.copy_records()

    def user_functions(self) -> tuple[Any, ...]:
        """Return the aggregating function and the window function."""
        return (self.function, self._result and self._result.function)

    def late_outputs(self) -> tuple[str, ...]:
        """Return the tag of the operator's late-record output, if it has one."""
        return () if self._late_tag is None else (self._late_tag,)

    def initialize_state(self) -> None:
        """Create the environment of the window function's contexts."""
        super().initialize_state()
        states = None if self.merges else WindowStates(self.context, WINDOW_STATES)
        self._environment = WindowEnvironment(self.context, self.window_tokens(), states)

    def window_tokens(self) -> WindowTokens:
        """Return the converter between windows and their tokens in state."""
        return WindowTokens(None)

    def open(self) -> None:
        """Open both user functions."""
        super().open()
        opener = getattr(self._result and self._result.function, "open", None)
        if opener is not None:
            self.call_user(opener, self.runtime_context(), what="open()")
        self._check = ResultCheck(self)

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
        """Return the batch's timestamps; raises if its records have none."""
        if batch.timestamps is None:
            raise WrongTypeError(
                f"{self.context.operator_name}: event-time windows need timestamps, but these records have none; give "
                "the source a WatermarkStrategy with a timestamp assigner, or call assign_timestamps_and_watermarks "
                "before key_by"
            )
        return batch.timestamps

    def fire_all(self, start: int, end: int, pane: Mapping[Any, Any]) -> None:
        """Collect a window's results for all its keys, to be emitted next.

        Raises:
            UserCodeError: if a function raises.
        """
        keyed, copy_result, results = self.context.keyed, self._result_function(), self._fired
        append, extend, is_close = results.values.append, results.values.extend, self._check.is_close()
        key: Any = None
        try:
            if self._result is None:
                for key, contents in pane.items():  # noqa: B007 - an error names it
                    append(copy_result(contents))
            else:
                is_list = self._result.is_list
                call, beside = self._result.call(TimeWindow(start, end), self._watermark, self._environment)
                for key, contents in pane.items():
                    keyed.current_key = key
                    result = copy_result(contents)
                    emitted = call(key, beside, result if is_list else [result])
                    if emitted is None:
                        continue
                    if emitted.__class__ is list and not is_close:
                        extend(emitted)
                        continue
                    if emitted.__class__ is not GeneratorType and emitted.__class__ is not list:
                        emitted = check_results(emitted, call)
                    if is_close:
                        results.take(emitted)
                        continue
                    for record in emitted:
                        if record.__class__ not in TRUSTED and not can_never_change(record):
                            results.has_mixed = True
                            record = as_emitted(record, emitted)
                        append(record)
        except Exception as error:
            raise self.failed(("window of key", key)) from error
        results.add_times(end - 1)
        self.context.fired_timers += len(pane)

    def fire(self, key: Any, start: int, end: int, contents: Any) -> None:
        """Collect a window's result, to be emitted next."""
        result = self._result_function()(contents)
        if self._result is None:
            self._fired.values.append(result)
            self._fired.times.append(end - 1)
        else:
            self.emit_result(key, TimeWindow(start, end), result)

    def _result_function(self) -> Callable[[Any], Any]:
        """Return the function from a window's contents to its result, as a copy if the contents stay in state."""
        return self.copy_result if self._keeps_fired else self._contents.result_function()

    def copy_result(self, contents: Any) -> Any:
        """Return a window's result as a copy, because the window keeps its contents."""
        return detached(self._contents.result(contents))

    def emit_result(self, key: Any, window: Any, result: Any) -> None:
        """Apply the window function to a window's result, and collect its output to be emitted next."""
        if self._result is None:
            self._fired.values.append(result)
        else:
            self.context.keyed.current_key = key
            emitted = self._result.emit(key, window, result, self._watermark, self._environment)
            if emitted is not None:
                self._fired.take(emitted)
        self._fired.add_times(window.max_timestamp())

    def is_late(self, end: int) -> bool:
        """Return whether a window has already been cleaned up."""
        return end - 1 + self._lateness_ms <= self._watermark

    def late_record(self, value: Any, timestamp: int) -> None:
        """Collect a record whose windows have all been cleaned up."""
        self._late.append(value)
        self._late_times.append(timestamp)

    def emit_collected(self) -> None:
        """Emit the collected results and late records."""
        self.context.keyed.current_key = NO_KEY
        if self._fired.values:
            fired, self._fired = self._fired, Results()
            self._check.note(fired)
            fired.emit(self.output, is_timed=True)
        if self._late:
            late, late_times = self._late, self._late_times
            self._late, self._late_times = [], []
            if self._late_tag is None:
                self.context.count(LATE_RECORDS, len(late))
            else:
                self.output.collect_side(self._late_tag, Batch(late, late_times))
