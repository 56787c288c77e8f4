"""An election by a file lock, among the drivers of one host (`high-availability.type: FILE`, E7).

The operating system releases the lock when the process that holds it ends, in whatever way. A leader never loses it
earlier.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from penstock.drivers.election.leader import Leader, decode_leader, encode_leader

LOCK_FILE: Final = "leader.lock"


class FileElection:
    """An election by file lock; the candidate is this process."""

    lost: Final = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def wait(self, log: Callable[[str], None]) -> Leader | None:
        """Wait until this process has the lock; see `Election`."""
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

    def when_lost(self, action: Callable[[str], None]) -> None:
        """Do nothing: leadership is never lost."""

    def end(self, outcome: str | None) -> None:
        """Record the job's outcome, and release the lock."""
        if self._file is not None:
            self._write(outcome)
            self._close()

    def _write(self, end: str | None) -> None:
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(encode_leader(Leader(socket.gethostname(), os.getpid(), end)))
        self._file.flush()

    def _close(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None


def _read(file: IO[bytes]) -> Leader | None:
    file.seek(0)
    return decode_leader(file.read())


def _lock(file: IO[bytes], flags: int = 0) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | flags)
    except BlockingIOError:
        return False
    return True
