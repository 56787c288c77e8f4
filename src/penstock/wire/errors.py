"""Errors about records that cannot travel."""

from __future__ import annotations

import pickle

from penstock.base.errors import PenstockError, ProtocolError, shorten

FRAME_BYTES_OPTION = "penstock.network.max-frame-bytes"
RECORD_BYTES_OPTION = "penstock.network.record-bytes-max"


class MessageTooLargeError(ProtocolError):
    """A control message has more bytes than is allowed, and would have them at the next attempt too."""

    suppresses_restart = True


class RecordSerializationError(PenstockError, ValueError):
    """A record cannot be turned into bytes, or its bytes cannot be turned into a record again.

    Args:
        text: which one, and why.
        cause: what was raised; a class that cannot be pickled, or is not there, is the same at the next attempt.
    """

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self.suppresses_restart = isinstance(cause, ImportError | AttributeError | TypeError | pickle.PicklingError)


class RecordTooLargeError(RecordSerializationError):
    """A single record needs more bytes than a record may have."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.suppresses_restart = True


def describe_record(record: object) -> str:
    """The record's type and its repr, shortened; a repr that raises does not hide the error at hand."""
    try:
        text = repr(record)
    except Exception as error:  # noqa: BLE001 - the user's own repr may raise anything
        text = f"<its repr raises {type(error).__name__}>"
    return f"type {type(record).__module__}.{type(record).__qualname__}: {shorten(text)}"
