"""The leader of a job, and the interface of elections to the drivers (E7).

An election by a file lock, among the drivers of one host (`high-availability.type: FILE`, E7).

The operating system releases the lock when the process that holds it ends, in whatever way. A leader never loses it
earlier.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, Protocol

import msgspec


class Leader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The driver that runs the job, or ran it last.

    `end`: the job's outcome, once it is over. `candidate`: unique among all drivers that ever took part.
    """

    host: str
    process: int
    end: str | None = None
    candidate: str = ""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Election(Protocol):
    """The interface of an election. Call `wait`, then `when_lost`, and `end` on every path after that."""

    @property
    def lost(self) -> str | None:
        """Why this process no longer leads; None while it does."""

    def wait(self, log: Callable[[str], None]) -> Leader | None:
        """Wait until this process leads. Ctrl-C ends the wait.

        Returns:
            The leader whose job ended while this process stood by; None if the job continues.
        """

    def when_lost(self, action: Callable[[str], None]) -> None:
        """Call `action` with `lost` when this process no longer leads, in any thread; at once if this is so already."""

    def end(self, outcome: str | None) -> None:
        """Record the job's outcome; None means that another process may resume the job."""


def encode_leader(leader: Leader) -> bytes:
    """Encode as JSON, which people can read too."""
    return msgspec.json.encode(leader)


def decode_leader(data: bytes) -> Leader | None:
    """Decode a leader; return None if no leader was written yet."""
    try:
        return msgspec.json.decode(data, type=Leader)
    except msgspec.MsgspecError:
        return None


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
