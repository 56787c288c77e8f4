"""Kafka as the sink of pipelines: the changes of rows as messages of Debezium's or Canal's JSON.

The topic of a table is `schema.table`, unless `topic` or `sink.tableId-to-topic.mapping` names another; a missing topic
is created. The key of a message is the primary key of its row. Schema changes produce no messages: the next row shows
them. With `sink.delivery-guarantee: exactly-once` the rows of a checkpoint are one transaction.

Source: the page "Kafka" of the pipeline connectors of Flink CDC 3.x.
"""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.errors import ContractError
from penstock.base.types import RowKind
from penstock.cdc.definition import Settings
from penstock.cdc.expressions import parse_type
from penstock.cdc.operators import SinkEvent, TableKnown
from penstock.cdc.sinks import PipelineSink, refuse_nothing
from penstock.cdc.tables import parse_table_id
from penstock.codecs.serialization import SerializationSchema
from penstock.connectors.base import DeliveryGuarantee
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import DataChangeEvent, TableId, TableSchema
from penstock.connectors.kafka.client import TopicCreator
from penstock.datastream import ProcessFunction
from penstock.datastream.connectors import kafka
from penstock.sql.data import types

_JSON: Final = msgspec.json.Encoder(decimal_format="number")
_DEBEZIUM_OPS: Final = {RowKind.INSERT: "c", RowKind.UPDATE_AFTER: "u", RowKind.DELETE: "d"}
_CANAL_TYPES: Final = {RowKind.INSERT: "INSERT", RowKind.UPDATE_AFTER: "UPDATE", RowKind.DELETE: "DELETE"}
_DEBEZIUM_TYPES: Final[Sequence[tuple[type[types.DataType], tuple[str, str | None]]]] = (
    (types.BooleanType, ("boolean", None)),
    (types.TinyIntType, ("int16", None)),
    (types.SmallIntType, ("int16", None)),
    (types.IntType, ("int32", None)),
    (types.BigIntType, ("int64", None)),
    (types.FloatType, ("float", None)),
    (types.DoubleType, ("double", None)),
    (types.DecimalType, ("bytes", "org.apache.kafka.connect.data.Decimal")),
    (types.DateType, ("int32", "io.debezium.time.Date")),
    (types.TimeType, ("int32", "io.debezium.time.Time")),
    (types.LocalZonedTimestampType, ("string", "io.debezium.time.ZonedTimestamp")),
    (types.TimestampType, ("int64", "io.debezium.time.MicroTimestamp")),
    (types.BinaryType, ("bytes", None)),
    (types.VarBinaryType, ("bytes", None)),
)


class OutMessage(NamedTuple):
    """A message for Kafka."""

    topic: str
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...] | None


def to_json(value: Any) -> Any:
    """Convert a value to JSON: times in SQL notation, bytes in base64, exact decimals."""
    match value:
        case None | bool() | int() | str() | Decimal():
            return value
        case float():
            return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
        case datetime.datetime():
            text = value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(datetime.UTC)
            return text.replace(tzinfo=None).isoformat(sep=" ") + ("" if value.tzinfo is None else "Z")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case list() | tuple():
            return [to_json(part) for part in value]
        case Mapping():
            return {str(key): to_json(part) for key, part in value.items()}
        case _:
            return str(value)


@dataclass(frozen=True)
class MessageFormat:
    """How events become messages.

    Attributes:
        value_format: `debezium-json` or `canal-json`.
        key_format: `json` or `csv`.
        topic: the topic of all tables; None for one for each table.
        topics: the topics of single tables.
        headers: the headers of each message.
        has_table_headers: whether headers name the table.
        has_schema: whether Debezium's messages have their schema.
    """

    value_format: str
    key_format: str
    topic: str | None
    topics: tuple[tuple[TableId, str], ...]
    headers: tuple[tuple[str, bytes], ...] = ()
    has_table_headers: bool = False
    has_schema: bool = False


