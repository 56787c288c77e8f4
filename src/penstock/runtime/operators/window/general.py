"""The general window operator: any assigner, any trigger, event or processing time, with or without evictor (C1).

Common cases have operators of their own, which are much faster: those in `aligned`.

**State.** A key has a map from windows to slots. A slot is a list of the window's contents; it is empty if the trigger
has purged a merging window, because the window must remain available for merging. An empty non-merging window has no
slot. In addition, there are timers (`kept_windows`) and the state of triggers and functions (`base`).

**A window's life.** The operator adds a record to the slots of its windows, and asks the trigger what to do for each of
them. Every window has a cleanup timer at its end or, in event time, the allowed lateness after its end. The timer
removes the slot and clears the trigger, and also the state that a function keeps for the window. Windows that never end
(count windows, the global window) have no such timer: a trigger has to purge them.

**Merging.** When windows merge, the operator first calls the trigger, which may merge its state. Then the operator
clears the windows that were merged away and merges their contents, in window order.

**Late records.** In event time, a window is late once its cleanup time has passed. A record whose windows are all late
is dropped and counted, or goes to the side output.

**Processing time.** A timer at t fires when the clock has passed t, 1 ms later than a process function's timer. So a
window [0, 10) whose trigger waits for 9 has all records that arrived while the clock was at 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from penstock.base.copies import detached
from penstock.base.errors import ContractError, WrongTypeError
from penstock.runtime.operators.window import base
from penstock.runtime.operators.window.kept_windows import (
    AssignerContext,
    EvictorContext,
    KeptWindows,
    TriggerContext,
    WindowTimers,
    slots_name,
)
from penstock.runtime.records import MAX_TIMESTAMP, MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.runtime.windowing import assigners
from penstock.runtime.windowing.triggers import Evictor, TimestampedValue, Trigger, TriggerResult
from penstock.runtime.windowing.windows import WindowToken, WindowTokens
from penstock.state.states import NO_KEY

CONTINUE = TriggerResult.CONTINUE


class WindowOperator(base.WindowOperatorBase):
    """See the module docstring. With an evictor, `contents` is built from the window's records at each firing."""

    def __init__(
        self,
        key_selector: Callable[[Any], Any],
        assigner: assigners.WindowAssigner[Any, Any],
        trigger: Trigger[Any, Any],
        contents: base.WindowContents,
        result: base.WindowResult | None = None,
        allowed_lateness_ms: int = 0,
        late_tag: str | None = None,
        evictor: Evictor | None = None,
    ) -> None:
        super().__init__(key_selector, contents, result, allowed_lateness_ms, late_tag)
        self._assigner = assigner
        self._trigger = trigger
        self._evictor = evictor
        self._held = contents if evictor is None else base.ListContents()
        self._is_event_time = assigner.is_event_time()
        self.share_records()
        self.merges = isinstance(assigner, assigners.MergingWindowAssigner)

    @property
    def watermark(self) -> int:
        """The event time (ms) that this subtask has reached."""
        return self._watermark

    def window_tokens(self) -> WindowTokens:
        """Return the converter between windows and their tokens in state."""
        self._tokens = WindowTokens(self._assigner.get_window_serializer())
        return self._tokens

    def initialize_state(self) -> None:
        """Restore the windows and their timers."""
        super().initialize_state()
        self._slots = base.open_runtime_map(self.context.keyed, slots_name(self.merges, self._evictor is not None))
        self._ctx = TriggerContext(self)
        self._assigner_ctx = AssignerContext(self.context)
        self._evictor_ctx = EvictorContext(self)
        ctx = self._ctx
        self._cleanups = ctx.event_timers if self._is_event_time else ctx.processing_timers
        self._register = ctx.register_event_time_timer if self._is_event_time else ctx.register_processing_time_timer
        self._take_kept()

    def _take_kept(self) -> None:
        """Take over windows kept by a fast operator, or before an evictor was added or removed."""
        keyed, slots = self.context.keyed, self._slots
        kept_windows = KeptWindows(self.context, self.merges, self._contents)
        kept_windows.refuse_other_windows()
        for key, token, slot in kept_windows.change_slots(self._evictor is not None):
            keyed.current_key = key
            slots.put(token, slot)
        if not isinstance(self._assigner, assigners.AlignedAssigner | assigners.EventTimeSessionWindows):
            kept_windows.refuse_fast_windows()
            return
        for window in kept_windows.from_tables():
            if not window.has_fired or self._lateness_ms:
                keyed.current_key = window.key
                token = (window.start, window.end)
                slots.put(token, [window.contents if self._evictor is None else kept_windows.records(window)])
                self._ctx.enter(token)
                if not window.has_fired:
                    self._register(window.end - 1)
                self._register(window.end - 1 + self._lateness_ms)
        keyed.current_key = NO_KEY

    # --- records ------------------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add every record to its windows; emit the results of firing windows and the late records."""
        timestamps: Iterable[int | None] | None = batch.timestamps
        if self._is_event_time:
            timestamps = self.require_timestamps(batch)
        elif timestamps is None:
            timestamps = repeat(None, len(batch))
        keyed, keys = self.context.keyed, self.extract_keys(batch.values, self._key_selector)
        value: Any = None
        try:
            for key, value, timestamp in zip(keys, batch.values, timestamps, strict=True):
                keyed.current_key = key
                self._add(key, value, timestamp)
        except Exception as error:
            raise self.failed(value) from error
        finally:
            keyed.current_key = NO_KEY
        for sweeper in keyed.sweepers.values():
            sweeper.on_records(len(batch))
        if self._fired.values or self._late:
            self.emit_collected()

    def _add(self, key: Any, value: Any, timestamp: int | None) -> None:
        time = MIN_TIMESTAMP if timestamp is None else timestamp
        slots, slot_contents, is_event_time = self._slots, self._held, self._is_event_time
        added = value if self._evictor is None else (value, timestamp)
        is_late = False
        is_added = False
        for assigned in self._assigner.assign_windows(value, time, self._assigner_ctx):
            window = self._merge_window(key, assigned) if self.merges else assigned
            due = self._cleanup_ms(window)
            if is_event_time and due <= self._watermark:
                is_late = True
                continue
            is_added = True
            token = self._tokens.to_token(window)
            slot = slots.get(token)
            if slot:
                slot[0] = slot_contents.add(slot[0], added)
            else:
                slot = [slot_contents.first(added)]
            slots.put(token, slot)
            result = self._trigger.on_element(value, time, window, self._ctx.enter(token))
            if result is not CONTINUE:
                self._act(key, window, token, result)
            if due < MAX_TIMESTAMP:
                self._register(due)
        if is_late and not is_added:
            self.late_record(value, time)

    def _cleanup_ms(self, window: Any) -> int:
        end: int = window.max_timestamp()
        return min(end + self._lateness_ms, MAX_TIMESTAMP) if self._is_event_time else end

    # --- merging ------------------------------------------------------------------------------------------------------

    def _merge_window(self, key: Any, window: Any) -> Any:
        """Merge a new window with the windows of the key, and return the resulting window."""
        to_window = self._tokens.to_window
        tokens = sorted(self._slots.keys())
        windows = {to_window(token): token for token in tokens}
        merges = _Merges()
        self._assigner.merge_windows([*windows, *([] if window in windows else [window])], merges)  # type: ignore[attr-defined]
        merged = window
        for group, result in merges.found:
            sources = [token for known, token in windows.items() if known in group]
            if window in group:
                merged = result
            token = self._tokens.to_token(result)
            if sources and sources != [token]:
                self._merge(key, result, token, sources)
        return merged

    def _merge(self, key: Any, window: Any, token: WindowToken, sources: list[WindowToken]) -> None:
        if self._is_event_time and self._cleanup_ms(window) <= self._watermark:
            raise ContractError(
                f"windows were merged into {window!r}, whose end and lateness have already passed: an assigner must "
                "not merge windows into one that ends before they do"
            )
        slots, trigger, ctx = self._slots, self._trigger, self._ctx
        trigger.on_merge(window, ctx.enter(token, sources))
        slot: list[Any] = []
        for other in sources:
            if other != token:
                closed = self._tokens.to_window(other)
                trigger.clear(closed, ctx.enter(other))
                self._cleanups.delete(self._cleanup_ms(closed), key, other)
            other_slot = slots.get(other)
            slots.remove(other)
            if other_slot:
                slot = [self._held.merge(slot[0], other_slot[0])] if slot else list(other_slot)
        slots.put(token, slot)

    # --- firing -------------------------------------------------------------------------------------------------------

    def _act(self, key: Any, window: Any, token: WindowToken, result: TriggerResult) -> None:
        if result is CONTINUE:
            return
        if not isinstance(result, TriggerResult):
            raise WrongTypeError(
                f"trigger {type(self._trigger).__name__} returned {result!r} instead of a TriggerResult"
            )
        if result.is_fire() and (slot := self._slots.get(token)):
            if self._evictor is not None:
                self._fire_evicting(key, window, token, slot, self._evictor)
            else:
                self.emit_result(key, window, self.copy_result(slot[0]))
        if result.is_purge():
            self._empty(token)

    def _empty(self, token: WindowToken) -> None:
        if not self.merges:
            self._slots.remove(token)
        elif self._slots.contains(token):
            self._slots.put(token, [])

    def _fire_evicting(self, key: Any, window: Any, token: WindowToken, slot: list[Any], evictor: Evictor) -> None:
        records = slot[0]
        elements = [TimestampedValue(value, timestamp) for value, timestamp in records]
        evictor.evict_before(elements, len(elements), window, self._evictor_ctx)
        values = [detached(element.get_value()) for element in elements]
        if isinstance(self._contents, base.ListContents):
            self.emit_result(key, window, values)
        elif values:
            self.emit_result(key, window, self._folded(values))
        evictor.evict_after(elements, len(elements), window, self._evictor_ctx)
        if not elements:
            self._empty(token)
        elif len(elements) != len(records):
            remaining = [(e.get_value(), e.get_timestamp() if e.has_timestamp() else None) for e in elements]
            self._slots.put(token, [remaining])

    def _folded(self, values: list[Any]) -> Any:
        contents = self._contents
        folded = contents.first(values[0])
        for value in values[1:]:
            folded = contents.add(folded, value)
        return contents.result(folded)

    def _clean_up(self, window: Any, token: WindowToken) -> None:
        self._slots.remove(token)
        self._trigger.clear(window, self._ctx.enter(token))
        if self._result is not None:
            self._result.clear(window, self._watermark, self._environment)

    # --- time ---------------------------------------------------------------------------------------------------------

    def process_watermark(self, timestamp: int) -> None:
        """Fire the event-time timers that are due, emit, and pass the watermark on."""
        self.resume_event_time(timestamp)
        timestamp = self._watermark
        self._fire_timers(self._ctx.event_timers, timestamp, self._trigger.on_event_time)
        self.output.emit_watermark(timestamp)

    def resume_event_time(self, watermark: int) -> None:
        """Set the event time. Timers for earlier times fire at the next watermark, as they do without a restart."""
        self._watermark = assigners.time_of_sessions(watermark) if self.merges and self._is_event_time else watermark

    def next_timer_ms(self) -> int | None:
        """Return when (ms) the earliest processing-time timer fires."""
        due = self._ctx.processing_timers.next_timestamp()
        return None if due is None else due + 1

    def on_processing_time(self, now_ms: int) -> None:
        """Fire the processing-time timers that have passed."""
        self._fire_timers(self._ctx.processing_timers, now_ms - 1, self._trigger.on_processing_time)

    def quiesce_timers(self) -> None:
        """Drop the processing-time timers that have not fired."""
        self._ctx.takes_processing_timers = False
        self._ctx.processing_timers.clear()

    def end_keys(self) -> None:
        """Fire all timers of both kinds. Processing-time timers that triggers set meanwhile are dropped and counted."""
        super().end_keys()
        self._ctx.takes_processing_timers = False
        self._fire_timers(self._ctx.processing_timers, MAX_WATERMARK, self._trigger.on_processing_time)
        self._ctx.takes_processing_timers = True
        self._ctx.after_end.clear()

    def _fire_timers(
        self, timers: WindowTimers, up_to: int, on_time: Callable[[int, Any, TriggerContext], TriggerResult]
    ) -> None:
        keyed, slots, is_cleaning = self.context.keyed, self._slots, timers is self._cleanups
        firing: Any = None
        fired = 0

        def fire(timestamp: int, key: Any, token: WindowToken) -> None:
            nonlocal firing, fired
            fired += 1
            keyed.current_key = firing = key
            if self.merges and not slots.contains(token):
                return  # the window was merged into another one
            window = self._tokens.to_window(token)
            self._act(key, window, token, on_time(timestamp, window, self._ctx.enter(token)))
            if is_cleaning:
                due = self._cleanup_ms(window)
                if timestamp == due or (timestamp > due and slots.contains(token)):
                    self._clean_up(window, token)
                elif timestamp < due < MAX_TIMESTAMP and slots.contains(token):
                    self._register(due)  # already registered, unless the allowed lateness has increased

        try:
            timers.fire(up_to, fire)
        except Exception as error:
            raise self.failed(("window of key", firing)) from error
        finally:
            keyed.current_key = NO_KEY
        self.context.fired_timers += fired
        if self._fired.values:
            self.emit_collected()


class _Merges(assigners.MergingWindowAssigner.MergeCallback[Any]):
    """Records which windows merge."""

    def __init__(self) -> None:
        self.found: list[tuple[set[Any], Any]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.found.append((set(to_be_merged), merge_result))
