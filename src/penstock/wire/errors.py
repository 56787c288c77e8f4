"""Errors about messages and records that cannot be transmitted."""

from __future__ import annotations

import pickle

from penstock.base.errors import PenstockError, ProtocolError, shorten

FRAME_BYTES_OPTION = "penstock.network.max-frame-bytes"
RECORD_BYTES_OPTION = "penstock.network.record-bytes-max"


class MessageTooLargeError(ProtocolError):
    """A control message exceeds the maximum size, and would do so again at the next attempt."""

    suppresses_restart = True


class RecordSerializationError(PenstockError, ValueError):
    """A record cannot be serialized, or its bytes cannot be deserialized.

    Args:
        text: the message, with the record and the reason.
        cause: the original exception. An error about a class that is missing or not picklable would recur at the next
            attempt.
    """

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self.suppresses_restart = isinstance(cause, ImportError | AttributeError | TypeError | pickle.PicklingError)


class RecordTooLargeError(RecordSerializationError):
    """A single record exceeds the maximum record size."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.suppresses_restart = True


def describe_record(record: object) -> str:
    """Return a record's type and shortened repr; a repr that raises does not hide the current error."""
    try:
        text = repr(record)
    except Exception as error:  # noqa: BLE001 - the user's own repr may raise anything
        text = f"<its repr raises {type(error).__name__}>"
    return f"type {type(record).__module__}.{type(record).__qualname__}: {shorten(text)}"
