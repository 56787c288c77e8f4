"""Table rows and Kafka records: rows from records, rows as messages, and the rows of an `upsert-kafka` table.

The columns of a row come from, or go to, the value, the key, and the metadata of a record. In an `upsert-kafka` table
(`UpsertRecords`), the last record of a key is its row; a record without a value deletes the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.codecs.arrow_columns import exact_cast
from penstock.codecs.column_data import ChangeData, ColumnData
from penstock.codecs.serialization import BadMessage, Deserialized
from penstock.connectors.kafka.records import (
    KafkaPartitioner,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaRecords,
    KafkaRecordSerializationSchema,
    Messages,
    RecordHeaders,
)
from penstock.sql.data.arrow import to_column
from penstock.sql.data.types import (
    LENGTH_MAX,
    BigIntType,
    DataType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    VarBinaryType,
    VarCharType,
)
from penstock.sql.formats.format import Decoding, MessageDecoder, MessageEncoder
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER
from penstock.sql.tables.tables import column_names

_TEXT: Final = VarCharType(LENGTH_MAX, False)
_BYTES: Final = VarBinaryType(LENGTH_MAX, False)
_HEADERS: Final = MapType(_TEXT, _BYTES, False)


@dataclass(frozen=True)
class _Metadata:
    type: DataType
    column: Callable[[KafkaRecords], pa.Array]


def _headers(records: KafkaRecords) -> pa.Array:
    # A map has unique keys, but a record may repeat a header: the last one wins, as in Flink.
    maps = [list({name: value or b"" for name, value in headers}.items()) for headers in records.headers]
    return to_column(maps, _HEADERS)


#: The METADATA columns of a record that a table can read.
METADATA: Final[Mapping[str, _Metadata]] = {
    "topic": _Metadata(_TEXT, lambda records: pa.repeat(records.partition.topic, len(records))),
    "partition": _Metadata(
        IntType(False), lambda records: pa.repeat(pa.scalar(records.partition.partition, pa.int32()), len(records))
    ),
    "offset": _Metadata(BigIntType(False), lambda records: pa.array(records.offsets, pa.int64())),
    "timestamp": _Metadata(
        LocalZonedTimestampType(3, False),
        lambda records: pa.array(records.timestamps or [0] * len(records), pa.timestamp("ms", "UTC")),
    ),
    "headers": _Metadata(_HEADERS, _headers),
}


@dataclass(frozen=True)
class Part:
    """The columns of a key or a value: how to decode them, and their indexes in the table."""

    decoding: Decoding
    places: tuple[int, ...]

    @property
    def messages(self) -> MessageDecoder:
        """The decoder, which must exist."""
        assert self.decoding.messages is not None
        return self.decoding.messages


class TableRecords(KafkaRecordDeserializationSchema[Any]):
    """Deserializes records to columns named c0, c1 and so on.

    Args:
        count: the number of columns of the table.
        value: the columns in the value.
        key: the columns in the key, if any; a column in both is read from the value.
        metadata: maps the indexes of METADATA columns to their keys in `METADATA` and their Arrow types.
    """

    def __init__(self, count: int, value: Part, key: Part | None, metadata: Mapping[int, tuple[str, Any]]) -> None:
        self._count = count
        self._value = value
        self._key = key
        self._metadata = dict(metadata)
        if value.decoding.skips_bad:
            self.on_error = "skip"

    def deserialize(self, record: KafkaRecord) -> Any:
        """Not called: see `deserialize_batch`."""
        raise UnsupportedError("records of tables are decoded many at once")

    def deserialize_batch(self, records: KafkaRecords) -> Deserialized:
        """Return the rows as columns, skipping records without a value."""
        values = records.values
        present = [position for position, value in enumerate(values) if value is not None]
        decoded = self._value.messages.decode([value for value in values if value is not None])
        bad = [bad_message._replace(place=present[bad_message.place]) for bad_message in decoded.bad]
        positions = list(decoded.of_records(present)) if len(decoded.values) else []
        if self._key is not None and positions:
            keys, bad_keys = self._keys(records, positions)
            bad = sorted([*bad, *bad_keys])
            if bad_keys:
                positions, decoded, keys = self._without(bad_keys, positions, decoded, keys)
        if not positions:
            return Deserialized([], [], bad)
        columns: dict[int, pa.Array] = {}
        if self._key is not None:
            columns.update(zip(self._key.places, keys, strict=True))
        columns.update(zip(self._value.places, decoded.columns.columns, strict=True))
        indices = pa.array(positions, pa.int64())
        for column_index, (name, kind) in self._metadata.items():
            columns[column_index] = METADATA[name].column(records).take(indices).cast(kind)
        arrays = [columns[index] for index in range(self._count)]
        batch = pa.RecordBatch.from_arrays(arrays, column_names(self._count))
        return Deserialized(ColumnData(batch), positions, bad, decoded.kinds)

    def _keys(self, records: KafkaRecords, positions: Sequence[int]) -> tuple[list[pa.Array], list[BadMessage]]:
        """Return the key columns of these records; NULL for a record without a key."""
        assert self._key is not None
        keys = records.keys
        present = [position for position, key in enumerate(keys) if key is not None]
        decoded = self._key.messages.decode([key for key in keys if key is not None])
        rows = (
            {position: row for row, position in enumerate(decoded.of_records(present))} if len(decoded.values) else {}
        )
        indices = pa.array([rows.get(position) for position in positions], pa.int64())
        bad = [
            bad_message._replace(place=present[bad_message.place], reason=f"the key: {bad_message.reason}")
            for bad_message in decoded.bad
        ]
        requested = set(positions)
        return [column.take(indices) for column in decoded.columns.columns], [
            bad_message for bad_message in bad if bad_message.place in requested
        ]

    @staticmethod
    def _without(
        bad: Sequence[BadMessage], positions: list[int], decoded: Deserialized, keys: list[pa.Array]
    ) -> tuple[list[int], Deserialized, list[pa.Array]]:
        wrong = {bad_message.place for bad_message in bad}
        remaining = [row for row, position in enumerate(positions) if position not in wrong]
        indices = pa.array(remaining, pa.int64())
        kinds = None if decoded.kinds is None else bytes(decoded.kinds[row] for row in remaining)
        values = ColumnData(decoded.columns.take(indices))
        return (
            [positions[row] for row in remaining],
            Deserialized(values, None, (), kinds),
            [column.take(indices) for column in keys],
        )


_MESSAGE_HEADERS: Final = pa.map_(pa.string(), pa.binary())


@dataclass(frozen=True)
class WrittenPart:
    """The columns of a key or a value: their encoder, their indexes in the table, and their names."""

    encoder: MessageEncoder
    places: tuple[int, ...]
    names: tuple[str, ...]

    def select_columns(self, data: ColumnData) -> pa.RecordBatch:
        """Return the columns under their names."""
        arrays = [data.column(index) for index in self.places]
        return pa.RecordBatch.from_arrays(arrays, list(self.names))


class BatchPartitioner(KafkaPartitioner):
    """Chooses partitions for whole batches, regardless of their content: `fixed` or round-robin.

    Args:
        in_turn: whether each subtask cycles through all partitions.
    """

    def __init__(self, in_turn: bool) -> None:
        self._in_turn = in_turn
        self._next = 0

    def open(self, subtask_index: int, parallelism: int) -> None:
        """See `KafkaPartitioner`. Subtasks start at different partitions."""
        self._next = subtask_index

    def chosen(self, count: int, partitions: int) -> list[int]:
        """Return a partition for each of `count` messages."""
        if not self._in_turn:
            return [self._next % partitions] * count
        assigned: list[int] = ((self._next + np.arange(count)) % partitions).tolist()
        self._next += count
        return assigned

    def partition(self, record: Any, key: bytes | None, value: bytes | None, topic: str, partitions: int) -> int:
        """See `KafkaPartitioner`."""
        return self.chosen(1, partitions)[0]


@dataclass(frozen=True, kw_only=True)
class TableMessages(KafkaRecordSerializationSchema[Any]):
    """Serializes columns to messages.

    Attributes:
        value: the part in the message value.
        key: the part in the message key, if messages have keys.
        timestamp: the index of the column with the message timestamps, if any.
        headers: the index of the column with the message headers, if any.
        is_upsert: whether a deleted row becomes a message without a value.
    """

    #: not used: columns are serialized in batches
    value_schema: Any = None
    partitioner: BatchPartitioner | None = None
    value: WrittenPart
    key: WrittenPart | None = None
    timestamp: int | None = None
    headers: int | None = None
    is_upsert: bool = False

    def messages(
        self, records: Sequence[Any] | ColumnData, timestamps: list[int] | None, count_partitions: Callable[[str], int]
    ) -> Messages:
        """See `KafkaRecordSerializationSchema`."""
        assert isinstance(records, ColumnData)
        assert isinstance(self.topic, str)
        kinds = records.kinds if isinstance(records, ChangeData) else None
        keys: list[bytes | None] | None = None
        if self.key is not None:
            keys = [*self.key.encoder.encode(self.key.select_columns(records))]
        return Messages(
            self.topic,
            self._values(records, kinds),
            keys,
            None if self.timestamp is None else _times(records.column(self.timestamp)),
            None if self.headers is None else _message_headers(records.column(self.headers)),
            None if self.partitioner is None else self.partitioner.chosen(len(records), count_partitions(self.topic)),
        )

    def _values(self, records: ColumnData, kinds: bytes | None) -> list[bytes | None]:
        columns, encoder = self.value.select_columns(records), self.value.encoder
        if kinds is None or not any(kinds):
            return [*encoder.encode(columns)]
        if not self.is_upsert:
            return [*encoder.encode_changes(columns, kinds)]
        # A delete may have only its key, and formats reject NULL in NOT NULL columns.
        present = [index for index, kind in enumerate(kinds) if kind in (INSERT, UPDATE_AFTER)]
        values: list[bytes | None] = [None] * len(kinds)
        for position, value in zip(present, encoder.encode(columns.take(pa.array(present, pa.int64()))), strict=True):
            values[position] = value
        return values


def _times(column: pa.Array) -> list[int]:
    """Return milliseconds since 1970; 0, which means the present, for NULL."""
    moments = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False)
    timestamps: list[int] = pc.fill_null(moments.view(pa.int64()), 0).to_pylist()
    return timestamps


def _message_headers(column: pa.Array) -> list[RecordHeaders | None]:
    headers: list[RecordHeaders | None] = exact_cast(column, _MESSAGE_HEADERS).to_pylist()
    return headers


class UpsertRecords(TableRecords):
    """Deserializes records to columns named c0, c1 and so on. A delete has only its key and its record's metadata.

    Args:
        types: the Arrow types of all columns.
        value: the columns in the value.
        key: the columns in the key.
        metadata: maps the indexes of METADATA columns to their keys in `METADATA` and their Arrow types.
    """

    def __init__(self, types: Sequence[Any], value: Part, key: Part, metadata: Mapping[int, tuple[str, Any]]) -> None:
        super().__init__(len(types), value, key, metadata)
        self._types = tuple(types)

    def deserialize_batch(self, records: KafkaRecords) -> Deserialized:
        """See `KafkaRecordDeserializationSchema`."""
        values = records.values
        present = [position for position, value in enumerate(values) if value is not None]
        decoded = self._value.messages.decode([value for value in values if value is not None])
        decoded_positions = list(decoded.of_records(present)) if len(decoded.values) else []
        rows: dict[int, int | None] = {position: row for row, position in enumerate(decoded_positions)}
        rows |= {position: None for position, value in enumerate(values) if value is None}
        positions = sorted(rows)
        keyless = [
            BadMessage(position, "it has no key, and so is no row of a table of upserts")
            for position, key in enumerate(records.keys)
            if key is None and position in rows
        ]
        keys, bad_keys = self._keys(records, positions)
        bad = sorted(
            [
                *(bad_message._replace(place=present[bad_message.place]) for bad_message in decoded.bad),
                *keyless,
                *bad_keys,
            ],
            key=_place,
        )
        wrong = {bad_message.place for bad_message in bad}
        mask = [position not in wrong for position in positions]
        if not all(mask):
            positions, keys = list(compress(positions, mask)), [key.filter(pa.array(mask)) for key in keys]
        if not positions:
            return Deserialized([], [], bad)
        columns = self._columns(records, positions, keys, decoded, [rows[position] for position in positions])
        kinds = bytes(DELETE if values[position] is None else INSERT for position in positions)
        batch = pa.RecordBatch.from_arrays(columns, column_names(len(columns)))
        return Deserialized(ColumnData(batch), positions, bad, kinds if any(kinds) else None)

    def _columns(
        self,
        records: KafkaRecords,
        positions: Sequence[int],
        keys: Sequence[pa.Array],
        decoded: Deserialized,
        rows: Sequence[int | None],
    ) -> list[pa.Array]:
        """Return all columns of the records at these positions. `rows`: the rows of their values, None for deletes."""
        assert self._key is not None
        columns = {index: pa.nulls(len(positions), kind) for index, kind in enumerate(self._types)}
        columns.update(zip(self._key.places, keys, strict=True))
        if len(decoded.values):
            indices = pa.array(rows, pa.int64())
            for column_index, column in zip(self._value.places, decoded.columns.columns, strict=True):
                array = column.take(indices)
                # A key column that is also in the value is read from the value, if there is one.
                is_key = column_index in self._key.places
                columns[column_index] = (
                    pc.if_else(pc.is_null(indices), columns[column_index], array) if is_key else array
                )
        numbers = pa.array(positions, pa.int64())
        for column_index, (name, kind) in self._metadata.items():
            columns[column_index] = METADATA[name].column(records).take(numbers).cast(kind)
        return [columns[index] for index in range(len(columns))]


def _place(bad: BadMessage) -> int:
    return bad.place
