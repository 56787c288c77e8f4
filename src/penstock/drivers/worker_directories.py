"""Directories of a worker's process on its machine's disk. A process that is killed leaves its own on the disk.

The process that makes a directory holds a lock on a file in it for as long as it uses the directory. The lock goes with
the process, and holds for all that see the disk: containers that number their processes alike, and machines with a
shared disk. A directory whose lock can be taken was therefore left by a process that has ended. Where a file system has
no locks, only the process that made a directory removes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX: Final = "penstock-state-"
LOCK_NAME: Final = ".lock"
#: A process that looks for left-over directories may take a new lock for one of these, for a moment.
TRIES_MAX: Final = 3


class WorkerDirectory:
    """A directory, empty at first, that belongs to the holder of this object."""

    def __init__(self, path: Path, lock: int | None) -> None:
        self.path = path
        self._lock = lock

    def remove(self) -> None:
        """Remove the directory with all that is in it; a second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


class WorkerDirectories:
    """Makes them below `parent` (None: the machine's directory of temporary files), for one job.

    Directories that ended processes of the job left there are removed first.
    """

    def __init__(self, parent: str | None, job_id: str, prefix: str = PREFIX) -> None:
        self.parent = Path(parent or tempfile.gettempdir())
        self._prefix = f"{prefix}{job_id}-"
        remove_left_behind(self.parent, self._prefix)

    def make(self) -> WorkerDirectory:
        """A new directory; the caller removes it."""
        self.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(TRIES_MAX):
            path = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self.parent))
            lock = _locked(path, os.O_CREAT)
            if lock is not None:
                return WorkerDirectory(path, lock)
            shutil.rmtree(path, ignore_errors=True)
        return WorkerDirectory(Path(tempfile.mkdtemp(prefix=self._prefix, dir=self.parent)), None)


def remove_left_behind(parent: Path, prefix: str) -> None:
    """Remove the directories that are no longer in use."""
    for directory in parent.glob(f"{prefix}*"):
        lock = _locked(directory)
        if lock is not None:
            WorkerDirectory(directory, lock).remove()


def _locked(directory: Path, flags: int = 0) -> int | None:
    """The descriptor of the lock of a directory that this process has taken; None where another has it, or none can."""
    if fcntl is None:
        return None
    file = directory / LOCK_NAME
    try:
        descriptor = os.open(file, os.O_RDWR | flags, 0o600)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A process that looked while the file was new and not locked may have removed it.
        if os.stat(file).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    os.close(descriptor)
    return None
