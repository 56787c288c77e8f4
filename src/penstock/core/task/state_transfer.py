"""State between the operators of a task and the checkpoint storage, in both directions.

Keyed state is written as histories: the files of the last completed checkpoint, and one more with what has changed
since. A history whose changes have outgrown its first file is merged into a single new file. All of that happens in
the background. A file that a checkpoint refers to never changes (G7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from penstock.core.checkpoint.channel_states import CHANNEL_MODE
from penstock.core.operators.context import OperatorContext
from penstock.core.ports import StateStorage
from penstock.core.protocol import ExecutionId
from penstock.state.backend import NativeCapture, NativeFiles
from penstock.state.key_columns import COLUMNS_SCHEMA, ColumnsCapture
from penstock.state.snapshot import KeyedCapture, OperatorCapture, merge_keyed, read_operator
from penstock.storage.metadata import (
    KeyedStateHandle,
    NativeStateHandle,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateFile,
)

#: Files in a history before it is merged, whatever their sizes.
HISTORY_FILES_MAX: Final = 16


@dataclass(frozen=True)
class StoredState:
    """What a checkpoint stored of a task's keyed state, for the next one to build on."""

    #: (operator id, state name) to a history of canonical files
    keyed: dict[tuple[str, str], KeyedStateHandle] = field(default_factory=dict)
    #: operator id to a backend's own files
    native: dict[str, NativeStateHandle] = field(default_factory=dict)


class StateHistories:
    """What the last completed checkpoint has stored of a task, and what unfinished checkpoints have."""

    def __init__(self) -> None:
        self.confirmed = StoredState()
        self._stored: dict[int, StoredState] = {}

    def on_stored(self, checkpoint_id: int, operators: dict[str, OperatorSubtaskState]) -> None:
        """A checkpoint's files are written."""
        self._stored[checkpoint_id] = StoredState(
            {
                (operator_id, name): handles[0]
                for operator_id, state in operators.items()
                for name, handles in state.keyed.items()
            },
            {operator_id: state.native[0] for operator_id, state in operators.items() if state.native},
        )

    def on_complete(self, checkpoint_id: int) -> None:
        """The checkpoint completed: later ones build on its files."""
        stored = self._stored.get(checkpoint_id)
        if stored is not None:
            self.confirmed = stored
        self._stored = {i: histories for i, histories in self._stored.items() if i > checkpoint_id}


