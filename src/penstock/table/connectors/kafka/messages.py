"""Rows of a table as Kafka messages: some columns in the value, some in the key, some about the message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.column_data import ChangeData, ColumnData
from penstock.codecs.exact_cast import exact_cast
from penstock.connectors.kafka.record_schema import Headers, KafkaPartitioner, KafkaRecordSerializationSchema, Messages
from penstock.table.connectors.formats.format import MessageEncoder
from penstock.table.plan.changes import INSERT, UPDATE_AFTER

_HEADERS: Final = pa.map_(pa.string(), pa.binary())


@dataclass(frozen=True)
class WrittenPart:
    """Columns that are in the key, or in the value: what writes them, and their places and names in the table."""

    encoder: MessageEncoder
    places: tuple[int, ...]
    names: tuple[str, ...]

    def columns_of(self, data: ColumnData) -> pa.RecordBatch:
        """Its columns, under their names."""
        arrays = [data.column(place) for place in self.places]
        return pa.RecordBatch.from_arrays(arrays, list(self.names))


class BatchPartitioner(KafkaPartitioner):
    """Chooses the partitions of many messages at once, whatever is in them: `fixed`, or in turn.

    Args:
        in_turn: whether one subtask writes to all partitions.
    """

    def __init__(self, in_turn: bool) -> None:
        self._in_turn = in_turn
        self._next = 0

    def open(self, subtask_index: int, parallelism: int) -> None:
        """See `KafkaPartitioner`. Subtasks begin at different partitions."""
        self._next = subtask_index

    def chosen(self, count: int, partitions: int) -> list[int]:
        """A partition for each of so many messages."""
        if not self._in_turn:
            return [self._next % partitions] * count
        found: list[int] = ((self._next + np.arange(count)) % partitions).tolist()
        self._next += count
        return found

    def partition(self, record: Any, key: bytes | None, value: bytes | None, topic: str, partitions: int) -> int:
        """See `KafkaPartitioner`."""
        return self.chosen(1, partitions)[0]


@dataclass(frozen=True, kw_only=True)
class TableMessages(KafkaRecordSerializationSchema[Any]):
    """Makes messages of columns.

    Attributes:
        value: what is in the value.
        key: what is in the key, if messages have one.
        timestamp: the place of the column with their times, if any.
        headers: the place of the column with their headers, if any.
        is_upsert: whether a row that goes is a message without a value.
    """

    #: not used: columns are written at once
    value_schema: Any = None
    partitioner: BatchPartitioner | None = None
    value: WrittenPart
    key: WrittenPart | None = None
    timestamp: int | None = None
    headers: int | None = None
    is_upsert: bool = False

    def messages(
        self, records: Sequence[Any] | ColumnData, timestamps: list[int] | None, partitions_of: Callable[[str], int]
    ) -> Messages:
        """See `KafkaRecordSerializationSchema`."""
        assert isinstance(records, ColumnData)
        assert isinstance(self.topic, str)
        kinds = records.kinds if isinstance(records, ChangeData) else None
        keys: list[bytes | None] | None = None
        if self.key is not None:
            keys = [*self.key.encoder.encode(self.key.columns_of(records))]
        return Messages(
            self.topic,
            self._values(records, kinds),
            keys,
            None if self.timestamp is None else _times(records.column(self.timestamp)),
            None if self.headers is None else _headers(records.column(self.headers)),
            None if self.partitioner is None else self.partitioner.chosen(len(records), partitions_of(self.topic)),
        )

    def _values(self, records: ColumnData, kinds: bytes | None) -> list[bytes | None]:
        columns, encoder = self.value.columns_of(records), self.value.encoder
        if kinds is None or not any(kinds):
            return [*encoder.encode(columns)]
        if not self.is_upsert:
            return [*encoder.encode_changes(columns, kinds)]
        # A row that goes may have its key alone, and formats refuse NULL where columns have none.
        there = [place for place, kind in enumerate(kinds) if kind in (INSERT, UPDATE_AFTER)]
        values: list[bytes | None] = [None] * len(kinds)
        for place, value in zip(there, encoder.encode(columns.take(pa.array(there, pa.int64()))), strict=True):
            values[place] = value
        return values


def _times(column: pa.Array) -> list[int]:
    """Milliseconds since 1970; 0, which stands for the present, where there is NULL."""
    moments = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False)
    found: list[int] = pc.fill_null(moments.view(pa.int64()), 0).to_pylist()
    return found


def _headers(column: pa.Array) -> list[Headers | None]:
    found: list[Headers | None] = exact_cast(column, _HEADERS).to_pylist()
    return found
