"""The few things that the file connectors ask of a file system; the only importer of fsspec among them.

A path is one of the local file system or an fsspec URL (`s3://bucket/key`, `memory://x`). Renaming is atomic in local
file systems and HDFS. In object stores, which have no renaming, fsspec copies and then deletes: the target appears
whole, and for a moment both exist.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zipfile
from collections.abc import Iterable
from datetime import datetime
from typing import Any, BinaryIO, Final, NamedTuple, cast

import fsspec
from fsspec.core import url_to_fs
from fsspec.utils import infer_compression

from penstock.base import durable_files
from penstock.base.durable_files import (
    SYSTEM,
    LocalFiles,
    local_files_of,
    make_directories_in,
    sync_names_in,
)
from penstock.base.errors import FormatError, MissingPathError

#: How often a directory is made again when others remove it because nothing is in it yet.
_ATTEMPTS_MAX: Final = 100


class FileInfo(NamedTuple):
    """A file that was found: its path, its length in bytes, and the time of its last change (ms), if known."""

    path: str
    size_bytes: int
    modified_ms: int | None


def absolute_path(path: str | os.PathLike[str]) -> str:
    """The path as every machine understands it: local ones absolute, others as URLs."""
    text = os.fspath(path)
    return text if "::" in text else _public(*url_to_fs(text))


def join(directory: str, name: str) -> str:
    """The path of `name` in a directory."""
    return f"{directory.rstrip('/')}/{name}"


def list_files(path: str) -> list[FileInfo]:
    """All files that a path names, in order of their paths.

    The path is a file, a directory (taken with all below it) or a glob pattern. Names that begin with `.` or `_` below
    the path's fixed part are hidden and left out. The file system is asked anew where it caches listings: others may
    have written since.

    Raises:
        FileNotFoundError: if nothing is there, or nothing matches.
    """
    fs, root = url_to_fs(path)
    fs.invalidate_cache()
    if any(character in root for character in "*?["):
        fixed = root[: min(root.find(c) for c in "*?[" if c in root)].rpartition("/")[0]
        found = {match: info for match, info in fs.glob(root, detail=True).items() if not _hidden(match, fixed)}
        if not found:
            raise MissingPathError(f"no file matches {path}")
    else:
        found = {root: fs.info(root)}
    files: dict[str, Any] = {}
    for name, info in found.items():
        if info["type"] == "directory":
            below = fs.find(name, detail=True)
            files.update((file, details) for file, details in below.items() if not _hidden(file, name))
        else:
            files[name] = info
    return [FileInfo(_public(fs, name), int(files[name]["size"]), _modified_ms(files[name])) for name in sorted(files)]


def file_info(path: str) -> FileInfo:
    """What is known of a file.

    Raises:
        FileNotFoundError: if there is none.
    """
    fs, root = url_to_fs(path)
    info = fs.info(root)
    return FileInfo(_public(fs, root), int(info["size"]), _modified_ms(info))


def list_all(directory: str) -> list[str]:
    """The paths of all files below a directory, hidden ones too, in order; none when it does not exist."""
    fs, root = url_to_fs(directory)
    fs.invalidate_cache()
    return sorted(_public(fs, name) for name in fs.find(root))


def is_compressed(path: str) -> bool:
    """Whether the path's ending says that the file is compressed: `.gz`, `.bz2`, `.xz`, `.zip`, and so on."""
    return infer_compression(path) is not None


def open_input(path: str, decompress: bool = True) -> BinaryIO:
    """Opens a file for reading, from its start; a compressed one yields what it was made from.

    Raises:
        FileNotFoundError: if there is none.
        FormatError: if a zip file does not hold exactly one file.
    """
    compression = infer_compression(path) if decompress else None
    if compression == "zip":
        return _open_zip(path)
    opened = fsspec.open(path, "rb", compression=compression)
    file = opened.open()
    return cast(BinaryIO, _Layered(file, opened) if compression else file)


def size_or_none(path: str) -> int | None:
    """The length of a file in bytes; None when there is none."""
    fs, root = url_to_fs(path)
    fs.invalidate_cache(fs._parent(root))
    try:
        return int(fs.info(root)["size"])
    except FileNotFoundError:
        return None


def create(path: str) -> BinaryIO:
    """Creates an empty file for writing, and the directories above it."""
    fs, root = url_to_fs(path)
    for attempts_left in reversed(range(_ATTEMPTS_MAX)):
        try:
            make_directories_in(fs, fs._parent(root))
            return cast(BinaryIO, fs.open(root, "wb"))
        except FileNotFoundError:
            # Others remove directories that they find empty: this one, or one above it that was just made.
            if not attempts_left:
                raise
    raise AssertionError


