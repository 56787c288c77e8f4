"""Writes the rows of a table, or their changes, to Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError
from penstock.codecs.column_data import ChangeData, ColumnData
from penstock.connectors.base import DeliveryGuarantee
from penstock.connectors.kafka.sink import KafkaSink
from penstock.runtime.connector import Committer, Sink, SinkWriter, SinkWriterContext
from penstock.sql.connectors.kafka.options import (
    GUARANTEE,
    PROPERTIES,
    TOPIC,
    TRANSACTION_PREFIX,
    listed,
)
from penstock.sql.connectors.kafka.rows import TableMessages
from penstock.sql.data.arrow import columns_of_changes
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import RowSchema
from penstock.sql.tables.connector import TableOptions
from penstock.sql.tables.tables import Part, concatenate_kinds, last_of_each, whole_column

_GUARANTEES: Final = {
    "none": DeliveryGuarantee.NONE,
    "at-least-once": DeliveryGuarantee.AT_LEAST_ONCE,
    "exactly-once": DeliveryGuarantee.EXACTLY_ONCE,
}
#: Consumer properties, which the sink ignores.
_OF_CONSUMERS: Final = frozenset(
    {
        "auto.offset.reset",
        "client.id.prefix",
        "commit.offsets.on.checkpoint",
        "enable.auto.commit",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.id",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.discovery.interval.ms",
        "session.timeout.ms",
    }
)


def one_topic(options: TableOptions) -> str:
    """Return the topic to write to."""
    topics = listed(options.read(TOPIC))
    if len(topics) != 1:
        raise ValidationError(
            f"The Kafka sink currently only supports a single topic: table {options.title} has "
            f"{', '.join(topics) or 'none'} as 'topic'"
        )
    return topics[0]


def kafka_sink(options: TableOptions, schema: TableMessages) -> KafkaSink[Any]:
    """Build the sink from a table's options; raise `ValidationError` for invalid ones."""
    guarantee, prefix = options.read(GUARANTEE), options.read(TRANSACTION_PREFIX)
    if guarantee not in _GUARANTEES:
        raise options.wrong(GUARANTEE.key(), f"it must be one of {', '.join(_GUARANTEES)}, not {guarantee!r}")
    chosen = _GUARANTEES[guarantee]
    if chosen is DeliveryGuarantee.EXACTLY_ONCE and not prefix:
        raise ValidationError(
            f"{TRANSACTION_PREFIX.key()} must be specified when using DeliveryGuarantee.EXACTLY_ONCE: "
            f"table {options.title}"
        )
    builder = KafkaSink.builder().set_delivery_guarantee(chosen).set_record_serializer(schema)
    for name, value in options.below(PROPERTIES).items():
        if name not in _OF_CONSUMERS:
            builder.set_property(name, value)
    try:
        if prefix:
            builder.set_transactional_id_prefix(prefix)
        return builder.build()
    except ConfigurationError as error:
        raise ValidationError(f"Table {options.title} cannot be written: {error}") from error


@dataclass(frozen=True, slots=True)
class Holding:
    """How to buffer changes so that only the last one of each key is written.

    Attributes:
        key: the indexes of the primary key columns.
        rows: the maximum number of buffered changes.
        interval_ms: how long changes are buffered at most.
    """

    key: tuple[int, ...]
    rows: int
    interval_ms: int


class TableKafkaSink(Sink[Any]):
    """Accepts rows as (kind, internal values), or columns.

    Args:
        inner: the message sink, whose schema is a `TableMessages`.
        schema: the columns of the table.
        holding: how to buffer changes; None to write them at once.
    """

    #: like the writers of `KafkaSink`
    shares_writer_state = True

    def __init__(self, inner: KafkaSink[Any], schema: RowSchema, holding: Holding | None = None) -> None:
        self._inner = inner
        self._schema = schema
        self._holding = holding

    @property
    def shows_on_commit(self) -> bool:
        """See `KafkaSink`."""
        return self._inner.shows_on_commit

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        return self.restore_writer(context, ())

    def restore_writer(self, context: SinkWriterContext, state: Sequence[Any]) -> SinkWriter[Any, Any]:
        """See `KafkaSink`."""
        inner = self._inner.restore_writer(context, state)
        if self._holding is None:
            return TableKafkaWriter(inner, self._schema)
        return HoldingWriter(inner, self._schema, self._holding, context)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """See `KafkaSink`."""
        return self._inner.create_committer(context)


class TableKafkaWriter(SinkWriter[Any, Any]):
    """Passes columns and changes to a message writer. Drops the timestamps of rows, as Flink does."""

    def __init__(self, inner: SinkWriter[Any, Any], schema: RowSchema) -> None:
        self._inner = inner
        self._schema = schema

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Convert rows to columns and write them."""
        if not values:
            return
        self._write(ChangeData(*columns_of_changes(values, self._schema.names, self._schema.types)))

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """Write inserts."""
        self._write(data)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """Write changes."""
        self._write(ChangeData(data.columns, kinds))

    def _write(self, data: ColumnData) -> None:
        self._inner.write_columns(data, None)

    def flush(self, end_of_input: bool) -> None:
        """See `SinkWriter`."""
        self._inner.flush(end_of_input)

    def prepare_commit(self) -> list[Any]:
        """See `SinkWriter`."""
        return self._inner.prepare_commit()

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """See `SinkWriter`."""
        return self._inner.snapshot_state(checkpoint_id)

    def pin(self, checkpoint_id: int, committables: Sequence[Any]) -> None:
        """See `SinkWriter`."""
        self._inner.pin(checkpoint_id, committables)

    def close(self) -> None:
        """See `SinkWriter`."""
        self._inner.close()


class HoldingWriter(TableKafkaWriter):
    """Buffers changes until there are enough, they have waited long enough, or a checkpoint begins.

    Then writes only the last change of each key. Messages are flushed to Kafka in `prepare_commit`, so a flush that is
    merely due by time does not wait for Kafka.
    """

    def __init__(
        self, inner: SinkWriter[Any, Any], schema: RowSchema, holding: Holding, context: SinkWriterContext
    ) -> None:
        super().__init__(inner, schema)
        self._holding = holding
        self._context = context
        self._parts: list[Part] = []
        self._count = 0
        self._due_ms: int | None = None

    def _write(self, data: ColumnData) -> None:
        self._parts.append((data, data.kinds if isinstance(data, ChangeData) else None))
        self._count += len(data)
        if self._count >= self._holding.rows:
            self._let_go()
        elif self._due_ms is None:
            self._due_ms = self._context.now_ms() + self._holding.interval_ms

    def _let_go(self) -> None:
        parts, self._parts, self._count, self._due_ms = self._parts, [], 0, None
        if not parts:
            return
        names = self._schema.names
        table = pa.Table.from_batches([data.columns.rename_columns(names) for data, _ in parts])
        columns = [whole_column(column) for column in table.itercolumns()]
        last = last_of_each([columns[index] for index in self._holding.key])
        chosen = [column.take(pa.array(last)) for column in columns]
        super()._write(ChangeData(pa.RecordBatch.from_arrays(chosen, names), concatenate_kinds(parts)[last].tobytes()))

    def next_flush_ms(self) -> int | None:
        """Return when the buffered changes are due."""
        return self._due_ms

    def flush(self, end_of_input: bool) -> None:
        """Write the buffered changes."""
        self._let_go()
        if end_of_input:
            super().flush(True)

    def prepare_commit(self) -> list[Any]:
        """Wait until Kafka has stored everything written; see `SinkWriter`."""
        super().flush(False)
        return super().prepare_commit()
