"""Event-time session windows with a fixed gap, the default trigger and no evictor: the fast path (C1).

Each key has a few windows that grow and merge as records arrive.

A key's state is a list of [start, end, contents, fired]. Windows that overlap or touch are merged, so no two windows of
a key have the same end, and a timer at a window's end identifies the window.

A window only ever grows. Until it fires, it has a timer at its end or earlier. The operator sets a timer when the
window begins, and again when a timer fires and the window has grown in the meantime. So a record that extends a window
sets no timer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.operators.timers import TimerQueue
from penstock.core.operators.window.kept_windows import (
    SESSION_CLEANUPS,
    SESSION_ENDS,
    SESSIONS,
    KeptWindow,
    KeptWindows,
)
from penstock.core.operators.window.window_base import WindowOperatorBase
from penstock.core.operators.window.window_contents import AggregatingContents, WindowContents, WindowResult
from penstock.core.records import Batch
from penstock.core.windowing.session_windows import EventTimeSessionWindows, time_of_sessions

Session = list[Any]  # [start, end, contents, fired]


class SessionWindowOperator(WindowOperatorBase):
    """Operator for windows that end when a key is silent for a gap."""

    merges = True

    def __init__(
        self,
        key_selector: Callable[[Any], Any],
        assigner: EventTimeSessionWindows,
        contents: WindowContents,
        result: WindowResult | None = None,
        allowed_lateness_ms: int = 0,
        late_tag: str | None = None,
    ) -> None:
        super().__init__(key_selector, contents, result, allowed_lateness_ms, late_tag)
        self._gap_ms = assigner.gap_ms
        self._firing_key: Any = None

    def initialize_state(self) -> None:
        """Restore the sessions and their timers."""
        super().initialize_state()
        kept_windows = KeptWindows(self.context, self.merges, self._contents)
        kept_windows.refuse_other_windows()
        keyed = self.context.keyed
        table = keyed.table(SESSIONS)
        self._sessions: dict[Any, list[Session]] = table.entries(None)
        self._changed = table.changed(None)
        self._ends = TimerQueue(keyed.table(SESSION_ENDS))
        self._cleanups = TimerQueue(keyed.table(SESSION_CLEANUPS))
        for window in kept_windows.from_slots():
            self._take(window)
            if table.settle is not None:
                table.settle()

    def _take(self, kept_window: KeptWindow) -> None:
        """Take over a session kept by the general operator."""
        if kept_window.has_fired and not self._lateness_ms:
            return
        self._sessions[kept_window.key] = [
            *self._sessions.get(kept_window.key, ()),
            [kept_window.start, kept_window.end, kept_window.contents, kept_window.has_fired],
        ]
        self._changed.add(kept_window.key)
        if kept_window.has_fired:
            self._cleanups.register(kept_window.end - 1 + self._lateness_ms, kept_window.key)
        else:
            self._ends.register(kept_window.end - 1, kept_window.key)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add every record to its key's session."""
        values, timestamps = batch.values, self.require_timestamps(batch)
        keys = self.extract_keys(values, self._key_selector)
        get, mark, gap_ms = self._sessions.get, self._changed.add, self._gap_ms
        contents = self._contents
        add_to = contents.function.add if isinstance(contents, AggregatingContents) else None
        first, add, register_end = contents.first, contents.add, self._ends.register
        #: event time has not passed a session that ends later
        first_end = self._watermark + 1
        value: Any = None
        try:
            for key, value, timestamp in zip(keys, values, timestamps, strict=True):
                end = timestamp + gap_ms
                touched = None
                sessions = get(key)
                if sessions is None and end > first_end:
                    mark(key)
                    self._sessions[key] = [[timestamp, end, first(value), False]]
                    register_end(end - 1, key)
                    continue
                for session in sessions or ():
                    if session[0] <= end and timestamp <= session[1]:
                        if touched is not None or session[3]:
                            touched = None
                            break
                        touched = session
                if touched is None:
                    self._add(key, value, timestamp)
                else:
                    # The most common case: one session continues. It has not fired, so it is not late either.
                    mark(key)
                    current = touched[2]
                    touched[2] = add(current, value) if add_to is None else add_to(value, current)
                    if timestamp < touched[0]:
                        touched[0] = timestamp
                    if end > touched[1]:
                        touched[1] = end
        except Exception as error:
            raise self.failed(value) from error
        if self._fired.values or self._late:
            self.emit_collected()

    def _add(self, key: Any, value: Any, timestamp: int) -> None:
        start, end = timestamp, timestamp + self._gap_ms
        sessions = self._sessions.get(key, [])
        touched = [s for s in sessions if s[0] <= end and start <= s[1]]
        has_timer = False
        for session in touched:
            start, end = min(start, session[0]), max(end, session[1])
            has_timer = has_timer or not session[3]
        if self.is_late(end):
            self.late_record(value, timestamp)
            return
        self._changed.add(key)
        if touched:
            merged = touched[0]
            for other in touched[1:]:
                merged[2] = self._contents.merge(merged[2], other[2])
            sessions[:] = [s for s in sessions if s is merged or not any(s is t for t in touched)]
            merged[2] = self._contents.add(merged[2], value)
            if merged[1] != end or len(touched) > 1:
                merged[3] = False
            merged[0], merged[1] = start, end
        else:
            merged = [start, end, self._contents.first(value), False]
            sessions.append(merged)
            self._sessions[key] = sessions
        if end - 1 <= self._watermark:
            merged[3] = True
            self._cleanups.register(end - 1 + self._lateness_ms, key)
            self.fire(key, start, end, merged[2])
        else:
            merged[3] = False
            if not has_timer:
                self._ends.register(end - 1, key)

    def process_watermark(self, timestamp: int) -> None:
        """Fire the sessions that event time has passed, clean up, and pass the watermark on."""
        timestamp = self._watermark = time_of_sessions(timestamp)
        try:
            fired = self._ends.fire(timestamp, self._on_end) + self._cleanups.fire(timestamp, self._on_cleanup)
            self.context.fired_timers += fired
        except Exception as error:
            raise self.failed(("window of key", self._firing_key)) from error
        self.emit_collected()
        self.output.emit_watermark(timestamp)

    def _on_end(self, timestamp: int, key: Any) -> None:
        self._firing_key = key
        for session in list(self._sessions.get(key, ())):
            if session[3]:
                continue
            if session[1] - 1 > timestamp:
                self._ends.register(session[1] - 1, key)
            else:
                session[3] = True
                self._changed.add(key)
                self.fire(key, session[0], session[1], session[2])
                if self._lateness_ms:
                    self._cleanups.register(session[1] - 1 + self._lateness_ms, key)
                else:
                    self._drop(key, session)

    def _on_cleanup(self, timestamp: int, key: Any) -> None:
        for session in list(self._sessions.get(key, ())):
            if session[3]:
                due = session[1] - 1 + self._lateness_ms
                if due <= timestamp:
                    self._drop(key, session)
                else:
                    self._cleanups.register(due, key)  # the allowed lateness has increased

    def _drop(self, key: Any, session: Session) -> None:
        self._changed.add(key)
        sessions = self._sessions[key]
        if len(sessions) == 1:
            del self._sessions[key]
        else:
            self._sessions[key] = [s for s in sessions if s is not session]
