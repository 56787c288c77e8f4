"""Deserializes table rows from Kafka records: columns come from the value, the key, and the record's metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.messages import BadMessage, Deserialized
from penstock.connectors.kafka.records import KafkaRecord, KafkaRecordDeserializationSchema, KafkaRecords
from penstock.table.connectors.formats.format import Decoding, MessageDecoder
from penstock.table.connectors.tables import column_names
from penstock.table.data.logical_types import (
    LENGTH_MAX,
    BigIntType,
    DataType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    VarBinaryType,
    VarCharType,
)
from penstock.table.data.values import to_column

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
