"""Topic partitions, their splits, and the assignment of splits to readers."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.errors import ConfigurationError


@dataclass(frozen=True, slots=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic.

    Args:
        topic: the topic's name.
        partition: the partition's number, from 0.

    Raises:
        ConfigurationError: if the number is negative.
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
