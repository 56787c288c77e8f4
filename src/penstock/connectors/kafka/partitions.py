"""Topic partitions and their splits, the subscription of a source, and the offsets at which a source starts and stops.

`assign_reader` assigns the splits to readers. A `Subscription` selects all partitions of named topics, all of topics
that match a pattern, or named partitions. `KafkaOffsetsInitializer` determines where to start in each partition, and
where to stop.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.base.errors import ConfigurationError, OperationError


@dataclass(frozen=True, slots=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic.

    Args:
        topic: the topic's name.
        partition: the partition's number, from 0.

    Raises:
        ConfigurationError: if the number is negative.

    Examples:
        >>> from penstock.datastream.connectors.kafka import KafkaSource, KafkaTopicPartition
        >>> first = KafkaTopicPartition("orders", 0)
        >>> builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_partitions({first})
        >>> first.topic, first.partition
        ('orders', 0)
    """

    topic: str
    partition: int

    def __post_init__(self) -> None:
        if self.partition < 0:
            raise ConfigurationError(f"a partition's number must not be negative: {self.partition} of {self.topic}")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class KafkaPartitionSplit:
    """A partition to read from an offset up to, but excluding, `stop`; None to read it without end."""

    partition: KafkaTopicPartition
    position: int
    stop: int | None = None

    @property
    def is_read(self) -> bool:
        """Whether nothing is left to read."""
        return self.stop is not None and self.position >= self.stop


def assign_reader(partition: KafkaTopicPartition, parallelism: int) -> int:
    """Return the reader of a partition by Flink's rule: round-robin per topic, starting at the hash of its name."""
    start = (_java_hash(partition.topic) * 31 & 0x7FFFFFFF) % parallelism
    return (start + partition.partition) % parallelism


def _java_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


