"""Errors about records that cannot travel."""

from __future__ import annotations

from penstock.common.errors import PenstockError, shorten

FRAME_BYTES_OPTION = "penstock.network.max-frame-bytes"


class RecordSerializationError(PenstockError):
    """A record cannot be turned into bytes, or its bytes cannot be turned into a record again."""


class RecordTooLargeError(RecordSerializationError):
    """A single record needs more bytes than one message may have."""


def describe_record(record: object) -> str:
    """The record's type and its repr, shortened; a repr that raises does not hide the error at hand."""
    try:
        text = repr(record)
    except Exception as error:  # noqa: BLE001 - the user's own repr may raise anything
        text = f"<its repr raises {type(error).__name__}>"
    return f"type {type(record).__module__}.{type(record).__qualname__}: {shorten(text)}"
