"""Event-time windows with the default trigger and no evictor: the fast path (C1).

`AlignedWindowOperator` has tumbling, sliding and cumulative windows. Each window keeps its contents in one dictionary,
`(start, end) -> key -> contents`. So a record costs one dictionary access for each of its windows, and firing a window
means walking one dictionary. There are no timers per key.

With allowed lateness, a fired window moves to a second table, with each key's contents intact, until it is cleaned up.
A late record for the window fires it again at once for the record's key. After a recovery, event time starts over. A
record may then arrive for a window that had fired but has not been passed again. Its key moves back and fires with the
others when the watermark passes the window again.

`SessionWindowOperator` has session windows with a fixed gap. Each key has a few windows that grow and merge as records
arrive. A key's state is a list of [start, end, contents, fired]. Windows that overlap or touch are merged, so no two
windows of a key have the same end, and a timer at a window's end identifies the window.

A window only ever grows. Until it fires, it has a timer at its end or earlier. The operator sets a timer when the
window begins, and again when a timer fires and the window has grown in the meantime. So a record that extends a window
sets no timer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from penstock.runtime.operators.watermarks import TimerQueue
from penstock.runtime.operators.window.base import AggregatingContents, WindowContents, WindowOperatorBase, WindowResult
from penstock.runtime.operators.window.kept_windows import (
    FIRED_WINDOWS,
    OPEN_WINDOWS,
    SESSION_CLEANUPS,
    SESSION_ENDS,
    SESSIONS,
    KeptWindow,
    KeptWindows,
)
from penstock.runtime.records import Batch
from penstock.runtime.windowing import assigners

Window = tuple[int, int]
_MISSING: Any = object()
#: Windows, the records of a batch to add to them, and the records' timestamps.
_Part = tuple[list[Window], list[Any], list[int]]


class AlignedWindowOperator(WindowOperatorBase):
    """Operator for windows whose bounds depend on the timestamp alone."""

    def __init__(
        self,
        key_selector: Callable[[Any], Any],
        assigner: assigners.AlignedAssigner,
        contents: WindowContents,
        result: WindowResult | None = None,
        allowed_lateness_ms: int = 0,
        late_tag: str | None = None,
    ) -> None:
        super().__init__(key_selector, contents, result, allowed_lateness_ms, late_tag)
        self._assigner = assigner
        #: whether windows overlap, so that records of different times may belong to one window
        self._is_shared = not isinstance(assigner, assigners.TumblingEventTimeWindows)
        if self._is_shared:
            self.share_records()
        #: the assigner, if it has a loop of its own
        self._tumbling = (
            assigner
            if isinstance(assigner, assigners.TumblingEventTimeWindows) and isinstance(contents, AggregatingContents)
            else None
        )

    def initialize_state(self) -> None:
        """Restore the windows and the times at which they are due."""
        super().initialize_state()
        kept_windows = KeptWindows(self.context, self.merges, self._contents)
        kept_windows.refuse_other_windows()
        self._open_table = self.context.keyed.table(OPEN_WINDOWS)
        self._fired_table = self.context.keyed.table(FIRED_WINDOWS)
        for window in kept_windows.from_slots():
            self._take(window)
        self._open_panes: dict[Window, dict[Any, Any]] = self._open_table.panes
        self._fired_panes: dict[Window, dict[Any, Any]] = self._fired_table.panes
        self._ends = [(end, start) for start, end in self._open_panes]
        self._cleanups = [(end, start) for start, end in self._fired_panes]
        heapify(self._ends)
        heapify(self._cleanups)

    def _take(self, kept_window: KeptWindow) -> None:
        """Take over a window kept by the general operator."""
        if kept_window.has_fired and not self._lateness_ms:
            return
        table, window = (
            self._fired_table if kept_window.has_fired else self._open_table,
            (kept_window.start, kept_window.end),
        )
        table.entries(window)[kept_window.key] = kept_window.contents
        table.mark(window, (kept_window.key,))
        if table.settle is not None:
            table.settle()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add every record to its windows; emit late records and the results of windows that fire again."""
        values, timestamps = batch.values, self.require_timestamps(batch)
        if self._lateness_ms and min(timestamps) <= self._watermark:
            self._add_in_order(values, timestamps)
        else:
            self._add(values, timestamps)
        if self._fired.values or self._late:
            self.emit_collected()

    def _add_in_order(self, values: list[Any], timestamps: list[int]) -> None:
        """Add records in order: a late record may fire several windows, and a key's results follow record order."""
        begin = 0
        for index, timestamp in enumerate(timestamps):
            if timestamp <= self._watermark:
                if begin < index:
                    self._add(values[begin:index], timestamps[begin:index])
                self._add_to_windows(self._assigner.assign(timestamp)[2], [values[index]], [timestamp])
                begin = index + 1
        if begin < len(timestamps):
            self._add(values[begin:], timestamps[begin:])

    def _add(self, values: list[Any], timestamps: list[int]) -> None:
        _low, high, windows = self._assigner.assign(min(timestamps))
        if max(timestamps) < high:
            self._add_to_windows(windows, values, timestamps)
        elif self._tumbling is not None and windows[0][1] - 1 > self._watermark and not self._fired_panes:
            self._aggregate_in_tumbling(self._tumbling, values, timestamps)
        else:
            for part in self._by_windows(values, timestamps):
                self._add_to_windows(*part)

    def _by_windows(self, values: list[Any], timestamps: list[int]) -> Iterable[_Part]:
        """Split the batch into parts whose records have the same windows or are all late, each part in order.

        Records of different parts may share a window. If the batch alternates between such parts, split it by window
        instead, because a window must receive its records in order.
        """
        parts: dict[int | None, _Part] = {}
        low = high = 0
        add_value = add_time = None
        for value, timestamp in zip(values, timestamps, strict=True):
            if add_value is None or add_time is None or not low <= timestamp < high:
                low, high, windows = self._assigner.assign(timestamp)
                are_late = bool(windows) and all(self.is_late(window[1]) for window in windows)
                name = None if are_late else low
                part = parts.get(name)
                if part is None:
                    part = parts[name] = (windows, [], [])
                elif self._is_shared and name is not None:
                    return self._by_each_window(values, timestamps)
                add_value, add_time = part[1].append, part[2].append
            add_value(value)
            add_time(timestamp)
        return parts.values()

    def _by_each_window(self, values: list[Any], timestamps: list[int]) -> Iterable[_Part]:
        """Return the records of each window, and all late records."""
        parts: dict[Window | None, _Part] = {}
        low = high = 0
        taking: list[_Part] = []
        for value, timestamp in zip(values, timestamps, strict=True):
            if not low <= timestamp < high:
                low, high, windows = self._assigner.assign(timestamp)
                live = [window for window in windows if not self.is_late(window[1])]
                taking = [parts.setdefault(window, ([window], [], [])) for window in live]
                if windows and not live:
                    taking.append(parts.setdefault(None, (windows, [], [])))
            for _, of_part, times in taking:
                of_part.append(value)
                times.append(timestamp)
        return parts.values()

    def _aggregate_in_tumbling(
        self, assigner: assigners.TumblingEventTimeWindows, values: list[Any], timestamps: list[int]
    ) -> None:
        """Do the same as `_add_to_windows` for windows that have not fired, without splitting the batch."""
        keys = self.extract_keys(values, self._key_selector)
        size_ms, offset_ms, function = assigner.size_ms, assigner.offset_ms, self._contents.function
        add, create = function.add, function.create_accumulator
        panes: dict[int, dict[Any, Any]] = {}
        low = high = 0
        value: Any = None
        try:
            for key, value, timestamp in zip(keys, values, timestamps, strict=True):
                if not low <= timestamp < high:
                    low = timestamp - (timestamp - offset_ms) % size_ms
                    high = low + size_ms
                    if low not in panes:
                        panes[low] = self._pane((low, high), ())
                    pane = panes[low]
                    get = pane.get
                accumulator = get(key, _MISSING)
                pane[key] = add(value, create() if accumulator is _MISSING else accumulator)
        except Exception as error:
            raise self.failed(value) from error
        table = self._open_table
        for low in panes:
            if not table.is_next_whole:
                high = low + size_ms
                table.mark((low, high), [k for k, t in zip(keys, timestamps, strict=True) if low <= t < high])

    def _add_to_windows(self, windows: list[Window], values: list[Any], timestamps: list[int]) -> None:
        live = [w for w in windows if not self.is_late(w[1])]
        if not windows:
            return  # in the gap between two sliding windows
        if not live:
            for value, timestamp in zip(values, timestamps, strict=True):
                self.late_record(value, timestamp)
            return
        for window in live:
            if window[1] - 1 <= self._watermark:
                self._fire_again(window, self.extract_keys(values, self._key_selector), values)
            else:
                keys = self.extract_keys(values, self._key_selector)
                self._add_to_pane(self._pane(window, keys), keys, values)
                self._open_table.mark(window, keys)

    def _add_to_pane(self, pane: dict[Any, Any], keys: list[Any], values: list[Any]) -> None:
        contents, get = self._contents, pane.get
        value: Any = None
        try:
            if isinstance(contents, AggregatingContents):
                # Avoids the indirection through `contents.add`: most jobs spend their time in this loop.
                add, create = contents.accumulate, contents.function.create_accumulator
                for key, value in zip(keys, values, strict=True):
                    accumulator = get(key, _MISSING)
                    pane[key] = add(value, create() if accumulator is _MISSING else accumulator)
            else:
                first, add = contents.first, contents.add
                for key, value in zip(keys, values, strict=True):
                    current = get(key, _MISSING)
                    pane[key] = first(value) if current is _MISSING else add(current, value)
        except Exception as error:
            raise self.failed(value) from error

    def _pane(self, window: Window, keys: Sequence[Any]) -> dict[Any, Any]:
        pane = self._open_panes.get(window)
        if pane is None:
            pane = self._open_table.entries(window)
            heappush(self._ends, (window[1], window[0]))
        fired = self._fired_panes.get(window) if self._fired_panes else None
        if fired:
            # Only after a recovery, see the module docstring: these keys fire again, with their previous contents.
            for key in keys:
                if key in fired:
                    pane[key] = fired.pop(key)
                    self._fired_table.changed(window).add(key)
        return pane

    def _fire_again(self, window: Window, keys: list[Any], values: list[Any]) -> None:
        """Add late records within the allowed lateness to a window that has fired; it fires for each of them."""
        pane = self._fired_panes.get(window)
        if pane is None:
            pane = self._fired_table.entries(window)
            heappush(self._cleanups, (window[1], window[0]))
        changed = self._fired_table.changed(window)
        value: Any = None
        try:
            for key, value in zip(keys, values, strict=True):
                current = pane.get(key, _MISSING)
                pane[key] = self._contents.first(value) if current is _MISSING else self._contents.add(current, value)
                changed.add(key)
                self.fire(key, *window, pane[key])
        except Exception as error:
            raise self.failed(value) from error

    def process_watermark(self, timestamp: int) -> None:
        """Fire the windows that event time has passed, clean up, and pass the watermark on."""
        self._watermark = timestamp
        ends = self._ends
        while ends and ends[0][0] - 1 <= timestamp:
            end, start = heappop(ends)
            pane = self._open_table.drop((start, end))
            self.fire_all(start, end, pane)
            if self._lateness_ms and not self.is_late(end) and pane:
                if (start, end) not in self._fired_panes:
                    heappush(self._cleanups, (end, start))
                self._fired_table.entries((start, end)).update(pane)
                self._fired_table.changed((start, end)).update(pane)
        while self._cleanups and self.is_late(self._cleanups[0][0]):
            end, start = heappop(self._cleanups)
            self._fired_table.drop((start, end))
        self.emit_collected()
        self.output.emit_watermark(timestamp)


Session = list[Any]  # [start, end, contents, fired]


class SessionWindowOperator(WindowOperatorBase):
    """Operator for windows that end when a key is silent for a gap."""

    merges = True

    def __init__(
        self,
        key_selector: Callable[[Any], Any],
        assigner: assigners.EventTimeSessionWindows,
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
        timestamp = self._watermark = assigners.time_of_sessions(timestamp)
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
