"""`kinesis` and `firehose`: streams of Kinesis as tables, and delivery streams of Firehose as tables to write.

The options match Flink's connectors of these names (5.0 and newer). The partition key of a row is the text of
the columns that the table is PARTITIONED BY, joined by `sink.partitioner-field-delimiter`; without such columns it is
random, or with `sink.partitioner` = `fixed` one key for each subtask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOptions
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import Deserialized
from penstock.connectors.aws import client, kinesis_source
from penstock.connectors.aws.kinesis_records import KinesisDeserializationSchema, KinesisRecord, KinesisRecords
from penstock.connectors.aws.kinesis_sink import (
    FIREHOSE_SETTINGS,
    KINESIS_SETTINGS,
    KinesisFirehoseSink,
    KinesisStreamsSink,
    PartitionKeyGenerator,
    StreamEntry,
)
from penstock.connectors.aws.kinesis_source import KinesisStreamsSource
from penstock.sql.connectors import aws
from penstock.sql.connectors.opensearch import show_values
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.formats.format import Decoding, Formats, MessageEncoder, decode_columns
from penstock.sql.logical.nodes import INSERTS, Scan, Write
from penstock.sql.tables.connector import FORMAT, TableConnector, TableOptions
from penstock.sql.tables.tables import TableReader, TableScan, TableWriter, WatermarkPushDown, column_names

_TEXT: Final = types.VarCharType(128, False)
_TIME: Final = types.LocalZonedTimestampType(3, False)
_ENTRIES_MAX: Final = 500
_KEY_CHARS_MAX: Final = 256


def _times(records: KinesisRecords) -> pa.Array:
    return pa.array(records.timestamps, pa.timestamp("ms", "UTC"))


#: The METADATA columns of a record: their types, and how to make them.
METADATA: Final[Mapping[str, tuple[DataType, Callable[[KinesisRecords], pa.Array]]]] = {
    "timestamp": (_TIME, _times),
    "approximate-arrival": (_TIME, _times),
    "shard-id": (_TEXT, lambda records: pa.repeat(records.shard_id, len(records))),
    "sequence-number": (_TEXT, lambda records: pa.array(records.sequence_numbers, pa.string())),
    "partition-key": (
        types.VarCharType(_KEY_CHARS_MAX, False),
        lambda records: pa.array(records.partition_keys, pa.string()),
    ),
}

ARN: Final = aws.text_option("stream.arn", "The stream: `arn:aws:kinesis:REGION:ACCOUNT:stream/NAME`.")
PARTITIONER: Final = aws.text_option(
    "sink.partitioner",
    "The partition key of rows of a table without PARTITIONED BY: `random` (the default), or `fixed` for one key of "
    "each subtask.",
)
DELIMITER: Final = (
    ConfigOptions.key("sink.partitioner-field-delimiter")
    .string_type()
    .default_value("|")
    .with_description("What separates the columns of PARTITIONED BY in a partition key.")
)
DELIVERY_STREAM: Final = aws.text_option("delivery-stream", "The name of the delivery stream.")


@dataclass(frozen=True)
class TableRecords(KinesisDeserializationSchema[Any]):
    """Deserializes records to columns named c0, c1 and so on.

    Attributes:
        decoding: how the data is decoded.
        places: the indexes of the columns in the data.
        metadata: maps the indexes of METADATA columns to their keys in `METADATA` and their Arrow types.
        count: the number of columns of the table.
    """

    decoding: Decoding
    places: tuple[int, ...]
    metadata: Mapping[int, tuple[str, Any]]
    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "on_error", "skip" if self.decoding.skips_bad else "fail")

    def deserialize(self, record: KinesisRecord) -> Any:
        """Not called: see `deserialize_batch`."""
        raise UnsupportedError("records of tables are decoded many at once")

    def deserialize_batch(self, records: KinesisRecords) -> Deserialized:
        """See `KinesisDeserializationSchema`."""
        assert self.decoding.messages is not None
        decoded = self.decoding.messages.decode(records.data)
        if not len(decoded.values):
            return Deserialized([], [], decoded.bad)
        rows = pa.array(decoded.of_records(range(len(records))), pa.int64())
        columns = dict(zip(self.places, decoded.columns.columns, strict=True))
        for index, (key, kind) in self.metadata.items():
            columns[index] = METADATA[key][1](records).take(rows).cast(kind)
        arrays = [columns[index] for index in range(self.count)]
        batch = pa.RecordBatch.from_arrays(arrays, column_names(self.count))
        return Deserialized(ColumnData(batch), decoded.places, decoded.bad, decoded.kinds)


@dataclass(frozen=True, slots=True)
class KinesisScan(TableScan, WatermarkPushDown):
    """Reads whole records and generates watermarks per shard."""

    table: TableReader

    def reader(self) -> TableReader:
        """See `TableScan`."""
        return self.table

    def with_watermarks(self, strategy: WatermarkStrategy) -> KinesisScan:
        """See `WatermarkPushDown`."""
        return KinesisScan(replace(self.table, strategy=strategy))


@dataclass(frozen=True)
class KinesisEntries:
    """Makes records of rows.

    Attributes:
        encoder: makes their data.
        names: the columns of the table.
        key: the positions and types of the columns of partition keys; empty for keys of the generator.
        delimiter: what separates the columns of a key.
        generator: makes keys without such columns; None for Firehose, which has no keys.
    """

    encoder: MessageEncoder
    names: tuple[str, ...]
    key: tuple[tuple[int, DataType], ...] = ()
    delimiter: str = "|"
    generator: PartitionKeyGenerator[Any] | None = None

    def __call__(self, columns: pa.RecordBatch, kinds: bytes | None) -> list[StreamEntry]:
        """Return the records of rows."""
        messages = aws.encode_rows(self.encoder, self.names, columns, kinds)
        if self.key:
            parts = [show_values(columns.column(index), kind) for index, kind in self.key]
            keys = [self.delimiter.join(values)[:_KEY_CHARS_MAX] for values in zip(*parts, strict=True)]
            if "" in keys:
                name = self.names[self.key[0][0]]
                raise TableRuntimeError(f"a row has an empty partition key, of column '{name}': Kinesis allows none")
            return list(map(StreamEntry, messages, keys))
        if self.generator is None:
            return list(map(StreamEntry, messages))
        return [StreamEntry(message, self.generator.apply(None)) for message in messages]


class KinesisConnector(TableConnector):
    """See the module docstring. `formats`: the formats that `format` may name."""

    name = "kinesis"
    required_options = (ARN, FORMAT)
    optional_options = (
        aws.REGION,
        *aws.AWS_OPTIONS,
        *kinesis_source.SOURCE_OPTIONS,
        PARTITIONER,
        DELIMITER,
        aws.batch_option(KINESIS_SETTINGS.max_batch_size),
        aws.size_option(KINESIS_SETTINGS.max_batch_size_in_bytes),
        *aws.SINK_OPTIONS,
    )
    takes_partitions: ClassVar = True

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of the format."""
        return self._formats.option_keys(options)

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the metadata of a record."""
        return {key: kind for key, (kind, _) in METADATA.items()}

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return a scan that generates watermarks per shard."""
        return KinesisScan(self.reader(scan, options))

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader; raise `ValidationError` for invalid options."""
        metadata = {index: (key, arrow_type(scan.schema[index].type)) for index, key in scan.metadata}
        positions = tuple(index for index in range(len(scan.schema)) if index not in metadata)
        table_format, below = self._formats.find(options)
        decoding = decode_columns(table_format, scan.schema, positions, below)
        if decoding.messages is None:
            raise ValidationError(f"Format '{table_format.name}' has only files: table {options.title}")
        records = TableRecords(decoding, positions, metadata, len(scan.schema))
        known = {option.key() for option in kinesis_source.SOURCE_OPTIONS} | set(client.PROPERTIES)
        config = {key: options[key] for key in options if key in known}
        try:
            builder = KinesisStreamsSource.builder().set_stream_arn(options.required(ARN)).set_source_config(config)
            source = builder.set_deserialization_schema(records).build()
        except ConfigurationError as error:
            raise ValidationError(f"Table {options.title} cannot be read: {error}") from error
        return TableReader(source, decoding.changes, has_before=decoding.changes != INSERTS)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer for the changes that the format can encode."""
        encoder, accepts = aws.build_encoder(write, options, self._formats)
        names = write.schema.names
        key = tuple((names.index(name), write.schema[names.index(name)].type) for name in write.partition_keys)
        partitioner = options.read(PARTITIONER)
        if partitioner is not None and key:
            raise options.wrong(PARTITIONER.key(), "the table is PARTITIONED BY columns, which decide: leave one out")
        if partitioner not in (None, "random", "fixed"):
            raise options.wrong(PARTITIONER.key(), f"it must be random or fixed, not {partitioner!r}")
        generator = PartitionKeyGenerator.fixed() if partitioner == "fixed" else PartitionKeyGenerator.random()
        entries = KinesisEntries(encoder, tuple(names), key, options.read(DELIMITER), generator)
        arn = options.required(ARN)
        aws.read_aws(options)
        try:
            properties = {key: options[key] for key in options if key in client.PROPERTIES}
            settings = kinesis_source.read_settings(arn, properties)
        except ConfigurationError as error:
            raise ValidationError(f"Table {options.title} cannot be written: {error}") from error
        limits = aws.read_limits(options, KINESIS_SETTINGS, _ENTRIES_MAX)
        inner = KinesisStreamsSink(
            settings, {"StreamARN": arn}, _read_data, _KeyOfEntry(), options.read(aws.FAIL_ON_ERROR), limits
        )
        sink = aws.MessagesSink(inner, write.schema, entries)
        return TableWriter(sink, accepts, takes_columns=True, follows_query=accepts != INSERTS)


