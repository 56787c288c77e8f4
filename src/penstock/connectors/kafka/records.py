"""Kafka records in batches, and the schemas that deserialize them and serialize records to messages.

A message consists of topic, partition, key, value and headers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from penstock.base.errors import ConfigurationError, WrongTypeError
from penstock.base.output_tag import OutputTag
from penstock.base.typeinfo import TypeInformation, Types
from penstock.codecs import serialization
from penstock.codecs.column_data import ColumnData
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.runtime.connector import RecordError, call_each

if TYPE_CHECKING:
    from confluent_kafka import Message


T = TypeVar("T")

Headers = list[tuple[str, bytes | None]]

_TIME: Final = itemgetter(1)
#: librdkafka's timestamp type for a message without a timestamp.
_NO_TIMESTAMP: Final = 0


class KafkaRecord(NamedTuple):
    """A whole record.

    Attributes:
        topic: its topic.
        partition: its partition.
        offset: its offset.
        timestamp: its time (ms), set by the producer or the broker, if any.
        key: its key, if any.
        value: its value; None for a tombstone.
        headers: names and values, in order; names may repeat.

    Examples:
        >>> from penstock.datastream.connectors.kafka import KafkaRecord
        >>> record = KafkaRecord("orders", 0, 7, 1_000, b"ann", b"tea", [])
        >>> record.offset, record.value
        (7, b'tea')
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class KafkaRecords(Sequence[KafkaRecord]):
    """Records of one partition, in order. Each attribute is a list with one item per record.

    Args:
        partition: the partition of the records.
        messages: the messages of the client library.
        end: the offset after the records; None for the one after the last record.
    """

    def __init__(self, partition: KafkaTopicPartition, messages: Sequence[Message], end: int | None = None) -> None:
        from confluent_kafka import Message

        self.partition = partition
        self.end: int = messages[-1].offset() + 1 if end is None else end  # type: ignore[operator]
        self._messages = messages
        self._of = Message

    def __len__(self) -> int:
        return len(self._messages)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return KafkaRecords(self.partition, self._messages[index])
        return next(iter(KafkaRecords(self.partition, [self._messages[index]])))

    def __iter__(self) -> Iterator[KafkaRecord]:
        topic, partition = self.partition.topic, self.partition.partition
        times: Any = self.timestamps or [None] * len(self)
        fields = zip(self.offsets, times, self.keys, self.values, self.headers, strict=True)
        return (KafkaRecord(topic, partition, *rest) for rest in fields)

    @cached_property
    def values(self) -> list[bytes | None]:
        """The values; None for a tombstone."""
        return list(map(self._of.value, self._messages))

    @cached_property
    def keys(self) -> list[bytes | None]:
        """The keys."""
        return list(map(self._of.key, self._messages))

    @cached_property
    def headers(self) -> list[Headers]:
        """The headers; an empty list for a record without any."""
        return [headers or [] for headers in map(self._of.headers, self._messages)]  # type: ignore[misc]

    @cached_property
    def offsets(self) -> list[int]:
        """The offsets, which may have gaps."""
        return list(map(self._of.offset, self._messages))  # type: ignore[arg-type]

    def positions(self) -> Sequence[int]:
        """Return the offsets, as a range if they have no gaps, which usually saves time and memory."""
        if not self._messages:
            return ()
        first, last = self._messages[0].offset(), self._messages[-1].offset()
        assert first is not None
        assert last is not None
        return range(first, last + 1) if last - first + 1 == len(self) else self.offsets

    @cached_property
    def timestamps(self) -> list[int] | None:
        """The times (ms); None if the first record has none."""
        if not self._messages or self._messages[0].timestamp()[0] == _NO_TIMESTAMP:
            return None
        return list(map(_TIME, map(self._of.timestamp, self._messages)))

    def until(self, offset: int) -> KafkaRecords:
        """Return the records before an offset."""
        if self.end <= offset:
            return self
        left = [message for message, at in zip(self._messages, self.offsets, strict=True) if at < offset]
        return KafkaRecords(self.partition, left, offset)


