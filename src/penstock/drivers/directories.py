"""Directories of a worker's process on its machine's disk, which outlive a killed process, and temporary ones.

**Locks.** The process that makes a directory holds a lock on a file in it while it uses the directory. The lock ends
with the process. It works for all processes that see the disk: containers with the same process ids, and machines with
a shared disk. Process ids would not do, because containers may share a disk. If the lock of a directory is free, the
process that made the directory has ended. On a file system without locks, a directory is removed only by the process
that made it.

`HeldDirectory` is a temporary directory that its process removes or, if that is killed, the next process that creates
such a directory. Its lock is one of `connectors.file.filesystem.create_held`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from penstock.connectors.file.filesystem import create_held, remove_unless_held

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX: Final = "penstock-state-"
LOCK_NAME: Final = ".lock"
#: another process that sweeps may briefly lock a new directory
TRIES_MAX: Final = 3


class WorkerDirectory:
    """A directory, empty at first, that belongs to the holder of this object."""

    def __init__(self, path: Path, lock: int | None) -> None:
        self.path = path
        self._lock = lock

    def remove(self) -> None:
        """Remove the directory and its contents. A second call does nothing.

        If a file cannot be removed, the directory keeps its lock file, so that a later sweep finds it.
        """
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(self.path)):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.name != LOCK_NAME:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
            if os.listdir(self.path) in ([], [LOCK_NAME]):
                shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


class WorkerDirectories:
    """Makes directories for a job, after a sweep that removes the directories of ended processes of any job.

    A killed driver is restarted with a new job id, so the job id says nothing about a directory's owner.

    Args:
        parent: the directory to make them in; None for the machine's temporary directory.
        job_id: the job's id, a part of their names.
        prefix: the beginning of their names. Only directories with the same prefix are swept.
    """

    def __init__(self, parent: str | None, job_id: str, prefix: str = PREFIX) -> None:
        self.parent = Path(parent or tempfile.gettempdir())
        self._prefix = f"{prefix}{job_id}-"
        remove_left_behind(self.parent, prefix)

    def make(self) -> WorkerDirectory:
        """Create a directory; the caller removes it."""
        self.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(TRIES_MAX):
            path = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self.parent))
            lock = _locked(path, os.O_CREAT)
            if lock is not None:
                return WorkerDirectory(path, lock)
            shutil.rmtree(path, ignore_errors=True)
        return WorkerDirectory(Path(tempfile.mkdtemp(prefix=self._prefix, dir=self.parent)), None)


def remove_left_behind(parent: Path, prefix: str) -> None:
    """Remove the directories with this prefix whose processes have ended."""
    for directory in parent.glob(f"{prefix}*"):
        lock = _locked(directory)
        if lock is not None:
            WorkerDirectory(directory, lock).remove()


def _locked(directory: Path, flags: int = 0) -> int | None:
    """Lock a directory. Return the lock's descriptor, or None if the lock is held or not supported."""
    if fcntl is None:
        return None
    file = directory / LOCK_NAME
    try:
        descriptor = os.open(file, os.O_RDWR | flags, 0o600)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process that sweeps may have removed the file before it was locked.
        if os.stat(file).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    os.close(descriptor)
    return None


_HELD: Final = ".held"


class HeldDirectory:
    """A temporary directory below `parent` (None: the system's temporary directory). Call `remove` at the end.

    Directories with the same prefix whose processes have ended are removed first.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        for lock_file in parent.glob(f"{prefix}*/{_HELD}"):
            if remove_unless_held(str(lock_file)):
                shutil.rmtree(lock_file.parent, ignore_errors=True)
        while True:
            directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            #: empty
            self.path = directory / "content"
            try:
                self._file = create_held(str(directory / _HELD))
                self.path.mkdir()
                return
            except FileNotFoundError:
                continue  # another process removed it between creation and lock

    def remove(self) -> None:
        """Remove the directory and its content."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self._file.close()


def directory_of_this_process(prefix: str) -> str:
    """Return a temporary directory that exists as long as this process."""
    directory = HeldDirectory(prefix)
    atexit.register(directory.remove)
    return str(directory.path)
