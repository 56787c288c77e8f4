"""The `kafka` connector and the `upsert-kafka` connector, with the options of Flink's connectors of these names.

`KafkaConnector`: tables stored in topics. `UpsertKafkaConnector`: a topic as a table with a primary key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.kafka.partitions import KafkaOffsetsInitializer
from penstock.connectors.kafka.source import KafkaSource
from penstock.sql.connectors.kafka.options import (
    BOUNDED,
    BUFFER_INTERVAL,
    BUFFER_ROWS,
    KEY,
    OPTIONS,
    PARTITIONER,
    PROPERTIES,
    SERVERS,
    TOPIC,
    TOPIC_PATTERN,
    UPSERT_KEY_FORMAT,
    UPSERT_OPTIONS,
    UPSERT_TOPIC,
    UPSERT_VALUE_FORMAT,
    VALUE,
    check_prefix,
    consumer_properties,
    key_places,
    listed,
    of_value,
    read_key,
    read_value,
    starting,
    stopping,
    written_key,
    written_value,
)
from penstock.sql.connectors.kafka.rows import (
    METADATA,
    BatchPartitioner,
    TableMessages,
    TableRecords,
    UpsertRecords,
    WrittenPart,
)
from penstock.sql.connectors.kafka.sink import Holding, TableKafkaSink, kafka_sink, one_topic
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.formats.format import Formats
from penstock.sql.logical.nodes import ALL, INSERTS, Changes, Scan, Write
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.tables import TableReader, TableScan, TableWriter, WatermarkPushDown

_TEXT: Final = types.VarCharType(types.LENGTH_MAX)
_BYTES: Final = types.VarBinaryType(types.LENGTH_MAX)
#: The METADATA columns of a message that a table can write.
WRITABLE: Final[Mapping[str, DataType]] = {
    "timestamp": types.LocalZonedTimestampType(3),
    "headers": types.MapType(_TEXT, _BYTES),
}
_TEXTS: Final = (types.CharType, types.VarCharType, types.BinaryType, types.VarBinaryType)
_PARTITIONERS: Final = ("default", "fixed", "round-robin")


@dataclass(frozen=True, slots=True)
class KafkaScan(TableScan, WatermarkPushDown):
    """Reads whole records and generates watermarks per partition."""

    table: TableReader

    def reader(self) -> TableReader:
        """See `TableScan`."""
        return self.table

    def with_watermarks(self, strategy: WatermarkStrategy) -> KafkaScan:
        """See `WatermarkPushDown`."""
        return KafkaScan(replace(self.table, strategy=strategy))


class KafkaTables(TableConnector):
    """The common part of the Kafka connectors. `formats`: the formats that `format` and similar options may name."""

    options_up_to_now: ClassVar = {BOUNDED.key(): "latest-offset"}

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return a scan that generates watermarks per partition."""
        return KafkaScan(self.reader(scan, options))

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of the formats, and all `properties.` options."""
        keys = [*self._formats.option_keys(options), *(key for key in options if key.startswith(PROPERTIES))]
        for prefix in (KEY, VALUE):
            keys += [f"{prefix}{key}" for key in self._formats.option_keys(options.below(prefix))]
        return keys

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the metadata of the record, and that of the value's format with the prefix `value.`."""
        of_record = {key: field.type for key, field in METADATA.items()}
        table_format, below = self._formats.find(of_value(options))
        return {**{VALUE + key: kind for key, kind in table_format.readable_metadata(below).items()}, **of_record}

    def writable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the timestamp and the headers."""
        return WRITABLE

    def messages(
        self,
        write: Write,
        options: TableOptions,
        in_key: tuple[int, ...],
        partitioner: BatchPartitioner | None = None,
        is_upsert: bool = False,
    ) -> tuple[TableMessages, Changes]:
        """Return the schema that serializes rows to messages, and the changes that the value's format can encode."""
        if write.overwrites:
            raise UnsupportedError(f"INSERT OVERWRITE into table {options.title} is not supported: topics only grow")
        names, about = write.schema.names, {key: index for index, key in write.metadata}
        _check_about(write, options)
        encoder, indices, accepts = written_value(write, options, in_key, self._formats)
        key = None
        if in_key:
            encoder_of_key = written_key(write, options, in_key, self._formats)
            prefix_length = len(options.get("key.fields-prefix", ""))
            key = WrittenPart(encoder_of_key, in_key, tuple(names[index][prefix_length:] for index in in_key))
        table_messages = TableMessages(
            one_topic(options),
            value=WrittenPart(encoder, indices, tuple(names[index] for index in indices)),
            key=key,
            partitioner=partitioner,
            timestamp=about.get("timestamp"),
            headers=about.get("headers"),
            is_upsert=is_upsert,
        )
        return table_messages, accepts


