"""Window timers, the contexts of the general window operator, and windows restored from another operator (C1, H4).

`WindowTimers` are the timers of windows in one time domain: which windows of which keys are due when. They work like a
`TimerQueue`, but an item is a key with a window. The buckets are namespaces of a state table, keyed like the stream, so
timers move with their keys. Each key's entry contains the windows that are due.

The general window operator passes an `AssignerContext`, a `TriggerContext` or an `EvictorContext` to assigners,
triggers and evictors.

`KeptWindows` are windows restored from another window operator: a savepoint fits whichever operator runs. Event-time
windows have a fast operator and the general one, and `plan` chooses between them. Adding or removing a trigger, an
evictor or a function with `clear` changes the choice, but not the contents of the windows. So each operator can start
from the state that any of them wrote:

==================  ==========================================  ====================================================
operator            keeps contents in                           knows whether a window has fired by
==================  ==========================================  ====================================================
aligned windows     a table for each window                     the table that it is in
session windows     a list of sessions for each key             a flag
general operator    slots: a map from windows for each key      a timer at its end, if it has not fired
with an evictor     slots of records with their timestamps
==================  ==========================================  ====================================================

A window that moves to the general operator gets the timers that it would have there. A window that comes from the
general operator has fired if it no longer has a timer at its end; its trigger state is dropped. The records of an
evictor are folded into the function's aggregate. The reverse is possible only for functions that see all records,
because an aggregate cannot be turned back into records. Records kept without timestamps get the start of their window
as timestamp.

Merging and non-merging windows have different states, and so do event-time windows and all others. Switching between
them means changing the assigner, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, Protocol

from penstock.base.metrics import MetricGroup
from penstock.base.time import timer_ms
from penstock.runtime.operators.function_context import OperatorContext, RuntimeContext
from penstock.runtime.operators.watermarks import DROPPED_TIMERS, TimerQueue, TimersAfterEnd
from penstock.runtime.operators.window import base
from penstock.runtime.records import MAX_TIMESTAMP, MAX_WATERMARK, MIN_TIMESTAMP
from penstock.runtime.windowing.assigners import WindowAssigner
from penstock.runtime.windowing.triggers import Evictor, Trigger
from penstock.runtime.windowing.windows import WindowToken
from penstock.state.backend import KeyedStateBackend, KeyedTable
from penstock.state.errors import StateError
from penstock.state.states import NO_KEY, StateDescriptor, ValueState, ValueStateDescriptor


class WindowTimers:
    """Windows of keys with the times (ms) at which they are due; each is due at most once per time."""

    __slots__ = ("_buckets", "_heap", "_table")

    def __init__(self, table: KeyedTable) -> None:
        self._table = table
        self._buckets = table.panes
        self._heap = list(self._buckets)
        heapify(self._heap)

    def register(self, timestamp: int, key: Any, token: WindowToken) -> None:
        """Make a window of a key due at `timestamp`; a second registration changes nothing."""
        bucket = self._buckets.get(timestamp)
        if bucket is None:
            bucket = self._table.entries(timestamp)
            heappush(self._heap, timestamp)
        due = bucket.get(key)
        if due is None:
            bucket[key] = {token: None}
        elif token in due:
            return
        else:
            due[token] = None
        self._table.changed(timestamp).add(key)

    def holds(self, timestamp: int, key: Any, token: WindowToken) -> bool:
        """Return whether a window of a key is due at `timestamp`."""
        bucket = self._buckets.get(timestamp)
        return bucket is not None and token in (bucket.get(key) or ())

    def delete(self, timestamp: int, key: Any, token: WindowToken) -> None:
        """Remove the timer of a window of a key at `timestamp`, if there is one."""
        bucket = self._buckets.get(timestamp)
        if bucket is not None:
            self._take(timestamp, bucket, key, token)

    def _take(self, timestamp: int, bucket: dict[Any, Any], key: Any, token: WindowToken) -> bool:
        due = bucket.get(key)
        if due is None or token not in due:
            return False
        del due[token]
        if not due:
            del bucket[key]
        self._table.changed(timestamp).add(key)
        return True

    def times(self) -> dict[tuple[Any, WindowToken], set[int]]:
        """Return all due times for each window of a key."""
        timestamps: dict[tuple[Any, WindowToken], set[int]] = {}
        for timestamp, bucket in self._buckets.items():
            for key, due in bucket.items():
                for token in due:
                    timestamps.setdefault((key, token), set()).add(timestamp)
        return timestamps

    def next_timestamp(self) -> int | None:
        """Return the earliest time at which anything is due, or None."""
        while self._heap:
            timestamp: int = self._heap[0]
            if self._buckets.get(timestamp):
                return timestamp
            heappop(self._heap)
            self._table.drop(timestamp)
        return None

    def clear(self) -> None:
        """Remove all timers."""
        for timestamp in list(self._buckets):
            self._table.drop(timestamp)
        self._heap.clear()

    def fire(self, up_to: int, on_timer: Callable[[int, Any, WindowToken], None]) -> None:
        """Call `on_timer` for all timers due at or before `up_to`; timers may be added and deleted meanwhile."""
        while (timestamp := self.next_timestamp()) is not None and timestamp <= up_to:
            for key in list(self._buckets[timestamp]):
                if not self._fire_key(timestamp, key, on_timer):
                    break

    def _fire_key(self, timestamp: int, key: Any, on_timer: Callable[[int, Any, WindowToken], None]) -> bool:
        """Fire a key's timers; return False if an earlier timer was set, so that the bucket is no longer next."""
        bucket, settle = self._buckets[timestamp], self._table.settle
        for token in list(bucket.get(key) or ()):
            # A timer deleted by an earlier one of the same time must not fire.
            if self._take(timestamp, bucket, key, token):
                on_timer(timestamp, key, token)
                if settle is not None:
                    settle()
                if self._heap[0] < timestamp:
                    return False
        return True


