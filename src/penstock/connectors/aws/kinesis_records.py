"""Records of Kinesis, schemas that deserialize them, and records that the Kinesis Producer Library aggregates.

**Aggregated records.** The library packs several user records into one: four magic bytes, a message of Protocol Buffers
(`AggregatedRecord`: partition keys, explicit hash keys, records) and its MD5. `split_aggregated` unpacks them. A user
record whose hash key is outside the shard belongs to a shard of before a resharding; the library has sent it again.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.base.errors import ConfigurationError
from penstock.base.output_tag import OutputTag
from penstock.base.typeinfo import TypeInformation, Types
from penstock.codecs import serialization
from penstock.connectors.aws.client import read_ms

T = TypeVar("T")

MAGIC: Final = b"\xf3\x89\x9a\xc2"
_MD5_BYTES: Final = 16


class KinesisRecord(NamedTuple):
    """A record of a stream.

    Attributes:
        shard_id: its shard.
        sequence_number: its number, which grows within the shard: compare numbers as integers, not as text.
        sub_sequence_number: its index in an aggregated record; 0 for any other.
        partition_key: its partition key.
        timestamp: when it arrived in the stream, approximately (ms).
        data: its bytes.

    Examples:
        >>> from penstock.datastream.connectors.kinesis import KinesisRecord
        >>> record = KinesisRecord("shardId-000000000000", "49680714", 0, "ann", 1_000, b"tea")
        >>> record.partition_key, record.data
        ('ann', b'tea')
    """

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    partition_key: str
    timestamp: int
    data: bytes


@dataclass(frozen=True, slots=True)
class KinesisRecords(Sequence[KinesisRecord]):
    """Records of one shard, in order. Each attribute but the first is a list with an item for each record."""

    shard_id: str
    sequence_numbers: list[str]
    sub_sequence_numbers: list[int]
    partition_keys: list[str]
    timestamps: list[int]
    data: list[bytes]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            columns = (
                self.sequence_numbers,
                self.sub_sequence_numbers,
                self.partition_keys,
                self.timestamps,
                self.data,
            )
            return KinesisRecords(self.shard_id, *[column[index] for column in columns])  # type: ignore[arg-type]
        return next(iter(self[index : index + 1 or None]))

    def __iter__(self) -> Iterator[KinesisRecord]:
        columns = (self.sequence_numbers, self.sub_sequence_numbers, self.partition_keys, self.timestamps, self.data)
        return (KinesisRecord(self.shard_id, *values) for values in zip(*columns, strict=True))

    @staticmethod
    def read(shard_id: str, answer: Iterable[dict[str, Any]], hash_keys: tuple[int, int]) -> KinesisRecords:
        """Return the records of an answer; aggregated ones are unpacked."""
        sent = list(answer)
        data = [record["Data"] for record in sent]
        numbers = [record["SequenceNumber"] for record in sent]
        keys = [record["PartitionKey"] for record in sent]
        times = [read_ms(record["ApproximateArrivalTimestamp"]) for record in sent]
        if not any(each.startswith(MAGIC) for each in data):
            return KinesisRecords(shard_id, numbers, [0] * len(sent), keys, times, data)
        unpacked = KinesisRecords(shard_id, [], [], [], [], [])
        for number, key, time, each in zip(numbers, keys, times, data, strict=True):
            for index, (user_key, hash_key, user_data) in enumerate(split_aggregated(each) or [(key, None, each)]):
                if user_data is not each and not hash_keys[0] <= compute_hash_key(user_key, hash_key) <= hash_keys[1]:
                    continue
                unpacked.sequence_numbers.append(number)
                unpacked.sub_sequence_numbers.append(index)
                unpacked.partition_keys.append(user_key)
                unpacked.timestamps.append(time)
                unpacked.data.append(user_data)
        return unpacked


def compute_hash_key(partition_key: str, explicit: str | None) -> int:
    """Return the hash key of a record: the explicit one, or the MD5 of the partition key."""
    return int(explicit) if explicit else int.from_bytes(hashlib.md5(partition_key.encode()).digest())


def split_aggregated(data: bytes) -> list[tuple[str, str | None, bytes]] | None:
    """Return the partition keys, explicit hash keys and data of an aggregated record; None for any other record.

    A record with the magic bytes but a wrong checksum counts as a plain record, as for the Kinesis libraries.
    """
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + _MD5_BYTES:
        return None
    message = data[len(MAGIC) : -_MD5_BYTES]
    if hashlib.md5(message).digest() != data[-_MD5_BYTES:]:
        return None
    keys: list[str] = []
    hash_keys: list[str] = []
    users: list[dict[int, Any]] = []
    for number, value in _read_fields(message):
        if number == 1:
            keys.append(value.decode())
        elif number == 2:
            hash_keys.append(value.decode())
        elif number == 3:
            users.append(dict(_read_fields(value)))
    return [(keys[user[1]], hash_keys[user[2]] if 2 in user else None, user.get(3, b"")) for user in users]


def _read_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message of Protocol Buffers that has integers and bytes alone."""
    position = 0
    while position < len(message):
        tag, position = _read_integer(message, position)
        value, position = _read_integer(message, position)
        if tag & 7 == 2:
            yield tag >> 3, message[position : position + value]
            position += value
        else:
            yield tag >> 3, value


