"""`KinesisStreamsSink` and `KinesisFirehoseSink`: write records to streams of Kinesis and to Firehose.

At least once. PutRecords and PutRecordBatch accept or refuse each record; those refused are sent again, after growing
delays, until all are accepted, and a checkpoint waits for that. After a failure of the job records since the last
checkpoint arrive again.

**Order.** Several requests are in flight, and refused records are sent later, so records of a partition key may arrive
in another order, as with Flink's sink.

The names and defaults match PyFlink (`pyflink.datastream.connectors.kinesis`).
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from penstock.base.errors import ConfigurationError, ContractError, short_repr
from penstock.codecs.serialization import SerializationSchema
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, RequestClient, RequestError, RequestResult
from penstock.connectors.aws import client
from penstock.connectors.aws.client import AwsSettings
from penstock.connectors.aws.kinesis_source import ARN, read_settings
from penstock.runtime.connector import SinkWriterContext

T = TypeVar("T")
SinkT = TypeVar("SinkT")

_MIB: Final = 1024 * 1024
#: PyFlink's limits of both sinks.
KINESIS_SETTINGS: Final = AsyncSinkSettings(max_batch_size_in_bytes=5 * _MIB, max_record_size_in_bytes=_MIB)
FIREHOSE_SETTINGS: Final = AsyncSinkSettings(max_batch_size_in_bytes=4 * _MIB, max_record_size_in_bytes=1_000 * 1024)
#: The limits of a request, by the rules of the services: records and bytes.
_ENTRIES_MAX: Final = 500
_KEY_CHARS_MAX: Final = 256


class PartitionKeyGenerator(ABC, Generic[T]):
    """Returns the partition key of each record, which decides on its shard.

    Examples:
        >>> from penstock.datastream.connectors.kinesis import PartitionKeyGenerator
        >>> class ByUser(PartitionKeyGenerator):
        ...     def apply(self, element):
        ...         return element["user"]
        >>> ByUser().apply({"user": "ann"})
        'ann'
    """

    @abstractmethod
    def apply(self, element: T) -> str:
        """Return the key of a record: 1 to 256 characters."""

    @staticmethod
    def fixed() -> PartitionKeyGenerator[Any]:
        """Return a generator of one key for each subtask, so that a subtask writes to one shard."""
        return _Fixed()

    @staticmethod
    def random() -> PartitionKeyGenerator[Any]:
        """Return a generator of random keys, which spread records over all shards."""
        return _Random()


class _Fixed(PartitionKeyGenerator[Any]):
    def __init__(self) -> None:
        self._key: str | None = None

    def apply(self, element: Any) -> str:
        if self._key is None:
            self._key = f"{random.getrandbits(128):032x}"
        return self._key

    def __reduce__(self) -> Any:
        return _Fixed, ()  # without the key: each subtask chooses one


class _Random(PartitionKeyGenerator[Any]):
    def apply(self, element: Any) -> str:
        return f"{random.getrandbits(128):032x}"


class StreamEntry(NamedTuple):
    """A record in a request. `partition_key` is None for Firehose."""

    data: bytes
    partition_key: str | None = None


class ClientBase(RequestClient[Any]):
    """A client of a service, for the asynchronous sinks of AWS.

    Args:
        settings: where the service is.
        service: its name.
        user: the sink, for errors.
        requests: how many requests are in flight.
        fails_on_error: whether a refused record fails the job.
    """

    def __init__(self, settings: AwsSettings, service: str, user: str, requests: int, fails_on_error: bool) -> None:
        self._settings, self._service, self._user = settings, service, user
        self._requests, self._fails_on_error = requests, fails_on_error
        self._client: Any = None

    def open(self) -> None:
        """See `RequestClient`."""
        self._client = self._settings.connect(self._service, self._user, self._requests)

    def is_retryable(self, error: Exception) -> bool:
        """See `RequestClient`."""
        return not self._fails_on_error and client.is_passing(error)

    def close(self) -> None:
        """See `RequestClient`."""
        if self._client is not None:
            self._client.close()

    def read_failures(self, answers: Sequence[Mapping[str, Any]]) -> RequestResult:
        """Return which records are sent again, given the answers to each of them."""
        again = [number for number, answer in enumerate(answers) if answer.get("ErrorCode")]
        if not again:
            return RequestResult()
        first = answers[again[0]]
        reason = f"{first['ErrorCode']}: {first.get('ErrorMessage')}"
        if self._fails_on_error:
            raise RequestError(
                f"{self._user}: {len(again)} of {len(answers)} records are refused, the first by {reason}"
            )
        return RequestResult(again=again, reason=reason)


class _StreamClient(ClientBase):
    def __init__(self, sink: KinesisStreamsSink[Any]) -> None:
        requests = sink.settings.max_in_flight_requests
        super().__init__(sink.aws, "kinesis", type(sink).__name__, requests, sink.fails_on_error)
        self._stream = sink.stream

    def submit_request_entries(self, entries: Sequence[StreamEntry]) -> RequestResult:
        records = [{"Data": entry.data, "PartitionKey": entry.partition_key} for entry in entries]
        answer = self._client.put_records(Records=records, **self._stream)
        return self.read_failures(answer["Records"]) if answer.get("FailedRecordCount") else RequestResult()


class _FirehoseClient(ClientBase):
    def __init__(self, sink: KinesisFirehoseSink[Any]) -> None:
        requests = sink.settings.max_in_flight_requests
        super().__init__(sink.aws, "firehose", type(sink).__name__, requests, sink.fails_on_error)
        self._stream_name = sink.stream_name

    def submit_request_entries(self, entries: Sequence[StreamEntry]) -> RequestResult:
        records = [{"Data": entry.data} for entry in entries]
        answer = self._client.put_record_batch(DeliveryStreamName=self._stream_name, Records=records)
        return self.read_failures(answer["RequestResponses"]) if answer.get("FailedPutCount") else RequestResult()


class KinesisStreamsSink(AsyncSinkBase[T, StreamEntry], Generic[T]):
    """Writes records to a stream of Kinesis; created with `KinesisStreamsSink.builder()`. At least once.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kinesis import KinesisStreamsSink, PartitionKeyGenerator
        >>> builder = KinesisStreamsSink.builder().set_kinesis_client_properties({"aws.region": "us-east-1"})
        >>> builder = builder.set_serialization_schema(SimpleStringSchema()).set_stream_name("orders")
        >>> sink = builder.set_partition_key_generator(PartitionKeyGenerator.random()).build()
    """

    def __init__(
        self,
        aws: AwsSettings,
        stream: Mapping[str, str],
        serialize: Callable[[T], bytes],
        generator: PartitionKeyGenerator[T],
        fails_on_error: bool,
        settings: AsyncSinkSettings,
    ) -> None:
        super().__init__(settings)
        self.aws, self.stream, self.fails_on_error = aws, dict(stream), fails_on_error
        self._serialize, self._generator = serialize, generator

    @staticmethod
    def builder() -> KinesisStreamsSinkBuilder:
        """Return a builder."""
        return KinesisStreamsSinkBuilder()

    def create_client(self, context: SinkWriterContext) -> RequestClient[StreamEntry]:
        """See `AsyncSinkBase`."""
        return _StreamClient(self)

    def convert(self, record: T, timestamp: int | None) -> StreamEntry:
        """See `AsyncSinkBase`."""
        key = self._generator.apply(record)
        if type(key) is not str or not 1 <= len(key) <= _KEY_CHARS_MAX:
            raise ContractError(
                f"a partition key has 1 to {_KEY_CHARS_MAX} characters; the generator returned {short_repr(key)}"
            )
        return StreamEntry(self._serialize(record), key)

    def get_size_in_bytes(self, entry: StreamEntry) -> int:
        """See `AsyncSinkBase`: the service counts the key too."""
        return len(entry.data) + (0 if entry.partition_key is None else len(entry.partition_key.encode()))


class KinesisFirehoseSink(AsyncSinkBase[T, StreamEntry], Generic[T]):
    """Writes records to a delivery stream of Firehose; created with `KinesisFirehoseSink.builder()`. At least once.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kinesis import KinesisFirehoseSink
        >>> builder = KinesisFirehoseSink.builder().set_firehose_client_properties({"aws.region": "us-east-1"})
        >>> builder = builder.set_serialization_schema(SimpleStringSchema()).set_delivery_stream_name("orders")
        >>> sink = builder.build()
    """

    def __init__(
        self,
        aws: AwsSettings,
        stream_name: str,
        serialize: Callable[[T], bytes],
        fails_on_error: bool,
        settings: AsyncSinkSettings,
    ) -> None:
        super().__init__(settings)
        self.aws, self.stream_name, self.fails_on_error = aws, stream_name, fails_on_error
        self._serialize = serialize

    @staticmethod
    def builder() -> KinesisFirehoseSinkBuilder:
        """Return a builder."""
        return KinesisFirehoseSinkBuilder()

    def create_client(self, context: SinkWriterContext) -> RequestClient[StreamEntry]:
        """See `AsyncSinkBase`."""
        return _FirehoseClient(self)

    def convert(self, record: T, timestamp: int | None) -> StreamEntry:
        """See `AsyncSinkBase`."""
        return StreamEntry(self._serialize(record))

    def get_size_in_bytes(self, entry: StreamEntry) -> int:
        """See `AsyncSinkBase`."""
        return len(entry.data)


class AwsSinkBuilder(ABC, Generic[SinkT]):
    """The shared part of the builders of AWS sinks: limits, client properties, and the schema of records.

    Args:
        settings: the limits unless others are set.
        entries_max: how many entries a request may have by the rules of the service.
    """

    def __init__(self, settings: AsyncSinkSettings, entries_max: int) -> None:
        self._limits: dict[str, Any] = {}
        self._defaults, self._entries_max = settings, entries_max
        self._properties: dict[str, str] = {}
        self._schema: SerializationSchema[Any] | None = None
        self._fails_on_error = False

    def set_serialization_schema(self, serialization_schema: SerializationSchema[Any]) -> Self:
        """Set the schema that makes bytes of records.

        Raises:
            ConfigurationError: if it is no `SerializationSchema`.
        """
        if not isinstance(serialization_schema, SerializationSchema):
            raise ConfigurationError(
                f"set_serialization_schema takes a SerializationSchema such as SimpleStringSchema(), not "
                f"{serialization_schema!r}"
            )
        self._schema = serialization_schema
        return self

    def set_fail_on_error(self, fail_on_error: bool) -> Self:
        """Set whether the job fails when an entry is refused for the first time. Default: it is sent again."""
        self._fails_on_error = fail_on_error
        return self

    def set_max_batch_size(self, max_batch_size: int) -> Self:
        """Set the maximum number of entries in a request."""
        return self._limit(max_batch_size=max_batch_size)

    def set_max_in_flight_requests(self, max_in_flight_requests: int) -> Self:
        """Set the maximum number of requests at the same time. Default: 50."""
        return self._limit(max_in_flight_requests=max_in_flight_requests)

    def set_max_buffered_requests(self, max_buffered_requests: int) -> Self:
        """Set the number of waiting entries at which the sink stops its input. Default: 10,000."""
        return self._limit(max_buffered_requests=max_buffered_requests)

    def set_max_batch_size_in_bytes(self, max_batch_size_in_bytes: int) -> Self:
        """Set the maximum size of a request."""
        return self._limit(max_batch_size_in_bytes=max_batch_size_in_bytes)

    def set_max_time_in_buffer_ms(self, max_time_in_buffer_ms: int) -> Self:
        """Set how long an entry waits for others (ms). Default: 5,000."""
        return self._limit(max_time_in_buffer_ms=max_time_in_buffer_ms)

    def set_max_record_size_in_bytes(self, max_record_size_in_bytes: int) -> Self:
        """Set the maximum size of an entry."""
        return self._limit(max_record_size_in_bytes=max_record_size_in_bytes)

    def _limit(self, **limits: int) -> Self:
        self._limits.update(limits)
        return self

    def _set_properties(self, properties: Mapping[str, Any]) -> Self:
        self._properties = {key: str(value) for key, value in dict(properties).items()}
        return self

    def read_limits(self) -> AsyncSinkSettings:
        """Return the limits. Raises `ConfigurationError` for limits that the service or the sink does not allow."""
        settings = replace(self._defaults, **self._limits)
        if settings.max_batch_size > self._entries_max:
            raise ConfigurationError(
                f"max_batch_size is {settings.max_batch_size}; the service takes at most {self._entries_max} entries "
                "in a request"
            )
        return settings

    def read_serializer(self) -> Callable[[Any], bytes]:
        """Return the function that makes bytes of records. Raises `ConfigurationError` without a schema."""
        if self._schema is None:
            raise ConfigurationError(f"{type(self).__name__} needs set_serialization_schema")
        client.load_library(type(self).__name__)
        return partial(_serialize, self._schema)

    @abstractmethod
    def build(self) -> SinkT:
        """Build the sink."""


def _serialize(schema: SerializationSchema[Any], record: Any) -> bytes:
    return schema.serialize(record)


class KinesisStreamsSinkBuilder(AwsSinkBuilder[KinesisStreamsSink[Any]]):
    """Builder for `KinesisStreamsSink`.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kinesis import KinesisStreamsSink, PartitionKeyGenerator
        >>> builder = KinesisStreamsSink.builder().set_serialization_schema(SimpleStringSchema())
        >>> builder = builder.set_stream_arn("arn:aws:kinesis:us-east-1:123456789012:stream/orders")
        >>> sink = builder.set_partition_key_generator(PartitionKeyGenerator.fixed()).set_max_batch_size(200).build()
        >>> sink.settings.max_batch_size
        200
    """

    def __init__(self) -> None:
        super().__init__(KINESIS_SETTINGS, _ENTRIES_MAX)
        self._name: str | None = None
        self._arn: str | None = None
        self._generator: PartitionKeyGenerator[Any] | None = None

    def set_stream_name(self, stream_name: str) -> KinesisStreamsSinkBuilder:
        """Set the stream by its name."""
        self._name = stream_name
        return self

    def set_stream_arn(self, stream_arn: str) -> KinesisStreamsSinkBuilder:
        """Set the stream by its ARN, which names the region too."""
        self._arn = stream_arn
        return self

    def set_kinesis_client_properties(self, kinesis_client_properties: Mapping[str, Any]) -> KinesisStreamsSinkBuilder:
        """Set the properties of AWS, such as `aws.region`."""
        return self._set_properties(kinesis_client_properties)

    def set_partition_key_generator(
        self, partition_key_generator: PartitionKeyGenerator[Any]
    ) -> KinesisStreamsSinkBuilder:
        """Set what makes partition keys of records.

        Raises:
            ConfigurationError: if it is no `PartitionKeyGenerator`.
        """
        if not isinstance(partition_key_generator, PartitionKeyGenerator):
            raise ConfigurationError(
                "set_partition_key_generator takes a PartitionKeyGenerator such as PartitionKeyGenerator.random(), not "
                f"{partition_key_generator!r}"
            )
        self._generator = partition_key_generator
        return self

    def build(self) -> KinesisStreamsSink[Any]:
        """Build the sink.

        Raises:
            ConfigurationError: if stream, schema or generator are missing, or a property or a limit is invalid.
        """
        if self._generator is None:
            raise ConfigurationError("a Kinesis sink needs set_partition_key_generator")
        aws, stream = read_stream(self._name, self._arn, self._properties)
        serialize, settings = self.read_serializer(), self.read_limits()
        return KinesisStreamsSink(aws, stream, serialize, self._generator, self._fails_on_error, settings)


def read_stream(
    name: str | None, arn: str | None, properties: Mapping[str, str]
) -> tuple[AwsSettings, Mapping[str, str]]:
    """Return where the service is, and the arguments of requests that name the stream.

    Raises:
        ConfigurationError: unless a name or an ARN is given.
    """
    if (name is None) == (arn is None):
        raise ConfigurationError("a Kinesis sink needs set_stream_name or set_stream_arn")
    if arn is not None:
        return read_settings(arn, properties), {"StreamARN": arn}
    assert name is not None
    if ARN.fullmatch(name):
        raise ConfigurationError(f"set_stream_name takes a name; set_stream_arn takes {name}")
    return AwsSettings(properties), {"StreamName": name}


class KinesisFirehoseSinkBuilder(AwsSinkBuilder[KinesisFirehoseSink[Any]]):
    """Builder for `KinesisFirehoseSink`.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kinesis import KinesisFirehoseSink
        >>> builder = KinesisFirehoseSink.builder().set_serialization_schema(SimpleStringSchema())
        >>> sink = builder.set_delivery_stream_name("orders").set_max_in_flight_requests(4).build()
        >>> sink.settings.max_batch_size_in_bytes
        4194304
    """

    def __init__(self) -> None:
        super().__init__(FIREHOSE_SETTINGS, _ENTRIES_MAX)
        self._name: str | None = None

    def set_delivery_stream_name(self, delivery_stream_name: str) -> KinesisFirehoseSinkBuilder:
        """Set the delivery stream."""
        self._name = delivery_stream_name
        return self

    def set_firehose_client_properties(
        self, firehose_client_properties: Mapping[str, Any]
    ) -> KinesisFirehoseSinkBuilder:
        """Set the properties of AWS, such as `aws.region`."""
        return self._set_properties(firehose_client_properties)

    def build(self) -> KinesisFirehoseSink[Any]:
        """Build the sink.

        Raises:
            ConfigurationError: if stream or schema are missing, or a property or a limit is invalid.
        """
        if not self._name:
            raise ConfigurationError("a Firehose sink needs set_delivery_stream_name")
        aws = AwsSettings(self._properties)
        return KinesisFirehoseSink(aws, self._name, self.read_serializer(), self._fails_on_error, self.read_limits())
