"""Batches of records as fetched by a consumer, and the schemas that deserialize them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from penstock.base.copies import with_own_results
from penstock.base.output_tag import OutputTag
from penstock.base.typeinfo import TypeInformation, Types
from penstock.codecs.messages import BAD_RECORD, BadMessage, Deserialized, OnError, format_reason
from penstock.codecs.serialization import DeserializationSchema
from penstock.connectors.kafka.partitions import KafkaTopicPartition

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
    """

    on_error: OnError = "fail"
    malformed_output: OutputTag | None = None

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema[T]) -> KafkaRecordDeserializationSchema[T]:
        """Return a schema that deserializes values alone, and skips tombstones, which have no value."""
        return _ValueOnly(deserialization_schema)

    @staticmethod
    def whole_records() -> KafkaRecordDeserializationSchema[KafkaRecord]:
        """Return a schema that passes whole records on, with key and value in bytes."""
        return _Whole()

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> T | None:
        """Return the program's record; None skips it. Raise `ValueError` for a record that cannot be read."""

    def deserialize_batch(self, records: KafkaRecords) -> Deserialized:
        """Return the program's records of a batch.

        By default this calls `deserialize` for each record, which may reuse an object that it has returned.
        """
        deserialize = with_own_results(self.deserialize)
        values: list[Any] = []
        positions: list[int] = []
        bad: list[BadMessage] = []
        for position, record in enumerate(records):
            try:
                value = deserialize(record)
            except BAD_RECORD as error:
                bad.append(BadMessage(position, format_reason(error), error))
                continue
            if value is not None:
                values.append(value)
                positions.append(position)
        return Deserialized(values, positions, bad)

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records; any Python object, unless overridden."""
        return Types.PICKLED_BYTE_ARRAY()


class _ValueOnly(KafkaRecordDeserializationSchema[T]):
    def __init__(self, schema: DeserializationSchema[T]) -> None:
        self._schema = schema
        self.on_error = schema.on_error
        self.malformed_output = schema.malformed_output

    def deserialize(self, record: KafkaRecord) -> T | None:
        return None if record.value is None else self._schema.deserialize(record.value)

    def deserialize_batch(self, records: KafkaRecords) -> Deserialized:
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

    def deserialize_batch(self, records: KafkaRecords) -> Deserialized:
        return Deserialized(list(records))
