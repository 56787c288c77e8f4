"""Rows of a table as Kafka messages: columns in the value, in the key, and in the message's metadata."""

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
            None if self.headers is None else _headers(records.column(self.headers)),
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


def _headers(column: pa.Array) -> list[Headers | None]:
    headers: list[Headers | None] = exact_cast(column, _HEADERS).to_pylist()
    return headers
