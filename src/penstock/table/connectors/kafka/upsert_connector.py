"""The `upsert-kafka` connector: a topic as a table with a primary key, with the options of Flink's connector."""

from __future__ import annotations

from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer
from penstock.table.connectors.kafka.connector import KafkaTables, about_records, kafka_source
from penstock.table.connectors.kafka.options import (
    BUFFER_INTERVAL,
    BUFFER_ROWS,
    SERVERS,
    UPSERT_KEY_FORMAT,
    UPSERT_OPTIONS,
    UPSERT_TOPIC,
    UPSERT_VALUE_FORMAT,
)
from penstock.table.connectors.kafka.parts import VALUE, check_prefix, read_key, read_value
from penstock.table.connectors.kafka.sink import Holding, TableKafkaSink, kafka_sink
from penstock.table.connectors.kafka.upsert_rows import UpsertRecords
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import TableReader, TableWriter
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import ValidationError
from penstock.table.plan.changes import ALL, INSERTS, Changes
from penstock.table.plan.logical import Scan, Write


class UpsertKafkaConnector(KafkaTables):
    """See the module docstring."""

    name = "upsert-kafka"
    required_options = (SERVERS, UPSERT_TOPIC, UPSERT_KEY_FORMAT, UPSERT_VALUE_FORMAT)
    optional_options = UPSERT_OPTIONS

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return a reader that starts at the earliest offset, since the row of a key may be anywhere."""
        _check(scan, options)
        value = read_value(scan, options, scan.key, self._formats)
        _check_value(value.decoding.changes, options)
        key = read_key(scan, options, scan.key, self._formats)
        types = [arrow_type(column.type) for column in scan.schema]
        records = UpsertRecords(types, value, key, about_records(scan))
        source = kafka_source(options, records, lambda _: KafkaOffsetsInitializer.earliest())
        return TableReader(source, ALL, key=scan.key, is_upsert=True)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer that accepts all changes and writes a delete as a message without a value."""
        _check(write, options)
        schema, accepts = self.messages(write, options, write.key, is_upsert=True)
        _check_value(accepts, options)
        rows, interval_ms = options.read(BUFFER_ROWS), options.read(BUFFER_INTERVAL)
        holding = Holding(tuple(write.key), rows, interval_ms) if rows > 0 and interval_ms > 0 else None
        sink = TableKafkaSink(kafka_sink(options, schema), write.schema, holding)
        return TableWriter(sink, ALL, wants_before=False, takes_columns=True, deletes_by_key=True)


def _check(node: Scan | Write, options: TableOptions) -> None:
    if not node.key:
        raise ValidationError(
            f"'upsert-kafka' tables require to define a PRIMARY KEY constraint, and {options.title} has none. The "
            "PRIMARY KEY says which columns are in the message key, and so which record a change takes the place of"
        )
    check_prefix(node, node.key, options)


def _check_value(changes: Changes, options: TableOptions) -> None:
    if changes != INSERTS:
        name = options.below(VALUE)["format"]
        raise ValidationError(
            f"'upsert-kafka' connector doesn't support '{name}' as value format, because '{name}' is "
            f"not in insert-only mode: table {options.title}"
        )
