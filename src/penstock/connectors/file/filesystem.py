"""The file system operations of the file connectors, among which only this module imports fsspec.

A path is a local path or an fsspec URL (`s3://bucket/key`, `memory://x`). Renaming is atomic in local file systems and
HDFS. Object stores cannot rename, so fsspec copies and then deletes: the target appears complete, and for a moment both
exist.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zipfile
from collections.abc import Iterable
from datetime import datetime
from typing import Any, BinaryIO, Final, NamedTuple, cast

from fsspec.utils import infer_compression

from penstock.base import durable_files
from penstock.base.durable_files import (
    SYSTEM,
    LocalFiles,
    ensure_directories,
    get_local_files,
    sync_directory_entries,
)
from penstock.base.errors import FormatError, MissingPathError
from penstock.codecs import file_systems
from penstock.codecs.file_systems import url_to_fs

#: How many times to recreate a directory that other processes remove because it is still empty.
_ATTEMPTS_MAX: Final = 100


class FileInfo(NamedTuple):
    """A file: its path, its length in bytes, and its modification time (ms), if known."""

    path: str
    size_bytes: int
    modified_ms: int | None


def absolute_path(path: str | os.PathLike[str]) -> str:
    """Return a path that is valid on every machine: absolute for local files, otherwise a URL."""
    text = os.fspath(path)
    return text if "::" in text else _public(*url_to_fs(text))


def join(directory: str, name: str) -> str:
    """Return the path of `name` in a directory."""
    return f"{directory.rstrip('/')}/{name}"


def list_files(path: str) -> list[FileInfo]:
    """Return all files that a path matches, ordered by path.

    The path is a file, a directory (including everything below it) or a glob pattern. Names that begin with `.` or `_`
    below the path's fixed part are hidden and skipped. Cached listings are refreshed, because other processes may have
    written files since.

    Raises:
        FileNotFoundError: if the path does not exist or matches nothing.
    """
    fs, root = url_to_fs(path)
    fs.invalidate_cache()
    if any(character in root for character in "*?["):
        fixed = root[: min(root.find(c) for c in "*?[" if c in root)].rpartition("/")[0]
        entries = {match: info for match, info in fs.glob(root, detail=True).items() if not _hidden(match, fixed)}
        if not entries:
            raise MissingPathError(f"no file matches {path}")
    else:
        entries = {root: fs.info(root)}
    files: dict[str, Any] = {}
    for name, info in entries.items():
        if info["type"] == "directory":
            below = fs.find(name, detail=True)
            files.update((file, details) for file, details in below.items() if not _hidden(file, name))
        else:
            files[name] = info
    return [FileInfo(_public(fs, name), int(files[name]["size"]), _modified_ms(files[name])) for name in sorted(files)]


def file_info(path: str) -> FileInfo:
    """Return the metadata of a file.

    Raises:
        FileNotFoundError: if the file does not exist.
    """
    fs, root = url_to_fs(path)
    info = fs.info(root)
    return FileInfo(_public(fs, root), int(info["size"]), _modified_ms(info))


def list_all(directory: str) -> list[str]:
    """Return the sorted paths of all files below a directory, including hidden ones; empty if it does not exist."""
    fs, root = url_to_fs(directory)
    fs.invalidate_cache()
    return sorted(_public(fs, name) for name in fs.find(root))


def is_compressed(path: str) -> bool:
    """Return whether the path's suffix names a compression: `.gz`, `.bz2`, `.xz`, `.zip`, and so on."""
    return infer_compression(path) is not None


def open_input(path: str, decompress: bool = True) -> BinaryIO:
    """Open a file for reading from its start; a compressed file is decompressed.

    Raises:
        FileNotFoundError: if the file does not exist.
        FormatError: if a zip archive does not contain exactly one file.
    """
    compression = infer_compression(path) if decompress else None
    if compression == "zip":
        return _open_zip(path)
    opened = file_systems.open_url(path, "rb", compression=compression)
    file = opened.open()
    return cast(BinaryIO, _Layered(file, opened) if compression else file)


def size_or_none(path: str) -> int | None:
    """Return the length of a file in bytes, or None if it does not exist."""
    fs, root = url_to_fs(path)
    fs.invalidate_cache(fs._parent(root))
    try:
        return int(fs.info(root)["size"])
    except FileNotFoundError:
        return None


def create(path: str) -> BinaryIO:
    """Create an empty file for writing, and its parent directories."""
    fs, root = url_to_fs(path)
    for attempts_left in reversed(range(_ATTEMPTS_MAX)):
        try:
            ensure_directories(fs, fs._parent(root))
            return cast(BinaryIO, fs.open(root, "wb"))
        except FileNotFoundError:
            # Other processes remove empty directories: this one, or a parent that was just created.
            if not attempts_left:
                raise
    raise AssertionError


def create_held(path: str) -> BinaryIO:
    """Create a file like `create`; if it is local, lock it until it is closed, see `remove_unless_held`."""
    while True:
        file = create(path)
        fs, root = url_to_fs(path)
        if get_local_files(fs).hold(file, root):
            return file
        file.close()  # it was removed before it could be locked


