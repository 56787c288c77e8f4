"""Lists the operators of a savepoint and their states, without reading any state (H5).

The state names of the built-in operators, and the kind of each state (H5).

The operators are the authority; the tests read savepoints of real jobs by these names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.runtime.operators.record.process import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.runtime.operators.sink.sink import COMMITTABLES_STATE, WRITER_STATE
from penstock.runtime.operators.source.source import SPLITS_STATE
from penstock.runtime.operators.window.kept_windows import (
    ALL_SLOTS,
    FIRED_WINDOWS,
    OPEN_WINDOWS,
    SESSION_CLEANUPS,
    SESSION_ENDS,
    SESSIONS,
)
from penstock.runtime.operators.window.kept_windows import EVENT_TIMERS as WINDOW_EVENT_TIMERS
from penstock.runtime.operators.window.kept_windows import PROCESSING_TIMERS as WINDOW_PROCESSING_TIMERS
from penstock.state.errors import StateError
from penstock.state.key_columns import COLUMNS_SCHEMA
from penstock.storage.metadata import OperatorState

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


@dataclass(frozen=True)
class StateListing:
    """A state of an operator.

    Attributes:
        name: the state's name; names that begin with `_penstock` belong to the operator itself.
        mode: `keyed`, or how an operator state is redistributed: split, union, broadcast, committable, channel.
        kind: value, list, map, reducing, aggregating, timers, window ...; None if unknown.
        subtasks: the number of subtasks that have some of it.
        files: the number of its files or inline pieces.
        size_bytes: their total size (bytes).
        items: the number of items of an operator state; None for keyed state, which would have to be read.
    """

    name: str
    mode: str
    kind: str | None
    subtasks: int
    files: int
    size_bytes: int
    items: int | None


@dataclass(frozen=True)
class OperatorListing:
    """An operator of a savepoint.

    Attributes:
        uid: the uid that the program set, or None.
        operator_id: 32 hexadecimal digits.
        name: the name in plans.
        parallelism: the number of subtasks.
        max_parallelism: the number of key groups of its keyed state.
        finished: the subtasks that had finished for good.
        enumerator_bytes: the size of its split enumerator's state for a source; None otherwise.
        native_bytes: the size of keyed state in a backend's own files, which only a job can read; 0 in savepoints.
        states: its keyed states, then its operator states, each sorted by name.
    """

    uid: str | None
    operator_id: str
    name: str
    parallelism: int
    max_parallelism: int
    finished: tuple[int, ...]
    enumerator_bytes: int | None
    native_bytes: int
    states: tuple[StateListing, ...]


def list_operator(operator: OperatorState) -> OperatorListing:
    """List an operator and its states from the metadata."""
    keyed = {name for subtask in operator.subtasks.values() for name in subtask.keyed}
    lists = {name for subtask in operator.subtasks.values() for name in subtask.operator}
    states = [_keyed(operator, name) for name in sorted(keyed)] + [_list(operator, name) for name in sorted(lists)]
    native = [h for subtask in operator.subtasks.values() for h in getattr(subtask, "native", ())]
    return OperatorListing(
        operator.uid,
        operator.operator_id,
        operator.name,
        operator.parallelism,
        operator.max_parallelism,
        operator.finished,
        None if operator.coordinator is None else operator.coordinator.length,
        sum(file.length for handle in native for file in handle.files.values()),
        tuple(states),
    )


def _keyed(operator: OperatorState, name: str) -> StateListing:
    subtask_handles = [subtask.keyed[name] for subtask in operator.subtasks.values() if name in subtask.keyed]
    handles = [handle for some in subtask_handles for handle in some]
    kind = KINDS.get(name) or next(filter(None, map(declared_kind, handles)), None)
    files = sum(len(handle.files) for handle in handles)
    return StateListing(
        name, "keyed", kind, len(subtask_handles), files, sum(handle.length for handle in handles), None
    )


def _list(operator: OperatorState, name: str) -> StateListing:
    subtask_handles = [subtask.operator[name] for subtask in operator.subtasks.values() if name in subtask.operator]
    handles = [handle for some in subtask_handles for handle in some]
    mode = handles[0].mode if handles else "split"
    kind = KINDS.get(name) or {"broadcast": "map", "channel": "in flight"}.get(mode, "list")
    size = sum(handle.file.length for handle in handles)
    return StateListing(
        name, mode, kind, len(subtask_handles), len(handles), size, sum(handle.items for handle in handles)
    )


def declared_kind(handle: Any) -> str | None:
    """Return the kind of state in a handle's schema; None without a schema."""
    schema = getattr(handle, "schema", "")
    if not schema:
        return None
    if schema == COLUMNS_SCHEMA:
        return "columns"
    try:
        kind = json.loads(schema).get("kind")
    except (ValueError, AttributeError):
        return None
    return kind if isinstance(kind, str) else None


def find_operator(operators: Iterable[OperatorState], uid: str) -> OperatorState:
    """Return the operator with this uid or operator id; raise `StateError` that lists the existing ones."""
    known = list(operators)
    for operator in known:
        if uid in (operator.uid, operator.operator_id):
            return operator
    raise StateError(f"no operator with uid {uid!r}; there are: {', '.join(_named(o) for o in known) or 'none'}")


def _named(operator: OperatorState) -> str:
    if operator.uid is not None:
        return repr(operator.uid)
    return f"{operator.name!r} without uid (id {operator.operator_id})"


def no_such_state(operator: OperatorState, name: str, mode: str) -> StateError:
    """Return the error for a state that an operator does not have."""
    names = ", ".join(_describe_states(operator))
    return StateError(f"operator {operator_name(operator)} has no {mode} state {name!r}; there are: {names or 'none'}")


def _describe_states(operator: OperatorState) -> Iterator[str]:
    for state in list_operator(operator).states:
        yield f"{state.name!r} ({state.mode})"


def operator_name(operator: OperatorState) -> str:
    """Return the operator's name for errors."""
    return repr(operator.uid) if operator.uid is not None else f"{operator.name!r} (id {operator.operator_id})"
