"""`KafkaSource`: reads topics of Kafka, bounded or for ever, exactly once.

A split is a partition with a position, and perhaps a stop. Positions are in the job's checkpoints, never in the
consumer group, so a job that goes on from a checkpoint reads on exactly where it stood, at any parallelism.
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
    """Reads topics of Kafka; made by `KafkaSource.builder()`."""

    def __init__(
        self, plan: ReadingPlan, schema: KafkaRecordDeserializationSchema[T], boundedness: Boundedness
    ) -> None:
        self._plan = plan
        self._schema = schema
        self._boundedness = boundedness

    @staticmethod
    def builder() -> KafkaSourceBuilder[Any]:
        """Starts a source."""
        return KafkaSourceBuilder()

    @property
    def boundedness(self) -> Boundedness:
        """Bounded after `set_bounded`."""
        return self._boundedness

    def create_enumerator(
        self, context: SplitEnumeratorContext[KafkaPartitionSplit], restored: Any | None
    ) -> SplitEnumerator[KafkaPartitionSplit]:
        """A new enumerator, or one that goes on from a value that `snapshot_state` gave."""
        return KafkaEnumerator(self._plan, context, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, KafkaPartitionSplit]:
        """A new reader for one subtask."""
        options = self._plan.options
        return KafkaReader(context, options, options.reset or self._plan.starting.reset, self._schema)


class KafkaSourceBuilder(Generic[T]):
    """Collects the settings of a `KafkaSource`."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._subscription: Subscription | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._boundedness = Boundedness.CONTINUOUS_UNBOUNDED
        self._schema: KafkaRecordDeserializationSchema[T] | None = None
        self._client_id_prefix: str | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder[T]:
        """Sets the brokers to begin with, as `host:port,host:port`."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder[T]:
        """Sets the consumer group to which offsets are committed after each checkpoint; without it none are."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder[T]:
        """Reads all partitions of these topics.

        Raises:
            ConfigurationError: if there is none, or the partitions are set already.
        """
        if not topics or not all(topics):
            raise ConfigurationError(f"set_topics takes the names of topics, not {topics!r}")
        return self._subscribe(Topics(topics))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder[T]:
        """Reads all partitions of topics whose whole names match a regular expression, also of those that come later.

        Raises:
            ConfigurationError: if the pattern is none, or the partitions are set already.
        """
        return self._subscribe(TopicPattern(topic_pattern))

    def set_partitions(self, partitions: Collection[KafkaTopicPartition]) -> KafkaSourceBuilder[T]:
        """Reads these partitions and no others.

        Raises:
            ConfigurationError: if there is none, or the partitions are set already.
        """
        if not partitions or not all(isinstance(one, KafkaTopicPartition) for one in partitions):
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
        """Sets where each partition begins; at its first record unless set.

        A job that goes on from a checkpoint or savepoint begins where that stands. A partition that is found later
        begins at its first record.
        """
        self._starting = _initializer(starting_offsets_initializer)
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder[T]:
        """Stops each partition at an offset, which is excluded, in a job that counts as unbounded."""
        self._stopping = _initializer(stopping_offsets_initializer)
        self._boundedness = Boundedness.CONTINUOUS_UNBOUNDED
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder[T]:
        """Stops each partition at an offset, which is excluded: the source is bounded, and can be read in BATCH."""
        self._stopping = _initializer(stopping_offsets_initializer)
        self._boundedness = Boundedness.BOUNDED
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema[T]) -> KafkaSourceBuilder[T]:
        """Makes records of the values by a schema; tombstones, which have no value, are left out.

        Raises:
            ConfigurationError: if it is no schema.
        """
        if not isinstance(deserialization_schema, DeserializationSchema):
            raise ConfigurationError(
                "set_value_only_deserializer takes a DeserializationSchema such as SimpleStringSchema(), not "
                f"{deserialization_schema!r}"
            )
        self._schema = KafkaRecordDeserializationSchema.value_only(deserialization_schema)
        return self

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema[T]) -> KafkaSourceBuilder[T]:
        """Makes records of whole Kafka records: key, value, headers, time, partition and offset.

        Raises:
            ConfigurationError: if it is no such schema.
        """
        if not isinstance(record_deserializer, KafkaRecordDeserializationSchema):
            raise ConfigurationError(
                f"set_deserializer takes a KafkaRecordDeserializationSchema, not {record_deserializer!r}; a schema of "
                "values goes to set_value_only_deserializer"
            )
        self._schema = record_deserializer
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder[T]:
        """Sets how the names begin by which brokers know the readers."""
        self._client_id_prefix = prefix
        return self

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder[T]:
        """Sets a property of the source, of Kafka's consumer in Java, or of librdkafka."""
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder[T]:
        """Sets several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource[T]:
        """The source.

        Raises:
            ConfigurationError: if brokers, topics or schema are missing, or a property is not known or has no meaning.
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
        make_consumer({**unconnected, "log_level": 0}).close()  # refuses properties that librdkafka does not know
        plan = ReadingPlan(self._subscription, self._starting, self._stopping, options)
        return KafkaSource(plan, self._schema, self._boundedness)


def _initializer(value: KafkaOffsetsInitializer) -> KafkaOffsetsInitializer:
    if not isinstance(value, KafkaOffsetsInitializer):
        raise ConfigurationError(f"a KafkaOffsetsInitializer is needed, such as .earliest(), not {value!r}")
    return value