class KafkaRecordDeserializationSchema(ABC, Generic[T]):
    """Deserializes whole Kafka records. Subclasses implement `deserialize`, and optionally `deserialize_batch`.

    Attributes:
        on_error: `fail`, or `skip` to drop and count records that cannot be read.
        malformed_output: the side output for such records, if any; see `DeserializationSchema.skip_malformed`.

    Examples:
        >>> from penstock.datastream.connectors.kafka import KafkaRecord, KafkaRecordDeserializationSchema
        >>> class Pairs(KafkaRecordDeserializationSchema):
        ...     def deserialize(self, record):
        ...         return record.key.decode(), record.value.decode()
        >>> Pairs().deserialize(KafkaRecord("orders", 0, 7, 1_000, b"ann", b"tea", []))
        ('ann', 'tea')
    """

    on_error: serialization.OnError = "fail"
    malformed_output: OutputTag | None = None

    @staticmethod
    def value_only(
        deserialization_schema: serialization.DeserializationSchema[T],
    ) -> KafkaRecordDeserializationSchema[T]:
        """Return a schema that deserializes values alone, and skips tombstones, which have no value."""
        return _ValueOnly(deserialization_schema)

    @staticmethod
    def whole_records() -> KafkaRecordDeserializationSchema[KafkaRecord]:
        """Return a schema that passes whole records on, with key and value in bytes."""
        return _Whole()

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> T | None:
        """Return the program's record; None skips it. Raise `ValueError` for a record that cannot be read."""

    def deserialize_batch(self, records: KafkaRecords) -> serialization.Deserialized:
        """Return the program's records of a batch.

        By default this calls `deserialize` for each record, which may reuse an object that it has returned.
        """
        return serialization.decode_records(self.deserialize, records)

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records; any Python object, unless overridden."""
        return Types.PICKLED_BYTE_ARRAY()


class _ValueOnly(KafkaRecordDeserializationSchema[T]):
    def __init__(self, schema: serialization.DeserializationSchema[T]) -> None:
        self._schema = schema
        self.on_error = schema.on_error
        self.malformed_output = schema.malformed_output

    def deserialize(self, record: KafkaRecord) -> T | None:
        return None if record.value is None else self._schema.deserialize(record.value)

    def deserialize_batch(self, records: KafkaRecords) -> serialization.Deserialized:
        values = records.values
        if None not in values:
            return self._schema.deserialize_batch(values)  # type: ignore[arg-type]
        positions = [position for position, value in enumerate(values) if value is not None]
        deserialized = self._schema.deserialize_batch([value for value in values if value is not None])
        bad = [message._replace(place=positions[message.place]) for message in deserialized.bad]
        return deserialized._replace(places=deserialized.of_records(positions), bad=bad)

    def get_produced_type(self) -> TypeInformation:
        return self._schema.get_produced_type()


class _Whole(KafkaRecordDeserializationSchema[KafkaRecord]):
    def deserialize(self, record: KafkaRecord) -> KafkaRecord:
        return record

    def deserialize_batch(self, records: KafkaRecords) -> serialization.Deserialized:
        return serialization.Deserialized(list(records))


#: The names of a schema's parts in error messages.
VALUE: Final = "the value serialization schema"
KEY: Final = "the key serialization schema"
TOPIC: Final = "the topic selector"
HEADERS: Final = "the header provider"
PARTITIONER: Final = "the partitioner"

RecordHeaders = Sequence[tuple[str, bytes | None]]


class KafkaTopicSelector(ABC):
    """Selects the topic of each record.

    Examples:
        >>> from penstock.datastream.connectors.kafka import KafkaTopicSelector
        >>> class ByDrink(KafkaTopicSelector):
        ...     def apply(self, data):
        ...         return f"orders-{data['drink']}"
        >>> ByDrink().apply({"drink": "tea"})
        'orders-tea'
    """

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Return the topic of a record."""


class KafkaPartitioner(ABC):
    """Selects the partition of each record.

    Examples:
        >>> from penstock.datastream.connectors.kafka import KafkaPartitioner
        >>> class ByNumber(KafkaPartitioner):
        ...     def partition(self, record, key, value, topic, partitions):
        ...         return record["number"] % partitions
        >>> ByNumber().partition({"number": 7}, None, b"tea", "orders", 4)
        3
    """

    def open(self, subtask_index: int, parallelism: int) -> None:  # noqa: B027 - most need not know
        """Called once, before the first record of a subtask."""

    @abstractmethod
    def partition(self, record: Any, key: bytes | None, value: bytes | None, topic: str, partitions: int) -> int:
        """Return one of the topic's partitions, counted from 0."""


class FixedPartitioner(KafkaPartitioner):
    """Sends all records of a sink's subtask to one partition.

    Examples:
        >>> from penstock.datastream.connectors.kafka import FixedPartitioner
        >>> partitioner = FixedPartitioner()
        >>> partitioner.open(subtask_index=5, parallelism=8)
        >>> partitioner.partition("tea", None, b"tea", "orders", partitions=4)
        1
    """

    def __init__(self) -> None:
        self._subtask_index = 0

    def open(self, subtask_index: int, parallelism: int) -> None:
        """Note the index of the subtask."""
        self._subtask_index = subtask_index

    def partition(self, record: Any, key: bytes | None, value: bytes | None, topic: str, partitions: int) -> int:
        """Return the subtask's partition."""
        return self._subtask_index % partitions


