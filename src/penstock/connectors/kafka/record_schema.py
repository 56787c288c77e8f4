"""Serializes records to Kafka messages: topic, partition, key, value and headers."""

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

#: The names of a schema's parts in error messages.
VALUE: Final = "the value serialization schema"
KEY: Final = "the key serialization schema"
TOPIC: Final = "the topic selector"
HEADERS: Final = "the header provider"
PARTITIONER: Final = "the partitioner"

Headers = Sequence[tuple[str, bytes | None]]


class KafkaTopicSelector(ABC):
    """Selects the topic of each record."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Return the topic of a record."""


class KafkaPartitioner(ABC):
    """Selects the partition of each record."""

    def open(self, subtask_index: int, parallelism: int) -> None:  # noqa: B027 - most need not know
        """Called once, before the first record of a subtask."""

    @abstractmethod
    def partition(self, record: Any, key: bytes | None, value: bytes | None, topic: str, partitions: int) -> int:
        """Return one of the topic's partitions, counted from 0."""


class FixedPartitioner(KafkaPartitioner):
    """Sends all records of a sink's subtask to one partition."""

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
    headers: list[Headers | None] | None = None
    partitions: list[int] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class KafkaRecordSerializationSchema(Generic[T]):
    """Converts records to Kafka messages. Create one with `builder`."""

    topic: str | KafkaTopicSelector
    value_schema: SerializationSchema[T]
    key_schema: SerializationSchema[T] | None = None
    partitioner: KafkaPartitioner | None = None
    header_provider: Callable[[T], Headers | None] | None = None

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


def serialized(schema: SerializationSchema[Any], records: Sequence[Any] | ColumnData, part: str) -> list[bytes | None]:
    """Serialize records with a schema, all at once if it supports that."""
    if type(schema).serialize_batch is SerializationSchema.serialize_batch:
        return call_each(schema.serialize, records, part)
    return list(schema.serialize_batch(records))


class KafkaRecordSerializationSchemaBuilder:
    """Builder for `KafkaRecordSerializationSchema`; a topic and a value schema are required."""

    def __init__(self) -> None:
        self._topic: str | KafkaTopicSelector | None = None
        self._value_schema: SerializationSchema[Any] | None = None
        self._key_schema: SerializationSchema[Any] | None = None
        self._partitioner: KafkaPartitioner | None = None
        self._header_provider: Callable[[Any], Headers | None] | None = None

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
        self, value_serialization_schema: SerializationSchema[Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema for message values."""
        self._value_schema = value_serialization_schema
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema[Any]
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
        self, header_provider: Callable[[Any], Headers | None]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set a function that returns a record's headers as (name, bytes) pairs, or None."""
        self._header_provider = header_provider
        return self
