"""Checkpoint storage in memory: a file system that fails, and that remembers what must hold of it.

Implements the ports `StateStorage` and `CheckpointStore`. Metadata goes through its real encoding. What one operation
does to the file system in several steps are methods of their own, so that an owner can die between them.
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
EPOCH_PREFIX = "master-"


class MemoryStore:
    """Files by path; a checkpoint's paths begin with its directory."""

    def __init__(self, inline_bytes_max: int, faults: Faults) -> None:
        self.files: dict[str, bytes] = {}
        #: the highest checkpoint that has ever been visible
        self.visible_id_max = 0
        self.violations: list[str] = []
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
        self.upload(path, data[: len(data) // 2] if fault == "write-torn" else data)
        if fault is not None:
            raise OSError("planned: the connection broke")
        self._faults.maybe_die()
        return StateFile(len(data), digest, path=path)

    def upload(self, path: str, data: bytes) -> None:
        """Store one file."""
        self.files[path] = data

    def read(self, file: StateFile) -> bytes:
        if file.data is not None:
            return check_file(file, file.data)
        assert file.path is not None
        if self._faults.in_worker and self._faults.storage_fault(("read-error",)):
            raise OSError("planned: the read failed")
        data = self.files.get(file.path)
        if data is None:
            if self._faults.in_master:
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
        self.write_partial(directory, data[: len(data) // 2] if fault == "complete-torn" else data)
        if fault == "complete-torn":
            raise OSError("planned: the connection broke")
        self.make_visible(directory, metadata.checkpoint_id)
        if fault is not None:
            raise OSError("planned: the connection broke")
        return directory

    def write_partial(self, directory: str, data: bytes) -> None:
        """Write metadata under a name that nobody looks for."""
        self.files[directory + PARTIAL] = data

    def make_visible(self, directory: str, checkpoint_id: int) -> None:
        """Rename the metadata: from now on the checkpoint exists."""
        self.files[directory + METADATA] = self.files.pop(directory + PARTIAL)
        self.visible_id_max = max(self.visible_id_max, checkpoint_id)

    def discard_savepoint(self, savepoint_path: str) -> None:
        if f"{savepoint_path}/{METADATA}" not in self.files:
            for path in [p for p in self.files if p.startswith(f"{savepoint_path}/")]:
                self.delete_file(path)

    def delete_savepoint(self, savepoint_path: str) -> None:
        for path in [p for p in self.files if p.startswith(f"{savepoint_path}/")]:
            self.delete_file(path)

    def listing(self) -> list[str]:
        if self._faults.storage_fault(("listing-refused",)):
            raise OSError("planned: the listing was refused")
        return list(self.files)

    def delete(self, paths: list[str]) -> None:
        if not paths:
            return
        fault = self._faults.storage_fault(("delete-refused", "delete-torn", "delete-done-but-error"))
        if fault == "delete-refused":
            raise OSError("planned: the deletion was refused")
        for path in paths[: len(paths) // 2] if fault == "delete-torn" else paths:
            self.delete_file(path)
        if fault is not None:
            raise OSError("planned: the connection broke")

    def delete_file(self, path: str) -> None:
        """Delete one file, when it is there."""
        self.files.pop(path, None)

    def claim_epoch(self) -> int:
        if self._faults.storage_fault(("claim-refused",)):
            raise OSError("planned: the write was refused")
        taken = [int(path.removeprefix(EPOCH_PREFIX)) for path in self.files if path.startswith(EPOCH_PREFIX)]
        epoch = max(taken, default=0) + 1
        self.files[f"{EPOCH_PREFIX}{epoch}"] = b""
        return epoch

    def load_checkpoint(self, checkpoint_id: int) -> CheckpointMetadata:
        return self.load(directory_of(checkpoint_id))

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

    def leftovers(self) -> list[str]:
        """All files of checkpoints. The numbers of job masters stay: a later one must not take them again."""
        return sorted(path for path in self.files if not path.startswith(EPOCH_PREFIX))


def directory_of(checkpoint_id: int) -> str:
    """Where a checkpoint lies."""
    return f"chk-{checkpoint_id}/"