@dataclass(slots=True)
class Messages:
    """Messages in columns; None leaves a column unset for all messages."""

    topics: str | list[str]
    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    timestamps: list[int] | None = None
    headers: list[RecordHeaders | None] | None = None
    partitions: list[int] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class KafkaRecordSerializationSchema(Generic[T]):
    """Converts records to Kafka messages. Create one with `builder`.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema
        >>> builder = KafkaRecordSerializationSchema.builder().set_topic("orders")
        >>> schema = builder.set_value_serialization_schema(SimpleStringSchema()).build()
    """

    topic: str | KafkaTopicSelector
    value_schema: serialization.SerializationSchema[T]
    key_schema: serialization.SerializationSchema[T] | None = None
    partitioner: KafkaPartitioner | None = None
    header_provider: Callable[[T], RecordHeaders | None] | None = None

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Return a builder."""
        return KafkaRecordSerializationSchemaBuilder()

    def messages(
        self, records: Sequence[T] | ColumnData, timestamps: list[int] | None, count_partitions: Callable[[str], int]
    ) -> Messages:
        """Return the messages of records, in order.

        Args:
            records: the records.
            timestamps: the timestamps of the records (ms), if any.
            count_partitions: returns the number of partitions of a topic.
        """
        topics: str | list[str]
        if isinstance(self.topic, KafkaTopicSelector):
            topics = call_each(self.topic.apply, records, TOPIC)
        else:
            topics = self.topic
        values = serialized(self.value_schema, records, VALUE)
        keys = None if self.key_schema is None else serialized(self.key_schema, records, KEY)
        headers = None if self.header_provider is None else call_each(self.header_provider, records, HEADERS)
        messages = Messages(topics, values, keys, timestamps, headers)
        if self.partitioner is not None:
            messages.partitions = self._partitions(records, messages, count_partitions)
        return messages

    def _partitions(
        self, records: Sequence[T] | ColumnData, messages: Messages, count_partitions: Callable[[str], int]
    ) -> list[int]:
        assert self.partitioner is not None
        choose, counts = self.partitioner.partition, dict[str, int]()
        count = len(messages)
        topics = [messages.topics] * count if isinstance(messages.topics, str) else messages.topics
        for topic in set(topics):
            counts[topic] = count_partitions(topic)
        chosen: list[int] = []
        keys = messages.keys or [None] * count
        rows: Iterable[Any] = records
        for record, key, value, topic in zip(rows, keys, messages.values, topics, strict=True):
            try:
                chosen.append(choose(record, key, value, topic, counts[topic]))
            except Exception as error:
                raise RecordError(record, PARTITIONER) from error
        return chosen


def serialized(
    schema: serialization.SerializationSchema[Any], records: Sequence[Any] | ColumnData, part: str
) -> list[bytes | None]:
    """Serialize records with a schema, all at once if it supports that."""
    if type(schema).serialize_batch is serialization.SerializationSchema.serialize_batch:
        return call_each(schema.serialize, records, part)
    return list(schema.serialize_batch(records))


class KafkaRecordSerializationSchemaBuilder:
    """Builder for `KafkaRecordSerializationSchema`; a topic and a value schema are required.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema
        >>> builder = KafkaRecordSerializationSchema.builder().set_topic("orders")
        >>> builder = builder.set_key_serialization_schema(SimpleStringSchema())
        >>> schema = builder.set_value_serialization_schema(SimpleStringSchema()).build()
    """

    def __init__(self) -> None:
        self._topic: str | KafkaTopicSelector | None = None
        self._value_schema: serialization.SerializationSchema[Any] | None = None
        self._key_schema: serialization.SerializationSchema[Any] | None = None
        self._partitioner: KafkaPartitioner | None = None
        self._header_provider: Callable[[Any], RecordHeaders | None] | None = None

    def build(self) -> KafkaRecordSerializationSchema[Any]:
        """Build the schema.

        Raises:
            ConfigurationError: if the topic or the value schema is missing.
        """
        if self._topic is None:
            raise ConfigurationError("a KafkaRecordSerializationSchema needs set_topic or set_topic_selector")
        if self._value_schema is None:
            raise ConfigurationError("a KafkaRecordSerializationSchema needs set_value_serialization_schema")
        return KafkaRecordSerializationSchema(
            self._topic, self._value_schema, self._key_schema, self._partitioner, self._header_provider
        )

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Set the topic of all records."""
        if not topic:
            raise ConfigurationError("the topic of a Kafka sink must not be empty")
        self._topic = topic
        return self

    def set_topic_selector(self, topic_selector: KafkaTopicSelector) -> KafkaRecordSerializationSchemaBuilder:
        """Set the selector of each record's topic."""
        if not isinstance(topic_selector, KafkaTopicSelector):
            raise WrongTypeError(f"set_topic_selector takes a KafkaTopicSelector, not {type(topic_selector).__name__}")
        self._topic = topic_selector
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: serialization.SerializationSchema[Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema for message values."""
        self._value_schema = value_serialization_schema
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: serialization.SerializationSchema[Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema for message keys, from which Kafka chooses the partition; by default messages have no key."""
        self._key_schema = key_serialization_schema
        return self

    def set_partitioner(self, partitioner: KafkaPartitioner) -> KafkaRecordSerializationSchemaBuilder:
        """Set the partitioner; by default records are partitioned as by Kafka's clients: by key, else in turn."""
        if not isinstance(partitioner, KafkaPartitioner):
            raise WrongTypeError(f"set_partitioner takes a KafkaPartitioner, not {type(partitioner).__name__}")
        self._partitioner = partitioner
        return self

    def set_header_provider(
        self, header_provider: Callable[[Any], RecordHeaders | None]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set a function that returns a record's headers as (name, bytes) pairs, or None."""
        self._header_provider = header_provider
        return self
