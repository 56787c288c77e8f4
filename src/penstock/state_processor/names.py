"""The state names of the built-in operators, and the kind of each state (H5).

The operators are the authority; the tests read savepoints of real jobs by these names.
"""

from __future__ import annotations

from typing import Final

from penstock.core.operators.record.process import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.core.operators.sink.sink import COMMITTABLES_STATE, WRITER_STATE
from penstock.core.operators.source.source import SPLITS_STATE
from penstock.core.operators.window.kept_windows import (
    ALL_SLOTS,
    FIRED_WINDOWS,
    OPEN_WINDOWS,
    SESSION_CLEANUPS,
    SESSION_ENDS,
    SESSIONS,
)
from penstock.core.operators.window.window_contexts import EVENT_TIMERS as WINDOW_EVENT_TIMERS
from penstock.core.operators.window.window_contexts import PROCESSING_TIMERS as WINDOW_PROCESSING_TIMERS

#: The state of `KeyedStream.reduce`: a value per key.
REDUCE_STATE: Final = "_penstock_reduce"
#: Tumbling and sliding windows: namespace (start, end), key, contents; and fired windows that are kept for lateness.
WINDOW_STATE: Final = OPEN_WINDOWS
FIRED_WINDOW_STATE: Final = FIRED_WINDOWS
#: Session windows: key -> [[start, end, contents, fired], ...], and the timers at their ends.
SESSION_STATE: Final = SESSIONS
#: All other windows: a map state from windows to [contents]. Triggers and window functions keep their state for each
#: window in map states as well, under `trigger-state:` and `window-state:`.
WINDOW_TIMERS: Final = (WINDOW_EVENT_TIMERS, WINDOW_PROCESSING_TIMERS)

TIMERS: Final = {"event": EVENT_TIMERS, "processing": PROCESSING_TIMERS}

KINDS: Final = {
    REDUCE_STATE: "reducing",
    WINDOW_STATE: "window",
    FIRED_WINDOW_STATE: "window",
    SESSION_STATE: "window",
    SESSION_ENDS: "timers",
    SESSION_CLEANUPS: "timers",
    **dict.fromkeys(ALL_SLOTS, "window"),
    **dict.fromkeys(WINDOW_TIMERS, "timers"),
    EVENT_TIMERS: "timers",
    PROCESSING_TIMERS: "timers",
    SPLITS_STATE: "source splits",
    WRITER_STATE: "sink writer",
    COMMITTABLES_STATE: "sink committables",
}
