"""Contents of a savepoint, read from its files: source positions and prepared transactions."""

from __future__ import annotations

import pickle

from penstock.core.operators.sink.sink import COMMITTABLES_STATE
from penstock.core.operators.source.source import SPLITS_STATE
from penstock.drivers.simulation.connectors import Split
from penstock.drivers.simulation.disk import Disk
from penstock.drivers.simulation.outside import TransactionId
from penstock.state.snapshot import read_operator
from penstock.storage.metadata import CheckpointMetadata, StateFile, check_file


def consumed(disk: Disk, metadata: CheckpointMetadata) -> dict[tuple[int, int], int]:
    """Return how many records were read from each split that was not read to its end."""
    left: dict[tuple[int, int], int] = {}
    for operator in metadata.operators:
        splits: list[Split] = []
        if operator.coordinator is not None:
            splits += pickle.loads(_read(disk, operator.coordinator))
        for subtask in operator.subtasks.values():
            for handle in subtask.operator.get(SPLITS_STATE, ()):
                splits += read_operator(_read(disk, handle.file))
        for split in splits:
            left[(split.source, split.index)] = split.position
    return left


def prepared(disk: Disk, metadata: CheckpointMetadata) -> list[TransactionId]:
    """Return the transactions to be committed."""
    handles = (
        handle
        for operator in metadata.operators
        for subtask in operator.subtasks.values()
        for handle in subtask.operator.get(COMMITTABLES_STATE, ())
    )
    return [transaction_id for handle in handles for transaction_id in read_operator(_read(disk, handle.file))]


def _read(disk: Disk, file: StateFile) -> bytes:
    if file.data is not None:
        return file.data
    assert file.path is not None
    return check_file(file, disk.files.get(file.path, b""))


def is_partly_finished(metadata: CheckpointMetadata) -> bool:
    """Return whether some subtasks had finished at that point and others had not."""
    finished = sum(len(operator.finished) for operator in metadata.operators)
    return 0 < finished < sum(operator.parallelism for operator in metadata.operators)
