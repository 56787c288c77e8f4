"""Files of the local file system that survive a power cut (G8, G11).

`fsync` of a file brings its bytes to the device, and `fsync` of a directory the names in it. A file that is only
written, or only renamed, may be empty, or may have its former name, once the power is back.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Any, Final, Protocol

#: What a file system says that has no hard links.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


class FileSystem(Protocol):
    """What is needed of an fsspec file system."""

    protocol: Any

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and all that are missing above it."""


def is_local(fs: FileSystem) -> bool:
    """Whether it is the local file system of this machine, or one mounted into it."""
    return "file" in protocols_of(fs)


def protocols_of(fs: FileSystem) -> set[str]:
    """The names of its kind: one, or several for the same."""
    return {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)


def make_directories_in(fs: FileSystem, path: str) -> None:
    """As `make_directories` in the local file system; in others a directory that was made is there for good."""
    if is_local(fs):
        make_directories(path)
    else:
        fs.makedirs(path, exist_ok=True)


def make_directories(path: str) -> None:
    """Make a directory and all that are missing above it, for good."""
    missing = []
    while not os.path.exists(path):
        missing.append(path)
        path = os.path.dirname(path) or os.curdir
    for directory in reversed(missing):
        os.makedirs(directory, exist_ok=True)
        sync_directories([os.path.dirname(directory) or os.curdir])


def write_bytes(path: str, data: bytes) -> None:
    """Write a file in a directory that exists; its bytes survive, and its name once its directory is synced."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def publish(partial: str, path: str) -> None:
    """Give a file its final name, in one step and only if no file has that name.

    Raises:
        FileExistsError: if one has; the partial file is gone.
    """
    try:
        os.link(partial, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            os.unlink(partial)
            raise
        # No hard links here. Between these two steps another process may make the file.
        if os.path.exists(path):
            os.unlink(partial)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
        os.replace(partial, path)
    else:
        os.unlink(partial)


def create_file(path: str, data: bytes = b"") -> bool:
    """Make a file for good; False if there is one, and of several at a time only one gets True.

    Until this returns, others may see less than all of its data.
    """
    try:
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        return False
    sync_directories([os.path.dirname(path)])
    return True


def sync_directories(paths: Iterable[str]) -> None:
    """Let all names in these directories survive: of files made, renamed and removed.

    Some network file systems cannot be asked for that, because they do so with each change.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)
