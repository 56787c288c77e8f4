"""`KafkaSource`: reads Kafka topics, bounded or unbounded, exactly once.

A split is a partition with a position and an optional stop offset. Positions are in the job's checkpoints, never in the
consumer group, so a job that continues from a checkpoint resumes exactly where it stopped, at any parallelism.

`KafkaEnumerator` discovers the partitions of a source, determines where each starts and stops, and assigns them to
readers. A partition goes to the reader that Flink's rule names, once that reader has registered. Offsets are resolved
to numbers when a partition is discovered, and never again, so that a source that restarts reads the same records. The
requests to the brokers are retried while brokers do not answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypedDict, TypeVar

from penstock.base.errors import ConfigurationError, OperationError
from penstock.base.lineage import LineageDataset, name_kafka
from penstock.codecs.serialization import DeserializationSchema
from penstock.connectors.kafka import client
from penstock.connectors.kafka.partitions import (
    KafkaOffsetsInitializer,
    KafkaPartitionSplit,
    KafkaTopicPartition,
    MissingTopicError,
    Offsets,
    Partitions,
    Subscription,
    TopicPattern,
    Topics,
    assign_reader,
)
from penstock.connectors.kafka.reader import KafkaReader
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema
from penstock.runtime import connector

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient


T = TypeVar("T")

_REQUEST_S: Final = 10.0
#: The timeout of the first request, short so that a wrong address is reported soon.
_FIRST_REQUEST_S: Final = 2.0
_RETRY_S: Final = 0.5
#: Includes a topic that was described, but that the broker asked next does not know yet.
_PASSING: Final = client.PASSING | {"UNKNOWN_TOPIC_OR_PART"}


class KafkaMetadata:
    """Topics and offsets, as the brokers know them. Its calls wait for answers.

    Args:
        settings: librdkafka's connection settings.
        group_id: the group whose committed offsets are requested, if any.
        read_committed: whether a partition ends where its first open transaction begins.
        patience_ms: how long brokers may be silent; no request waits longer.
    """

    def __init__(
        self, settings: Mapping[str, Any], group_id: str | None, read_committed: bool, patience_ms: int
    ) -> None:
        self._settings = settings
        self._group_id = group_id
        self._read_committed = read_committed
        self._patience_s = max(patience_ms / 1000, 0.1)
        self._was_asked = False
        self._admin: AdminClient | None = None
        self._refusal: str | None = None
        self._reason: str | None = None

    @property
    def _request_s(self) -> float:
        return min(_REQUEST_S if self._was_asked else _FIRST_REQUEST_S, self._patience_s)

    @property
    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = client.make_admin({**self._settings, "error_cb": self._on_error})
        return self._admin

    def _on_error(self, error: KafkaError) -> None:
        self._refusal = client.find_credentials_error(error) or self._refusal
        if error.name() in ("_TRANSPORT", "_RESOLVE"):
            self._reason = error.str()

    @property
    def reason(self) -> str | None:
        """Why the last connection failed, if the last error was about that; `refusal` updates it."""
        return self._reason

    def was_asked(self, has_answer: bool) -> None:
        """Note that the first request is over; later ones may take longer."""
        self._was_asked = True
        if has_answer:
            self._reason = None

    def refusal(self) -> str | None:
        """Return why brokers reject the credentials, if they do; the answers themselves do not contain the reason."""
        self._client.poll(0)
        return self._refusal

    def topic_names(self) -> Collection[str]:
        """Return all topics except Kafka's internal ones."""
        return [name for name in self._client.list_topics(timeout=self._request_s).topics if not name.startswith("__")]

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the number of partitions of each topic, omitting topics that do not exist."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        counts: dict[str, int] = {}
        if not topics:
            return counts
        answers = self._client.describe_topics(TopicCollection(sorted(set(topics))), request_timeout=self._request_s)
        for topic, answer in answers.items():
            try:
                counts[topic] = len(answer.result().partitions)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        return counts

    def earliest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the first offset of each partition."""
        return self._offsets(partitions, lambda spec: spec.earliest())

    def latest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the end offset of each partition."""
        return self._offsets(partitions, lambda spec: spec.latest())

    def at(self, timestamp_ms: int, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the offset of the first record at or after a time, for partitions that have one."""
        offsets = self._offsets(partitions, lambda spec: spec.for_timestamp(timestamp_ms))
        return {partition: offset for partition, offset in offsets.items() if offset >= 0}

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the committed offsets of the group."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        if self._group_id is None or not partitions:
            return {}
        requested = [TopicPartition(partition.topic, partition.partition) for partition in partitions]
        request = ConsumerGroupTopicPartitions(self._group_id, requested)
        (answer,) = self._client.list_consumer_group_offsets([request], request_timeout=self._request_s).values()
        return {
            KafkaTopicPartition(partition.topic, partition.partition): partition.offset
            for partition in answer.result().topic_partitions
            if partition.offset >= 0
        }

    def _offsets(self, partitions: Collection[KafkaTopicPartition], where: Callable[[Any], Any]) -> Offsets:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        if not partitions:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if self._read_committed else IsolationLevel.READ_UNCOMMITTED
        specs = {TopicPartition(partition.topic, partition.partition): where(OffsetSpec) for partition in partitions}
        answers = self._client.list_offsets(specs, isolation_level=isolation, request_timeout=self._request_s)
        return {
            KafkaTopicPartition(partition.topic, partition.partition): answer.result().offset
            for partition, answer in answers.items()
        }


def ask_patiently(
    ask: Callable[[], T],
    activity: str,
    patience_ms: int,
    is_closed: Callable[[], bool],
    metadata: KafkaMetadata,
) -> T:
    """Call `ask`, which queries `metadata`, until brokers answer; returns the answer.

    Raises:
        ConfigurationError: if brokers reject the credentials.
        OperationError: if brokers do not answer for `patience_ms`, or refuse.
    """
    from confluent_kafka import KafkaException

    begun = time.monotonic()
    while True:
        try:
            answer = ask()
            metadata.was_asked(has_answer=True)
            return answer
        except KafkaException as error:
            metadata.was_asked(has_answer=False)
            reason = error.args[0]
            if (refused := metadata.refusal()) is not None:
                raise ConfigurationError(
                    f"{activity}: the Kafka brokers refuse the connection: {refused}. Check the properties "
                    "security.protocol, sasl.* and ssl.*"
                ) from error
            silent_s = time.monotonic() - begun
            text = metadata.reason or reason.str()
            passes = reason.retriable() or reason.name() in _PASSING
            if not passes:
                raise OperationError(
                    f"{activity}: the Kafka brokers refuse: {reason.str()} ({reason.name()})"
                ) from error
            if silent_s * 1000 >= patience_ms or is_closed():
                raise OperationError(
                    f"{activity}: no Kafka broker has answered for {silent_s:.0f} s ({text}). Check "
                    "bootstrap.servers and the brokers; the property brokers.unavailable.timeout.ms says how long the "
                    "source waits"
                ) from error
            client.LOG.warning("%s: Kafka does not answer yet (%s); asking again", activity, text)
            time.sleep(_RETRY_S)


WHAT = "the Kafka source"


@dataclass(frozen=True)
class ReadingPlan:
    """The partitions to read, and their start and stop offsets; without `stopping` they are read without end."""

    subscription: Subscription
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    options: client.ConsumerOptions


class KafkaEnumeratorState(TypedDict):
    """The state of an enumerator: unassigned splits, and all discovered partitions."""

    pending: list[KafkaPartitionSplit]
    known: list[KafkaTopicPartition]
    has_looked: bool


@dataclass(frozen=True)
class _Found:
    partitions: Collection[KafkaTopicPartition]
    splits: list[KafkaPartitionSplit]


class KafkaEnumerator(connector.SplitEnumerator[KafkaPartitionSplit]):
    """See the module docstring.

    Args:
        plan: the partitions and offsets to read.
        context: the context of the enumerator.
        restored: the state to resume from.
    """

    def __init__(
        self,
        plan: ReadingPlan,
        context: connector.SplitEnumeratorContext[KafkaPartitionSplit],
        restored: KafkaEnumeratorState | None,
    ) -> None:
        self._plan = plan
        self._context = context
        options = plan.options
        patience_ms = options.unavailable_timeout_ms
        self._metadata = KafkaMetadata(options.of_admin(), options.group_id, options.reads_committed, patience_ms)
        self._pending: list[KafkaPartitionSplit] = list(restored["pending"]) if restored else []
        self._known: set[KafkaTopicPartition] = set(restored["known"]) if restored else set()
        self._has_looked = restored is not None and restored["has_looked"]
        self._is_settled = False  # whether discovery has run since the start
        self._missing: set[KafkaTopicPartition] = set()
        self._readers: set[int] = set()
        self._told: set[int] = set()
        self._closed = False

    def start(self) -> None:
        """Discover partitions, unless one discovery is enough and has already run."""
        if self._has_looked and self._plan.options.discovery_interval_ms is None:
            self._is_settled = True
        else:
            self._look_after(0)

    def handle_split_request(self, subtask_index: int) -> None:
        """Register a reader, which gets its splits now and later."""
        self._readers.add(subtask_index)
        self._assign()

    def add_splits_back(self, splits: Sequence[KafkaPartitionSplit], subtask_index: int) -> None:
        """Keep the splits for the reader, which asks again."""
        self._readers.discard(subtask_index)
        self._told.discard(subtask_index)
        self._pending += splits

    def take_back(self, split: KafkaPartitionSplit) -> None:
        """Assign a known partition again, from another position."""
        self._known.add(split.partition)
        self._pending.append(split)
        self._assign()

    def snapshot_state(self, checkpoint_id: int) -> KafkaEnumeratorState:
        """Return the pending splits and the discovered partitions."""
        return KafkaEnumeratorState(pending=list(self._pending), known=sorted(self._known), has_looked=self._has_looked)

    def close(self) -> None:
        """Stop a discovery that waits for brokers."""
        self._closed = True

    def _look_after(self, delay_ms: int) -> None:
        known, is_first = frozenset(self._known), not self._has_looked
        self._context.call_async(lambda: self._look(known, is_first), self._take, delay_ms)

    def _look(self, known: frozenset[KafkaTopicPartition], is_first: bool) -> _Found:
        """Discover partitions. Runs in the background, so it touches no mutable state."""
        plan = self._plan

        def ask() -> _Found:
            partitions = plan.subscription.partitions(self._metadata)
            new = sorted(partitions - known)
            # A partition discovered later is new: its first record belongs to the stream.
            starting = plan.starting if is_first else KafkaOffsetsInitializer.earliest()
            starts = starting.resolve(new, self._metadata)
            stops = {} if plan.stopping is None else plan.stopping.resolve(new, self._metadata)
            return _Found(
                partitions,
                [KafkaPartitionSplit(partition, starts[partition], stops.get(partition)) for partition in new],
            )

        activity = f"{WHAT} looks for partitions of {plan.subscription}"
        return ask_patiently(ask, activity, plan.options.unavailable_timeout_ms, lambda: self._closed, self._metadata)

    def _take(self, discovered: _Found | None, error: BaseException | None) -> None:
        interval_ms = self._plan.options.discovery_interval_ms
        if isinstance(error, MissingTopicError) and self._has_looked and not self._plan.options.fails_on_missing:
            client.LOG.warning("%s: %s; the source goes on without", WHAT, error)
        elif isinstance(error, MissingTopicError) and self._has_looked:
            raise OperationError(self._missing_sentence(str(error))) from error
        elif error is not None:
            raise error
        if discovered is not None:
            self._check_missing(discovered.partitions)
            if self._has_looked and discovered.splits:
                client.LOG.info(
                    "%s has found new partitions: %s", WHAT, ", ".join(str(s.partition) for s in discovered.splits)
                )
            elif not discovered.partitions:
                client.LOG.warning("%s has found no partition of %s", WHAT, self._plan.subscription)
            self._known.update(split.partition for split in discovered.splits)
            self._pending += [split for split in discovered.splits if not split.is_read]
            self._has_looked = True
        self._is_settled = True
        self._assign()
        if interval_ms is not None:
            self._look_after(interval_ms)

    def _check_missing(self, partitions: Collection[KafkaTopicPartition]) -> None:
        missing = self._known - set(partitions)
        new = missing - self._missing
        self._missing = missing
        if not new:
            return
        problem = f"{', '.join(map(str, sorted(new)))} cannot be found any more"
        if self._plan.options.fails_on_missing:
            raise OperationError(self._missing_sentence(problem))
        client.LOG.warning("%s: %s; the source goes on without", WHAT, problem)

    def _missing_sentence(self, problem: str) -> str:
        return (
            f"{WHAT}: {problem}. Records that were not read are lost if the topic was deleted. To go on without, set "
            "the "
            f"property {client.MISSING_PARTITION} to 'ignore'"
        )

    def _assign(self) -> None:
        left: list[KafkaPartitionSplit] = []
        for split in self._pending:
            reader = assign_reader(split.partition, self._context.parallelism)
            if reader in self._readers:
                self._context.assign_split(split, reader)
            else:
                left.append(split)
        self._pending = left
        if self._is_settled and self._plan.stopping is not None and self._plan.options.discovery_interval_ms is None:
            for reader in sorted(self._readers - self._told):
                self._told.add(reader)
                self._context.signal_no_more_splits(reader)


class KafkaSource(connector.Source[T, KafkaPartitionSplit], Generic[T]):
    """Reads Kafka topics; created with `KafkaSource.builder()`.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors import KafkaSource
        >>> builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("orders")
        >>> source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
        >>> source.boundedness.name
        'CONTINUOUS_UNBOUNDED'
    """

    def __init__(
        self, plan: ReadingPlan, schema: KafkaRecordDeserializationSchema[T], boundedness: connector.Boundedness
    ) -> None:
        self._plan = plan
        self._schema = schema
        self._boundedness = boundedness

    @staticmethod
    def builder() -> KafkaSourceBuilder[Any]:
        """Return a builder."""
        return KafkaSourceBuilder()

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded after `set_bounded`."""
        return self._boundedness

    def describe_lineage(self) -> tuple[LineageDataset, ...]:
        """Return the topics, if they are named; a pattern is one dataset."""
        subscription: Any = self._plan.subscription
        names = {partition.topic for partition in getattr(subscription, "wanted", ())}
        names = names or getattr(subscription, "names", None) or {subscription.pattern}
        namespace = name_kafka(str(self._plan.options.of_admin().get("bootstrap.servers", "")))
        return self.lineage or tuple(LineageDataset(namespace, str(name)) for name in sorted(map(str, names)))

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[KafkaPartitionSplit], restored: Any | None
    ) -> connector.SplitEnumerator[KafkaPartitionSplit]:
        """Return a new enumerator, or one that resumes from a value that `snapshot_state` returned."""
        return KafkaEnumerator(self._plan, context, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[T, KafkaPartitionSplit]:
        """Return a new reader for one subtask."""
        options = self._plan.options
        return KafkaReader(context, options, options.reset or self._plan.starting.reset, self._schema)


class ConsumerBuilder(Generic[T]):
    """The base of the builders of Kafka's sources."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._boundedness = connector.Boundedness.CONTINUOUS_UNBOUNDED
        self._schema: KafkaRecordDeserializationSchema[T] | None = None
        self._client_id_prefix: str | None = None

    def set_group_id(self, group_id: str) -> Self:
        """Set the consumer group for the offsets committed after each checkpoint; without it none are committed."""
        return self.set_property("group.id", group_id)

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Set where each partition starts; at its first record by default.

        A job that continues from a checkpoint or savepoint starts at the positions in it. A partition that is
        discovered later starts at its first record.
        """
        self._starting = _initializer(starting_offsets_initializer)
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Stop each partition before an offset, in a job that counts as unbounded."""
        self._stopping = _initializer(stopping_offsets_initializer)
        self._boundedness = connector.Boundedness.CONTINUOUS_UNBOUNDED
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Stop each partition before an offset: the source is bounded, and can be read in BATCH."""
        self._stopping = _initializer(stopping_offsets_initializer)
        self._boundedness = connector.Boundedness.BOUNDED
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema[T]) -> Self:
        """Deserialize the values with a schema; tombstones, which have no value, are skipped.

        Raises:
            ConfigurationError: if it is not a `DeserializationSchema`.
        """
        if not isinstance(deserialization_schema, DeserializationSchema):
            raise ConfigurationError(
                "set_value_only_deserializer takes a DeserializationSchema such as SimpleStringSchema(), not "
                f"{deserialization_schema!r}"
            )
        self._schema = KafkaRecordDeserializationSchema.value_only(deserialization_schema)
        return self

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema[T]) -> Self:
        """Deserialize whole Kafka records: key, value, headers, time, partition and offset.

        Raises:
            ConfigurationError: if it is not a `KafkaRecordDeserializationSchema`.
        """
        if not isinstance(record_deserializer, KafkaRecordDeserializationSchema):
            raise ConfigurationError(
                f"set_deserializer takes a KafkaRecordDeserializationSchema, not {record_deserializer!r}; a schema of "
                "values goes to set_value_only_deserializer"
            )
        self._schema = record_deserializer
        return self

    def set_client_id_prefix(self, prefix: str) -> Self:
        """Set the prefix of the client ids of the readers."""
        self._client_id_prefix = prefix
        return self

    def set_property(self, key: str, value: str) -> Self:
        """Set a property of the source, of Kafka's Java consumer, or of librdkafka."""
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> Self:
        """Set several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def _get_schema(self) -> KafkaRecordDeserializationSchema[T]:
        """Return the schema, or raise ConfigurationError."""
        if self._schema is None:
            raise ConfigurationError("a Kafka source needs set_value_only_deserializer or set_deserializer")
        return self._schema

    def _check(self, options: client.ConsumerOptions) -> None:
        """Check the starting and stopping offsets, and the properties."""
        for initializer in (self._starting, self._stopping):
            if options.group_id is None and initializer is not None and initializer.needs_group:
                raise ConfigurationError("KafkaOffsetsInitializer.committed_offsets() needs set_group_id")
        unconnected = {name: value for name, value in options.of_consumer(0).items() if name != "bootstrap.servers"}
        client.make_consumer(
            {**unconnected, "log_level": 0}
        ).close()  # rejects properties that librdkafka does not know


class KafkaSourceBuilder(ConsumerBuilder[T]):
    """Builder for `KafkaSource`.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
        >>> builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("orders")
        >>> builder = builder.set_starting_offsets(KafkaOffsetsInitializer.earliest())
        >>> builder = builder.set_bounded(KafkaOffsetsInitializer.latest())
        >>> source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
        >>> source.boundedness.name
        'BOUNDED'
    """

    def __init__(self) -> None:
        super().__init__()
        self._subscription: Subscription | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder[T]:
        """Set the bootstrap brokers, as `host:port,host:port`."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder[T]:
        """Read all partitions of these topics.

        Raises:
            ConfigurationError: if no topic is given, or the partitions are already set.
        """
        if not topics or not all(topics):
            raise ConfigurationError(f"set_topics takes the names of topics, not {topics!r}")
        return self._subscribe(Topics(topics))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder[T]:
        """Read all partitions of topics whose full names match a regular expression, including topics created later.

        Raises:
            ConfigurationError: if the partitions are already set.
        """
        return self._subscribe(TopicPattern(topic_pattern))

    def set_partitions(self, partitions: Collection[KafkaTopicPartition]) -> KafkaSourceBuilder[T]:
        """Read only these partitions.

        Raises:
            ConfigurationError: if no partition is given, or the partitions are already set.
        """
        if not partitions or not all(isinstance(partition, KafkaTopicPartition) for partition in partitions):
            raise ConfigurationError(f"set_partitions takes KafkaTopicPartitions, not {partitions!r}")
        return self._subscribe(Partitions(frozenset(partitions)))

    def _subscribe(self, subscription: Subscription) -> KafkaSourceBuilder[T]:
        if self._subscription is not None:
            raise ConfigurationError(
                f"a Kafka source reads topics, or a pattern of topics, or partitions: {self._subscription} is set "
                f"already, so {subscription} cannot be"
            )
        self._subscription = subscription
        return self

    def build(self) -> KafkaSource[T]:
        """Build the source.

        Raises:
            ConfigurationError: if brokers, topics or schema are missing, or a property is unknown or invalid.
        """
        if self._subscription is None:
            raise ConfigurationError("a Kafka source needs set_topics, set_topic_pattern or set_partitions")
        schema = self._get_schema()
        options = client.consumer_options(
            self._properties, self._client_id_prefix, looks_once=self._stopping is not None
        )
        self._check(options)
        return KafkaSource(
            ReadingPlan(self._subscription, self._starting, self._stopping, options), schema, self._boundedness
        )


def _initializer(value: KafkaOffsetsInitializer) -> KafkaOffsetsInitializer:
    if not isinstance(value, KafkaOffsetsInitializer):
        raise ConfigurationError(f"a KafkaOffsetsInitializer is needed, such as .earliest(), not {value!r}")
    return value
