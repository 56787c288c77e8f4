"""Windows restored from another window operator: a savepoint fits whichever operator runs (C1, H4).

Event-time windows have a fast operator and the general one, and `plan` chooses between them. Adding or removing a
trigger, an evictor or a function with `clear` changes the choice, but not the contents of the windows. So each operator
can start from the state that any of them wrote:

==================  ==========================================  ====================================================
operator            keeps contents in                           knows whether a window has fired by
==================  ==========================================  ====================================================
`aligned_window`    a table for each window                     the table that it is in
`session_window`    a list of sessions for each key             a flag
`window_operator`   slots: a map from windows for each key      a timer at its end, if it has not fired
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

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from penstock.core.operators.context import OperatorContext
from penstock.core.operators.timers import TimerQueue
from penstock.core.operators.window.window_contents import ListContents, WindowContents
from penstock.core.operators.window.window_contexts import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.core.operators.window.window_states import TRIGGER_STATES, WINDOW_SLOTS, runtime_map
from penstock.core.operators.window.window_timers import WindowTimers
from penstock.core.windowing.windows import WindowToken
from penstock.state.backend import KeyedStateBackend
from penstock.state.errors import StateError
from penstock.state.states import NO_KEY

OPEN_WINDOWS: Final = "_penstock_window"
FIRED_WINDOWS: Final = "_penstock_window_fired"
SESSIONS: Final = "_penstock_sessions"
SESSION_ENDS: Final = "_penstock_session_ends"
SESSION_CLEANUPS: Final = "_penstock_session_cleanups"


def slots_name(merges: bool, evicts: bool) -> str:
    """Return the state name of the general operator's windows, depending on merging and on an evictor."""
    return f"{WINDOW_SLOTS}{'_merging' if merges else ''}{'_evicting' if evicts else ''}"


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
        return bool(keyed.list_keys(runtime_map(name)))
    return any(keyed.table(name).panes.values())


class KeptWindows:
    """The restored windows of an operator whose windows either merge or not, with contents of one kind.

    The methods that take windows yield each one once, and remove the state that it came from.
    """

    def __init__(self, context: OperatorContext, merges: bool, contents: WindowContents) -> None:
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
        keyed, descriptor = self._keyed, runtime_map(name)
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
            if name.startswith(TRIGGER_STATES):
                for _ in self._slots(name):
                    pass

    def _whole(self, contents: Any, name: str) -> Any:
        """Return a window's contents, if the function can use them."""
        if isinstance(self._contents, ListContents) and not isinstance(contents, list):
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
        if not isinstance(self._contents, ListContents):
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
