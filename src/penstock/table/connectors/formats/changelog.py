"""Changelog messages: the code that their formats share. A message describes the changes of some rows.

An update message contains the previous and the new row and is read as two changes: -U and +U. As in Flink, only inserts
and deletes are written: an update becomes one of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from penstock.base.errors import FormatError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.messages import BAD_RECORD, BadMessage, Deserialized, format_reason
from penstock.table.connectors.formats.format import Decoding, Encoding, MessageDecoder, MessageEncoder
from penstock.table.connectors.formats.lines import LinesFormat, LinesWriterFactory
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column
from penstock.table.plan.changes import ALL, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.table.plan.row_schema import PlanColumn, RowSchema


class Change(NamedTuple):
    """One change in a message: its kind, and the row in the form that the row decoder expects."""

    kind: int
    row: Any


class Told(NamedTuple):
    """The content of a message: its changes in order, and the internal values of METADATA columns."""

    changes: Sequence[Change]
    metadata: Sequence[Any] = ()


class RowDecoder(Protocol):
    """Turns the rows in messages into columns. A decoder of messages that are plain rows also qualifies."""

    def decode(self, messages: Sequence[Any], /) -> Deserialized:
        """Return the valid rows as `ColumnData`, and the invalid ones."""
        ...


class Envelope(ABC):
    """The envelope around the rows in changelog messages. It is pickled with the job."""

    @abstractmethod
    def told(self, message: bytes) -> Told | None:
        """Return the content of a message; None if there are no changes.

        Raises one of `BAD_RECORD` if it is invalid.
        """


def changed(before: Any, after: Any) -> list[Change]:
    """Return the changes of an update."""
    return [Change(UPDATE_BEFORE, before), Change(UPDATE_AFTER, after)]


def inserted(row: Any) -> Change:
    """Return the change for a new row."""
    return Change(INSERT, row)


def deleted(row: Any) -> Change:
    """Return the change for a deleted row."""
    return Change(DELETE, row)


def without_before(what: str, of: str = "Debezium PostgreSQL connector") -> FormatError:
    """Return the error for an update or deletion without the previous row."""
    return FormatError(
        f'the "before" field of {what} message is null. If the {of} wrote it, the table must be set to '
        "REPLICA IDENTITY FULL, so that the message has the row as it was"
    )


class ChangelogDecoder(MessageDecoder):
    """Reads changelog messages.

    Args:
        envelope: extracts the rows from messages.
        rows: turns them into columns.
        metadata: METADATA columns, which follow the others, and the types of their values in messages.
        order: the columns to return, as indices into the row columns followed by metadata; None for all in this order.
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
        positions: list[int] = []
        metadata: dict[int, Sequence[Any]] = {}
        for message_index, message in enumerate(messages):
            try:
                event = self._envelope.told(message)
            except BAD_RECORD as error:
                bad.append(BadMessage(message_index, format_reason(error), error))
                continue
            if event is not None:
                metadata[message_index] = event.metadata
                for kind, row in event.changes:
                    kinds.append(kind)
                    rows.append(row)
                    positions.append(message_index)
        decoded = self._rows.decode(rows)
        columns = decoded.columns
        if decoded.bad:
            wrong = {positions[bad_row.place]: bad_row for bad_row in reversed(decoded.bad)}
            bad = sorted([*bad, *(bad_row._replace(place=position) for position, bad_row in wrong.items())])
            # If one half of an update is bad, skip both.
            remaining = [index for index, position in enumerate(positions) if position not in wrong]
            read = {index: at for at, index in enumerate(decoded.of_records(range(len(rows))))}
            columns = columns.take(pa.array([read[index] for index in remaining], pa.int64()))
            kinds, positions = [kinds[index] for index in remaining], [positions[index] for index in remaining]
        columns = self._with_metadata(columns, [metadata[position] for position in positions])
        return Deserialized(ColumnData(columns), positions, bad, bytes(kinds) if any(kinds) else None)

    def _with_metadata(self, columns: pa.RecordBatch, values: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        if not self._metadata:
            return columns
        arrays = [
            to_column([of_row[index] for of_row in values], kind).cast(arrow_type(column.type))
            for index, (column, kind) in enumerate(self._metadata)
        ]
        names = [*columns.schema.names, *(column.name for column, _ in self._metadata)]
        batch = pa.RecordBatch.from_arrays([*columns.columns, *arrays], names)
        return batch if self._order is None else batch.select(list(self._order))


class ChangelogEncoder(MessageEncoder):
    """Writes changes.

    Args:
        rows: writes rows.
        came: the message for an inserted row, with %s in place of the row.
        went: the message for a deleted row.
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
    """Return the decoding of a changelog. One reader reads a whole file, because its lines are in order."""
    files = LinesFormat(decoder, skips_empty=True, skips_bad=ignores_errors, splittable=False)
    return Decoding(files, decoder, ignores_errors, changes=ALL)


def changelog_encoding(encoder: MessageEncoder, schema: RowSchema) -> Encoding:
    """Return the encoding of a changelog, also into files."""
    return Encoding(LinesWriterFactory(encoder, schema), encoder, accepts=ALL)
