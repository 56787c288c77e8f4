"""Restores a checkpoint's state into the backends of a task's operators.

Keyed state arrives as histories (`histories`), which the next checkpoint continues where possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.checkpoint.channel_states import CHANNEL_MODE, ChannelState, parse_channel
from penstock.core.operators.context import OperatorContext
from penstock.core.ports import StateStorage
from penstock.core.task.histories import StateHistories
from penstock.state.backend import NativeFiles
from penstock.state.key_columns import COLUMNS_SCHEMA
from penstock.state.snapshot import read_operator
from penstock.storage.metadata import KeyedStateHandle, NativeStateHandle, OperatorSubtaskState


def restore_operator(
    restored: OperatorSubtaskState,
    context: OperatorContext,
    storage: StateStorage,
    key_groups: tuple[int, int],
    histories: StateHistories | None,
    recover_channel: Callable[[ChannelState, list[object]], None],
) -> None:
    """Load an operator's part of a checkpoint into its backends, restricted to the subtask's own key groups (D4).

    A history of exactly these key groups continues: the next checkpoint only appends to it. The next checkpoint writes
    the whole state if the parallelism or classes have changed, or without `histories`, because the files then belong to
    another job.
    """
    keyed = context.keyed
    if restored.native:
        keyed.restore_native([_to_native_files(handle, storage) for handle in restored.native])
        if histories is not None and _is_whole(restored.native, key_groups):
            histories.confirmed.native[context.operator_id] = restored.native[0]
    for name, handles in restored.keyed.items():
        if handles and handles[0].schema == COLUMNS_SCHEMA:
            goes_on = _is_whole(handles, key_groups) and histories is not None
            for handle in handles:
                context.columns.restore(name, map(storage.read, handle.files), key_groups, goes_on)
            if goes_on:
                assert histories is not None
                histories.confirmed.keyed[(context.operator_id, name)] = handles[0]
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
                recover_channel(parse_channel(name), items)
            else:
                context.operator_state.restore(name, state.mode, items)


def _is_whole(handles: Sequence[KeyedStateHandle | NativeStateHandle], key_groups: tuple[int, int]) -> bool:
    return len(handles) == 1 and (handles[0].first_key_group, handles[0].last_key_group) == key_groups


def _to_native_files(handle: NativeStateHandle, storage: StateStorage) -> NativeFiles:
    read = {name: partial(storage.read, file) for name, file in handle.files.items()}
    return NativeFiles(handle.backend, handle.first_key_group, handle.last_key_group, read, handle.schemas)
