"""Batch decoding of messages: the records, the message each came from, and the malformed messages.

A source passes all fetched messages to a `DeserializationSchema`, which returns a `Deserialized` and never raises for a
malformed message: only the source knows where that message came from and how the user wants it handled.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from penstock.codecs.column_data import ColumnData

X = TypeVar("X")

#: How to handle unreadable data: fail the job, or skip and count it.
OnError = Literal["fail", "skip"]

#: Exceptions that parsing one record may raise; any other is a bug in the program rather than bad data. A
#: RecursionError comes from values that are nested too deeply.
BAD_RECORD: Final = (
    ValueError,
    ArithmeticError,
    LookupError,
    TypeError,
    csv.Error,
    msgspec.MsgspecError,
    RecursionError,
)


class BadMessage(NamedTuple):
    """A message that does not match the format.

    Attributes:
        place: its index among the messages, from 0.
        reason: a one-line description of the error, naming the invalid field if there is one.
        cause: the exception that it raised, if any.
    """

    place: int
    reason: str
    cause: BaseException | None = None


class Deserialized(NamedTuple):
    """The decoded messages, in order.

    Attributes:
        values: the records, as a list or as columns; together with their timestamps they make a batch.
        places: the message index of each record; None if each message is one record.
        bad: the malformed messages, in order.
        kinds: the row kind of each record, one byte each as in `Batch.kinds`; None if all are inserts.
    """

    values: list[Any] | ColumnData
    places: Sequence[int] | None = None
    bad: Sequence[BadMessage] = ()
    kinds: bytes | None = None

    @property
    def columns(self) -> pa.RecordBatch:
        """The records; they must be columns."""
        assert isinstance(self.values, ColumnData)
        return self.values.columns

    def of_records(self, of_messages: Sequence[X]) -> Sequence[X]:
        """Select each record's entry from a sequence with one entry per message, such as timestamps."""
        return of_messages if self.places is None else [of_messages[position] for position in self.places]


def decode_each(decode: Callable[[bytes], Any], messages: Sequence[bytes]) -> Deserialized:
    """Decode messages one by one; `decode` returns None for a message without a record."""
    try:
        values = list(map(decode, messages))
        bad: list[BadMessage] = []
    except BAD_RECORD:
        values, bad = [], []
        for index, message in enumerate(messages):
            try:
                values.append(decode(message))
            except BAD_RECORD as error:
                values.append(None)
                bad.append(BadMessage(index, format_reason(error), error))
    if None not in values:
        return Deserialized(values)
    positions = [position for position, value in enumerate(values) if value is not None]
    return Deserialized([values[position] for position in positions], positions, bad)


def format_reason(error: BaseException) -> str:
    """Return a one-line reason why a record could not be read."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not {error.encoding}"
    return str(error).partition("\n")[0] or type(error).__name__
