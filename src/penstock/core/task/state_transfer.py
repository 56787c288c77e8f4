"""State between the operators of a task and the checkpoint storage, in both directions.

Keyed state is written as histories: the files of the last completed checkpoint, and one more with what has changed
since. A history whose changes have outgrown its first file is merged into a single new file. All of that happens in
the background; what a checkpoint refers to is never changed (G7).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.core.operators.base import OperatorContext
from penstock.core.ports import StateStorage
from penstock.core.protocol import ExecutionId
from penstock.core.task.in_flight import CHANNEL_MODE
from penstock.state.loading import StateLoader
from penstock.state.schema.declared import schema_from_json
from penstock.state.shapes import Shapes
from penstock.state.snapshot import KeyedCapture, OperatorCapture, StateCapture, merge_keyed, read_keyed, read_operator
from penstock.storage.metadata import KeyedStateHandle, OperatorStateHandle, OperatorSubtaskState, StateFile

#: Files in a history before it is merged, whatever their sizes.
HISTORY_FILES_MAX: Final = 16

Histories = dict[tuple[str, str], KeyedStateHandle]


class StateHistories:
    """The histories of a task's keyed states: of the last completed checkpoint, and of those under way."""

    def __init__(self) -> None:
        self.confirmed: Histories = {}
        self._stored: dict[int, Histories] = {}

    def on_stored(self, checkpoint_id: int, operators: dict[str, OperatorSubtaskState]) -> None:
        """A checkpoint's files are written."""
        self._stored[checkpoint_id] = {
            (operator_id, name): handles[0]
            for operator_id, state in operators.items()
            for name, handles in state.keyed.items()
        }

    def on_complete(self, checkpoint_id: int) -> None:
        """The checkpoint completed: later ones build on its files."""
        stored = self._stored.get(checkpoint_id)
        if stored is not None:
            self.confirmed = stored
        self._stored = {i: histories for i, histories in self._stored.items() if i > checkpoint_id}


class SnapshotWriter:
    """Writes what was captured for one checkpoint; runs in the background."""

    def __init__(
        self,
        storage: StateStorage,
        checkpoint_id: int,
        execution: ExecutionId,
        key_groups: tuple[int, int],
        max_parallelism: int,
        savepoint_path: str | None = None,
    ) -> None:
        self._storage = storage
        self._checkpoint_id = checkpoint_id
        self._execution = execution
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._savepoint_path = savepoint_path

    def store(self, captures: dict[str, list[StateCapture]], confirmed: Histories) -> dict[str, OperatorSubtaskState]:
        """Write all; returns where it is, by operator."""
        operators = {}
        for operator_id, states in captures.items():
            histories = {name: handle for (owner, name), handle in confirmed.items() if owner == operator_id}
            changes = {capture.name: capture for capture in states if isinstance(capture, KeyedCapture)}
            keyed: dict[str, tuple[KeyedStateHandle, ...]] = {}
            for name in {**histories, **changes}:
                keyed[name] = (self._keyed(operator_id, name, histories.get(name), changes.get(name)),)
            lists: dict[str, tuple[OperatorStateHandle, ...]] = {}
            for capture in states:
                if isinstance(capture, OperatorCapture):
                    file = self._write(operator_id, capture.name, capture.to_bytes())
                    lists[capture.name] = (OperatorStateHandle(capture.mode, len(capture.items), file),)
            operators[operator_id] = OperatorSubtaskState(keyed, lists)
        return operators

    def _keyed(
        self, operator_id: str, name: str, handle: KeyedStateHandle | None, capture: KeyedCapture | None
    ) -> KeyedStateHandle:
        """A history with what has changed since; a savepoint's is one file, and its own."""
        if handle is not None and capture is not None and capture.schema != handle.schema:
            handle = None  # the state has become another one since, and the changes are all of it
        schema = capture.schema if capture is not None else handle.schema if handle is not None else ""
        history = handle.files if handle is not None else ()
        changes = [] if capture is None else [capture.to_bytes(self._max_parallelism)]
        if self._savepoint_path is None:
            if handle is not None and not changes:
                return handle
            grown = sum(file.length for file in history[1:]) + sum(map(len, changes))
            if not history or (grown <= history[0].length and len(history) < HISTORY_FILES_MAX):
                return KeyedStateHandle(
                    *self._key_groups, (*history, *(self._write(operator_id, name, c) for c in changes)), schema
                )
        merged = merge_keyed([*map(self._storage.read, history), *changes])
        return KeyedStateHandle(*self._key_groups, (self._write(operator_id, name, merged),), schema)

    def _write(self, operator_id: str, name: str, data: bytes) -> StateFile:
        execution = self._execution
        file_name = f"{operator_id}-{execution.subtask}-{execution.attempt}-{name}"
        return self._storage.write(self._checkpoint_id, file_name, data, self._savepoint_path)


def restore_operator(
    restored: OperatorSubtaskState,
    context: OperatorContext,
    storage: StateStorage,
    key_groups: tuple[int, int],
    histories: StateHistories | None,
    recover_channel: Callable[[str, list[object]], None],
) -> None:
    """Load an operator's part of a checkpoint into its backends; only the subtask's own key groups (D4).

    A history of just these key groups goes on: the next checkpoint only adds to it. Otherwise (the parallelism was
    another one, classes have changed, or without `histories`: the files belong to somebody else) the next checkpoint
    writes everything.
    """
    for name, handles in restored.keyed.items():
        is_whole = len(handles) == 1 and (handles[0].first_key_group, handles[0].last_key_group) == key_groups
        goes_on = is_whole and histories is not None
        keyed = context.keyed
        for handle in handles:
            shapes: Shapes = dict(schema_from_json(handle.schema).classes()) if handle.schema else {}
            loader = StateLoader(keyed.owner, name, keyed.max_parallelism, keyed.migrations, shapes)
            entries = read_keyed(map(storage.read, handle.files), *key_groups, loader)
            goes_on = goes_on and not loader.has_changed
            keyed.restore(name, entries, goes_on, handle.schema)
        if goes_on:
            assert histories is not None
            histories.confirmed[(context.operator_id, name)] = handles[0]
    for name, lists in restored.operator.items():
        for state in lists:
            items = read_operator(storage.read(state.file))
            if state.mode == CHANNEL_MODE:
                recover_channel(name, items)
            else:
                context.operator_state.restore(name, state.mode, items)
