"""Files of the local file system that survive a power cut (G8, G11).

`fsync` of a file brings its bytes to the device, and `fsync` of a directory the names in it. A file that is only
written, or only renamed, may be empty, or may have its former name, once the power is back.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from io import RawIOBase
from typing import Any, BinaryIO, Final, Protocol

from penstock.base.errors import ConfigurationError

#: The variable of the environment with a directory that is deleted when the program that runs in it has ended.
TEMPORARY_VARIABLE: Final = "PENSTOCK_TEMPORARY_DIRECTORY"
#: What a file system says that has no hard links.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
#: File systems of objects: a directory is a part of their names, and is there as long as one of them is.
_OF_OBJECTS: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})


class FileSystem(Protocol):
    """What is needed of an fsspec file system."""

    protocol: Any

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and all that are missing above it."""


class LocalFiles:
    """What is asked of the operating system, besides what fsspec asks. A simulation answers in its place."""

    def exists(self, path: str) -> bool:
        """Whether there is anything."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory."""
        return os.path.isdir(path)

    def directories_in(self, path: str) -> list[str]:
        """The paths of the directories in one; none if it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            return [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
        return []

    def make_directory(self, path: str) -> None:
        """Make a directory, unless it is there."""
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; raises `OSError` if it is not empty, or not there."""
        os.rmdir(path)

    def replace(self, source: str, target: str) -> None:
        """Rename a file in one step, in place of what is there."""
        os.replace(source, target)

    def sync_file(self, file: BinaryIO) -> None:
        """Let the bytes of an open file survive, if it is one of the system."""
        descriptor = _descriptor(file)
        if descriptor is not None:
            os.fsync(descriptor)

    def sync_directory(self, path: str) -> None:
        """Let the names in a directory survive."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)

    def hold(self, file: BinaryIO, path: str) -> bool:
        """Let this process hold a file until it is closed, or the process ends; False if the file was removed."""
        descriptor = _descriptor(file)
        if descriptor is None or not _lock(descriptor, fcntl.LOCK_EX):
            return True
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.stat(path), os.fstat(descriptor))
        return False

    def remove_unless_held(self, path: str) -> bool:
        """Remove a file if no process holds it; returns whether it is gone."""
        try:
            with open(path, "rb") as file:
                if not _lock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
                    return False
                os.unlink(path)
        except FileNotFoundError:
            pass
        return True


def _descriptor(file: BinaryIO) -> int | None:
    try:
        return file.fileno()
    except (AttributeError, OSError):
        return None


def _lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how)
    except OSError:  # a process holds it, or there are no locks here
        return False
    return True


SYSTEM: Final = LocalFiles()


def local_files_of(fs: FileSystem) -> LocalFiles:
    """What answers for the files of a local file system."""
    files: LocalFiles = getattr(fs, "local_files", SYSTEM)
    return files


def is_local(fs: FileSystem) -> bool:
    """Whether it is the local file system of this machine, or one mounted into it."""
    return "file" in protocols_of(fs)


def protocols_of(fs: FileSystem) -> set[str]:
    """The names of its kind: one, or several for the same."""
    return {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)


def has_directories(fs: FileSystem) -> bool:
    """Whether directories are made and removed; to ask an object store for that would be a request for nothing."""
    return _OF_OBJECTS.isdisjoint(protocols_of(fs))


def deletes_many(fs: FileSystem) -> bool:
    """Whether one request deletes many files, and is content where one is gone already."""
    return not {"s3", "s3a"}.isdisjoint(protocols_of(fs))


def make_directories_in(fs: FileSystem, path: str) -> None:
    """As `make_directories` in the local file system; in others a directory that was made is there for good."""
    if is_local(fs):
        make_directories(path, local_files_of(fs))
    elif has_directories(fs):
        fs.makedirs(path, exist_ok=True)


def make_directories(path: str, files: LocalFiles = SYSTEM) -> None:
    """Make a directory and all that are missing above it, for good.

    Where it is there, another process may have made it and died before it had synced that: see `sync_names_in`.
    """
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = os.path.dirname(path) or os.curdir
    if missing:
        _sync_above([path], files)
    for directory in reversed(missing):
        files.make_directory(directory)
        sync_directories([os.path.dirname(directory) or os.curdir], files)


def write_bytes(path: str, data: bytes) -> None:
    """Write a new file in a directory that exists; its bytes survive, and its name once its directory is synced.

    Raises:
        OSError: naming the path, also when no space is left; nothing of the file is left then.
    """
    with open(path, "wb", buffering=0) as file, _removed_if_it_fails(path):
        _write_all(file, data)
        os.fsync(file.fileno())


def _write_all(file: RawIOBase, data: bytes) -> None:
    """Write without a buffer: one that is full of what does not fit fails again when the file is closed."""
    written = 0
    while written < len(data):
        written += file.write(memoryview(data)[written:]) or 0


def write_for_now(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that need not survive a power cut.

    Raises:
        OSError: as `write_bytes` does.
    """
    with open(path, "wb", buffering=0) as file, _removed_if_it_fails(os.fspath(path)):
        _write_all(file, data)


@contextlib.contextmanager
def errors_name(path: str) -> Iterator[None]:
    """Let errors of reading and writing an open file name it: the system's calls know a number instead.

    Raises:
        OSError: of the same class and number, with the path.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


@contextlib.contextmanager
def _removed_if_it_fails(path: str) -> Iterator[None]:
    """Remove a file that cannot be written whole: on a full disk it would take the space that is needed to go on.

    The file is open already, so it is this process's own.
    """
    try:
        with errors_name(path):
            yield
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


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
        with open(path, "xb", buffering=0) as file, _removed_if_it_fails(path):
            _write_all(file, data)
            os.fsync(file.fileno())
    except FileExistsError:
        return False
    sync_directories([os.path.dirname(path)])
    return True


def sync_directories(paths: Iterable[str], files: LocalFiles = SYSTEM) -> None:
    """Let all names in these directories survive: of files made, renamed and removed.

    Some network file systems cannot be asked for that, because they do so with each change.
    """
    for path in paths:
        files.sync_directory(path)


def sync_names_in(directories: Iterable[str], files: LocalFiles = SYSTEM) -> None:
    """Let all names in these directories survive, and the directories, whoever made them.

    A process that makes a directory syncs the one above it next, and may die in between. So each process that puts
    something into a directory does it again, before anybody relies on that. One level is enough: who makes a directory
    (`make_directories`) sees to the one that it is in.
    """
    directories = list(directories)
    sync_directories(directories, files)
    _sync_above(directories, files)


def _sync_above(directories: Iterable[str], files: LocalFiles) -> None:
    """Sync the directories in which these are; one that nobody but its owner may read was not made by a job."""
    for above in sorted({os.path.dirname(directory) for directory in directories} - {"", *directories}):
        with contextlib.suppress(PermissionError):
            sync_directories([above], files)


def check_outlives(path: str) -> None:
    """Refuse a relative path in a working directory that is deleted with its program, as in a session.

    Raises:
        ConfigurationError: naming the path, and the remedy.
    """
    temporary = os.environ.get(TEMPORARY_VARIABLE)
    if temporary is None or os.path.isabs(path) or "://" in path:
        return
    here = os.path.realpath(os.getcwd())
    if os.path.commonpath([here, os.path.realpath(temporary)]) == os.path.realpath(temporary):
        raise ConfigurationError(
            f"the path {path!r} is relative, and the working directory of this program is deleted with its session: "
            "name an absolute path"
        )