def _check_about(write: Write, options: TableOptions) -> None:
    for index, key in write.metadata:
        column = write.schema[index]
        kind = column.type
        if key == "headers":
            fits = isinstance(kind, types.MapType) and all(isinstance(child, _TEXTS) for child in kind.children())
        else:
            fits = isinstance(kind, types.TimestampType | types.LocalZonedTimestampType)
        if not fits:
            raise UnsupportedError(
                f"METADATA column '{column.name}' of table {options.title} is {kind}, and is not written: "
                f"declare it as {WRITABLE[key]}"
            )


def kafka_source(
    options: TableOptions, records: TableRecords, beginning: Callable[[TableOptions], KafkaOffsetsInitializer]
) -> KafkaSource[object]:
    """Build the source from a table's options; raise `ValidationError` for invalid ones."""
    builder = KafkaSource.builder().set_deserializer(records)
    topics, pattern = listed(options.read(TOPIC)), options.get(TOPIC_PATTERN.key())
    if bool(topics) == bool(pattern):
        raise ValidationError(f"Table {options.title} needs one of the options 'topic' and 'topic-pattern'")
    try:
        builder.set_properties(consumer_properties(options))
        builder = builder.set_topics(*topics) if topics else builder.set_topic_pattern(str(pattern))
        builder.set_starting_offsets(beginning(options))
        if (stop := stopping(options)) is not None:
            builder.set_bounded(stop)
        return builder.build()
    except ConfigurationError as error:
        raise ValidationError(f"Table {options.title} cannot be read: {error}") from error


def about_records(scan: Scan) -> dict[int, tuple[str, object]]:
    """Map the indexes of the METADATA columns that describe records to their keys and Arrow types."""
    return {index: (name, arrow_type(scan.schema[index].type)) for index, name in scan.metadata if name in METADATA}


class KafkaConnector(KafkaTables):
    """See the module docstring."""

    name = "kafka"
    required_options = (SERVERS,)
    optional_options = OPTIONS

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader; raise `ValidationError` for contradictory or invalid options."""
        key_indices = key_places(scan, options)
        value = read_value(scan, options, key_indices, self._formats)
        key = read_key(scan, options, key_indices, self._formats) if key_indices else None
        changes = value.decoding.changes
        _check_primary_key(scan, changes, options)
        records = TableRecords(len(scan.schema), value, key, about_records(scan))
        source = kafka_source(options, records, starting)
        return TableReader(source, changes, has_before=changes != INSERTS)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer for the changes that the value's format can encode."""
        key_indices = key_places(write, options)
        partitioner = options.read(PARTITIONER)
        if partitioner not in _PARTITIONERS:
            raise options.wrong(PARTITIONER.key(), f"it must be one of {', '.join(_PARTITIONERS)}, not {partitioner!r}")
        if partitioner == "round-robin" and key_indices:
            raise ValidationError(
                "Currently 'round-robin' partitioner only works when option 'key.fields' is not specified: "
                f"table {options.title}"
            )
        chooser = None if partitioner == "default" else BatchPartitioner(partitioner == "round-robin")
        schema, accepts = self.messages(write, options, key_indices, chooser)
        _check_primary_key(write, accepts, options)
        sink = TableKafkaSink(kafka_sink(options, schema), write.schema)
        return TableWriter(sink, accepts, takes_columns=True, follows_query=accepts != INSERTS)


def _check_primary_key(node: Scan | Write, changes: Changes, options: TableOptions) -> None:
    if node.key and changes == INSERTS:
        name = of_value(options)["format"]
        raise ValidationError(
            f"The Kafka table '{options.title}' with '{name}' format doesn't support defining PRIMARY KEY constraint "
            "on the table, because it can't guarantee the semantic of primary key. Use 'connector' = 'upsert-kafka'"
        )


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
