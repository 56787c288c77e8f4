"""Which Kafka message a record becomes: topic, partition, key, value and headers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from penstock.base.errors import ConfigurationError, WrongTypeError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import SerializationSchema
from penstock.core.connector import RecordError, call_each

T = TypeVar("T")

#: What errors call the parts of a schema.
VALUE: Final = "the value serialization schema"
KEY: Final = "the key serialization schema"
TOPIC: Final = "the topic selector"
HEADERS: Final = "the header provider"
PARTITIONER: Final = "the partitioner"

Headers = Sequence[tuple[str, bytes | None]]


class KafkaTopicSelector(ABC):
    """Names the topic of each record."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Returns the topic that the record goes to."""


class KafkaPartitioner(ABC):
    """Names the partition of each record."""

    def open(self, subtask_index: int, parallelism: int) -> None:  # noqa: B027 - most need not know
        """Called once, before the first record of a subtask."""

    @abstractmethod
    def partition(self, record: Any, key: bytes | None, value: bytes | None, topic: str, partitions: int) -> int:
        """Returns one of the topic's partitions, which are counted from 0."""


class FixedPartitioner(KafkaPartitioner):
    """Each subtask of the sink writes to one partition."""

    def __init__(self) -> None:
        self._subtask_index = 0

    def open(self, subtask_index: int, parallelism: int) -> None:
        """Notes which subtask it is."""
        self._subtask_index = subtask_index

    def partition(self, record: Any, key: bytes | None, value: bytes | None, topic: str, partitions: int) -> int:
        """Returns the subtask's partition."""
        return self._subtask_index % partitions


@dataclass(slots=True)
class Messages:
    """Messages in columns; a column that is None says nothing of any message."""

    topics: str | list[str]
    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    timestamps: list[int] | None = None
    headers: list[Headers | None] | None = None
    partitions: list[int] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class KafkaRecordSerializationSchema(Generic[T]):
    """Turns records into Kafka messages. Make one with `builder`."""

    topic: str | KafkaTopicSelector
    value_schema: SerializationSchema[T]
    key_schema: SerializationSchema[T] | None = None
    partitioner: KafkaPartitioner | None = None
    header_provider: Callable[[T], Headers | None] | None = None

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Starts a schema."""
        return KafkaRecordSerializationSchemaBuilder()

    def messages(
        self, records: Sequence[T] | ColumnData, timestamps: list[int] | None, partitions_of: Callable[[str], int]
    ) -> Messages:
        """The messages of records, in order.

        Args:
            records: the records.
            timestamps: theirs (ms); None for none.
            partitions_of: how many partitions a topic has.
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
            messages.partitions = self._partitions(records, messages, partitions_of)
        return messages

    def _partitions(
        self, records: Sequence[T] | ColumnData, messages: Messages, partitions_of: Callable[[str], int]
    ) -> list[int]:
        assert self.partitioner is not None
        choose, counts = self.partitioner.partition, dict[str, int]()
        count = len(messages)
        topics = [messages.topics] * count if isinstance(messages.topics, str) else messages.topics
        for topic in set(topics):
            counts[topic] = partitions_of(topic)
        chosen: list[int] = []
        keys = messages.keys or [None] * count
        rows: Iterable[Any] = records
        for record, key, value, topic in zip(rows, keys, messages.values, topics, strict=True):
            try:
                chosen.append(choose(record, key, value, topic, counts[topic]))
            except Exception as error:
                raise RecordError(record, PARTITIONER) from error
        return chosen


def serialized(schema: SerializationSchema[Any], records: Sequence[Any] | ColumnData, what: str) -> list[bytes | None]:
    """The messages of records by a schema, all at once where it knows how."""
    if type(schema).serialize_batch is SerializationSchema.serialize_batch:
        return call_each(schema.serialize, records, what)
    return list(schema.serialize_batch(records))


class KafkaRecordSerializationSchemaBuilder:
    """Collects the parts of a `KafkaRecordSerializationSchema`: a topic and a schema of values at least."""

    def __init__(self) -> None:
        self._topic: str | KafkaTopicSelector | None = None
        self._value_schema: SerializationSchema[Any] | None = None
        self._key_schema: SerializationSchema[Any] | None = None
        self._partitioner: KafkaPartitioner | None = None
        self._header_provider: Callable[[Any], Headers | None] | None = None

    def build(self) -> KafkaRecordSerializationSchema[Any]:
        """The schema.

        Raises:
            ConfigurationError: if there is no topic, or no schema of values.
        """
        if self._topic is None:
            raise ConfigurationError("a KafkaRecordSerializationSchema needs set_topic or set_topic_selector")
        if self._value_schema is None:
            raise ConfigurationError("a KafkaRecordSerializationSchema needs set_value_serialization_schema")
        return KafkaRecordSerializationSchema(
            self._topic, self._value_schema, self._key_schema, self._partitioner, self._header_provider
        )

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Sets the topic of all records."""
        if not topic:
            raise ConfigurationError("the topic of a Kafka sink must not be empty")
        self._topic = topic
        return self

    def set_topic_selector(self, topic_selector: KafkaTopicSelector) -> KafkaRecordSerializationSchemaBuilder:
        """Sets what names the topic of each record."""
        if not isinstance(topic_selector, KafkaTopicSelector):
            raise WrongTypeError(f"set_topic_selector takes a KafkaTopicSelector, not {type(topic_selector).__name__}")
        self._topic = topic_selector
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema[Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Sets what a message holds of its record."""
        self._value_schema = value_serialization_schema
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema[Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Sets the key of a message, by which Kafka chooses the partition; without, messages have no key."""
        self._key_schema = key_serialization_schema
        return self

    def set_partitioner(self, partitioner: KafkaPartitioner) -> KafkaRecordSerializationSchemaBuilder:
        """Sets what names the partition of each record; by default as Kafka's clients: by key, else in turn."""
        if not isinstance(partitioner, KafkaPartitioner):
            raise WrongTypeError(f"set_partitioner takes a KafkaPartitioner, not {type(partitioner).__name__}")
        self._partitioner = partitioner
        return self

    def set_header_provider(
        self, header_provider: Callable[[Any], Headers | None]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Sets a function from a record to its headers: (name, bytes) each, or None for none."""
        self._header_provider = header_provider
        return self
