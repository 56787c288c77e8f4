"""Rows of an `upsert-kafka` table: the last record of a key is its row; a record without a value deletes the row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.column_data import ColumnData
from penstock.codecs.messages import BadMessage, Deserialized
from penstock.connectors.kafka.records import KafkaRecords
from penstock.table.connectors.kafka.rows import METADATA, Part, TableRecords
from penstock.table.connectors.tables import column_names
from penstock.table.plan.changes import DELETE, INSERT


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
