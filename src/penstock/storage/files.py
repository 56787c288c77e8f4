"""Files of checkpoints as they are written: there whole or not at all, in any fsspec file system (G11).

In local file systems what is written survives a power cut. The bytes of a state file do at once; its name does when the
metadata is written, which syncs the directory first. What others have written is synced once more before a job builds
on it, because they may have died before they did. In object stores a file that was written is there for good.
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
    has_directories,
    is_local,
    make_directories,
    make_directories_in,
    protocols_of,
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

#: How much of a state's name goes into the name of its file, which must do for any file system.
NAME_CHARACTERS_MAX: Final = 120
#: State files up to this size are read by one request.
READ_AT_ONCE_BYTES_MAX: Final = 32 << 20
#: File systems but the local one in which a file is seen while it is written, and renaming is one step.
_RENAMING: Final = frozenset({"hdfs", "webhdfs"})


def lists_exactly(fs: Any) -> bool:
    """Whether a listing shows at once what was made and deleted: in the local file system, and in Hadoop's."""
    return is_local(fs) or not _RENAMING.isdisjoint(protocols_of(fs))


def absolute_url(path: str) -> str:
    """A directory as every process finds it, whatever its working directory: `scheme://...` or an absolute path.

    Raises:
        ConfigurationError: if the path is relative, and the working directory does not outlive the program.
    """
    if "://" in path or "::" in path:
        return path.rstrip("/")
    check_outlives(path)
    _, absolute = fsspec.core.url_to_fs(path)
    return str(absolute).rstrip("/")


def file_name(name: str, digest: int) -> str:
    """The name of a state's file: what it holds, shortened, and its checksum."""
    return f"{quote(name, safe='')[:NAME_CHARACTERS_MAX]}-{digest:016x}"


def write_file(fs: Any, directory: str, name: str, data: bytes) -> StateFile:
    """Write a state file under a name that says what it holds; a second writer of the same bytes does no harm."""
    digest = checksum(data)
    path = posixpath.join(directory, file_name(name, digest))
    make_directories_in(fs, directory)
    # A task that runs again, or twice at a time, may write what is there already, and die meanwhile.
    _write_whole(fs, path, data)
    return StateFile(len(data), digest, path=path)


def read_file(fs: Any, path: str, length: int) -> bytes:
    """What is in a state file of that length; one byte more where it has become longer.

    An object store is asked for so many bytes, and not for the size first. Large ones come in parts at a time.
    """
    if not has_directories(fs) and length <= READ_AT_ONCE_BYTES_MAX:
        try:
            begin: bytes = fs.cat_file(path, start=0, end=length + 1)
        except OSError as error:
            if error.errno != errno.EINVAL:  # which says that not even the first byte is there
                raise
        else:
            return begin
    data: bytes = fs.cat_file(path)
    return data


def write_metadata(fs: Any, directory: str, metadata: CheckpointMetadata, key: bytes | None = None) -> None:
    """Write metadata, last and in one step: only now the checkpoint or savepoint exists.

    Before it is visible, the names of the state files are synced, and those of the directories that workers have made.
    With a `key` it is signed.

    Raises:
        CheckpointError: if there is metadata, or it was revoked.
    """
    if is_local(fs):
        above = posixpath.dirname(directory)
        make_directories(directory)
        for made_by_any in (posixpath.dirname(above), above):
            with contextlib.suppress(PermissionError):  # then no process of the job has made anything in it
                sync_directories([made_by_any])
        sync_directories([directory])
    data = signed_metadata(encode_metadata(metadata), key)
    try:
        write_named(fs, directory, METADATA_NAME, data, replaces=False)
    except FileExistsError as error:
        path = posixpath.join(directory, METADATA_NAME)
        if not is_local(fs) and fs.cat_file(path) == data:
            return  # the client of an object store, which had no answer to that request, has sent it again
        where = shown(fs, path)
        raise CheckpointError(
            f"{where} exists: the checkpoint was given up before it was complete, or another driver of the job wrote it"
        ) from error


def sync_found(fs: Any, directory: str) -> None:
    """Let a file survive that a job is to go on from: whoever gave it its name may have died before that was synced."""
    if is_local(fs):
        with contextlib.suppress(PermissionError, FileNotFoundError):
            sync_directories([directory])


def delete_metadata(fs: Any, directory: str) -> None:
    """Delete the metadata of a savepoint for good, before its files: no power cut brings it back without them."""
    with contextlib.suppress(FileNotFoundError):
        fs.rm_file(posixpath.join(directory, METADATA_NAME))
        if is_local(fs):
            sync_directories([directory])


def revoke_metadata(fs: Any, directory: str) -> None:
    """Let no checkpoint be in a directory: not one whose metadata is there, and not one whose metadata comes late."""
    write_named(fs, directory, METADATA_NAME, REVOKED)


def write_named(fs: Any, directory: str, name: str, data: bytes, replaces: bool = True) -> None:
    """Write a file that is there whole or not at all, for good.

    Raises:
        FileExistsError: if there is one of that name, and `replaces` is not set.
    """
    make_directories_in(fs, directory)
    _write_whole(fs, posixpath.join(directory, name), data, replaces)
    if is_local(fs):
        sync_directories([directory])


def create(fs: Any, directory: str, name: str, data: bytes = b"") -> bool:
    """Make a file for good; False if there is one, and of several processes at a time only one gets True."""
    make_directories_in(fs, directory)
    path = posixpath.join(directory, name)
    if is_local(fs):
        return create_file(path, data)
    try:
        fs.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    return True


def _write_whole(fs: Any, path: str, data: bytes, replaces: bool = True) -> None:
    """Write a file under a partial name first, where a file is seen while it is written."""
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
    """A path as errors name it: with its scheme where it has one."""
    return path if is_local(fs) else str(fs.unstrip_protocol(path))


def load_metadata(fs: Any, directory: str, key: bytes | None = None) -> CheckpointMetadata:
    """The metadata in a directory; raises `CheckpointError` when it is missing, not whole, or not signed by `key`."""
    path = posixpath.join(directory, METADATA_NAME)
    where = shown(fs, path)
    try:
        data: bytes = fs.cat_file(path)
    except FileNotFoundError as error:
        raise MissingMetadataError(f"{where} cannot be read: {type(error).__name__}: {error}") from error
    except IsADirectoryError as error:
        raise CheckpointError(f"{where} cannot be read: {type(error).__name__}: {error}") from error
    return decode_metadata(data if data == REVOKED else content_of_metadata(data, key, where), where)
