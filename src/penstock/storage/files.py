"""Files of checkpoints as they are written: there whole or not at all, in any fsspec file system (G11)."""

from __future__ import annotations

import posixpath
import uuid
from typing import Any, Final
from urllib.parse import quote

import fsspec

from penstock.base.errors import CheckpointError
from penstock.storage.metadata import (
    METADATA_NAME,
    CheckpointMetadata,
    StateFile,
    checksum,
    decode_metadata,
    encode_metadata,
)

#: How much of a state's name goes into the name of its file, which must do for any file system.
NAME_CHARACTERS_MAX: Final = 120
#: File systems in which a file is seen while it is written, and renaming is one step.
_RENAMING: Final = frozenset({"file", "hdfs", "webhdfs"})


def absolute_url(path: str) -> str:
    """A directory as every process finds it, whatever its working directory: `scheme://...` or an absolute path."""
    if "://" in path or "::" in path:
        return path.rstrip("/")
    _, absolute = fsspec.core.url_to_fs(path)
    return str(absolute).rstrip("/")


def file_name(name: str, digest: int) -> str:
    """The name of a state's file: what it holds, shortened, and its checksum."""
    return f"{quote(name, safe='')[:NAME_CHARACTERS_MAX]}-{digest:016x}"


def write_file(fs: Any, directory: str, name: str, data: bytes) -> StateFile:
    """Write a state file under a name that says what it holds; a second writer of the same bytes does no harm."""
    digest = checksum(data)
    path = posixpath.join(directory, file_name(name, digest))
    fs.makedirs(directory, exist_ok=True)
    # A task that runs again, or twice at a time, may write what is there already, and die meanwhile. In object stores a
    # file appears whole by itself.
    if _RENAMING.isdisjoint([fs.protocol] if isinstance(fs.protocol, str) else fs.protocol):
        fs.pipe_file(path, data)
    else:
        partial = f"{path}.{uuid.uuid4().hex[:8]}.part"
        fs.pipe_file(partial, data)
        fs.mv(partial, path)
    return StateFile(len(data), digest, path=path)


def write_metadata(fs: Any, directory: str, metadata: CheckpointMetadata) -> None:
    """Write metadata, last and in one step: only now the checkpoint or savepoint exists."""
    fs.makedirs(directory, exist_ok=True)
    partial = posixpath.join(directory, f".{METADATA_NAME}.part")
    fs.pipe_file(partial, encode_metadata(metadata))
    fs.mv(partial, posixpath.join(directory, METADATA_NAME))


def load_metadata(fs: Any, directory: str) -> CheckpointMetadata:
    """The metadata in a directory; raises `CheckpointError` when it is not there, or not whole."""
    where = posixpath.join(directory, METADATA_NAME)
    try:
        data: bytes = fs.cat_file(where)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise CheckpointError(f"{where} cannot be read: {type(error).__name__}: {error}") from error
    return decode_metadata(data, where)
