"""`KafkaShareGroupSource`: reads topics of Kafka as queues, over a share group.

The brokers deal out the records of a partition to all members of a share group, and record what is accepted. There are
no positions: order is lost, and more readers than partitions have work. A reader accepts the records of a fetch when a
checkpoint that covers them has completed (`penstock.connectors.subscriptions`). A member of a group fetches again only
after that, so a reader consists of several members, which take turns: `members` limits how much a reader reads between
two checkpoints.

A record that is not accepted within the group's lock, 30 s by default, is delivered again, as are the records of a
reader that was killed: at least once. A reader drops records that it has seen, so with one reader a record counts once.
A reader that closes returns its records immediately.

Kafka has share groups from 4.2 on, and the library confluent-kafka from 2.16 on, as a preview.

Source: Kafka's "Queues for Kafka" (KIP-932). Flink has no such source.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.codecs.serialization import DeserializationSchema
from penstock.connectors.base import refuse_or_skip
from penstock.connectors.kafka import client, source
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema, KafkaRecords
from penstock.connectors.subscriptions import (
    Delivery,
    MessageReading,
    Subscription,
    SubscriptionSource,
    SubscriptionSplit,
)
from penstock.runtime.connector import SourceReaderContext
from penstock.runtime.records import Batch

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

#: How long a member waits for records while others may have some, and how long all wait for a checkpoint.
_POLL_S: Final = 0.05
_WAIT_S: Final = 1.0
_COMMIT_S: Final = 10.0
_RESET: Final = "share.auto.offset.reset"
_RESETS: Final = ("earliest", "latest")
#: The source polls again when a checkpoint has completed, however long that takes.
_NEVER_MS: Final = 86_400_000
#: Settings that a consumer of a share group does not take; none of them is the user's.
_OF_CONSUMERS: Final = (
    "enable.auto.commit",
    "isolation.level",
    "fetch.queue.backoff.ms",
    "queued.max.messages.kbytes",
    "statistics.interval.ms",
)


class _Tag(NamedTuple):
    """A record that the group has lent to a reader."""

    topic: str
    partition: int
    offset: int


class _Reading(MessageReading):
    """Decodes records, partition by partition."""

    def __init__(self, schema: KafkaRecordDeserializationSchema[Any]) -> None:
        self._schema = schema

    def read(self, messages: Sequence[Any], context: SourceReaderContext) -> Batch | None:
        """See `MessageReading`."""
        from confluent_kafka import Message

        places: Any = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        values: list[Any] = []
        times: list[int] = []
        start = 0
        for (topic, number), run in groupby(places):
            stop = start + sum(1 for _ in run)
            self._decode(KafkaRecords(KafkaTopicPartition(topic, number), messages[start:stop]), context, values, times)
            start = stop
        if not values:
            return None
        return Batch(values, times if len(times) == len(values) else None)

    def _decode(self, records: KafkaRecords, context: SourceReaderContext, values: list[Any], times: list[int]) -> None:
        schema, partition, contents = self._schema, str(records.partition), records.values
        deserialized = schema.deserialize_batch(records)
        context.count("numBytesIn", sum(map(len, filter(None, contents))))
        if deserialized.bad:
            refuse_or_skip(
                deserialized.bad,
                [value or b"" for value in contents],
                lambda index: (partition, records.offsets[index]),
                context,
                schema.on_error,
                schema.malformed_output,
            )
        values += deserialized.values
        if records.timestamps is not None:
            times += deserialized.of_records(records.timestamps)


class _Member:
    """A member of the group, and the records of its last fetch that it has not accepted."""

    def __init__(self, settings: Mapping[str, Any], topics: Sequence[str]) -> None:
        from confluent_kafka import ShareConsumer

        self.consumer = ShareConsumer(dict(settings))
        self.consumer.subscribe(list(topics))
        self.tags: list[_Tag] = []


class _Share(Subscription):
    """The members of a reader, in one thread."""

    def __init__(self, share_source: KafkaShareGroupSource) -> None:
        super().__init__(f"the share group {share_source.group_id} of Kafka")
        self._source = share_source
        self._changed = threading.Condition()
        self._accepted: set[_Tag] = set()
        self._failure: KafkaError | None = None

    def consume(self) -> None:
        """See `Subscription`."""
        share_source = self._source
        share_source.check_topics()
        settings = {**share_source.settings, "error_cb": self._on_error, "logger": client.CLIENT_LOG}
        members = [_Member(settings, share_source.topics) for _ in range(share_source.members)]
        try:
            self.connected()
            while not self.is_closing:
                for member in members:
                    if not member.tags or self._is_accepted(member):
                        self._fetch(member)
                if all(member.tags for member in members):
                    with self._changed:
                        self._changed.wait_for(lambda: self.is_closing or any(map(self._is_accepted, members)), _WAIT_S)
        finally:
            for member in members:
                self._settle(member)
                member.consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        if error.name() not in client.PASSING:
            self._failure = error

    def _is_accepted(self, member: _Member) -> bool:
        return self._accepted.issuperset(member.tags)

    def _fetch(self, member: _Member) -> None:
        """Accept the records of the last fetch, and put others into the inbox."""
        self._settle(member)
        records: list[Message] = []
        for message in member.consumer.poll(_POLL_S):
            error = message.error()
            if error is None:
                records.append(message)
            elif error.name() not in client.PASSING:
                self._failure = error
        if self._failure is not None:
            reason = client.find_credentials_error(self._failure)
            if reason is not None:
                raise client.refused(self._source.settings["bootstrap.servers"], reason)
            raise OperationError(f"{self.title}: {self._failure.name()}: {self._failure.str()}")
        tags = [_Tag(message.topic(), message.partition(), message.offset()) for message in records]  # type: ignore[arg-type]
        member.tags = tags
        self.inbox.extend(map(Delivery, records, tags, tags))

    def _settle(self, member: _Member) -> None:
        """Accept the records of the last fetch; if the source closes, return records that no checkpoint covers."""
        from confluent_kafka import AcknowledgeType

        if not member.tags:
            return
        with self._changed:
            accepted = self._accepted.intersection(member.tags)
            self._accepted -= accepted
        for tag in member.tags:
            kind = AcknowledgeType.ACCEPT if tag in accepted else AcknowledgeType.RELEASE
            member.consumer.acknowledge_offset(*tag, kind)
        member.tags = []
        for partition, error in member.consumer.commit_sync(_COMMIT_S).items():
            if error is not None:
                client.LOG.warning(
                    "%s: records of %s-%d could not be accepted, and come again (%s). If this repeats, checkpoints "
                    "take longer than the group's share.record.lock.duration.ms",
                    self.title,
                    partition.topic,
                    partition.partition,
                    error.args[0].str(),
                )

    def interrupt(self) -> None:
        """See `Subscription`."""
        with self._changed:
            self._changed.notify_all()

    def acknowledge(self, tags: Sequence[Any]) -> None:
        """See `Subscription`."""
        with self._changed:
            self._accepted.update(tags)
            self._changed.notify_all()


class KafkaShareGroupSource(SubscriptionSource):
    """Reads topics as queues, see the module. At least once; each record counts once with one reader.

    Args:
        bootstrap_servers: the brokers, as `host:port,host:port`.
        group_id: the share group.
        topics: the topics, which must exist.
        deserializer: a `DeserializationSchema` for the values, which skips records without one, or a
            `KafkaRecordDeserializationSchema`.
        offset_reset: `earliest` or `latest`: where a group without records of its own begins. It is stored in the
            group (`share.auto.offset.reset`), which is why the user needs the right to alter it. None leaves it as
            it is; Kafka's default is `latest`.
        members: how many members of the group a reader is, each with one fetch between two checkpoints.
        properties: properties of Kafka's consumer in Java or of librdkafka, such as `security.protocol`.

    Raises:
        ConfigurationError: without a group, topics or members, for another offset reset, and if confluent-kafka is
            missing; for a property that does not apply when the job is built.
        UnsupportedError: when the job is built, if confluent-kafka has no share groups.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kafka import KafkaShareGroupSource
        >>> source = KafkaShareGroupSource("localhost:9092", "packers", ["orders"], SimpleStringSchema())
        >>> source.topics
        ('orders',)
    """

    drops_repeated = True

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        topics: Sequence[str],
        deserializer: DeserializationSchema[Any] | KafkaRecordDeserializationSchema[Any],
        *,
        offset_reset: str | None = None,
        members: int = 4,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        if not group_id:
            raise ConfigurationError("a KafkaShareGroupSource needs the name of a share group")
        if isinstance(topics, str) or not topics or not all(topics):
            raise ConfigurationError(f"a KafkaShareGroupSource takes the names of topics, not {topics!r}")
        if offset_reset is not None and offset_reset not in _RESETS:
            raise ConfigurationError(f"offset_reset is {' or '.join(_RESETS)}, not {offset_reset!r}")
        if members < 1:
            raise ConfigurationError(f"a reader of a share group is 1 member or more, not {members}")
        if isinstance(deserializer, DeserializationSchema):
            deserializer = KafkaRecordDeserializationSchema.value_only(deserializer)
        elif not isinstance(deserializer, KafkaRecordDeserializationSchema):
            raise ConfigurationError(f"a KafkaShareGroupSource takes a schema, not {deserializer!r}")
        given = {**(properties or {}), "bootstrap.servers": bootstrap_servers, "group.id": group_id}
        self._options = client.consumer_options(given, None, looks_once=True)
        settings = {key: value for key, value in self._options.settings.items() if key not in _OF_CONSUMERS}
        self.settings: dict[str, Any] = {
            **settings,
            **{key: given[key] for key in _OF_CONSUMERS if key in given},
            "share.acknowledgement.mode": "explicit",
            "max.poll.interval.ms": _NEVER_MS,
        }
        self.group_id, self.topics, self.members = group_id, tuple(topics), members
        self._offset_reset = offset_reset
        self.reading = _Reading(deserializer)
        client.require_library()

    def configure(self, configuration: Configuration) -> None:
        """Check that the library has share groups and knows the properties, as the job is built."""
        super().configure(configuration)
        _check_settings(self.settings)

    def max_parallelism(self) -> int | None:
        """Return None: readers share the records. With several, a record that comes again may reach another one."""
        return None

    def create_subscription(self, split: SubscriptionSplit) -> Subscription:
        """See `SubscriptionSource`."""
        return _Share(self)

    def check_topics(self) -> None:
        """Check that the topics exist, and set where the group begins. Called by each reader as it connects.

        Raises:
            OperationError: for a topic that does not exist, a group that cannot be altered, and for brokers without
                share groups.
            ConnectionError: if no broker answers.
        """
        from confluent_kafka import KafkaException

        options = self._options
        lookup = source.KafkaMetadata(options.of_admin(), None, False, options.unavailable_timeout_ms)
        try:
            known = lookup.partition_counts(self.topics)
        except KafkaException as error:
            if (refusal := lookup.refusal()) is not None:
                raise client.refused(self.settings["bootstrap.servers"], refusal) from error
            raise ConnectionError(f"no broker of Kafka answers: {error.args[0].str()}") from error
        missing = [topic for topic in self.topics if topic not in known]
        if missing:
            raise OperationError(f"the Kafka topic {missing[0]} of the share group {self.group_id} does not exist")
        if self._offset_reset is not None:
            self._set_offset_reset(self._offset_reset)

    def _set_offset_reset(self, offset_reset: str) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

        entry = ConfigEntry(_RESET, offset_reset, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, self.group_id, incremental_configs=[entry])
        admin = client.make_admin(self._options.of_admin())
        try:
            for answer in admin.incremental_alter_configs([resource]).values():
                answer.result(_COMMIT_S)
        except KafkaException as error:
            if error.args[0].name() in client.PASSING:
                raise ConnectionError(f"no broker of Kafka answers: {error.args[0].str()}") from error
            raise OperationError(
                f"the share group {self.group_id} cannot be set to {_RESET}={offset_reset}: {error.args[0].str()}. "
                "Set it with kafka-configs, and leave out offset_reset"
            ) from error


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Check that the library has share groups and knows the settings."""
    import confluent_kafka

    if not hasattr(confluent_kafka, "ShareConsumer"):
        raise UnsupportedError(
            f"share groups need confluent-kafka 2.16 or later, and {confluent_kafka.version()} is installed"
        )
    try:
        confluent_kafka.ShareConsumer({**settings, "log_level": 0}).close()
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        reason = str(error).removeprefix("Failed to create share consumer: ")
        raise ConfigurationError(f"the consumer of a Kafka share group cannot be set up: {reason}") from error