EVENT_TIMERS: Final = "_penstock_window_event_timers"
PROCESSING_TIMERS: Final = "_penstock_window_processing_timers"


class Times(Protocol):
    """An operator that knows event time."""

    context: OperatorContext

    @property
    def watermark(self) -> int: ...


class _AssignerRuntimeContext(RuntimeContext):
    """Caches the requested value states: an assigner has no `open`, so it requests them with every record."""

    def __init__(self, context: OperatorContext) -> None:
        super().__init__(context)
        self._opened: dict[str, tuple[ValueStateDescriptor, ValueState[Any]]] = {}

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        opened = self._opened.get(state_descriptor.name)
        if opened is None or opened[0] is not state_descriptor:
            opened = self._opened[state_descriptor.name] = (state_descriptor, super().get_state(state_descriptor))
        return opened[1]


class AssignerContext(WindowAssigner.WindowAssignerContext):
    """The context that an assigner receives besides the record."""

    def __init__(self, context: OperatorContext) -> None:
        self._now_ms = context.clock.now_ms
        self._runtime_context = _AssignerRuntimeContext(context)

    def get_current_processing_time(self) -> int:
        """Return the processing time in ms."""
        return self._now_ms()

    def get_runtime_context(self) -> RuntimeContext:
        """Return the operator's runtime context, whose keyed state belongs to the record's key."""
        return self._runtime_context


class _TimesContext:
    """Times in ms, and the operator's metrics."""

    def __init__(self, times: Times) -> None:
        self._times = times

    def get_current_processing_time(self) -> int:
        return self._times.context.clock.now_ms()

    def get_current_watermark(self) -> int:
        return self._times.watermark

    def get_metric_group(self) -> MetricGroup:
        return MetricGroup(self._times.context.metrics)


class EvictorContext(_TimesContext, Evictor.EvictorContext):
    """The context that an evictor receives besides the records."""


