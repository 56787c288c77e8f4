"""The keyed state of a task that checkpoints have stored, for later checkpoints to build on (G7).

Keyed state is written as histories: the files of the last completed checkpoint, plus one file with the changes since.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.storage.metadata import KeyedStateHandle, NativeStateHandle, OperatorSubtaskState

#: Maximum number of files in a history before it is merged, whatever their sizes.
HISTORY_FILES_MAX: Final = 16


@dataclass(frozen=True)
class StoredState:
    """The keyed state of a task as stored by one checkpoint, for the next one to build on."""

    #: maps (operator id, state name) to a history of canonical files
    keyed: dict[tuple[str, str], KeyedStateHandle] = field(default_factory=dict)
    #: maps an operator id to a backend's own files
    native: dict[str, NativeStateHandle] = field(default_factory=dict)


class StateHistories:
    """The state of a task as stored by the last completed checkpoint, and by checkpoints still in progress."""

    def __init__(self) -> None:
        self.confirmed = StoredState()
        self._stored: dict[int, StoredState] = {}

    def on_stored(self, checkpoint_id: int, operators: dict[str, OperatorSubtaskState]) -> None:
        """Record the files that a checkpoint has written."""
        self._stored[checkpoint_id] = StoredState(
            {
                (operator_id, name): handles[0]
                for operator_id, state in operators.items()
                for name, handles in state.keyed.items()
            },
            {operator_id: state.native[0] for operator_id, state in operators.items() if state.native},
        )

    def on_complete(self, checkpoint_id: int) -> None:
        """Let later checkpoints build on the files of a completed checkpoint."""
        stored = self._stored.get(checkpoint_id)
        if stored is not None:
            self.confirmed = stored
        self._stored = {i: histories for i, histories in self._stored.items() if i > checkpoint_id}

    def validate(self, key_groups: tuple[int, int]) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        for stored in (self.confirmed, *self._stored.values()):
            ranges = {(h.first_key_group, h.last_key_group) for h in stored.keyed.values()}
            ranges |= {(h.first_key_group, h.last_key_group) for h in stored.native.values()}
            assert ranges <= {key_groups}, f"histories have the key groups {ranges}, and their task {key_groups}"
            for (_, name), keyed in stored.keyed.items():
                count = len(keyed.files)
                assert 0 < count <= HISTORY_FILES_MAX, f"the history of state {name!r} has {count} files"
