"""State between an operator and the checkpoint storage, in both directions."""

from __future__ import annotations

from penstock.core.operators.base import OperatorContext
from penstock.core.ports import StateStorage
from penstock.core.protocol import ExecutionId
from penstock.state.snapshot import KeyedCapture, StateCapture, read_keyed, read_operator
from penstock.storage.metadata import KeyedStateHandle, OperatorStateHandle, OperatorSubtaskState


def store_captures(
    captures: dict[str, list[StateCapture]],
    storage: StateStorage,
    checkpoint_id: int,
    execution: ExecutionId,
    first_key_group: int,
    last_key_group: int,
) -> dict[str, OperatorSubtaskState]:
    """Write what was captured: one file a state. Runs in the background."""
    operators = {}
    for operator_id, states in captures.items():
        keyed: dict[str, tuple[KeyedStateHandle, ...]] = {}
        operator: dict[str, tuple[OperatorStateHandle, ...]] = {}
        for capture in states:
            name = f"{operator_id}-{execution.subtask}-{execution.attempt}-{capture.name}"
            file = storage.write(checkpoint_id, name, capture.to_bytes())
            if isinstance(capture, KeyedCapture):
                keyed[capture.name] = (KeyedStateHandle(first_key_group, last_key_group, file),)
            else:
                operator[capture.name] = (OperatorStateHandle(capture.mode, len(capture.items), file),)
        operators[operator_id] = OperatorSubtaskState(keyed, operator)
    return operators


def restore_operator(
    restored: OperatorSubtaskState,
    context: OperatorContext,
    storage: StateStorage,
    first_key_group: int,
    last_key_group: int,
) -> None:
    """Load an operator's part of a checkpoint into its backends; only the subtask's own key groups (D4)."""
    for name, keyed_handles in restored.keyed.items():
        for keyed in keyed_handles:
            for key, namespace, value in read_keyed(storage.read(keyed.file), first_key_group, last_key_group):
                context.keyed.restore(name, key, namespace, value)
    for name, handles in restored.operator.items():
        for handle in handles:
            context.operator_state.restore(name, handle.mode, read_operator(storage.read(handle.file)))