class TriggerContext(_TimesContext, Trigger.OnMergeContext):
    """Timers and state of the window that was entered last, under the backend's current key."""

    def __init__(self, times: Times) -> None:
        super().__init__(times)
        keyed = times.context.keyed
        self._keyed = keyed
        self._states = base.WindowStates(times.context, base.TRIGGER_STATES)
        self._token: WindowToken = ()
        self._merged: Sequence[WindowToken] = ()
        #: Whether processing-time timers are accepted; no longer at the end of the input, or of a key in batch.
        self.takes_processing_timers = True
        self.after_end = TimersAfterEnd(times.context)
        self.event_timers = WindowTimers(keyed.table(EVENT_TIMERS))
        self.processing_timers = WindowTimers(keyed.table(PROCESSING_TIMERS))

    def enter(self, token: WindowToken, merged: Sequence[WindowToken] = ()) -> TriggerContext:
        """Switch to a window, into which other windows (`merged`) may just have been merged."""
        self._token = token
        self._merged = merged
        return self

    def register_processing_time_timer(self, time: int) -> None:
        if time.__class__ is not int or not MIN_TIMESTAMP <= time <= MAX_TIMESTAMP:
            time = timer_ms(time, "register_processing_time_timer()")
        if self.takes_processing_timers:
            self.processing_timers.register(time, self._keyed.current_key, self._token)
        else:
            self._times.context.count(DROPPED_TIMERS)

    def register_event_time_timer(self, time: int) -> None:
        if time.__class__ is not int or not MIN_TIMESTAMP <= time <= MAX_TIMESTAMP:
            time = timer_ms(time, "register_event_time_timer()")
        timers, key, token = self.event_timers, self._keyed.current_key, self._token
        if self._times.watermark == MAX_WATERMARK and (timers.holds(time, key, token) or not self.after_end.admit(key)):
            return
        timers.register(time, key, token)

    def delete_processing_time_timer(self, time: int) -> None:
        if time.__class__ is not int:
            time = timer_ms(time, "delete_processing_time_timer()")
        self.processing_timers.delete(time, self._keyed.current_key, self._token)

    def delete_event_time_timer(self, time: int) -> None:
        if time.__class__ is not int:
            time = timer_ms(time, "delete_event_time_timer()")
        self.event_timers.delete(time, self._keyed.current_key, self._token)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        return self._states.get(state_descriptor, self._token)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        self._states.merge(state_descriptor, self._token, self._merged)


OPEN_WINDOWS: Final = "_penstock_window"
FIRED_WINDOWS: Final = "_penstock_window_fired"
SESSIONS: Final = "_penstock_sessions"
SESSION_ENDS: Final = "_penstock_session_ends"
SESSION_CLEANUPS: Final = "_penstock_session_cleanups"


def slots_name(merges: bool, evicts: bool) -> str:
    """Return the state name of the general operator's windows, depending on merging and on an evictor."""
    return f"{base.WINDOW_SLOTS}{'_merging' if merges else ''}{'_evicting' if evicts else ''}"


ALL_SLOTS: Final = tuple(slots_name(merges, evicts) for merges in (False, True) for evicts in (False, True))


class KeptWindow(NamedTuple):
    """One window of one key, [start, end) in ms, and whether it has fired at its end."""

    key: Any
    start: int
    end: int
    contents: Any
    has_fired: bool


def has_windows(keyed: KeyedStateBackend, name: str) -> bool:
    """Return whether windows were restored under this name."""
    if not keyed.has_restored(name):
        return False
    if name in ALL_SLOTS:
        return bool(keyed.list_keys(base.runtime_map(name)))
    return any(keyed.table(name).panes.values())


