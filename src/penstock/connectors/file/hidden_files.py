"""Part files from creation until they become visible, adapted to the file system (G9).

Where files can be renamed, a hidden file is the part file itself under another name. In S3, renaming copies the object.
There a part is sent as a multipart upload to its final key, which stays invisible until the upload is completed, and
the hidden file is a small object that names the upload and its parts. It is written after the last part. Completing an
upload makes the object visible atomically, without a copy, and any process can do it.

If a writer dies before it writes the hidden file, its upload is orphaned. S3 keeps the parts until a lifecycle rule of
the bucket removes them (`AbortIncompleteMultipartUpload`). The rule must keep uploads for longer than a job may be
stopped, because uploads that a checkpoint names are still to be committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, BinaryIO, Final, cast

import msgspec
from fsspec.core import url_to_fs

from penstock.base.durable_files import errors_name, get_protocols
from penstock.base.errors import FormatError, MissingPathError
from penstock.connectors.file.filesystem import (
    create_held,
    make_durable,
    read_bytes,
    remove,
    rename,
    size_or_none,
)

#: How much of a part file to buffer before sending it; S3 allows objects of 10,000 times this size.
UPLOADED_BYTES: Final = 8 << 20
_S3: Final = frozenset({"s3", "s3a"})


class PendingUpload(msgspec.Struct, frozen=True, tag="multipart-upload", tag_field="kind"):
    """A multipart upload whose parts are all present: completing it makes the object visible."""

    bucket: str
    key: str
    upload_id: str
    parts: list[dict[str, Any]]
    size_bytes: int


class UploadGoneError(MissingPathError):
    """Raised when the parts of an upload no longer exist."""


def has_uploads(path: str) -> bool:
    """Return whether hidden files in the path's file system name uploads."""
    return not _S3.isdisjoint(get_protocols(url_to_fs(path)[0]))


def create_part(open_path: str, final_path: str) -> BinaryIO:
    """Start a part file; `close_part` or `discard_part` ends it."""
    if not has_uploads(final_path):
        return create_held(open_path)
    fs, root = url_to_fs(final_path)
    file = fs.open(root, "wb", autocommit=False, block_size=UPLOADED_BYTES)
    fs.transaction.files.remove(file)  # otherwise fsspec would keep it for a transaction commit that never happens
    return cast(BinaryIO, file)


def close_part(stream: BinaryIO, open_path: str, closed_path: str) -> None:
    """Close a part file durably under its hidden name.

    Raises:
        FileNotFoundError: if the file was removed.
    """
    upload: Any = stream
    if has_uploads(closed_path):
        size_bytes = upload.tell()
        upload.close()
        pending = PendingUpload(upload.bucket, upload.key, upload.mpu["UploadId"], upload.parts, size_bytes)
        fs, root = url_to_fs(closed_path)
        fs.pipe_file(root, msgspec.json.encode(pending))
        return
    with errors_name(open_path):
        make_durable(stream)
    if closed_path != open_path:
        rename(open_path, closed_path)  # while the lock is held, so that the file does not look abandoned
    stream.close()


def discard_part(stream: BinaryIO, open_path: str) -> None:
    """Discard a part file that is not needed."""
    upload: Any = stream
    if has_uploads(open_path):
        upload.discard()
        upload.closed = True
    else:
        with contextlib.suppress(OSError):  # on a full disk the buffered bytes cannot be written
            stream.close()
        remove([open_path])


def hidden_size(path: str) -> int | None:
    """Return the size in bytes of the part file with this hidden path, or None if it does not exist."""
    if not has_uploads(path):
        return size_or_none(path)
    pending = _pending(path)
    return None if pending is None else pending.size_bytes


def show(hidden_path: str, final_path: str) -> None:
    """Make a part file visible, replacing any file with its final name.

    Raises:
        UploadGoneError: if the parts of the upload no longer exist.
    """
    if not has_uploads(hidden_path):
        rename(hidden_path, final_path)
        return
    pending = _pending(hidden_path)
    if pending is None:
        raise UploadGoneError(f"{hidden_path} is gone")
    fs, root = url_to_fs(final_path)
    try:
        fs.call_s3(
            "complete_multipart_upload",
            Bucket=pending.bucket,
            Key=pending.key,
            UploadId=pending.upload_id,
            MultipartUpload={"Parts": pending.parts},
        )
    except OSError as error:
        # An earlier attempt may have succeeded and its response been lost.
        if size_or_none(final_path) != pending.size_bytes:
            if not _is_there(fs, pending):
                raise UploadGoneError(f"S3 has no upload {pending.upload_id} of {final_path}") from error
            raise
    fs.invalidate_cache(fs._parent(root))
    remove([hidden_path])


def discard(hidden_paths: Iterable[str]) -> None:
    """Remove hidden files and the uploads that they name; missing ones are ignored."""
    for path in hidden_paths:
        pending = _pending(path) if has_uploads(path) else None
        if pending is not None:
            fs, _ = url_to_fs(path)
            with contextlib.suppress(FileNotFoundError):  # already completed, or aborted by a bucket rule
                fs.abort_mpu(pending.bucket, pending.key, pending.upload_id)
        remove([path])


def _is_there(fs: Any, pending: PendingUpload) -> bool:
    try:
        fs.call_s3("list_parts", Bucket=pending.bucket, Key=pending.key, UploadId=pending.upload_id, MaxParts=1)
    except FileNotFoundError:
        return False
    return True


def _pending(path: str) -> PendingUpload | None:
    try:
        return msgspec.json.decode(read_bytes(path), type=PendingUpload)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise FormatError(f"{path} does not name an upload: {error}") from error
