"""Messages decoded many at once: the records, where each came from, and the messages that are none.

A source hands a `DeserializationSchema` all messages that it fetched. The schema answers with a `Deserialized`, and
never raises for a message that is not in its format: the source knows where that message came from, and what the
schema's owner wants to happen.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from penstock.codecs.column_data import ColumnData

X = TypeVar("X")

#: What happens for what cannot be read: the job fails, or it is left out and counted.
OnError = Literal["fail", "skip"]

#: What parsing one record may raise; anything else is an error of the program and not of the data.
#: A RecursionError comes of values that are nested too deeply.
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
    """A message that is not in the format.

    Attributes:
        place: its place among the messages, counted from 0.
        reason: what is wrong with it, in one line; it names the field where one is wrong.
        cause: what was raised for it, if anything.
    """

    place: int
    reason: str
    cause: BaseException | None = None


class Deserialized(NamedTuple):
    """What messages are, in their order.

    Attributes:
        values: the records, as a list or as columns; together with their timestamps they make a batch.
        places: for each record the place of its message; None when each message is one record.
        bad: the messages that are not in the format, in order.
        kinds: what each record does to a table, a byte each as in `Batch.kinds`; None when all are inserts.
    """

    values: list[Any] | ColumnData
    places: Sequence[int] | None = None
    bad: Sequence[BadMessage] = ()
    kinds: bytes | None = None

    @property
    def columns(self) -> pa.RecordBatch:
        """The records, which are columns."""
        assert isinstance(self.values, ColumnData)
        return self.values.columns

    def of_records(self, of_messages: Sequence[X]) -> Sequence[X]:
        """For each record what belongs to its message, such as a timestamp."""
        return of_messages if self.places is None else [of_messages[place] for place in self.places]


def decode_each(decode: Callable[[bytes], Any], messages: Sequence[bytes]) -> Deserialized:
    """Messages decoded one by one; `decode` returns None for one that holds no record."""
    try:
        values = list(map(decode, messages))
        bad: list[BadMessage] = []
    except BAD_RECORD:
        values, bad = [], []
        for place, message in enumerate(messages):
            try:
                values.append(decode(message))
            except BAD_RECORD as error:
                values.append(None)
                bad.append(BadMessage(place, reason_of(error), error))
    if None not in values:
        return Deserialized(values)
    places = [place for place, value in enumerate(values) if value is not None]
    return Deserialized([values[place] for place in places], places, bad)


def reason_of(error: BaseException) -> str:
    """Why a record could not be read, in one line."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not {error.encoding}"
    return str(error).partition("\n")[0] or type(error).__name__
