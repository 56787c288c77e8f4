"""Which of several drivers of one job runs it; the others stand by until it is gone (E7).

The leader holds a lock on a file, which the system releases when its process ends, however it ends. So this elects
among the drivers of one host. It only says who begins. What keeps two drivers apart that both believe that they lead is
the fence in the store (`storage.leadership`).
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.options import CHECKPOINTING_DIR, HIGH_AVAILABILITY_DIR, HIGH_AVAILABILITY_TYPE
from penstock.storage.files import absolute_url
from penstock.storage.job_marks import MARKS_DIRECTORY, file_of_name

LOCK_FILE = "leader.lock"


class Leader(msgspec.Struct, frozen=True):
    """What the lock's file says of who holds it, or held it last. `end`: what its job came to, once it is over."""

    host: str
    process: int
    end: str | None = None

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class FileElection:
    """An election by a lock on a file; the candidate is this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def wait(self, log: Callable[[str], None]) -> Leader | None:
        """Wait until this process leads. Ctrl-C ends the wait.

        Returns:
            The leader whose job came to its end while this process stood by; None if the job goes on.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a+b")
        try:
            former = None
            if not _lock(self._file, fcntl.LOCK_NB):
                log(f"stands by: {_read(self._file) or 'another process'} runs the job")
                _lock(self._file)
                former = _read(self._file)
            self._write(None)
        except BaseException:
            self._close()
            raise
        return former if former is not None and former.end is not None else None

    def end(self, what: str | None) -> None:
        """The job has come to its end, or, for None, another process may go on with it."""
        if self._file is not None:
            self._write(what)
            self._close()

    def _write(self, end: str | None) -> None:
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(msgspec.json.encode(Leader(socket.gethostname(), os.getpid(), end)))
        self._file.flush()

    def _close(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None


def _read(file: IO[bytes]) -> Leader | None:
    file.seek(0)
    try:
        return msgspec.json.decode(file.read(), type=Leader)
    except msgspec.MsgspecError:
        return None  # it has just begun


def _lock(file: IO[bytes], flags: int = 0) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | flags)
    except BlockingIOError:
        return False
    return True


def election_of(configuration: Configuration, job_name: str) -> FileElection | None:
    """That of a job; None when the job has one driver only.

    Raises:
        ConfigurationError: if there is no directory for it, or none that has locks.
    """
    kind, key = configuration.read(HIGH_AVAILABILITY_TYPE), HIGH_AVAILABILITY_TYPE.key()
    if kind == "NONE":
        return None
    directory = configuration.read(HIGH_AVAILABILITY_DIR) or configuration.read(CHECKPOINTING_DIR)
    if directory is None:
        raise ConfigurationError(f"{key} is {kind}: set {CHECKPOINTING_DIR.key()} too, where standbys find checkpoints")
    path = absolute_url(directory).removeprefix("file://")
    if "://" in path or "::" in path:
        raise ConfigurationError(
            f"{key} is {kind}, but {directory} has no locks: set {HIGH_AVAILABILITY_DIR.key()} to a directory of this "
            "host"
        )
    return FileElection(Path(path) / MARKS_DIRECTORY / file_of_name(job_name) / LOCK_FILE)
