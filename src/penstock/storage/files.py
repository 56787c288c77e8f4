"""Writes checkpoint files atomically in any fsspec file system (G11).

In local file systems, written files survive a power failure. The bytes of a state file are durable at once; its name
becomes durable when the metadata is written, which syncs the directory first. Files of other processes are synced again
before a job builds on them, because their writers may have died before syncing. In object stores, a written file is
durable at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import uuid
from typing import Any, Final
from urllib.parse import quote

import fsspec

from penstock.base.durable_files import (
    check_outlives,
    create_file,
    ensure_directories,
    get_protocols,
    has_directories,
    is_local,
    make_directories,
    publish,
    sync_directories,
    write_bytes,
)
from penstock.base.errors import CheckpointError
from penstock.storage.metadata import (
    METADATA_NAME,
    REVOKED,
    CheckpointMetadata,
    MissingMetadataError,
    StateFile,
    checksum,
    decode_metadata,
    encode_metadata,
)
from penstock.storage.signatures import content_of_metadata, signed_metadata

#: The maximum number of characters of a state's name in its file name, which must suit any file system.
NAME_CHARACTERS_MAX: Final = 120
#: State files up to this size are read by one request.
READ_AT_ONCE_BYTES_MAX: Final = 32 << 20
#: The file systems, except the local one, where a file is visible while it is written, and renaming is atomic.
_RENAMING: Final = frozenset({"hdfs", "webhdfs"})


def lists_exactly(fs: Any) -> bool:
    """Return whether a listing shows creations and deletions at once, as in the local file system and in Hadoop's."""
    return is_local(fs) or not _RENAMING.isdisjoint(get_protocols(fs))


def absolute_url(path: str) -> str:
    """Return a directory independent of the working directory: `scheme://...` or an absolute path.

    Raises:
        ConfigurationError: if the path is relative, and the working directory does not outlive the program.
    """
    if "://" in path or "::" in path:
        return path.rstrip("/")
    check_outlives(path)
    _, absolute = fsspec.core.url_to_fs(path)
    return str(absolute).rstrip("/")


def file_name(name: str, digest: int) -> str:
    """Return the name of a state's file: its description, shortened, and its checksum."""
    return f"{quote(name, safe='')[:NAME_CHARACTERS_MAX]}-{digest:016x}"


def write_file(fs: Any, directory: str, name: str, data: bytes) -> StateFile:
    """Write a state file under a descriptive name; a second writer of the same bytes does no harm."""
    digest = checksum(data)
    path = posixpath.join(directory, file_name(name, digest))
    ensure_directories(fs, directory)
    # A retried or concurrent task may write an existing file again, and die meanwhile.
    _write_whole(fs, path, data)
    return StateFile(len(data), digest, path=path)


def read_file(fs: Any, path: str, length: int) -> bytes:
    """Return the contents of a state file of that length, plus one byte or more if it has grown.

    An object store is asked for this many bytes, and not for the size first. Large files come in concurrent parts.
    """
    if not has_directories(fs) and length <= READ_AT_ONCE_BYTES_MAX:
        try:
            begin: bytes = fs.cat_file(path, start=0, end=length + 1)
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL means that not even the first byte exists
                raise
        else:
            return begin
    data: bytes = fs.cat_file(path)
    return data


def write_metadata(fs: Any, directory: str, metadata: CheckpointMetadata, key: bytes | None = None) -> None:
    """Write metadata, last and atomically: only then does the checkpoint or savepoint exist.

    Before that, the names of the state files are synced, and those of the directories that workers created. A `key`
    signs the metadata.

    Raises:
        CheckpointError: if metadata exists already, or was revoked.
    """
    if is_local(fs):
        above = posixpath.dirname(directory)
        make_directories(directory)
        for made_by_any in (posixpath.dirname(above), above):
            with contextlib.suppress(PermissionError):  # then no process of the job has created anything in it
                sync_directories([made_by_any])
        sync_directories([directory])
    data = signed_metadata(encode_metadata(metadata), key)
    try:
        write_named(fs, directory, METADATA_NAME, data, replaces=False)
    except FileExistsError as error:
        path = posixpath.join(directory, METADATA_NAME)
        if not is_local(fs) and fs.cat_file(path) == data:
            return  # the client of an object store got no answer to the request and sent it again
        where = shown(fs, path)
        raise CheckpointError(
            f"{where} exists: the checkpoint was given up before it was complete, or another driver of the job wrote it"
        ) from error


def sync_found(fs: Any, directory: str) -> None:
    """Make a file durable that a job continues from, because its writer may have died before syncing its name."""
    if is_local(fs):
        with contextlib.suppress(PermissionError, FileNotFoundError):
            sync_directories([directory])


def delete_metadata(fs: Any, directory: str) -> None:
    """Delete a savepoint's metadata durably, before its files, so that no power failure brings it back without them."""
    with contextlib.suppress(FileNotFoundError):
        fs.rm_file(posixpath.join(directory, METADATA_NAME))
        if is_local(fs):
            sync_directories([directory])


def revoke_metadata(fs: Any, directory: str) -> None:
    """Make a checkpoint directory permanently invalid, whether its metadata already exists or is written later."""
    write_named(fs, directory, METADATA_NAME, REVOKED)


def write_named(fs: Any, directory: str, name: str, data: bytes, replaces: bool = True) -> None:
    """Write a file atomically and durably.

    Raises:
        FileExistsError: if a file of that name exists, and `replaces` is not set.
    """
    ensure_directories(fs, directory)
    _write_whole(fs, posixpath.join(directory, name), data, replaces)
    if is_local(fs):
        sync_directories([directory])


def create(fs: Any, directory: str, name: str, data: bytes = b"") -> bool:
    """Create a file durably. Returns False if it exists; of several concurrent processes, only one gets True."""
    ensure_directories(fs, directory)
    path = posixpath.join(directory, name)
    if is_local(fs):
        return create_file(path, data)
    try:
        fs.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    return True


def _write_whole(fs: Any, path: str, data: bytes, replaces: bool = True) -> None:
    """Write a file atomically, under a partial name first where files are visible while they are written."""
    partial = f"{path}.{uuid.uuid4().hex[:8]}.part"
    if is_local(fs):
        write_bytes(partial, data)
        (os.replace if replaces else publish)(partial, path)
    elif not lists_exactly(fs):
        fs.pipe_file(path, data, mode="overwrite" if replaces else "create")
    else:
        fs.pipe_file(partial, data)
        if not replaces and fs.exists(path):
            raise FileExistsError(path)
        fs.mv(partial, path)


def shown(fs: Any, path: str) -> str:
    """Return a path as shown in errors: with its scheme if it has one."""
    return path if is_local(fs) else str(fs.unstrip_protocol(path))


def load_metadata(fs: Any, directory: str, key: bytes | None = None) -> CheckpointMetadata:
    """Return the metadata in a directory.

    Raise `CheckpointError` if it is missing, incomplete, or not signed by `key`.
    """
    path = posixpath.join(directory, METADATA_NAME)
    where = shown(fs, path)
    try:
        data: bytes = fs.cat_file(path)
    except FileNotFoundError as error:
        raise MissingMetadataError(f"{where} cannot be read: {type(error).__name__}: {error}") from error
    except IsADirectoryError as error:
        raise CheckpointError(f"{where} cannot be read: {type(error).__name__}: {error}") from error
    return decode_metadata(data if data == REVOKED else content_of_metadata(data, key, where), where)
