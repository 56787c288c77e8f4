"""The partitions that a source reads: all of named topics, all of topics that match a pattern, or named ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.base.errors import OperationError
from penstock.connectors.kafka.partitions import KafkaTopicPartition


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
