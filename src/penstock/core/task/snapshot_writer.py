"""Writes a task's part of a checkpoint: each capture stores itself in the part of its operator (G7).

A history whose changes have outgrown its first file is merged into a single new file. All of this happens in the
background. A file that a checkpoint references never changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from penstock.core.ports import StateStorage
from penstock.core.protocol import ExecutionId
from penstock.core.task.histories import HISTORY_FILES_MAX, StoredState
from penstock.state.captures import NativeCapture, StateCapture
from penstock.state.key_columns import COLUMNS_SCHEMA, merge_columns
from penstock.state.snapshot import merge_keyed
from penstock.storage.metadata import (
    KeyedStateHandle,
    NativeStateHandle,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateFile,
)


class SnapshotWriter:
    """Writes the captures of one checkpoint in the background.

    Where a task may run twice at the same time, `run` distinguishes the runs of one attempt, so that none writes a file
    of another.
    """

    def __init__(
        self,
        storage: StateStorage,
        checkpoint_id: int,
        execution: ExecutionId,
        key_groups: tuple[int, int],
        max_parallelism: int,
        savepoint_path: str | None = None,
        run: str = "",
        *,
        is_full: bool = False,
    ) -> None:
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self.savepoint_path = savepoint_path
        #: whether the snapshot references no files of earlier checkpoints; later ones build on it
        self.is_full = is_full
        self._storage = storage
        self._checkpoint_id = checkpoint_id
        self._execution = execution
        self._run = run and f"{run}-"
        #: bytes written so far
        self.stored_bytes = 0

    def store(
        self, captures: Mapping[str, Sequence[StateCapture]], confirmed: StoredState
    ) -> dict[str, OperatorSubtaskState]:
        """Write all captures; return their locations by operator."""
        operators = {}
        try:
            for operator_id, states in captures.items():
                part = OperatorPart(operator_id, self, confirmed)
                for capture in states:
                    capture.write_capture(part)
                operators[operator_id] = part.whole()
        finally:
            for capture in chain.from_iterable(captures.values()):
                capture.discard()
        if self.savepoint_path is None:
            files = (file for state in operators.values() for file in state.state_files())
            self._storage.on_stored(self._checkpoint_id, files)
        return operators

    def write(self, operator_id: str, name: str, data: bytes) -> StateFile:
        """Store one file of an operator's state."""
        execution = self._execution
        self.stored_bytes += len(data)
        file_name = f"{operator_id}-{execution.subtask}-{execution.attempt}-{self._run}{name}"
        return self._storage.write(self._checkpoint_id, file_name, data, self.savepoint_path)

    def read(self, file: StateFile) -> bytes:
        """Read a file of a history."""
        return self._storage.read(file)


class OperatorPart:
    """One operator's part of a checkpoint in progress. Implements `CaptureWriter`."""

    def __init__(self, operator_id: str, snapshot: SnapshotWriter, confirmed: StoredState) -> None:
        self.max_parallelism = snapshot.max_parallelism
        self._operator_id = operator_id
        self._snapshot = snapshot
        self._key_groups = snapshot.key_groups
        self._is_savepoint = snapshot.savepoint_path is not None
        self._is_whole = self._is_savepoint or snapshot.is_full
        self._histories = {name: h for (owner, name), h in confirmed.keyed.items() if owner == operator_id}
        self._base = confirmed.native.get(operator_id)
        self._keyed: dict[str, tuple[KeyedStateHandle, ...]] = {}
        self._lists: dict[str, tuple[OperatorStateHandle, ...]] = {}
        self._native: tuple[NativeStateHandle, ...] = ()

    def whole(self) -> OperatorSubtaskState:
        """Return everything stored, including the states without changes."""
        for name, handle in self._histories.items():
            if name not in self._keyed:
                self._keyed[name] = (self._continued(name, handle, handle.schema, []),)
        return OperatorSubtaskState(self._keyed, self._lists, self._native)

    def write_list(self, name: str, mode: str, count: int, data: bytes) -> None:
        """See `CaptureWriter`."""
        self._lists[name] = (OperatorStateHandle(mode, count, self._write(name, data)),)

    def write_columns(self, name: str, is_addition: bool, data: bytes) -> None:
        """See `CaptureWriter`."""
        history = self._histories.get(name) if is_addition else None
        self._keyed[name] = (self._continued(name, history, COLUMNS_SCHEMA, [data]),)

    def write_changes(self, name: str, schema: str, is_whole: bool, data: bytes) -> None:
        """See `CaptureWriter`."""
        history = self._histories.get(name)
        if history is not None and (is_whole or schema != history.schema):
            history = None  # the changes are the whole state, possibly under a new schema
        self._keyed[name] = (self._continued(name, history, schema, [data]),)

    def _continued(
        self, name: str, handle: KeyedStateHandle | None, schema: str, changes: list[bytes]
    ) -> KeyedStateHandle:
        """Return a history with the changes appended; a savepoint or full checkpoint merges it into a single file."""
        history = handle.files if handle is not None else ()
        if not self._is_whole:
            if handle is not None and not changes:
                return handle
            grown = sum(file.length for file in history[1:]) + sum(map(len, changes))
            if not history or (grown <= history[0].length and len(history) < HISTORY_FILES_MAX):
                return KeyedStateHandle(*self._key_groups, (*history, *(self._write(name, c) for c in changes)), schema)
        merge = merge_columns if schema == COLUMNS_SCHEMA else merge_keyed
        merged = merge([*map(self._snapshot.read, history), *changes])
        return KeyedStateHandle(*self._key_groups, (self._write(name, merged),), schema)

    def write_native(self, capture: NativeCapture) -> None:
        """Store the backend's own files, except those in the base checkpoint; in a savepoint, store canonical files."""
        if not self._is_savepoint:
            base = {} if self._base is None or self._is_whole else self._base.files
            files = capture.store(self._write, base)
            self._native = (NativeStateHandle(capture.backend, *self._key_groups, files, dict(capture.schemas)),)
            return
        exported: dict[str, tuple[StateFile, ...]] = {}
        for name, data in capture.export():
            exported[name] = (*exported.get(name, ()), self._write(name, data))
        for name, of_state in exported.items():
            handle = KeyedStateHandle(*self._key_groups, of_state, capture.schemas.get(name, ""))
            self._keyed[name] = (handle,)

    def _write(self, name: str, data: bytes) -> StateFile:
        return self._snapshot.write(self._operator_id, name, data)