class _Table:
    """The common parts of a table's messages."""

    def __init__(self, table_id: TableId, schema: TableSchema, message_format: MessageFormat) -> None:
        self.schema, self._format, self._table_id = schema, message_format, table_id
        self.topic = message_format.topic or dict(message_format.topics).get(table_id) or str(table_id)
        self._names = schema.names
        self._key = [schema.get_position(name) for name in schema.primary_key]
        headers = list(message_format.headers)
        if message_format.has_table_headers:
            parts = (("namespace", ""), ("schemaName", table_id.schema), ("tableName", table_id.table))
            headers += [(name, text.encode()) for name, text in parts]
        self._headers = tuple(headers) or None
        self._debezium_schema = _debezium_schema(schema) if message_format.has_schema else None

    def make(self, event: DataChangeEvent) -> OutMessage:
        """Return the message of a change."""
        row = event.after if event.after is not None else event.before
        if row is None:
            raise ContractError(f"a change of {self._table_id} has no row")
        before, after = self._named(event.before), self._named(event.after)
        value: dict[str, Any]
        if self._format.value_format == "canal-json":
            is_update = event.kind is RowKind.UPDATE_AFTER
            value = {
                "old": [before] if is_update and before is not None else None,
                "data": [before if event.after is None else after],
                "type": _CANAL_TYPES[event.kind],
                "database": self._table_id.schema,
                "table": self._table_id.table,
                "pkNames": list(self.schema.primary_key),
            }
        else:
            value = {
                "before": before,
                "after": after,
                "op": _DEBEZIUM_OPS[event.kind],
                "source": {"db": self._table_id.schema, "table": self._table_id.table},
            }
            if self._debezium_schema is not None:
                value = {"schema": self._debezium_schema, "payload": value}
        return OutMessage(self.topic, self._encode_key(row), _JSON.encode(value), self._headers)

    def _named(self, row: tuple[Any, ...] | None) -> dict[str, Any] | None:
        return None if row is None else dict(zip(self._names, map(to_json, row), strict=True))

    def _encode_key(self, row: tuple[Any, ...]) -> bytes | None:
        if not self._key:
            return None
        values = [to_json(row[index]) for index in self._key]
        if self._format.key_format == "csv":
            texts = [str(self._table_id), *("" if value is None else str(value) for value in values)]
            return ",".join(_csv(text) for text in texts).encode()
        names = self.schema.primary_key
        return _JSON.encode({"TableId": str(self._table_id), **dict(zip(names, values, strict=True))})


