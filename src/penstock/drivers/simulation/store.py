"""Checkpoint storage in memory: a file system that fails, and that remembers what must hold of it.

Implements the ports `StateStorage` and `CheckpointStore`. Metadata goes through its real encoding.
"""

from __future__ import annotations

from penstock.common.errors import CheckpointError
from penstock.drivers.simulation.faults import Faults
from penstock.storage.metadata import (
    CheckpointMetadata,
    StateFile,
    check_file,
    checksum,
    decode_metadata,
    encode_metadata,
)

METADATA = "_metadata"
PARTIAL = "_metadata.part"


class MemoryStore:
    """Files by path; a checkpoint's paths begin with its directory."""

    def __init__(self, inline_bytes_max: int, faults: Faults) -> None:
        self.files: dict[str, bytes] = {}
        #: the highest checkpoint that has ever been visible
        self.visible_id_max = 0
        self.violations: list[str] = []
        #: what workers wrote that the job master had let go: nobody can be asked to clean up behind them
        self.strays: set[str] = set()
        #: whether such a worker has its turn
        self.is_stray_turn = False
        self._inline_bytes_max = inline_bytes_max
        self._faults = faults

    # --- state files (workers) -------------------------------------------------------------------------------------

    def write(self, checkpoint_id: int, name: str, data: bytes, savepoint_path: str | None = None) -> StateFile:
        digest = checksum(data)
        if len(data) <= self._inline_bytes_max:
            return StateFile(len(data), digest, data=data)
        self._faults.maybe_die()
        path = f"{directory_of(checkpoint_id)}{name}"
        fault = self._faults.storage_fault(("write-refused", "write-torn", "write-done-but-error"))
        if fault == "write-refused":
            raise OSError("planned: the write was refused")
        if path in self.files:
            self.violations.append(f"state file {path} was written twice")
        self.files[path] = data[: len(data) // 2] if fault == "write-torn" else data
        if self.is_stray_turn:
            self.strays.add(path)
        if fault is not None:
            raise OSError("planned: the connection broke")
        self._faults.maybe_die()
        return StateFile(len(data), digest, path=path)

    def read(self, file: StateFile) -> bytes:
        if file.data is not None:
            return check_file(file, file.data)
        assert file.path is not None
        if self._faults.in_worker and self._faults.storage_fault(("read-error",)):
            raise OSError("planned: the read failed")
        data = self.files.get(file.path)
        if data is None:
            self.violations.append(f"state file {file.path} is missing")
            raise CheckpointError(f"{file.path} is missing")
        return check_file(file, data)

    # --- whole checkpoints (job master) ----------------------------------------------------------------------------

    def complete(self, metadata: CheckpointMetadata, savepoint_path: str | None = None) -> str:
        directory = directory_of(metadata.checkpoint_id)
        data = encode_metadata(metadata)
        fault = self._faults.storage_fault(("complete-refused", "complete-torn", "complete-done-but-error"))
        if fault == "complete-refused":
            raise OSError("planned: the write was refused")
        self.files[directory + PARTIAL] = data[: len(data) // 2] if fault == "complete-torn" else data
        if fault == "complete-torn":
            raise OSError("planned: the connection broke")
        self.files[directory + METADATA] = self.files.pop(directory + PARTIAL)
        self.visible_id_max = max(self.visible_id_max, metadata.checkpoint_id)
        if fault is not None:
            raise OSError("planned: the connection broke")
        return directory

    def discard(self, checkpoint_id: int) -> None:
        directory = directory_of(checkpoint_id)
        for path in [p for p in self.files if p.startswith(directory)]:
            del self.files[path]

    def load(self, path: str) -> CheckpointMetadata:
        data = self.files.get(path + METADATA)
        if data is None:
            raise CheckpointError(f"{path} holds no checkpoint")
        return decode_metadata(data, path + METADATA)

    def verify(self, metadata: CheckpointMetadata) -> None:
        if self.load(directory_of(metadata.checkpoint_id)) != metadata:
            raise CheckpointError(f"checkpoint {metadata.checkpoint_id} is not what was written")
        for file in metadata.state_files():
            self.read(file)

    # --- what must hold --------------------------------------------------------------------------------------------

    def missing_files(self, metadata: CheckpointMetadata) -> list[str]:
        """What a kept checkpoint names and is not there."""
        directory = directory_of(metadata.checkpoint_id)
        wanted = [f.path for f in metadata.state_files() if f.path is not None]
        return [p for p in [directory + METADATA, *wanted] if p not in self.files]


def directory_of(checkpoint_id: int) -> str:
    """Where a checkpoint lies."""
    return f"chk-{checkpoint_id}/"