class KeptWindows:
    """The restored windows of an operator whose windows either merge or not, with contents of one kind.

    The methods that take windows yield each one once, and remove the state that it came from.
    """

    def __init__(self, context: OperatorContext, merges: bool, contents: base.WindowContents) -> None:
        self._context = context
        self._keyed = context.keyed
        self._merges = merges
        self._contents = contents

    def refuse_other_windows(self) -> None:
        """Raise if windows of another kind of assigner were restored, because they would be lost."""
        fast = (OPEN_WINDOWS, FIRED_WINDOWS) if self._merges else (SESSIONS,)
        for name in (*fast, *(slots_name(not self._merges, evicts) for evicts in (False, True))):
            if has_windows(self._keyed, name):
                raise self._refusal(name)

    def refuse_fast_windows(self) -> None:
        """Raise if windows of a fast operator were restored, because the current assigner is a different one."""
        for name in (SESSIONS,) if self._merges else (OPEN_WINDOWS, FIRED_WINDOWS):
            if has_windows(self._keyed, name):
                raise self._refusal(name)

    def from_tables(self) -> Iterator[KeptWindow]:
        """Yield the windows kept by a fast operator: aligned windows or sessions."""
        if self._merges:
            yield from self._from_sessions()
        else:
            for name, has_fired in ((OPEN_WINDOWS, False), (FIRED_WINDOWS, True)):
                if self._keyed.has_restored(name):
                    table = self._keyed.table(name)
                    for start, end in list(table.panes):
                        for key, contents in table.drop((start, end)).items():
                            yield KeptWindow(key, start, end, self._whole(contents, name), has_fired)

    def _from_sessions(self) -> Iterator[KeptWindow]:
        if self._keyed.has_restored(SESSIONS):
            for key, sessions in self._keyed.table(SESSIONS).drop(None).items():
                for start, end, contents, has_fired in sessions:
                    yield KeptWindow(key, start, end, self._whole(contents, SESSIONS), has_fired)
            for name in (SESSION_ENDS, SESSION_CLEANUPS):
                TimerQueue(self._keyed.table(name)).clear()

    def from_slots(self) -> Iterator[KeptWindow]:
        """Yield the windows kept by the general operator, except windows purged by a trigger."""
        names = [name for evicts in (False, True) if self._keyed.has_restored(name := slots_name(self._merges, evicts))]
        if not names:
            return
        events = WindowTimers(self._keyed.table(EVENT_TIMERS))
        timers = events.times()
        for name in names:
            for key, token, slot in self._slots(name):
                times = timers.get((key, token), ())
                if not isinstance(token, tuple) or len(token) != 2 or not times:
                    raise self._refusal(name)
                start, end = token
                if slot:
                    evicts = name == slots_name(self._merges, True)
                    contents = self._folded(slot[0]) if evicts else self._whole(slot[0], name)
                    yield KeptWindow(key, start, end, contents, end - 1 not in times)
        events.clear()
        WindowTimers(self._keyed.table(PROCESSING_TIMERS)).clear()
        self._drop_trigger_states()

    def change_slots(self, evicts: bool) -> Iterator[tuple[Any, WindowToken, list[Any]]]:
        """Yield (key, window, slot) for windows kept before an evictor was added or removed."""
        name = slots_name(self._merges, not evicts)
        if not self._keyed.has_restored(name):
            return
        for key, token, slot in self._slots(name):
            if slot and evicts:
                slot = [self._records(token, slot[0], name)]
            elif slot:
                slot = [self._folded(slot[0])]
            yield key, token, slot

    # --- what was restored ------------------------------------------------------------------------------------------

    def _slots(self, name: str) -> Iterator[tuple[Any, WindowToken, list[Any]]]:
        """Yield all slots under that name, removing them."""
        keyed, descriptor = self._keyed, base.runtime_map(name)
        slots = keyed.map_state(descriptor)
        for key in keyed.list_keys(descriptor):
            keyed.current_key = key
            items = list(slots.items())
            slots.clear()
            keyed.current_key = NO_KEY
            for token, slot in items:
                yield key, token, slot

    def _drop_trigger_states(self) -> None:
        keyed = self._keyed
        for name in keyed.restored_names():
            if name.startswith(base.TRIGGER_STATES):
                for _ in self._slots(name):
                    pass

    def _whole(self, contents: Any, name: str) -> Any:
        """Return a window's contents, if the function can use them."""
        if isinstance(self._contents, base.ListContents) and not isinstance(contents, list):
            raise StateError(
                f"{self._context.operator_name}: the function needs the records of a window, but the snapshot holds "
                f"only their aggregate (state {name!r}). Restore the operator's previous definition, or give it a new "
                "uid to start without windows"
            )
        return contents

    def _folded(self, records: list[tuple[Any, int | None]]) -> Any:
        """Fold the records kept for an evictor into contents without one."""
        contents = self._contents
        folded = contents.first(records[0][0])
        for value, _ in records[1:]:
            folded = contents.add(folded, value)
        return folded

    def _records(self, token: WindowToken, contents: Any, name: str) -> list[tuple[Any, int | None]]:
        """Return a window's contents as the records with timestamps that an evictor needs."""
        if not isinstance(self._contents, base.ListContents):
            raise StateError(
                f"{self._context.operator_name}: an evictor was added, which needs the records of a window, but the "
                f"snapshot holds only their aggregate (state {name!r}). Restore the operator's previous definition, or "
                "give it a new uid to start without windows"
            )
        start = token[0] if isinstance(token, tuple) and len(token) == 2 else None
        return [(value, start) for value in contents]

    def records(self, kept_window: KeptWindow) -> list[tuple[Any, int | None]]:
        """Return the records that an evictor needs, for a window kept by a fast operator."""
        name = SESSIONS if self._merges else OPEN_WINDOWS
        return self._records((kept_window.start, kept_window.end), kept_window.contents, name)

    def _refusal(self, name: str) -> StateError:
        return StateError(
            f"{self._context.operator_name}: the snapshot holds windows of another assigner (state {name!r}). Restore "
            "the operator's previous definition, or give it a new uid to start without windows"
        )