def _csv(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text


def _debezium_schema(schema: TableSchema) -> dict[str, Any]:
    fields = []
    for column in schema.columns:
        data_type = parse_type(column.sql_type)
        kind, name = next((names for of, names in _DEBEZIUM_TYPES if isinstance(data_type, of)), ("string", None))
        field: dict[str, Any] = {"type": kind, "optional": column.is_nullable, "field": column.name}
        if name is not None:
            field["name"] = name
        if isinstance(data_type, types.DecimalType):
            field["parameters"] = {
                "scale": str(data_type.scale),
                "connect.decimal.precision": str(data_type.precision),
            }
        fields.append(field)
    rows = [{"type": "struct", "fields": fields, "optional": True, "field": name} for name in ("before", "after")]
    return {"type": "struct", "fields": rows, "optional": False}


class MessageFunction(ProcessFunction):
    """Turns the changes of rows into messages, and creates the topics of tables.

    Args:
        message_format: how they look.
        settings: the settings of the client.
    """

    def __init__(self, message_format: MessageFormat, settings: Mapping[str, str]) -> None:
        self._format, self._settings = message_format, dict(settings)

    def open(self, runtime_context: Any) -> None:
        """See `Function`."""
        self._tables: dict[TableId, _Table] = {}
        self._topics: set[str] = set()
        self._creator: TopicCreator | None = None

    def process_element(self, value: SinkEvent, ctx: Any) -> Iterator[OutMessage]:
        """See `ProcessFunction`."""
        table_id = value.table_id
        if isinstance(value, DataChangeEvent):
            yield self._tables[table_id].make(value)
            return
        if isinstance(value, TableKnown | events.CreateTableEvent):
            schema = value.schema
        elif isinstance(value, events.DropTableEvent):
            self._tables.pop(table_id, None)
            return
        else:
            schema = self._tables[table_id].schema.apply(value)
        table = self._tables[table_id] = _Table(table_id, schema, self._format)
        if table.topic not in self._topics:
            self._creator = self._creator or TopicCreator(self._settings)
            self._creator.create(table.topic)
            self._topics.add(table.topic)


class _Topic(kafka.KafkaTopicSelector):
    def apply(self, data: OutMessage) -> str:
        return data.topic


class _Part(SerializationSchema[OutMessage]):
    def __init__(self, of_key: bool) -> None:
        self._of_key = of_key

    def serialize(self, value: OutMessage) -> bytes | None:  # type: ignore[override]  # a message may lack a key
        return value.key if self._of_key else value.value


class _Zero(kafka.KafkaPartitioner):
    def partition(self, record: Any, key: bytes | None, value: bytes | None, topic: str, partitions: int) -> int:
        return 0


def _build_headers(message: OutMessage) -> Any:
    return message.headers


def create_kafka(settings: Settings) -> PipelineSink:
    """Return the sink of the type `kafka`."""
    properties = settings.prefixed("properties.")
    if "bootstrap.servers" not in properties:
        raise settings.fail("properties.bootstrap.servers", "the option is missing: name the brokers as host:port")
    message_format = MessageFormat(
        settings.choice("value.format", ("debezium-json", "canal-json"), "debezium-json"),
        settings.choice("key.format", ("json", "csv"), "json"),
        settings.text("topic"),
        tuple(_pairs(settings, "sink.tableId-to-topic.mapping", ";", parse_table_id)),
        tuple((name, text.encode()) for name, text in _pairs(settings, "sink.custom-header", ",", str)),
        settings.boolean("sink.add-tableId-to-header-enabled", False),
        settings.boolean("sink.debezium-json.include-schema.enabled", False),
    )
    strategy = settings.choice("partition.strategy", ("all-to-zero", "hash-by-key"), "all-to-zero")
    guarantees = {each.name.lower().replace("_", "-"): each for each in DeliveryGuarantee}
    guarantee = settings.choice("sink.delivery-guarantee", tuple(guarantees), "at-least-once")
    messages = kafka.KafkaRecordSerializationSchema.builder().set_topic_selector(_Topic())
    messages = messages.set_key_serialization_schema(_Part(True)).set_value_serialization_schema(_Part(False))
    messages = messages.set_header_provider(_build_headers)
    if strategy == "all-to-zero":
        messages = messages.set_partitioner(_Zero())
    builder = kafka.KafkaSink.builder().set_record_serializer(messages.build())
    for key, value in properties.items():
        builder = builder.set_property(key, value)
    prefix = settings.text("sink.transactional-id-prefix")
    if guarantees[guarantee] is DeliveryGuarantee.EXACTLY_ONCE:
        if prefix is None:
            raise settings.fail(
                "sink.transactional-id-prefix", "the option is missing, and exactly-once needs a prefix of its own"
            )
        builder = builder.set_transactional_id_prefix(prefix)
    builder = builder.set_delivery_guarantee(guarantees[guarantee])

    def attach(stream: Any) -> Any:
        return stream.process(MessageFunction(message_format, properties)).name("Messages").uid("cdc-messages")

    return PipelineSink(builder.build(), refuse_nothing, attach)


def _pairs(settings: Settings, key: str, delimiter: str, convert: Callable[[str], Any]) -> Iterator[tuple[Any, str]]:
    for part in filter(None, map(str.strip, (settings.text(key) or "").split(delimiter))):
        name, sign, value = part.rpartition(":")
        if not sign:
            raise settings.fail(key, f"write name:value instead of {part!r}")
        yield convert(name.strip()), value.strip()