def _read_integer(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


class KinesisDeserializationSchema(ABC, Generic[T]):
    """Converts whole records of Kinesis to records of the job.

    Attributes:
        on_error: whether the job fails for a record that cannot be read (`fail`), or leaves it out (`skip`).
        malformed_output: the side output for records that are left out.

    Examples:
        >>> from penstock.datastream.connectors.kinesis import KinesisDeserializationSchema, KinesisRecord
        >>> class Pairs(KinesisDeserializationSchema):
        ...     def deserialize(self, record):
        ...         return record.partition_key, record.data.decode()
        >>> Pairs().deserialize(KinesisRecord("shardId-000000000000", "49680714", 0, "ann", 1_000, b"tea"))
        ('ann', 'tea')
    """

    on_error: serialization.OnError = "fail"
    malformed_output: OutputTag | None = None

    @staticmethod
    def of(schema: Any) -> KinesisDeserializationSchema[Any]:
        """Return the schema itself, or one that passes the data of records to a `DeserializationSchema`.

        Raises:
            ConfigurationError: for anything else.
        """
        if isinstance(schema, KinesisDeserializationSchema):
            return schema
        if isinstance(schema, serialization.DeserializationSchema):
            return _DataOnly(schema)
        raise ConfigurationError(
            "a Kinesis source takes a DeserializationSchema such as SimpleStringSchema(), or a "
            f"KinesisDeserializationSchema, not {schema!r}"
        )

    @abstractmethod
    def deserialize(self, record: KinesisRecord) -> T | None:
        """Return the record of the job; None skips it. Raise `ValueError` for a record that cannot be read."""

    def deserialize_batch(self, records: KinesisRecords) -> serialization.Deserialized:
        """Return the records of a batch. By default this calls `deserialize` for each."""
        return serialization.decode_records(self.deserialize, records)

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records; any Python object, unless overridden."""
        return Types.PICKLED_BYTE_ARRAY()


class _DataOnly(KinesisDeserializationSchema[T]):
    def __init__(self, schema: serialization.DeserializationSchema[T]) -> None:
        self._schema = schema
        self.on_error = schema.on_error
        self.malformed_output = schema.malformed_output

    def deserialize(self, record: KinesisRecord) -> T | None:
        return self._schema.deserialize(record.data)

    def deserialize_batch(self, records: KinesisRecords) -> serialization.Deserialized:
        return self._schema.deserialize_batch(records.data)

    def get_produced_type(self) -> TypeInformation:
        return self._schema.get_produced_type()
