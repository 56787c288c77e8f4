"""The reading of one partition, and recovery from offsets that no longer exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.base.errors import OperationError
from penstock.connectors.kafka.library import LOG
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy
from penstock.connectors.kafka.partitions import KafkaPartitionSplit, KafkaTopicPartition
from penstock.core.connector import SourceReaderContext

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

_LOOK_S: Final = 10.0
#: The metric for records that were deleted before they were read.
LOST_COUNTER: Final = "KafkaSourceReader.recordsLost"
RESET_COUNTER: Final = "KafkaSourceReader.offsetResets"


class Reading:
    """A split and its progress.

    Args:
        split: the split to start from.
        consumer: the consumer that reads it.
        context: receives its metrics.
    """

    def __init__(self, split: KafkaPartitionSplit, consumer: Consumer, context: SourceReaderContext) -> None:
        self.split = split
        self._consumer = consumer
        self.is_paused = False
        #: whether it has been fetched to its end once
        self.is_at_end = False
        self.is_missing = False
        name = f"KafkaSourceReader.topic.{split.partition.topic}.partition.{split.partition.partition}"
        context.gauge(f"{name}.currentOffset", lambda: self.split.position)

    def advance(self, position: int) -> None:
        """Set the offset of the next record."""
        self.split = replace(self.split, position=position)

    def place(self) -> TopicPartition:
        """Return the partition and offset as the client library's type."""
        from confluent_kafka import TopicPartition

        return TopicPartition(self.split.partition.topic, self.split.partition.partition, self.split.position)

    def lag(self) -> int:
        """Return the number of offsets left to read, as far as the client knows."""
        try:
            _, high = self._consumer.get_watermark_offsets(self.place(), cached=True)
        except RuntimeError:  # the consumer is closed
            return 0
        return max(0, high - self.split.position)


class Resetter:
    """Finds new offsets for partitions whose offset no longer exists, asking brokers in the background.

    Args:
        consumer: the consumer that reads the partitions.
        strategy: where to continue.
        context: counts lost records.
        background: runs the requests to brokers.
    """

    def __init__(
        self,
        consumer: Consumer,
        strategy: KafkaOffsetResetStrategy,
        context: SourceReaderContext,
        background: Executor,
    ) -> None:
        self._consumer = consumer
        self._strategy = strategy
        self._context = context
        self._background = background
        self._open: dict[KafkaTopicPartition, tuple[KafkaPartitionSplit, Future[tuple[int, int]]]] = {}

    def begin(self, split: KafkaPartitionSplit, error: KafkaError) -> None:
        """Start to look for another offset for a split."""
        from confluent_kafka import TopicPartition

        if split.partition in self._open:
            return
        LOG.info("%s: %s", split.partition, error.str())
        topic_partition = TopicPartition(split.partition.topic, split.partition.partition)
        look = self._background.submit(self._consumer.get_watermark_offsets, topic_partition, _LOOK_S)
        self._open[split.partition] = split, look

    def done(self) -> Iterator[tuple[KafkaTopicPartition, int]]:
        """Yield partitions, each with the offset to continue at.

        Raises:
            OperationError: if the strategy is to fail, or the brokers do not answer.
        """
        for partition, (split, look) in list(self._open.items()):
            if look.done():
                del self._open[partition]
                yield partition, self._decide(split, look)

    def _decide(self, split: KafkaPartitionSplit, look: Future[tuple[int, int]]) -> int:
        from confluent_kafka import KafkaException

        try:
            low, high = look.result()
        except KafkaException as error:
            raise OperationError(
                f"the offsets of {split.partition} cannot be found out: {error.args[0].str()}"
            ) from error
        if low <= split.position <= high:
            return split.position  # the partition has reached it in the meantime
        why = "were deleted before they were read" if split.position < low else "are fewer than were read before"
        problem = f"{split.partition} has no offset {split.position} any more, but {low} to {high}: its records {why}"
        if self._strategy is KafkaOffsetResetStrategy.NONE:
            raise OperationError(
                f"{problem}. To go on with a loss, set the property auto.offset.reset to 'earliest' or 'latest'"
            )
        position = low if self._strategy is KafkaOffsetResetStrategy.EARLIEST else high
        lost = max(0, position - split.position)
        self._context.count(RESET_COUNTER)
        self._context.count(LOST_COUNTER, lost)
        LOG.warning("%s. The source goes on at offset %d; up to %d records are lost", problem, position, lost)
        return position


class MissingPartitions:
    """Finds out which partitions are missing after the client has reported that one is.

    The client names it only in the text of the report, and also reports partitions that are moving to another broker.

    Args:
        consumer: the consumer that reads the partitions.
        background: runs the requests to brokers.
    """

    def __init__(self, consumer: Consumer, background: Executor) -> None:
        self._consumer = consumer
        self._background = background
        self._open: tuple[list[KafkaTopicPartition], Future[set[KafkaTopicPartition]]] | None = None

    def begin(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        """Start to check whether these partitions exist."""
        if self._open is None:
            requested = list(partitions)
            self._open = requested, self._background.submit(self._present, {partition.topic for partition in requested})

    def _present(self, topics: set[str]) -> set[KafkaTopicPartition]:
        existing: set[KafkaTopicPartition] = set()
        for topic in topics:
            described = self._consumer.list_topics(topic, timeout=_LOOK_S).topics[topic]
            existing.update(KafkaTopicPartition(topic, number) for number in described.partitions)
        return existing

    def done(self) -> list[KafkaTopicPartition]:
        """Return the missing partitions, once known."""
        from confluent_kafka import KafkaException

        if self._open is None or not self._open[1].done():
            return []
        (requested, look), self._open = self._open, None
        try:
            present = look.result()
        except KafkaException as error:  # no broker answers, which is reported elsewhere; the client reports again
            LOG.info("missing partitions cannot be looked for: %s", error.args[0].str())
            return []
        return [partition for partition in requested if partition not in present]