def remove_unless_held(path: str) -> bool:
    """Remove a file made by `create_held` if the process that wrote it has ended; return whether it was removed.

    The operating system releases the lock when the process ends for any reason. Other than local file systems offer no
    way to check, so there nothing is removed.
    """
    fs, root = url_to_fs(path)
    return durable_files.is_local(fs) and get_local_files(fs).remove_unless_held(root)


def is_local(path: str) -> bool:
    """Return whether the path is in the local file system."""
    fs, _ = url_to_fs(path)
    return durable_files.is_local(fs)


def read_bytes(path: str) -> bytes:
    """Return the contents of a file.

    Raises:
        FileNotFoundError: if the file does not exist.
    """
    fs, root = url_to_fs(path)
    return cast(bytes, fs.cat_file(root))


def write_whole(path: str, data: bytes) -> None:
    """Write a file atomically and durably."""
    partial = join(os.path.dirname(path), f"{os.path.basename(path)}.part")
    file = create(partial)
    with durable_files.errors_name(partial):
        file.write(data)
        close_durably(file)
    rename(partial, path)
    sync_names([path])


def remove_empty_directory(directory: str) -> None:
    """Remove a local directory if it is empty; other file systems have no empty directories."""
    fs, root = url_to_fs(directory)
    if durable_files.is_local(fs):
        with contextlib.suppress(OSError):
            get_local_files(fs).remove_directory(root)


def close_durably(file: BinaryIO) -> None:
    """Sync a written file to disk where supported, and close it."""
    make_durable(file)
    file.close()


def make_durable(file: BinaryIO) -> None:
    """Sync an open file to disk where supported."""
    file.flush()
    files: LocalFiles = getattr(file, "local_files", SYSTEM)
    files.sync_file(file)


def sync_names(paths: Iterable[str]) -> None:
    """Sync the directory entries of created, renamed or removed files, and of their parent directories, to disk.

    Where this is not supported, the names are already durable.
    """
    local: dict[LocalFiles, set[str]] = {}
    for fs, root in map(url_to_fs, paths):
        if durable_files.is_local(fs):
            local.setdefault(get_local_files(fs), set()).add(root.rpartition("/")[0])
    for files, directories in local.items():
        sync_directory_entries(sorted(filter(files.is_directory, directories)), files)


def rename(source: str, target: str) -> None:
    """Move a file within one file system, replacing the target, and create the target's parent directories."""
    fs, root = url_to_fs(source)
    goal = url_to_fs(target)[1]
    ensure_directories(fs, fs._parent(goal))
    if durable_files.is_local(fs):
        try:
            get_local_files(fs).replace(root, goal)
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    file_systems.rename(fs, root, goal)


def remove(paths: Iterable[str]) -> None:
    """Remove files; missing ones are ignored."""
    for path in paths:
        fs, root = url_to_fs(path)
        try:
            fs.rm_file(root)
        except FileNotFoundError:
            continue


def remove_directory(directory: str) -> None:
    """Remove a directory and everything below it; a missing one is ignored."""
    fs, root = url_to_fs(directory)
    try:
        fs.rm(root, recursive=True)
    except FileNotFoundError:
        return


def remove_empty_directories(directory: str) -> None:
    """Remove the empty directories in a local directory, and then the directory itself if it is empty."""
    fs, root = url_to_fs(directory)
    if durable_files.is_local(fs):
        for path in get_local_files(fs).list_directories(root):
            remove_empty_directory(_public(fs, path))
    remove_empty_directory(directory)


def _open_zip(path: str) -> BinaryIO:
    file = file_systems.open_url(path, "rb").open()
    try:
        archive = zipfile.ZipFile(file)
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
        if len(names) != 1:
            raise FormatError(f"{path} must contain one file, not {len(names)}")
        return cast(BinaryIO, _Layered(archive.open(names[0]), file))
    except zipfile.BadZipFile as error:
        file.close()
        raise FormatError(f"{path} cannot be read: {error}") from error
    except BaseException:
        file.close()
        raise


class _Layered:
    """A decompressed file that also closes the compressed one."""

    def __init__(self, file: Any, compressed: Any) -> None:
        self.read = file.read
        self.seek = file.seek
        self.tell = file.tell
        self._files = (file, compressed)

    def close(self) -> None:
        for file in self._files:
            file.close()


def _public(fs: Any, name: str) -> str:
    return (
        name if durable_files.is_local(fs) and get_local_files(fs) is SYSTEM else cast(str, fs.unstrip_protocol(name))
    )


def _hidden(name: str, below: str) -> bool:
    return any(part.startswith((".", "_")) for part in name[len(below) :].split("/"))


def _modified_ms(info: dict[str, Any]) -> int | None:
    for key in ("mtime", "LastModified", "last_modified", "modified", "updated", "created"):
        moment = info.get(key)
        if isinstance(moment, datetime):
            return int(moment.timestamp() * 1000)
        if isinstance(moment, int | float):
            return int(moment * 1000)
    return None
