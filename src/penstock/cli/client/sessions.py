"""The sessions of this user on this host: one file each in `~/.penstock/sessions`, locked while the session lives.

The file contains the session's address and token, and only the user can read it.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlsplit

import msgspec

from penstock.base.errors import OperationError, WrongValueError

#: The default name of a session.
DEFAULT_NAME: Final = "default"
_NAME: Final = re.compile(r"\w[\w.-]{0,99}")


class KnownSession(msgspec.Struct, frozen=True):
    """A session.

    Attributes:
        name: its name on this host.
        address: the URL of its REST API, such as `http://127.0.0.1:8081`.
        token: the operator's token.
        process: its process id.
        began_ms: when it began (ms since the epoch).
        log: the file of its output; None if it has a terminal.
    """

    name: str
    address: str
    token: str
    process: int
    began_ms: int
    log: str | None = None


def directory() -> Path:
    """Return the directory of the session files."""
    return Path.home() / ".penstock" / "sessions"


def checked_name(name: str) -> str:
    """Check the name of a session and return it.

    Raises:
        WrongValueError: if the name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise WrongValueError(f"a session's name has letters, digits, dots and hyphens, not {name[:100]!r}")
    return name


class Registration:
    """The registration of a session: reserves its name when created, and is published once the session is reachable.

    Raises:
        OperationError: if another session has the name.
    """

    def __init__(self, name: str) -> None:
        folder = directory()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._told = folder / f"{name}.json"
        # It stays after the session ends: removing it could remove one that the next session has locked.
        self._held = (folder / f"{name}.held").open("ab")
        if not _lock(self._held):
            self._held.close()
            known = _read(self._told)
            where = f" at {known.address}" if known is not None else ""
            raise OperationError(f"a session {name!r} runs{where}: stop it, or give this one a --name")
        self._told.unlink(missing_ok=True)

    def tell(self, session: KnownSession) -> None:
        """Publish the session, so that the commands find it."""
        partial = self._told.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(session))
        partial.rename(self._told)

    def end(self) -> None:
        """Release the name."""
        self._told.unlink(missing_ok=True)
        self._held.close()


def sessions() -> list[KnownSession]:
    """Return the live sessions, by name."""
    alive = []
    for path in sorted(directory().glob("*.json")):
        known = _read(path)
        if known is not None and is_held(known.name):
            alive.append(known)
    return alive


def is_held(name: str) -> bool:
    """Return whether the session of this name is alive."""
    try:
        with (directory() / f"{name}.held").open("ab") as file:
            return not _lock(file)
    except FileNotFoundError:
        return False


def find_session(url: str) -> KnownSession | None:
    """Return the session that serves a URL, treating this host's loopback names as equal."""
    with suppress(ValueError):
        target = urlsplit(url)
        for known in sessions():
            theirs = urlsplit(known.address)
            same_host = target.hostname == theirs.hostname or {target.hostname, theirs.hostname} <= {
                "localhost",
                "127.0.0.1",
                "::1",
            }
            if same_host and target.port == theirs.port and target.scheme == theirs.scheme:
                return known
    return None


def _lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed or the process ends; return False if another process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: Path) -> KnownSession | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=KnownSession)
    except (OSError, msgspec.MsgspecError):
        return None
