"""`KinesisStreamsSource`: reads a stream of Kinesis, exactly once as long as the stream keeps its records.

`shards` tracks the shards and assigns them to readers, `shard_reader` reads them; this module has the requests, the
source and its builder. The names match Flink's connector (`KinesisStreamsSource`, 5.0 and newer).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.connectors.aws import client, shards
from penstock.connectors.aws.client import AwsSettings
from penstock.connectors.aws.kinesis_records import KinesisDeserializationSchema, KinesisRecords
from penstock.connectors.aws.shard_reader import Fetched, ReadSettings, ShardReader, ShardService
from penstock.connectors.aws.shards import EnumeratorState, Listing, ParentQuestion, Shard, ShardEnumerator, ShardSplit
from penstock.runtime import connector

T = TypeVar("T")

ARN: Final = re.compile(r"arn:[\w-]+:(\w+):([\w-]*):(\d*):(?:stream|table|deliverystream)/(\S+)")
POSITIONS: Final = (shards.LATEST, shards.TRIM_HORIZON, shards.AT_TIMESTAMP)
JAVA_FORMAT: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
_PAGE: Final = 1_000
#: How often a listing of shards is tried before the job fails; the enumerator sets the delays.
_LISTING_ATTEMPTS: Final = 8


def _duration(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).duration_type().default_value(default).with_description(description)


INIT_POSITION: Final = (
    ConfigOptions.key("source.init.position")
    .string_type()
    .default_value(shards.LATEST)
    .with_description("Where to start: `LATEST`, `TRIM_HORIZON` (the oldest record), `AT_TIMESTAMP`.")
)
INIT_TIMESTAMP: Final = (
    ConfigOptions.key("source.init.timestamp")
    .string_type()
    .no_default_value()
    .with_description("The time of `AT_TIMESTAMP`: seconds since 1970, or a date such as `2026-01-31T12:00:00.000Z`.")
)
INIT_FORMAT: Final = (
    ConfigOptions.key("source.init.timestamp.format")
    .string_type()
    .default_value(JAVA_FORMAT)
    .with_description("The form of that date; only the default is supported.")
)
DISCOVERY_INTERVAL: Final = _duration(
    "source.shard.discovery.interval", 10_000, "How often the source looks for new shards."
)
MAX_RECORDS: Final = (
    ConfigOptions.key("source.shard.get-records.max-record-count")
    .int_type()
    .default_value(10_000)
    .with_description("The maximum number of records in an answer.")
)
READER_TYPE: Final = (
    ConfigOptions.key("source.reader.type")
    .string_type()
    .default_value("POLLING")
    .with_description("`POLLING`; enhanced fan-out (`EFO`) is not supported.")
)
EMPTY_INTERVAL: Final = _duration(
    "source.reader.empty-records-fetch-interval", 250, "How long a shard waits after an answer without records."
)
NONEMPTY_INTERVAL: Final = _duration(
    "source.reader.nonempty-records-fetch-interval",
    0,
    "How long a shard waits after an answer with records; never more than five requests a second.",
)
SOURCE_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    INIT_POSITION,
    INIT_TIMESTAMP,
    INIT_FORMAT,
    DISCOVERY_INTERVAL,
    MAX_RECORDS,
    READER_TYPE,
    EMPTY_INTERVAL,
    NONEMPTY_INTERVAL,
)


class KinesisService(ShardService):
    """The requests to a stream of Kinesis.

    Args:
        settings: where the service is.
        stream_arn: the stream.
        user: the feature that connects, for errors.
    """

    def __init__(self, settings: AwsSettings, stream_arn: str, user: str) -> None:
        self._client = settings.connect("kinesis", user)
        self._arn = stream_arn

    def list_shards(self) -> Listing:
        """See `ShardService`. The time is that of the service, so that LATEST does not depend on a clock here."""
        shards: list[Shard] = []
        request: dict[str, Any] = {"StreamARN": self._arn}
        while True:
            answer = self._client.list_shards(MaxResults=_PAGE, **request)
            shards += [_read_shard(each) for each in answer["Shards"]]
            if not answer.get("NextToken"):
                break
            request = {"NextToken": answer["NextToken"]}  # it names the stream, which must not be named again
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        now = datetime.now(UTC) if date is None else parsedate_to_datetime(date)
        return Listing(shards, round(now.timestamp() * 1_000))

    def find_iterator(self, split: ShardSplit) -> str:
        """See `ShardService`."""
        request: dict[str, Any] = {"ShardIteratorType": split.start}
        if split.sequence_number is not None:
            kind = shards.AFTER_SEQUENCE_NUMBER if split.emitted is None else shards.AT_SEQUENCE_NUMBER
            request = {"ShardIteratorType": kind, "StartingSequenceNumber": split.sequence_number}
        elif split.start == shards.AT_TIMESTAMP:
            assert split.timestamp_ms is not None
            request["Timestamp"] = split.timestamp_ms / 1_000
        answer = self._client.get_shard_iterator(StreamARN=self._arn, ShardId=split.shard_id, **request)
        return str(answer["ShardIterator"])

    def fetch(self, split: ShardSplit, iterator: str, limit: int) -> Fetched:
        """See `ShardService`."""
        answer = self._client.get_records(StreamARN=self._arn, ShardIterator=iterator, Limit=limit)
        records = KinesisRecords.read(split.shard_id, answer["Records"], split.shard.hash_keys)
        return Fetched(records, answer.get("NextShardIterator"), answer.get("MillisBehindLatest", 0))

    def close(self) -> None:
        """See `ShardService`."""
        self._client.close()


def _read_shard(answer: Mapping[str, Any]) -> Shard:
    parents = [answer[key] for key in ("ParentShardId", "AdjacentParentShardId") if answer.get(key)]
    keys = answer["HashKeyRange"]
    return Shard(
        answer["ShardId"],
        tuple(parents),
        "EndingSequenceNumber" in answer["SequenceNumberRange"],
        (int(keys["StartingHashKey"]), int(keys["EndingHashKey"])),
    )


class ShardLister:
    """Lists the shards of a stream, again and again, with one connection. Used by one thread at a time.

    Args:
        connect: creates the service.
        what: the source, for errors.
        pause: waits for some seconds.
    """

    def __init__(self, connect: Callable[[], ShardService], what: str, pause: Callable[[float], object]) -> None:
        self._connect, self._what, self._pause = connect, what, pause
        self._service: ShardService | None = None
        self._is_closed = False

    def __call__(self) -> Listing:
        """Return the shards, asking again while the service is away or throttles.

        Raises:
            OperationError: if the service refuses, or is away for too long.
        """
        self._service = self._service or self._connect()
        attempt = 0
        while True:
            try:
                return self._service.list_shards()
            except Exception as error:
                attempt += 1
                if not client.is_passing(error) or attempt == _LISTING_ATTEMPTS or self._is_closed:
                    raise OperationError(f"{self._what} cannot list its shards: {client.describe(error)}") from error
            self._pause(min(10.0, 0.25 * 2**attempt))

    def close(self) -> None:
        """Close the connection."""
        self._is_closed = True
        if self._service is not None:
            self._service.close()


class KinesisStreamsSource(connector.Source[T, ShardSplit | ParentQuestion], Generic[T]):
    """Reads a stream of Kinesis; created with `KinesisStreamsSource.builder()`.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kinesis import KinesisStreamsSource
        >>> builder = KinesisStreamsSource.builder().set_deserialization_schema(SimpleStringSchema())
        >>> builder = builder.set_stream_arn("arn:aws:kinesis:us-east-1:123456789012:stream/orders")
        >>> source = builder.set_source_config({"source.init.position": "TRIM_HORIZON"}).build()
        >>> source.boundedness.name
        'CONTINUOUS_UNBOUNDED'
    """

    boundedness = connector.Boundedness.CONTINUOUS_UNBOUNDED
    #: A reader that starts alone would read a parent again while another one reads the child.
    restarts_by_reader = False

    def __init__(
        self,
        connect: Callable[[], ShardService],
        schema: KinesisDeserializationSchema[T],
        start: str,
        timestamp_ms: int | None,
        interval_ms: int,
        settings: ReadSettings,
    ) -> None:
        self._connect, self._schema, self._settings = connect, schema, settings
        self._start, self._timestamp_ms, self._interval_ms = start, timestamp_ms, interval_ms

    @staticmethod
    def builder() -> KinesisStreamsSourceBuilder[Any]:
        """Return a builder."""
        return KinesisStreamsSourceBuilder()

    def check_execution_mode(self, mode: str, is_local: bool) -> None:
        """Raise `ConfigurationError` for MICRO_BATCH, where readers cannot report the ends of shards."""
        if mode == "MICRO_BATCH":
            raise ConfigurationError(
                "a Kinesis source does not run in MICRO_BATCH, where the children of a shard might be read before its "
                "end: call set_runtime_mode(RuntimeExecutionMode.STREAMING)"
            )

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[ShardSplit | ParentQuestion], restored: EnumeratorState | None
    ) -> connector.SplitEnumerator[ShardSplit | ParentQuestion]:
        """See `Source`."""
        lister = ShardLister(self._connect, type(self).__name__, time.sleep)
        return ShardEnumerator(
            context, restored, lister, lister.close, self._start, self._timestamp_ms, self._interval_ms
        )

    def create_reader(
        self, context: connector.SourceReaderContext
    ) -> connector.SourceReader[T, ShardSplit | ParentQuestion]:
        """See `Source`."""
        return ShardReader(context, self._connect(), self._schema, self._settings, type(self).__name__)


class KinesisStreamsSourceBuilder(Generic[T]):
    """Builder for `KinesisStreamsSource`.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kinesis import KinesisStreamsSource
        >>> builder = KinesisStreamsSource.builder().set_deserialization_schema(SimpleStringSchema())
        >>> builder = builder.set_stream_arn("arn:aws:kinesis:us-east-1:123456789012:stream/orders")
        >>> _ = builder.set_source_config({"source.shard.discovery.interval": "30 s"}).build()
    """

    def __init__(self) -> None:
        self._arn: str | None = None
        self._config: dict[str, str] = {}
        self._schema: KinesisDeserializationSchema[T] | None = None

    def set_stream_arn(self, stream_arn: str) -> KinesisStreamsSourceBuilder[T]:
        """Set the stream: `arn:aws:kinesis:REGION:ACCOUNT:stream/NAME`."""
        self._arn = stream_arn
        return self

    def set_source_config(self, source_config: Mapping[str, Any]) -> KinesisStreamsSourceBuilder[T]:
        """Set properties of AWS (`aws.…`) and of the source (`source.…`), as for a table."""
        self._config = {key: str(value) for key, value in dict(source_config).items()}
        return self

    def set_deserialization_schema(self, deserialization_schema: Any) -> KinesisStreamsSourceBuilder[T]:
        """Set a `DeserializationSchema` of the data, or a `KinesisDeserializationSchema` of whole records.

        Raises:
            ConfigurationError: for anything else.
        """
        self._schema = KinesisDeserializationSchema.of(deserialization_schema)
        return self

    def build(self) -> KinesisStreamsSource[T]:
        """Build the source.

        Raises:
            ConfigurationError: if stream or schema are missing, or a property is unknown or invalid.
            UnsupportedError: for enhanced fan-out, and for another form of dates.
        """
        if self._schema is None:
            raise ConfigurationError("a Kinesis source needs set_deserialization_schema")
        settings = read_settings(self._arn, {key: value for key, value in self._config.items() if key[:4] == "aws."})
        known = {option.key(): option for option in SOURCE_OPTIONS}
        unknown = sorted(key for key in self._config if key not in known and not key.startswith("aws."))
        if unknown:
            raise ConfigurationError(f"a Kinesis source has no property {', '.join(map(repr, unknown))}")
        start, timestamp_ms = read_start(self._read(INIT_POSITION), self._read(INIT_TIMESTAMP), self._read(INIT_FORMAT))
        check_reader_type(self._read(READER_TYPE))
        reading = ReadSettings(self._read(MAX_RECORDS), self._read(EMPTY_INTERVAL), self._read(NONEMPTY_INTERVAL))
        if not 1 <= reading.max_records <= 10_000:
            raise ConfigurationError(f"{MAX_RECORDS.key()} is {reading.max_records}; it must be 1 to 10000")
        client.load_library("KinesisStreamsSource")
        connect = partial(KinesisService, settings, str(self._arn), "KinesisStreamsSource")
        interval_ms = self._read(DISCOVERY_INTERVAL)
        return KinesisStreamsSource(connect, self._schema, start, timestamp_ms, interval_ms, reading)

    def _read(self, option: ConfigOption[Any]) -> Any:
        text = self._config.get(option.key())
        return option.default_value() if text is None else option.convert(text)


def read_settings(arn: str | None, properties: Mapping[str, str]) -> AwsSettings:
    """Return where a stream is; its region is that of the ARN unless a property names one.

    Raises:
        ConfigurationError: for an invalid ARN, or one of another region.
    """
    match = ARN.fullmatch(arn or "")
    if match is None:
        raise ConfigurationError(
            f"a stream is named by its ARN, as arn:aws:kinesis:REGION:ACCOUNT:stream/NAME, not by {arn!r}"
        )
    region = properties.get(client.REGION, match[2])
    if match[2] and region != match[2]:
        raise ConfigurationError(f"{client.REGION} is {region!r}, but the stream {arn} is in {match[2]!r}")
    return AwsSettings({**properties, client.REGION: region})


def check_reader_type(reader_type: str) -> None:
    """Raise `UnsupportedError` for enhanced fan-out, `ConfigurationError` for an unknown reader."""
    if reader_type == "EFO":
        raise UnsupportedError(
            f"{READER_TYPE.key()} = EFO (enhanced fan-out) is not supported: leave it out to read by polling, which "
            "shares 2 MB a second of each shard among all that poll"
        )
    if reader_type != "POLLING":
        raise ConfigurationError(f"{READER_TYPE.key()} is POLLING, not {reader_type!r}")


def read_start(position: str, timestamp: str | None, form: str) -> tuple[str, int | None]:
    """Return the start of a stream, and its time (ms) for `AT_TIMESTAMP`.

    Raises:
        ConfigurationError: for an unknown position, or a time that is missing or cannot be read.
        UnsupportedError: for another form of dates than the default.
    """
    if position not in POSITIONS:
        raise ConfigurationError(f"{INIT_POSITION.key()} is one of {', '.join(POSITIONS)}, not {position!r}")
    if form != JAVA_FORMAT:
        raise UnsupportedError(
            f"{INIT_FORMAT.key()} = {form!r} is not supported: write {INIT_TIMESTAMP.key()} as {JAVA_FORMAT}, or as "
            "seconds since 1970"
        )
    if position != shards.AT_TIMESTAMP:
        return position, None
    if timestamp is None:
        raise ConfigurationError(f"{INIT_POSITION.key()} = AT_TIMESTAMP needs {INIT_TIMESTAMP.key()}")
    try:
        return position, round(float(timestamp) * 1_000)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError as error:
        raise ConfigurationError(
            f"{INIT_TIMESTAMP.key()}: {timestamp!r} is no time such as 2026-01-31T12:00:00.000Z"
        ) from error
    if moment.tzinfo is None:
        raise ConfigurationError(f"{INIT_TIMESTAMP.key()}: {timestamp!r} has no time zone: add Z or +01:00")
    return position, round(moment.timestamp() * 1_000)