def create_held(path: str) -> BinaryIO:
    """As `create`; in a local file system this process holds the file until it is closed, see `remove_unless_held`."""
    while True:
        file = create(path)
        fs, root = url_to_fs(path)
        if local_files_of(fs).hold(file, root):
            return file
        file.close()  # it was removed after it was made and before it was locked


def remove_unless_held(path: str) -> bool:
    """Removes a file that `create_held` made, if the process that wrote it has ended; returns whether it is gone.

    The system lets go of a file when its process ends, however it ends. In file systems that are not local there is no
    way to tell, so nothing is removed.
    """
    fs, root = url_to_fs(path)
    return durable_files.is_local(fs) and local_files_of(fs).remove_unless_held(root)


def is_local(path: str) -> bool:
    """Whether the path is one of the local file system."""
    fs, _ = url_to_fs(path)
    return durable_files.is_local(fs)


def read_bytes(path: str) -> bytes:
    """All of a file.

    Raises:
        FileNotFoundError: if there is none.
    """
    fs, root = url_to_fs(path)
    return cast(bytes, fs.cat_file(root))


def write_whole(path: str, data: bytes) -> None:
    """Writes a file that is there whole or not at all, and durably."""
    partial = join(os.path.dirname(path), f"{os.path.basename(path)}.part")
    file = create(partial)
    with durable_files.errors_name(partial):
        file.write(data)
        close_durably(file)
    rename(partial, path)
    sync_names([path])


def remove_empty_directory(directory: str) -> None:
    """Removes a directory of a local file system if it is empty; elsewhere empty directories do not exist."""
    fs, root = url_to_fs(directory)
    if durable_files.is_local(fs):
        with contextlib.suppress(OSError):
            local_files_of(fs).remove_directory(root)


def close_durably(file: BinaryIO) -> None:
    """Closes a file that was written, after its bytes have reached the disk where that can be asked for."""
    make_durable(file)
    file.close()


def make_durable(file: BinaryIO) -> None:
    """Lets the bytes of an open file reach the disk where that can be asked for."""
    file.flush()
    files: LocalFiles = getattr(file, "local_files", SYSTEM)
    files.sync_file(file)


def sync_names(paths: Iterable[str]) -> None:
    """Lets the names of files, made, renamed or removed, reach the disk, and the directories that they are in.

    Where that cannot be asked for, they are there for good already.
    """
    local: dict[LocalFiles, set[str]] = {}
    for fs, root in map(url_to_fs, paths):
        if durable_files.is_local(fs):
            local.setdefault(local_files_of(fs), set()).add(root.rpartition("/")[0])
    for files, directories in local.items():
        sync_names_in(sorted(filter(files.is_directory, directories)), files)


def rename(source: str, target: str) -> None:
    """Moves a file within one file system, in place of what was at the target, and makes the directories above it."""
    fs, root = url_to_fs(source)
    goal = url_to_fs(target)[1]
    make_directories_in(fs, fs._parent(goal))
    if durable_files.is_local(fs):
        try:
            local_files_of(fs).replace(root, goal)
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    fs.mv(root, goal)


def remove(paths: Iterable[str]) -> None:
    """Removes files; one that is gone already is not an error."""
    for path in paths:
        fs, root = url_to_fs(path)
        try:
            fs.rm_file(root)
        except FileNotFoundError:
            continue


def remove_directory(directory: str) -> None:
    """Removes a directory with all below it; one that is gone already is not an error."""
    fs, root = url_to_fs(directory)
    try:
        fs.rm(root, recursive=True)
    except FileNotFoundError:
        return


def remove_empty_directories(directory: str) -> None:
    """Removes the empty directories in a directory of a local file system, and then the directory itself."""
    fs, root = url_to_fs(directory)
    if durable_files.is_local(fs):
        for path in local_files_of(fs).directories_in(root):
            remove_empty_directory(_public(fs, path))
    remove_empty_directory(directory)


def _open_zip(path: str) -> BinaryIO:
    file = fsspec.open(path, "rb").open()
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
    """A decompressed file that closes the compressed one with itself."""

    def __init__(self, file: Any, compressed: Any) -> None:
        self.read = file.read
        self.seek = file.seek
        self.tell = file.tell
        self._files = (file, compressed)

    def close(self) -> None:
        for file in self._files:
            file.close()


def _public(fs: Any, name: str) -> str:
    return name if durable_files.is_local(fs) and local_files_of(fs) is SYSTEM else cast(str, fs.unstrip_protocol(name))


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
