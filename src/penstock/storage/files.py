"""Checkpoint files: signatures, atomic writes in any fsspec file system (G11), and small files in object stores (G8).

**Signatures.** A job rejects files that others wrote into the directory of a checkpoint or savepoint. A restore
unpickles state, which runs code that the state names, so a checkpoint directory is as powerful as the program. With a
key, metadata ends with an HMAC-SHA256 of itself, and each file begins with an HMAC-SHA256 of its content. Metadata
lists the length and checksum of each file, so a file cannot be exchanged for another signed one. Without a key,
signatures are ignored and nothing is checked.

The checkpoint number and the job are signed. Beyond these, an older signed checkpoint in place of a newer one is not
detected.

**Durability.** In local file systems, written files survive a power failure. The bytes of a state file are durable at
once; its name becomes durable when the metadata is written, which syncs the directory first. Files of other processes
are synced again before a job builds on them, because their writers may have died before syncing. In object stores, a
written file is durable at once.

`KeyedFiles` are small files with known names in object stores. An object store returns the contents of a key
immediately after they were put. Its listings may be late: an object that was just put may be missing, and one that was
just deleted may still appear. So correctness never depends on a listing, which may only say where to look.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import posixpath
import uuid
from typing import Any, Final, Protocol
from urllib.parse import quote

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
from penstock.base.errors import CheckpointError, ConfigurationError
from penstock.base.options import SIGNING_KEY
from penstock.codecs.file_systems import rename, url_to_fs
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

#: The markers before a signature: at the start of a signed file, and at the end of signed metadata.
FILE_MARK: Final = b"PSTKSIG1"
METADATA_MARK: Final = b"1GISKTSP"
KEY_CHARACTERS_MIN: Final = 16
_MAC_BYTES: Final = 32
_MARK_BYTES: Final = 8


def parse_signing_key(text: str | None) -> bytes | None:
    """Return the key in an option's value.

    Raises:
        ConfigurationError: if the key is too short.
    """
    if text is None:
        return None
    if len(text) < KEY_CHARACTERS_MIN:
        raise ConfigurationError(
            f"{SIGNING_KEY.key()} has {len(text)} characters: take {KEY_CHARACTERS_MIN} or more, such as those of "
            "openssl rand -hex 32"
        )
    return text.encode()


def signed_file(data: bytes, key: bytes | None) -> bytes:
    """Return the stored form of a state file: a signature, then its bytes."""
    return data if key is None else b"".join((FILE_MARK, _mac(key, FILE_MARK, data), data))


def content_of_file(stored: bytes, key: bytes | None, where: str) -> bytes:
    """Return the original bytes of a state file; raises `CheckpointError` unless the signature matches this key."""
    head = _MARK_BYTES + _MAC_BYTES
    is_signed = stored.startswith(FILE_MARK) and len(stored) >= head
    if key is None:
        return stored[head:] if is_signed else stored
    if not is_signed:
        raise _unsigned(where)
    data = stored[head:]
    if not hmac.compare_digest(stored[_MARK_BYTES:head], _mac(key, FILE_MARK, data)):
        raise _foreign(where)
    return data


def signed_metadata(data: bytes, key: bytes | None) -> bytes:
    """Return the stored form of metadata: its bytes, then their signature."""
    return data if key is None else b"".join((data, METADATA_MARK, _mac(key, METADATA_MARK, data)))


def content_of_metadata(stored: bytes, key: bytes | None, where: str) -> bytes:
    """Return the original bytes of metadata; raises `CheckpointError` unless the signature matches this key."""
    tail = _MARK_BYTES + _MAC_BYTES
    is_signed = len(stored) > tail and stored[-tail:-_MAC_BYTES] == METADATA_MARK
    if key is None:
        return stored[:-tail] if is_signed else stored
    if not is_signed:
        raise _unsigned(where)
    data = stored[:-tail]
    if not hmac.compare_digest(stored[-_MAC_BYTES:], _mac(key, METADATA_MARK, data)):
        raise _foreign(where)
    return data


def _mac(key: bytes, purpose: bytes, data: bytes) -> bytes:
    mac = hmac.new(key, purpose, hashlib.sha256)
    mac.update(data)
    return mac.digest()


def _unsigned(where: str) -> CheckpointError:
    return CheckpointError(
        f"{where} is not signed, and {SIGNING_KEY.key()} is set: it was written without the key, or by somebody else. "
        "Sign a savepoint that you trust with penstock.state_processor.sign_savepoint"
    )


def _foreign(where: str) -> CheckpointError:
    return CheckpointError(
        f"{where} has a signature that is not of {SIGNING_KEY.key()}: it was changed, or written with another key"
    )


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
    _, absolute = url_to_fs(path)
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
        _write_whole(fs, path, data, replaces=False)
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
        try:
            rename(fs, partial, path, replaces)
        except FileExistsError:
            fs.rm_file(partial)
            raise


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


class KeyedFiles(Protocol):
    """The operations required of an object store. Any call may raise `OSError`, for example on too many requests."""

    def read(self, path: str) -> bytes | None:
        """Return the contents last put under a path, or None."""

    def create(self, path: str, data: bytes) -> bool:
        """Put a file unless it exists; return False if it does. Of several concurrent calls, one returns True."""

    def put(self, path: str, data: bytes) -> None:
        """Put a file, replacing an existing one."""

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; the listing may be late."""


class ObjectFiles:
    """The files of an fsspec file system with object storage. Implements `KeyedFiles`."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def read(self, path: str) -> bytes | None:
        try:
            data: bytes = self._fs.cat_file(path)
        except FileNotFoundError:
            return None
        return data

    def create(self, path: str, data: bytes) -> bool:
        return create(self._fs, posixpath.dirname(path), posixpath.basename(path), data)

    def put(self, path: str, data: bytes) -> None:
        write_named(self._fs, posixpath.dirname(path), posixpath.basename(path), data)

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def names(self, directory: str) -> list[str]:
        self._fs.invalidate_cache(directory)
        try:
            return [posixpath.basename(path.rstrip("/")) for path in self._fs.ls(directory, detail=False)]
        except FileNotFoundError:
            return []
