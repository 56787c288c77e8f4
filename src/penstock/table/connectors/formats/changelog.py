"""Changelogs as messages: what formats of them share. A message says what happened to some rows.

A row that was changed is told as it was and as it is. It is read as two: -U and +U. Written are rows that come and rows
that go, as Flink writes them: an update is one of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from penstock.base.errors import FormatError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.messages import BAD_RECORD, BadMessage, Deserialized, reason_of
from penstock.table.connectors.formats.format import Decoding, Encoding, MessageDecoder, MessageEncoder
from penstock.table.connectors.formats.lines import LinesFormat, LinesWriterFactory
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import column_of
from penstock.table.plan.changes import ALL, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.table.plan.row_schema import PlanColumn, RowSchema


class Change(NamedTuple):
    """One row of a message: what happens to it, and the row, in whichever form a decoder of rows takes it."""

    kind: int
    row: Any


class Told(NamedTuple):
    """What a message says: changes in order, and the values of METADATA columns, as they are held."""

    changes: Sequence[Change]
    metadata: Sequence[Any] = ()


class RowDecoder(Protocol):
    """Turns rows that messages hold into columns; one of messages that are rows is one, too."""

    def decode(self, messages: Sequence[Any], /) -> Deserialized:
        """The rows as `ColumnData`, and those that are none."""
        ...


class Envelope(ABC):
    """What is around the rows of a changelog's messages. It travels with a job."""

    @abstractmethod
    def told(self, message: bytes) -> Told | None:
        """What a message says; None for one that says nothing. Raises one of `BAD_RECORD` for what is no message."""


def changed(before: Any, after: Any) -> list[Change]:
    """The changes of an update."""
    return [Change(UPDATE_BEFORE, before), Change(UPDATE_AFTER, after)]


def inserted(row: Any) -> Change:
    """The change of a row that is new."""
    return Change(INSERT, row)


def deleted(row: Any) -> Change:
    """The change of a row that goes."""
    return Change(DELETE, row)


def without_before(what: str, of: str = "Debezium PostgreSQL connector") -> FormatError:
    """The error for an update or deletion that does not tell the row as it was."""
    return FormatError(
        f'the "before" field of {what} message is null. If the {of} wrote it, the table must be set to '
        "REPLICA IDENTITY FULL, so that the message has the row as it was"
    )


class ChangelogDecoder(MessageDecoder):
    """Reads the messages of a changelog.

    Args:
        envelope: finds the rows in messages.
        rows: makes columns of them.
        metadata: METADATA columns, which come behind the others, and the types of what messages have for them.
        order: the columns wanted, as places among those of rows and then of metadata; None for all as they come.
    """

    def __init__(
        self,
        envelope: Envelope,
        rows: RowDecoder,
        metadata: Sequence[tuple[PlanColumn, DataType]] = (),
        order: Sequence[int] | None = None,
    ) -> None:
        self._envelope = envelope
        self._rows = rows
        self._metadata = tuple(metadata)
        self._order = order

    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """See `MessageDecoder`."""
        bad: list[BadMessage] = []
        rows: list[Any] = []
        kinds: list[int] = []
        places: list[int] = []
        metadata: dict[int, Sequence[Any]] = {}
        for place, message in enumerate(messages):
            try:
                told = self._envelope.told(message)
            except BAD_RECORD as error:
                bad.append(BadMessage(place, reason_of(error), error))
                continue
            if told is not None:
                metadata[place] = told.metadata
                for kind, row in told.changes:
                    kinds.append(kind)
                    rows.append(row)
                    places.append(place)
        found = self._rows.decode(rows)
        columns = found.columns
        if found.bad:
            wrong = {places[one.place]: one for one in reversed(found.bad)}
            bad = sorted([*bad, *(one._replace(place=place) for place, one in wrong.items())])
            # An update of which one half is bad is left out as a whole.
            kept = [index for index, place in enumerate(places) if place not in wrong]
            read = {index: at for at, index in enumerate(found.of_records(range(len(rows))))}
            columns = columns.take(pa.array([read[index] for index in kept], pa.int64()))
            kinds, places = [kinds[index] for index in kept], [places[index] for index in kept]
        columns = self._with_metadata(columns, [metadata[place] for place in places])
        return Deserialized(ColumnData(columns), places, bad, bytes(kinds) if any(kinds) else None)

    def _with_metadata(self, columns: pa.RecordBatch, values: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        if not self._metadata:
            return columns
        made = [
            column_of([of_row[index] for of_row in values], kind).cast(arrow_type(column.type))
            for index, (column, kind) in enumerate(self._metadata)
        ]
        names = [*columns.schema.names, *(column.name for column, _ in self._metadata)]
        whole = pa.RecordBatch.from_arrays([*columns.columns, *made], names)
        return whole if self._order is None else whole.select(list(self._order))


class ChangelogEncoder(MessageEncoder):
    """Writes changes.

    Args:
        rows: writes rows.
        came: the text of a message of a row that comes, with %s for the row.
        went: that of a row that goes.
    """

    def __init__(self, rows: MessageEncoder, came: bytes, went: bytes) -> None:
        self._rows = rows
        self._came = came
        self._went = went

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        came = self._came
        return [came % row for row in self._rows.encode(columns)]

    def encode_changes(self, columns: pa.RecordBatch, kinds: bytes) -> list[bytes]:
        """See `MessageEncoder`."""
        rows = self._rows.encode(columns)
        forms = [self._came if kind in (INSERT, UPDATE_AFTER) else self._went for kind in kinds]
        return [form % row for form, row in zip(forms, rows, strict=True)]


def changelog_decoding(decoder: MessageDecoder, ignores_errors: bool) -> Decoding:
    """How a changelog is read, also from files. A file is read by one reader, because its lines are in order."""
    files = LinesFormat(decoder, skips_empty=True, skips_bad=ignores_errors, splittable=False)
    return Decoding(files, decoder, ignores_errors, changes=ALL)


def changelog_encoding(encoder: MessageEncoder, schema: RowSchema) -> Encoding:
    """How a changelog is written, also into files."""
    return Encoding(LinesWriterFactory(encoder, schema), encoder, accepts=ALL)
