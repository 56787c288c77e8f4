"""Where the streams of a `DynamicKafkaSource` are: `KafkaMetadataService`, and what a source reads of its answers.

Source: Flink's "Dynamic Kafka Source" (FLIP-246).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.base.errors import OperationError
from penstock.base.secrets import remember
from penstock.connectors.kafka import client, source
from penstock.connectors.kafka.partitions import KafkaOffsetsInitializer, Topics


@dataclass(frozen=True)
class ClusterMetadata:
    """The topics of a stream in a cluster.

    Args:
        topics: their names.
        properties: how to connect, `bootstrap.servers` among them; they take precedence over the source's.
        starting_offsets: where the partitions of this cluster start; None for the source's setting.
        stopping_offsets: where they stop; None for the source's setting.

    Examples:
        >>> from penstock.datastream.connectors.dynamic_kafka import ClusterMetadata
        >>> ClusterMetadata({"orders"}, {"bootstrap.servers": "east:9092"}).topics
        {'orders'}
    """

    topics: Collection[str]
    properties: Mapping[str, str] = field(repr=False)
    starting_offsets: KafkaOffsetsInitializer | None = None
    stopping_offsets: KafkaOffsetsInitializer | None = None


@dataclass(frozen=True)
class KafkaStream:
    """A stream: its id, and by cluster where its records are.

    Examples:
        >>> from penstock.datastream.connectors.dynamic_kafka import ClusterMetadata, KafkaStream
        >>> east = ClusterMetadata({"orders"}, {"bootstrap.servers": "east:9092"})
        >>> sorted(KafkaStream("orders", {"east": east}).cluster_metadata_map)
        ['east']
    """

    stream_id: str
    #: not in the hash, so that streams may be in a set
    cluster_metadata_map: Mapping[str, ClusterMetadata] = field(hash=False)


class KafkaMetadataService(ABC):
    """Says where the records of streams are. It is pickled into the job, and asked in a background thread.

    Examples:
        >>> from penstock.datastream.connectors.dynamic_kafka import KafkaMetadataService, KafkaStream
        >>> class Nowhere(KafkaMetadataService):
        ...     def get_all_streams(self):
        ...         return {KafkaStream("orders", {})}
        >>> [stream.stream_id for stream in Nowhere().describe_streams(["orders"]).values()]
        ['orders']
    """

    @abstractmethod
    def get_all_streams(self) -> Collection[KafkaStream]:
        """Return all streams; a source that reads a pattern takes those whose ids match."""

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]:
        """Return the streams with these ids; one that is missing has no records at present."""
        return {stream.stream_id: stream for stream in self.get_all_streams() if stream.stream_id in stream_ids}

    def is_cluster_active(self, kafka_cluster_id: str) -> bool:
        """Return whether errors of a cluster matter; those of an inactive one are logged, and it is asked again."""
        return True

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release connections and other resources."""


class SingleClusterTopicMetadataService(KafkaMetadataService):
    """Each topic of one cluster is a stream of its own, with the topic's name as its id.

    Args:
        kafka_cluster_id: the id of the cluster.
        properties: how to connect.

    Examples:
        >>> from penstock.datastream.connectors.dynamic_kafka import SingleClusterTopicMetadataService
        >>> service = SingleClusterTopicMetadataService("east", {"bootstrap.servers": "east:9092"})
        >>> service.kafka_cluster_id
        'east'
    """

    def __init__(self, kafka_cluster_id: str, properties: Mapping[str, str]) -> None:
        remember(properties)
        self.kafka_cluster_id = kafka_cluster_id
        self._properties = dict(properties)
        self._options = client.consumer_options(properties, None, looks_once=True)

    def get_all_streams(self) -> Collection[KafkaStream]:
        """Return a stream for each topic except Kafka's internal ones."""
        return list(map(self._make_stream, self._lookup.topic_names()))

    def describe_streams(self, stream_ids: Collection[str]) -> Mapping[str, KafkaStream]:
        """Return the streams whose topics exist."""
        return {topic: self._make_stream(topic) for topic in self._lookup.partition_counts(stream_ids)}

    @property
    def _lookup(self) -> source.KafkaMetadata:
        options = self._options
        return source.KafkaMetadata(options.of_admin(), None, options.reads_committed, options.unavailable_timeout_ms)

    def _make_stream(self, topic: str) -> KafkaStream:
        return KafkaStream(topic, {self.kafka_cluster_id: ClusterMetadata({topic}, self._properties)})


class Cluster(NamedTuple):
    """The topics to read in a cluster, and how."""

    topics: tuple[str, ...]
    options: client.ConsumerOptions
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None

    @property
    def plan(self) -> source.ReadingPlan:
        """The plan for the enumerator of this cluster."""
        return source.ReadingPlan(Topics(self.topics), self.starting, self.stopping, self.options)


Metadata = dict[str, Cluster]


@dataclass(frozen=True)
class StreamSettings:
    """The settings of a source."""

    service: KafkaMetadataService
    stream_ids: frozenset[str] | None
    stream_pattern: str | None
    properties: Mapping[str, str] = field(repr=False)
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    interval_ms: int | None
    failures_max: int
    retention_ms: int
    client_id_prefix: str | None

    @property
    def streams(self) -> str:
        """The streams, for errors."""
        if self.stream_ids is not None:
            return f"the streams {', '.join(sorted(self.stream_ids))}"
        return f"streams like {self.stream_pattern!r}"

    def read_metadata(self, interval_ms: int | None) -> Metadata:
        """Ask the service; runs in the background.

        A source that follows its metadata also looks for new partitions.

        Raises:
            OperationError: if two streams name different properties for a cluster.
        """
        if self.stream_ids is not None:
            streams = list(self.service.describe_streams(self.stream_ids).values())
        else:
            matches = re.compile(str(self.stream_pattern)).fullmatch
            streams = [stream for stream in self.service.get_all_streams() if matches(stream.stream_id)]
        metadata: Metadata = {}
        for stream in sorted(streams, key=lambda stream: stream.stream_id):
            for cluster_id, known in stream.cluster_metadata_map.items():
                properties = {**self.properties, **known.properties}
                options = client.consumer_options(properties, self.client_id_prefix, self.stopping is not None)
                if options.discovery_interval_ms is None:
                    options = replace(options, discovery_interval_ms=interval_ms)
                starting = known.starting_offsets or self.starting
                stopping = None if self.stopping is None else known.stopping_offsets or self.stopping
                cluster = Cluster(tuple(sorted(known.topics)), options, starting, stopping)
                before = metadata.setdefault(cluster_id, cluster)
                if before[1:] != cluster[1:]:
                    raise OperationError(
                        f"the streams of the Kafka metadata service name different properties or offsets for cluster "
                        f"{cluster_id!r}, {stream.stream_id!r} among them"
                    )
                metadata[cluster_id] = before._replace(topics=tuple(sorted({*before.topics, *cluster.topics})))
        return metadata
