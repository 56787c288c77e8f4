"""Part files from their first byte until they are visible, in the way of their file system (G9).

Where a file can be renamed, a hidden file is the part file itself under another name. In S3 renaming is a copy. So
there a part goes up as a multipart upload to its final key, which shows nothing until somebody completes it, and the
hidden file is a small object that names the upload and its parts. It is written after the last part. Completing an
upload makes the object visible in one step, without a copy, and any process can do it.

An upload whose writer died before it wrote the hidden file is known to nobody. S3 keeps its parts until a life-cycle
rule of the bucket removes them (`AbortIncompleteMultipartUpload`). The rule must leave uploads for longer than a job
may stand still, because those that a checkpoint names wait for their commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, BinaryIO, Final, cast

import msgspec
from fsspec.core import url_to_fs

from penstock.base.durable_files import errors_name, protocols_of
from penstock.base.errors import FormatError, MissingPathError
from penstock.connectors.file.filesystem import (
    create_held,
    make_durable,
    read_bytes,
    remove,
    rename,
    size_or_none,
)

#: How much of a part file waits in memory before it goes up; S3 takes 10,000 times as much for one object.
UPLOADED_BYTES: Final = 8 << 20
_S3: Final = frozenset({"s3", "s3a"})


class PendingUpload(msgspec.Struct, frozen=True, tag="multipart-upload", tag_field="kind"):
    """A multipart upload of which all parts are there: the object is visible once it is completed."""

    bucket: str
    key: str
    upload_id: str
    parts: list[dict[str, Any]]
    size_bytes: int


class UploadGoneError(MissingPathError):
    """The parts of an upload are not there any more."""


def has_uploads(path: str) -> bool:
    """Whether hidden files of that file system name uploads."""
    return not _S3.isdisjoint(protocols_of(url_to_fs(path)[0]))


def create_part(open_path: str, final_path: str) -> BinaryIO:
    """Begins a part file; `close_part` or `discard_part` ends it."""
    if not has_uploads(final_path):
        return create_held(open_path)
    fs, root = url_to_fs(final_path)
    file = fs.open(root, "wb", autocommit=False, block_size=UPLOADED_BYTES)
    fs.transaction.files.remove(file)  # else it would be kept for a commit of them all that nobody asks for
    return cast(BinaryIO, file)


def close_part(stream: BinaryIO, open_path: str, closed_path: str) -> None:
    """Closes a part file, durably, under its hidden name.

    Raises:
        FileNotFoundError: if somebody has removed it.
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
        rename(open_path, closed_path)  # while the file is held, so that it is not taken for dead
    stream.close()


def discard_part(stream: BinaryIO, open_path: str) -> None:
    """Ends a part file that nobody needs."""
    upload: Any = stream
    if has_uploads(open_path):
        upload.discard()
        upload.closed = True
    else:
        with contextlib.suppress(OSError):  # on a full disk the bytes in its buffer do not fit
            stream.close()
        remove([open_path])


def hidden_size(path: str) -> int | None:
    """How many bytes of a part file there are behind a hidden name; None when there is none of that name."""
    if not has_uploads(path):
        return size_or_none(path)
    pending = _pending(path)
    return None if pending is None else pending.size_bytes


def show(hidden_path: str, final_path: str) -> None:
    """Makes a part file visible, in place of what is there under its final name.

    Raises:
        UploadGoneError: if the parts of the upload are gone.
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
        # The answer of an earlier try may have been lost.
        if size_or_none(final_path) != pending.size_bytes:
            if not _is_there(fs, pending):
                raise UploadGoneError(f"S3 has no upload {pending.upload_id} of {final_path}") from error
            raise
    fs.invalidate_cache(fs._parent(root))
    remove([hidden_path])


def discard(hidden_paths: Iterable[str]) -> None:
    """Removes hidden files and what they name; what is gone already is not an error."""
    for path in hidden_paths:
        pending = _pending(path) if has_uploads(path) else None
        if pending is not None:
            fs, _ = url_to_fs(path)
            with contextlib.suppress(FileNotFoundError):  # it was completed, or aborted by a rule of the bucket
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
