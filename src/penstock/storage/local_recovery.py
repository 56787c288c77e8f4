"""Copies of state files near the tasks that wrote them: a restarted task reads its copy instead of the store.

A copy is only a shortcut; the checkpoint is the data in the store. A copy is ignored if it is missing, could not be
written, or does not match the checksum in the checkpoint's metadata. The next write removes copies that the newest
completed checkpoint does not need.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, MutableMapping
from typing import Protocol

from penstock.base.errors import CheckpointError
from penstock.storage.metadata import StateFile, check_file

_log = logging.getLogger("penstock.storage")


class Storage(Protocol):
    """The storage that the copies speed up."""

    def write(self, checkpoint_id: int, name: str, data: bytes, savepoint_path: str | None = None) -> StateFile: ...

    def read(self, file: StateFile) -> bytes: ...


class LocalCopies:
    """State storage of one worker; `copies` holds bytes by path. Without `reads`, copies are only written.

    Tasks write in the background, several at a time. `warn` is called for the first copy that cannot be written.
    `stored` and `content` convert state to the bytes of a file and back, as the store does.
    """

    def __init__(
        self,
        storage: Storage,
        copies: MutableMapping[str, bytes],
        reads: bool = True,
        warn: Callable[[str], None] = _log.warning,
        stored: Callable[[bytes], bytes] = bytes,
        content: Callable[[StateFile, bytes], bytes] = check_file,
    ) -> None:
        #: number of files, and of bytes, read from copies and from the store
        self.read_locally = self.read_remotely = self.bytes_locally = self.bytes_remotely = 0
        self._storage = storage
        self._copies = copies
        self._reads = reads
        #: the last checkpoint known to need a copy
        self._needed_by: dict[str, int] = {}
        self._completed_id = 0
        self._lock = threading.Lock()
        self._warn = warn
        self._stored, self._content = stored, content
        self._has_failed = False

    def write(self, checkpoint_id: int, name: str, data: bytes, savepoint_path: str | None = None) -> StateFile:
        """Store bytes, and keep a copy if they have their own file and do not belong to a savepoint."""
        file = self._storage.write(checkpoint_id, name, data, savepoint_path)
        if file.path is not None and savepoint_path is None:
            self._drop_unneeded()
            try:
                self._copies[file.path] = self._stored(data)
            except OSError as error:
                self._on_failure(error)
            else:
                with self._lock:
                    self._needed_by[file.path] = checkpoint_id
        return file

    def read(self, file: StateFile) -> bytes:
        """Return the copy if it is intact, otherwise the file itself."""
        if self._reads and file.path is not None:
            try:
                data = self._content(file, self._copies[file.path])
            except (KeyError, OSError, CheckpointError):
                pass
            else:
                self.read_locally += 1
                self.bytes_locally += file.length
                return data
        data = self._storage.read(file)
        if file.path is not None:
            self.read_remotely += 1
            self.bytes_remotely += file.length
        return data

    def on_stored(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        """Note that a task's part of a checkpoint consists of these files, some from earlier checkpoints."""
        with self._lock:
            for file in files:
                if file.path in self._needed_by:
                    self._needed_by[file.path] = max(self._needed_by[file.path], checkpoint_id)

    def on_complete(self, checkpoint_id: int) -> None:
        """Note that a checkpoint completed: the next write removes copies that only earlier ones need."""
        self._completed_id = max(self._completed_id, checkpoint_id)

    def close(self) -> None:
        """Remove the copies when the worker ends."""
        with self._lock:
            self._needed_by.clear()
        self._copies.clear()

    def _drop_unneeded(self) -> None:
        with self._lock:
            unneeded = [path for path, needed_by in self._needed_by.items() if needed_by < self._completed_id]
            for path in unneeded:
                del self._needed_by[path]
        for path in unneeded:
            self._copies.pop(path, None)

    def _on_failure(self, error: OSError) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._warn(f"state could not be copied to this worker's disk and will be read from the store: {error}")
