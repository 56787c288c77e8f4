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
        present = [place for place, value in enumerate(values) if value is not None]
        found = self._value.messages.decode([value for value in values if value is not None])
        there = list(found.of_records(present)) if len(found.values) else []
        rows: dict[int, int | None] = {place: row for row, place in enumerate(there)}
        rows |= {place: None for place, value in enumerate(values) if value is None}
        places = sorted(rows)
        keyless = [
            BadMessage(place, "it has no key, and so is no row of a table of upserts")
            for place, key in enumerate(records.keys)
            if key is None and place in rows
        ]
        keys, bad_keys = self._keys(records, places)
        bad = sorted([*(one._replace(place=present[one.place]) for one in found.bad), *keyless, *bad_keys], key=_place)
        wrong = {one.place for one in bad}
        kept = [place not in wrong for place in places]
        if not all(kept):
            places, keys = list(compress(places, kept)), [key.filter(pa.array(kept)) for key in keys]
        if not places:
            return Deserialized([], [], bad)
        columns = self._columns(records, places, keys, found, [rows[place] for place in places])
        kinds = bytes(DELETE if values[place] is None else INSERT for place in places)
        batch = pa.RecordBatch.from_arrays(columns, column_names(len(columns)))
        return Deserialized(ColumnData(batch), places, bad, kinds if any(kinds) else None)

    def _columns(
        self,
        records: KafkaRecords,
        places: Sequence[int],
        keys: Sequence[pa.Array],
        found: Deserialized,
        rows: Sequence[int | None],
    ) -> list[pa.Array]:
        """Return all columns of the records at these positions. `rows`: the rows of their values, None for deletes."""
        assert self._key is not None
        columns = {place: pa.nulls(len(places), kind) for place, kind in enumerate(self._types)}
        columns.update(zip(self._key.places, keys, strict=True))
        if len(found.values):
            indices = pa.array(rows, pa.int64())
            for place, column in zip(self._value.places, found.columns.columns, strict=True):
                taken = column.take(indices)
                # A key column that is also in the value is read from the value, if there is one.
                is_key = place in self._key.places
                columns[place] = pc.if_else(pc.is_null(indices), columns[place], taken) if is_key else taken
        numbers = pa.array(places, pa.int64())
        for place, (name, kind) in self._metadata.items():
            columns[place] = METADATA[name].column(records).take(numbers).cast(kind)
        return [columns[place] for place in range(len(columns))]


def _place(bad: BadMessage) -> int:
    return bad.place