class TopicLookup(Protocol):
    """Queries the brokers for topics."""

    def topic_names(self) -> Collection[str]:
        """Return all topics except Kafka's internal ones."""
        ...

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the number of partitions of each topic, omitting topics that do not exist."""
        ...


class Subscription(Protocol):
    """Selects the partitions to read."""

    def partitions(self, lookup: TopicLookup) -> set[KafkaTopicPartition]:
        """Return the partitions that exist now; raises `OperationError` if required ones are missing."""
        ...


@dataclass(frozen=True)
class Topics:
    """All partitions of these topics."""

    names: tuple[str, ...]

    def partitions(self, lookup: TopicLookup) -> set[KafkaTopicPartition]:
        """Return all partitions; each topic must exist."""
        counts = lookup.partition_counts(self.names)
        if missing := sorted(set(self.names) - set(counts)):
            raise MissingTopicError(f"there is no topic {', '.join(missing)}")
        return _all(counts)


@dataclass(frozen=True)
class TopicPattern:
    """All partitions of topics whose full names match."""

    pattern: str

    def partitions(self, lookup: TopicLookup) -> set[KafkaTopicPartition]:
        """Return the partitions of the topics that match now."""
        matches = re.compile(self.pattern).fullmatch
        return _all(lookup.partition_counts([name for name in lookup.topic_names() if matches(name)]))


@dataclass(frozen=True)
class Partitions:
    """These partitions."""

    wanted: frozenset[KafkaTopicPartition]

    def partitions(self, lookup: TopicLookup) -> set[KafkaTopicPartition]:
        """Return the partitions; each must exist."""
        missing = self.wanted - _all(lookup.partition_counts({partition.topic for partition in self.wanted}))
        if missing:
            raise MissingTopicError(f"there is no partition {', '.join(map(str, sorted(missing)))}")
        return set(self.wanted)


class MissingTopicError(OperationError):
    """A topic or partition that the source names does not exist."""


def _all(counts: Mapping[str, int]) -> set[KafkaTopicPartition]:
    return {KafkaTopicPartition(topic, number) for topic, count in counts.items() for number in range(count)}


Offsets = dict[KafkaTopicPartition, int]


class KafkaOffsetResetStrategy(enum.Enum):
    """The strategy for a missing offset: none was committed, or its record was deleted.

    Examples:
        >>> from penstock.datastream.connectors.kafka import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
        >>> start = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
    """

    LATEST = 0
    """Go on at the end of the partition."""

    EARLIEST = 1
    """Go on at the first record that is left."""

    NONE = 2
    """Fail."""


class OffsetLookup(Protocol):
    """Queries the brokers for offsets."""

    def earliest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the first offset of each partition."""
        ...

    def latest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the offset of each partition's next record; with `read_committed`, of its first open transaction."""
        ...

    def at(self, timestamp_ms: int, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the offset of the first record at or after a time, for partitions that have one."""
        ...

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the committed offsets of the group, for partitions that have one."""
        ...


class _Kind(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Where a source starts to read each partition, or stops; created by one of the static methods.

    Attributes:
        reset: the strategy for a missing offset.

    Examples:
        >>> from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
        >>> builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("orders")
        >>> builder = builder.set_starting_offsets(KafkaOffsetsInitializer.timestamp(1_700_000_000_000))
    """

    _kind: _Kind
    reset: KafkaOffsetResetStrategy
    _timestamp_ms: int = 0
    _offsets: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Use the offsets that the consumer group has committed.

        Args:
            offset_reset_strategy: the strategy for a partition without a committed offset; by default the job fails.
        """
        return KafkaOffsetsInitializer(_Kind.COMMITTED, _strategy(offset_reset_strategy))

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Use the first record of each partition at or after this time (ms), or else the partition's end.

        Raises:
            ConfigurationError: if the time is negative.
        """
        if timestamp < 0:
            raise ConfigurationError(f"a timestamp of Kafka's must not be negative: {timestamp}")
        return KafkaOffsetsInitializer(_Kind.TIMESTAMP, KafkaOffsetResetStrategy.LATEST, _timestamp_ms=timestamp)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Use the first record of each partition."""
        return KafkaOffsetsInitializer(_Kind.EARLIEST, KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Use the end of each partition at the time of its discovery."""
        return KafkaOffsetsInitializer(_Kind.LATEST, KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Use these offsets. Other partitions start at the offset that their group has committed.

        Args:
            offsets: the offset of each partition.
            offset_reset_strategy: the strategy for a partition that has neither, or no record at its offset.

        Raises:
            ConfigurationError: if an offset is negative.
        """
        for partition, offset in offsets.items():
            if offset < 0:
                raise ConfigurationError(f"the offset of {partition} must not be negative: {offset}")
        return KafkaOffsetsInitializer(_Kind.OFFSETS, _strategy(offset_reset_strategy), _offsets=dict(offsets))

    @property
    def needs_group(self) -> bool:
        """Whether committed offsets of a group are required."""
        return self._kind is _Kind.COMMITTED

    def resolve(self, partitions: Iterable[KafkaTopicPartition], lookup: OffsetLookup) -> Offsets:
        """Return the offset of each partition.

        Raises:
            OperationError: if a partition has none, and the strategy is to fail.
        """
        requested = list(partitions)
        if not requested or self._kind is _Kind.EARLIEST:
            return lookup.earliest(requested) if requested else {}
        if self._kind is _Kind.LATEST:
            return lookup.latest(requested)
        if self._kind is _Kind.TIMESTAMP:
            offsets = lookup.at(self._timestamp_ms, requested)
        else:
            offsets = {partition: self._offsets[partition] for partition in requested if partition in self._offsets}
            offsets.update(lookup.committed([partition for partition in requested if partition not in offsets]))
        return {**offsets, **self._reset([partition for partition in requested if partition not in offsets], lookup)}

    def _reset(self, partitions: list[KafkaTopicPartition], lookup: OffsetLookup) -> Offsets:
        if not partitions:
            return {}
        if self.reset is KafkaOffsetResetStrategy.NONE:
            raise OperationError(
                f"the consumer group has committed no offset for {', '.join(map(str, partitions))}: give "
                "committed_offsets() a KafkaOffsetResetStrategy, or begin with another KafkaOffsetsInitializer"
            )
        return (
            lookup.earliest(partitions)
            if self.reset is KafkaOffsetResetStrategy.EARLIEST
            else lookup.latest(partitions)
        )


def _strategy(value: KafkaOffsetResetStrategy) -> KafkaOffsetResetStrategy:
    if not isinstance(value, KafkaOffsetResetStrategy):
        raise ConfigurationError(f"offset_reset_strategy must be a KafkaOffsetResetStrategy, not {value!r}")
    return value