class _KeyOfEntry(PartitionKeyGenerator[StreamEntry]):
    def apply(self, element: StreamEntry) -> str:
        assert element.partition_key is not None
        return element.partition_key


def _read_data(entry: StreamEntry) -> bytes:
    return entry.data


class FirehoseConnector(TableConnector):
    """See the module docstring. `formats`: the formats that `format` may name."""

    name = "firehose"
    required_options = (DELIVERY_STREAM, aws.REGION, FORMAT)
    optional_options = (
        *aws.AWS_OPTIONS,
        aws.batch_option(FIREHOSE_SETTINGS.max_batch_size),
        aws.size_option(FIREHOSE_SETTINGS.max_batch_size_in_bytes),
        *aws.SINK_OPTIONS,
    )

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of the format."""
        return self._formats.option_keys(options)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer for the changes that the format can encode."""
        encoder, accepts = aws.build_encoder(write, options, self._formats)
        inner = KinesisFirehoseSink(
            aws.read_aws(options),
            options.required(DELIVERY_STREAM),
            _read_data,
            options.read(aws.FAIL_ON_ERROR),
            aws.read_limits(options, FIREHOSE_SETTINGS, _ENTRIES_MAX),
        )
        sink = aws.MessagesSink(inner, write.schema, KinesisEntries(encoder, tuple(write.schema.names)))
        return TableWriter(sink, accepts, takes_columns=True, follows_query=accepts != INSERTS)
