"""`KafkaSource`: reads Kafka topics, bounded or unbounded, exactly once.

A split is a partition with a position and an optional stop offset. Positions are in the job's checkpoints, never in the
consumer group, so a job that continues from a checkpoint resumes exactly where it stopped, at any parallelism.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Generic, TypeVar

from penstock.base.errors import ConfigurationError
from penstock.codecs.serialization import DeserializationSchema
from penstock.connectors.kafka.consumer_settings import consumer_options
from penstock.connectors.kafka.enumerator import KafkaEnumerator, ReadingPlan
from penstock.connectors.kafka.library import make_consumer
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer
from penstock.connectors.kafka.partitions import KafkaPartitionSplit, KafkaTopicPartition
from penstock.connectors.kafka.reader import KafkaReader
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema
from penstock.connectors.kafka.subscription import Partitions, Subscription, TopicPattern, Topics
from penstock.core.connector import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)

T = TypeVar("T")


class KafkaSource(Source[T, KafkaPartitionSplit], Generic[T]):
    """Reads Kafka topics; created with `KafkaSource.builder()`."""

    def __init__(
        self, plan: ReadingPlan, schema: KafkaRecordDeserializationSchema[T], boundedness: Boundedness
    ) -> None:
        self._plan = plan
        self._schema = schema
        self._boundedness = boundedness

    @staticmethod
    def builder() -> KafkaSourceBuilder[Any]:
        """Return a builder."""
        return KafkaSourceBuilder()

    @property
    def boundedness(self) -> Boundedness:
        """Bounded after `set_bounded`."""
        return self._boundedness

    def create_enumerator(
        self, context: SplitEnumeratorContext[KafkaPartitionSplit], restored: Any | None
    ) -> SplitEnumerator[KafkaPartitionSplit]:
        """Return a new enumerator, or one that resumes from a value that `snapshot_state` returned."""
        return KafkaEnumerator(self._plan, context, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, KafkaPartitionSplit]:
        """Return a new reader for one subtask."""
        options = self._plan.options
        return KafkaReader(context, options, options.reset or self._plan.starting.reset, self._schema)


class KafkaSourceBuilder(Generic[T]):
    """Builder for `KafkaSource`."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._subscription: Subscription | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._boundedness = Boundedness.CONTINUOUS_UNBOUNDED
        self._schema: KafkaRecordDeserializationSchema[T] | None = None
        self._client_id_prefix: str | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder[T]:
        """Set the bootstrap brokers, as `host:port,host:port`."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder[T]:
        """Set the consumer group for the offsets committed after each checkpoint; without it none are committed."""
        return self.set_property("group.id", group_id)

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

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder[T]:
        """Set where each partition starts; at its first record by default.

        A job that continues from a checkpoint or savepoint starts at the positions in it. A partition that is
        discovered later starts at its first record.
        """
        self._starting = _initializer(starting_offsets_initializer)
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder[T]:
        """Stop each partition before an offset, in a job that counts as unbounded."""
        self._stopping = _initializer(stopping_offsets_initializer)
        self._boundedness = Boundedness.CONTINUOUS_UNBOUNDED
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder[T]:
        """Stop each partition before an offset: the source is bounded, and can be read in BATCH."""
        self._stopping = _initializer(stopping_offsets_initializer)
        self._boundedness = Boundedness.BOUNDED
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema[T]) -> KafkaSourceBuilder[T]:
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

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema[T]) -> KafkaSourceBuilder[T]:
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

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder[T]:
        """Set the prefix of the client ids of the readers."""
        self._client_id_prefix = prefix
        return self

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder[T]:
        """Set a property of the source, of Kafka's Java consumer, or of librdkafka."""
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder[T]:
        """Set several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource[T]:
        """Build the source.

        Raises:
            ConfigurationError: if brokers, topics or schema are missing, or a property is unknown or invalid.
        """
        if self._subscription is None:
            raise ConfigurationError("a Kafka source needs set_topics, set_topic_pattern or set_partitions")
        if self._schema is None:
            raise ConfigurationError("a Kafka source needs set_value_only_deserializer or set_deserializer")
        options = consumer_options(self._properties, self._client_id_prefix, looks_once=self._stopping is not None)
        for initializer in (self._starting, self._stopping):
            if options.group_id is None and initializer is not None and initializer.needs_group:
                raise ConfigurationError("KafkaOffsetsInitializer.committed_offsets() needs set_group_id")
        unconnected = {name: value for name, value in options.of_consumer(0).items() if name != "bootstrap.servers"}
        make_consumer({**unconnected, "log_level": 0}).close()  # rejects properties that librdkafka does not know
        plan = ReadingPlan(self._subscription, self._starting, self._stopping, options)
        return KafkaSource(plan, self._schema, self._boundedness)


def _initializer(value: KafkaOffsetsInitializer) -> KafkaOffsetsInitializer:
    if not isinstance(value, KafkaOffsetsInitializer):
        raise ConfigurationError(f"a KafkaOffsetsInitializer is needed, such as .earliest(), not {value!r}")
    return value