class SnapshotWriter:
    """Writes what was captured for one checkpoint; runs in the background.

    `run` tells the runs of one attempt apart where a task may run twice at a time: none writes a file of another.
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
    ) -> None:
        self._storage = storage
        self._checkpoint_id = checkpoint_id
        self._execution = execution
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._savepoint_path = savepoint_path
        self._run = run and f"{run}-"

    def store(self, captures: dict[str, list[Any]], confirmed: StoredState) -> dict[str, OperatorSubtaskState]:
        """Write all; returns where it is, by operator."""
        operators = {}
        for operator_id, states in captures.items():
            histories = {name: handle for (owner, name), handle in confirmed.keyed.items() if owner == operator_id}
            changes = {capture.name: capture for capture in states if isinstance(capture, KeyedCapture)}
            columns = {capture.name: capture for capture in states if isinstance(capture, ColumnsCapture)}
            keyed: dict[str, tuple[KeyedStateHandle, ...]] = {}
            for name, of_columns in columns.items():
                whole = self._write(operator_id, name, of_columns.to_bytes(self._max_parallelism))
                keyed[name] = (KeyedStateHandle(*self._key_groups, (whole,), COLUMNS_SCHEMA),)
            for name in {**histories, **changes}:
                if name not in columns:
                    keyed[name] = (self._keyed(operator_id, name, histories.get(name), changes.get(name)),)
            lists: dict[str, tuple[OperatorStateHandle, ...]] = {}
            native: tuple[NativeStateHandle, ...] = ()
            for capture in states:
                if isinstance(capture, OperatorCapture):
                    file = self._write(operator_id, capture.name, capture.to_bytes())
                    lists[capture.name] = (OperatorStateHandle(capture.mode, capture.count, file),)
                elif not isinstance(capture, KeyedCapture | ColumnsCapture):
                    keyed_of_it, native = self._native(operator_id, capture, confirmed.native.get(operator_id))
                    keyed.update(keyed_of_it)
            operators[operator_id] = OperatorSubtaskState(keyed, lists, native)
        if self._savepoint_path is None:
            files = (file for state in operators.values() for file in state.state_files())
            self._storage.on_stored(self._checkpoint_id, files)
        return operators

    def _native(
        self, operator_id: str, capture: NativeCapture, base: NativeStateHandle | None
    ) -> tuple[dict[str, tuple[KeyedStateHandle, ...]], tuple[NativeStateHandle, ...]]:
        """The backend's own files, without writing those that `base` has again; canonical in a savepoint."""
        try:
            if self._savepoint_path is not None:
                exported: dict[str, tuple[StateFile, ...]] = {}
                for name, data in capture.export():
                    exported[name] = (*exported.get(name, ()), self._write(operator_id, name, data))
                return {
                    n: (KeyedStateHandle(*self._key_groups, files, capture.schemas.get(n, "")),)
                    for n, files in exported.items()
                }, ()
            known = {} if base is None else base.files
            files = capture.store(lambda name, data: self._write(operator_id, name, data), known)
            return {}, (NativeStateHandle(capture.backend, *self._key_groups, files, dict(capture.schemas)),)
        finally:
            capture.discard()

    def _keyed(
        self, operator_id: str, name: str, handle: KeyedStateHandle | None, capture: KeyedCapture | None
    ) -> KeyedStateHandle:
        """A history with what has changed since; a savepoint's is one file, and its own."""
        if handle is not None and capture is not None and (capture.is_whole or capture.schema != handle.schema):
            handle = None  # the changes are all of the state, which may have become another one since
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
        file_name = f"{operator_id}-{execution.subtask}-{execution.attempt}-{self._run}{name}"
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

    A history of exactly these key groups continues: the next checkpoint only adds to it. The next checkpoint writes
    everything if the parallelism was another one, if classes have changed, or without `histories`: then the files
    belong to another job.
    """
    keyed = context.keyed
    if restored.native:
        keyed.restore_native([_files_of(handle, storage) for handle in restored.native])
        if histories is not None and _is_whole(restored.native, key_groups):
            histories.confirmed.native[context.operator_id] = restored.native[0]
    for name, handles in restored.keyed.items():
        if handles and handles[0].schema == COLUMNS_SCHEMA:
            for handle in handles:
                context.columns.restore(name, map(storage.read, handle.files), key_groups)
            continue
        goes_on = keyed.adds_to_canonical and _is_whole(handles, key_groups) and histories is not None
        for handle in handles:
            files = map(storage.read, handle.files)
            goes_on = keyed.restore_canonical(name, files, key_groups, goes_on, handle.schema)
        if goes_on:
            assert histories is not None
            histories.confirmed.keyed[(context.operator_id, name)] = handles[0]
    for name, lists in restored.operator.items():
        for state in lists:
            items = read_operator(storage.read(state.file))[state.first :: state.step]
            if state.mode == CHANNEL_MODE:
                recover_channel(name, items)
            else:
                context.operator_state.restore(name, state.mode, items)


def _is_whole(handles: Sequence[KeyedStateHandle | NativeStateHandle], key_groups: tuple[int, int]) -> bool:
    return len(handles) == 1 and (handles[0].first_key_group, handles[0].last_key_group) == key_groups


def _files_of(handle: NativeStateHandle, storage: StateStorage) -> NativeFiles:
    read = {name: partial(storage.read, file) for name, file in handle.files.items()}
    return NativeFiles(handle.backend, handle.first_key_group, handle.last_key_group, read, handle.schemas)
