"""One partition as it is being read, and what happens where its offset is not there any more."""

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
#: The metric of records that were deleted before they were read.
LOST_COUNTER: Final = "KafkaSourceReader.recordsLost"
RESET_COUNTER: Final = "KafkaSourceReader.offsetResets"


class Reading:
    """A split, and how far it is.

    Args:
        split: where to begin.
        consumer: that reads it.
        context: where its metrics go.
    """

    def __init__(self, split: KafkaPartitionSplit, consumer: Consumer, context: SourceReaderContext) -> None:
        self.split = split
        self._consumer = consumer
        self.is_paused = False
        #: whether it was fetched to its end once
        self.is_at_end = False
        self.is_missing = False
        name = f"KafkaSourceReader.topic.{split.partition.topic}.partition.{split.partition.partition}"
        context.gauge(f"{name}.currentOffset", lambda: self.split.position)

    def advance(self, position: int) -> None:
        """The next record is at this offset."""
        self.split = replace(self.split, position=position)

    def place(self) -> TopicPartition:
        """Partition and offset, for the client library."""
        from confluent_kafka import TopicPartition

        return TopicPartition(self.split.partition.topic, self.split.partition.partition, self.split.position)

    def lag(self) -> int:
        """How many offsets are left, as far as the client knows."""
        try:
            _, high = self._consumer.get_watermark_offsets(self.place(), cached=True)
        except RuntimeError:  # the consumer is closed
            return 0
        return max(0, high - self.split.position)


class Resetter:
    """Finds another offset for partitions whose offset is not there any more; asks brokers in the background.

    Args:
        consumer: that reads the partitions.
        strategy: where to go on.
        context: where lost records are counted.
        background: where brokers are asked.
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
        """The offset of a split is not there."""
        from confluent_kafka import TopicPartition

        if split.partition in self._open:
            return
        LOG.info("%s: %s", split.partition, error.str())
        place = TopicPartition(split.partition.topic, split.partition.partition)
        look = self._background.submit(self._consumer.get_watermark_offsets, place, _LOOK_S)
        self._open[split.partition] = split, look

    def done(self) -> Iterator[tuple[KafkaTopicPartition, int]]:
        """Partitions, and where to go on in each.

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
            return split.position  # the partition has come so far meanwhile
        why = "were deleted before they were read" if split.position < low else "are fewer than were read before"
        found = f"{split.partition} has no offset {split.position} any more, but {low} to {high}: its records {why}"
        if self._strategy is KafkaOffsetResetStrategy.NONE:
            raise OperationError(
                f"{found}. To go on with a loss, set the property auto.offset.reset to 'earliest' or 'latest'"
            )
        position = low if self._strategy is KafkaOffsetResetStrategy.EARLIEST else high
        lost = max(0, position - split.position)
        self._context.count(RESET_COUNTER)
        self._context.count(LOST_COUNTER, lost)
        LOG.warning("%s. The source goes on at offset %d; up to %d records are lost", found, position, lost)
        return position


class MissingPartitions:
    """Finds out which partitions are gone, when the client has reported that something is.

    The client names it in a sentence only, and reports also what is on its way to another broker.

    Args:
        consumer: that reads the partitions.
        background: where brokers are asked.
    """

    def __init__(self, consumer: Consumer, background: Executor) -> None:
        self._consumer = consumer
        self._background = background
        self._open: tuple[list[KafkaTopicPartition], Future[set[KafkaTopicPartition]]] | None = None

    def begin(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        """Look for these."""
        if self._open is None:
            wanted = list(partitions)
            self._open = wanted, self._background.submit(self._present, {one.topic for one in wanted})

    def _present(self, topics: set[str]) -> set[KafkaTopicPartition]:
        found: set[KafkaTopicPartition] = set()
        for topic in topics:
            described = self._consumer.list_topics(topic, timeout=_LOOK_S).topics[topic]
            found.update(KafkaTopicPartition(topic, number) for number in described.partitions)
        return found

    def done(self) -> list[KafkaTopicPartition]:
        """Those that are gone, once that is known."""
        from confluent_kafka import KafkaException

        if self._open is None or not self._open[1].done():
            return []
        (wanted, look), self._open = self._open, None
        try:
            present = look.result()
        except KafkaException as error:  # no broker answers, which is noted elsewhere; the client reports again
            LOG.info("missing partitions cannot be looked for: %s", error.args[0].str())
            return []
        return [one for one in wanted if one not in present]
