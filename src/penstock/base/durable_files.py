"""Files of the local file system that survive a power cut (G8, G11), and whole lines on the standard output.

**Files.** `fsync` of a file flushes its bytes to the device, and `fsync` of a directory the names in it. After a power
cut, a file that was only written may be empty, and one that was only renamed may have its former name.

**Standard output.** `print` writes its arguments and the line end one at a time. Between two of them, a sink or a job
report may print from another thread. `print_lines` keeps the lines of different threads apart.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from collections.abc import Iterable, Iterator
from io import RawIOBase, TextIOWrapper
from typing import Any, BinaryIO, Final, Protocol

from penstock.base.errors import ConfigurationError

#: The environment variable for a directory that is deleted when the program that runs in it ends.
TEMPORARY_VARIABLE: Final = "PENSTOCK_TEMPORARY_DIRECTORY"
#: The error codes of file systems without hard links.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
#: Object stores: a directory is a prefix of object names, and exists as long as an object with that prefix does.
_OF_OBJECTS: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})


class FileSystem(Protocol):
    """The parts of an fsspec file system that are used here."""

    protocol: Any

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a directory and its missing parents."""


class LocalFiles:
    """Operating system calls beyond those of fsspec. Simulations replace it."""

    def exists(self, path: str) -> bool:
        """Return whether the path exists."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        return os.path.isdir(path)

    def list_directories(self, path: str) -> list[str]:
        """Return the paths of the subdirectories; empty if the directory does not exist."""
        with contextlib.suppress(FileNotFoundError):
            return [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
        return []

    def make_directory(self, path: str) -> None:
        """Create a directory unless it exists."""
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory. Raises `OSError` if it is not empty or does not exist."""
        os.rmdir(path)

    def replace(self, source: str, target: str) -> None:
        """Rename a file atomically, replacing the target."""
        os.replace(source, target)

    def sync_file(self, file: BinaryIO) -> None:
        """Flush an open file's bytes to the device, if it is a file of the operating system."""
        descriptor = _descriptor(file)
        if descriptor is not None:
            os.fsync(descriptor)

    def sync_directory(self, path: str) -> None:
        """Flush the names in a directory to the device."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)

    def hold(self, file: BinaryIO, path: str) -> bool:
        """Lock a file until it is closed or the process ends. Return False if the file was removed."""
        descriptor = _descriptor(file)
        if descriptor is None or not _lock(descriptor, fcntl.LOCK_EX):
            return True
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.stat(path), os.fstat(descriptor))
        return False

    def remove_unless_held(self, path: str) -> bool:
        """Remove a file unless a process holds it; return whether it no longer exists."""
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
    except OSError:  # another process holds it, or locks are not supported
        return False
    return True


SYSTEM: Final = LocalFiles()


def get_local_files(fs: FileSystem) -> LocalFiles:
    """Return the operating system calls to use for a local file system."""
    files: LocalFiles = getattr(fs, "local_files", SYSTEM)
    return files


def is_local(fs: FileSystem) -> bool:
    """Return whether the file system is local to this machine or mounted into it."""
    return "file" in get_protocols(fs)


def get_protocols(fs: FileSystem) -> set[str]:
    """Return the file system's protocol names; several if it has aliases."""
    return {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)


def has_directories(fs: FileSystem) -> bool:
    """Return whether directories are created and removed; for an object store that would be a wasted request."""
    return _OF_OBJECTS.isdisjoint(get_protocols(fs))


def deletes_many(fs: FileSystem) -> bool:
    """Return whether a single request can delete many files, ignoring missing ones."""
    return not {"s3", "s3a"}.isdisjoint(get_protocols(fs))


def ensure_directories(fs: FileSystem, path: str) -> None:
    """Create a directory durably: with `make_directories` if it is local.

    In other file systems creating it is enough.
    """
    if is_local(fs):
        make_directories(path, get_local_files(fs))
    elif has_directories(fs):
        fs.makedirs(path, exist_ok=True)


def make_directories(path: str, files: LocalFiles = SYSTEM) -> None:
    """Create a directory and its missing parents, durably.

    If the directory exists, another process may have created it and died before syncing it: see
    `sync_directory_entries`.
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
    """Write a new file in an existing directory. Its bytes are durable, and its name is once the directory is synced.

    Raises:
        OSError: if writing fails, such as for lack of space; names the path, and the file is removed.
    """
    with open(path, "wb", buffering=0) as file, _removed_if_it_fails(path):
        _write_all(file, data)
        os.fsync(file.fileno())


def _write_all(file: RawIOBase, data: bytes) -> None:
    """Write without a buffer: a buffer with unwritten data fails again when the file is closed."""
    written = 0
    while written < len(data):
        written += file.write(memoryview(data)[written:]) or 0


def write_for_now(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that need not survive a power cut.

    Raises:
        OSError: like `write_bytes`.
    """
    with open(path, "wb", buffering=0) as file, _removed_if_it_fails(os.fspath(path)):
        _write_all(file, data)


@contextlib.contextmanager
def errors_name(path: str) -> Iterator[None]:
    """Add the path to errors of reading and writing an open file: system calls only know a file descriptor.

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
    """Remove a file that cannot be written completely: on a full disk it would take up space needed to continue.

    The file is already open, so it belongs to this process.
    """
    try:
        with errors_name(path):
            yield
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def publish(partial: str, path: str) -> None:
    """Give a file its final name atomically, and only if no file has that name.

    Raises:
        FileExistsError: if the name is taken; the partial file is removed.
    """
    try:
        os.link(partial, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            os.unlink(partial)
            raise
        # No hard links here: another process may create the file between these two steps.
        if os.path.exists(path):
            os.unlink(partial)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
        os.replace(partial, path)
    else:
        os.unlink(partial)


def create_file(path: str, data: bytes = b"") -> bool:
    """Create a file durably. Return False if it exists; of concurrent callers, only one gets True.

    Until this returns, others may see only part of the data.
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
    """Make all changes of names in these directories durable: of files created, renamed and removed.

    Some network file systems do not support this, because they sync each change themselves.
    """
    for path in paths:
        files.sync_directory(path)


def sync_directory_entries(directories: Iterable[str], files: LocalFiles = SYSTEM) -> None:
    """Make all names in these directories durable, and the directories themselves, whichever process created them.

    A process that creates a directory syncs its parent next, and may die in between. So each process that puts
    something into a directory syncs the parent again, before anything relies on it. One level is enough:
    `make_directories` syncs the levels above.
    """
    directories = list(directories)
    sync_directories(directories, files)
    _sync_above(directories, files)


def _sync_above(directories: Iterable[str], files: LocalFiles) -> None:
    """Sync the parents of these directories. A parent that only its owner may read is skipped: no job created it."""
    for above in sorted({os.path.dirname(directory) for directory in directories} - {"", *directories}):
        with contextlib.suppress(PermissionError):
            sync_directories([above], files)


def check_outlives(path: str) -> None:
    """Reject a relative path if the working directory is deleted with its program, as in a session.

    Raises:
        ConfigurationError: if the path is relative in such a directory; names the path and the remedy.
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


def keep_lines_whole() -> None:
    """Make the standard output buffer incomplete lines. The process of a user's program calls this at startup."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, write_through=False)


def print_lines(text: str) -> None:
    """Write whole lines at once, ahead of an incomplete line of another thread that is still buffered."""
    output = sys.stdout
    if type(output) is not TextIOWrapper or not output.line_buffering or output.write_through:
        output.write(text)
        output.flush()
        return
    with open(output.fileno(), "wb", closefd=False) as file:
        file.write(text.encode(output.encoding, output.errors or "strict"))
