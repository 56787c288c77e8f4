"""Offsets of a Kafka consumer: the reading of one partition, recovery from lost offsets, and commits to the group.

`Reading` is a split and its progress. `Resetter` and `MissingPartitions` recover from offsets and partitions that no
longer exist.

`OffsetCommits` commits the offsets of completed checkpoints to the consumer group, for others to see. The committed
offsets are never read back: a job continues from its checkpoints. One commit is in flight at a time. The client does
not order several: while one still looks for the group's coordinator, or is retried, a later one may overtake it, and
the group would stay at the earlier offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.base.errors import OperationError
from penstock.connectors.kafka.client import LOG, PASSING
from penstock.connectors.kafka.partitions import KafkaOffsetResetStrategy, KafkaPartitionSplit, KafkaTopicPartition
from penstock.runtime.connector import SourceReaderContext

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


#: How long (s) a closing reader waits for its last commit: while brokers are up, and while all are down.
_SETTLE_S: Final = 10.0
_SETTLE_DOWN_S: Final = 3.0
#: How long (s) it waits before a retry.
_AGAIN_S: Final = 0.5


class OffsetCommits:
    """Tracks which offsets to commit for which checkpoint.

    Args:
        context: counts commits.
        enabled: whether to commit at all.
    """

    def __init__(self, context: SourceReaderContext, enabled: bool) -> None:
        self._context = context
        self._enabled = enabled
        self._noted: dict[int, dict[KafkaTopicPartition, int]] = {}
        #: partitions that were read to their stop offset since the last commit
        self._finished: dict[KafkaTopicPartition, int] = {}
        #: offsets of completed checkpoints that are not committed yet
        self._wanted: dict[KafkaTopicPartition, int] = {}
        #: offsets of a commit that the broker has not answered yet
        self._sent: dict[KafkaTopicPartition, int] = {}
        self._committed: dict[KafkaTopicPartition, int] = {}
        #: whether more offsets are due, after a commit that has succeeded
        self._is_due = False

    @property
    def are_open(self) -> bool:
        """Whether a commit is in flight."""
        return bool(self._sent)

    def finished(self, split: KafkaPartitionSplit) -> None:
        """Note that a partition was read to its stop offset, which the next checkpoint commits."""
        self._finished[split.partition] = split.position

    def note(self, checkpoint_id: int, splits: Sequence[KafkaPartitionSplit]) -> None:
        """Note the positions in a checkpoint."""
        if self._enabled:
            self._noted[checkpoint_id] = {**self._finished, **{split.partition: split.position for split in splits}}

    def commit(self, checkpoint_id: int, consumer: Consumer) -> None:
        """Commit the offsets of a completed checkpoint."""
        if not self._enabled or checkpoint_id not in self._noted:
            return
        offsets = self._noted[checkpoint_id]
        self._noted = {noted: of for noted, of in self._noted.items() if noted > checkpoint_id}
        # A partition may have been read to its stop offset since the checkpoint: then the next one commits that.
        self._finished = {
            partition: offset for partition, offset in self._finished.items() if offsets.get(partition) != offset
        }
        self._wanted.update(offsets)
        self._send(consumer)

    def go_on(self, consumer: Consumer) -> None:
        """Commit the offsets that became due during a successful commit; called after each call of the client."""
        if self._is_due:
            self._send(consumer)

    def _send(self, consumer: Consumer) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        if self._sent:
            return
        self._is_due = False
        self._wanted = {
            partition: offset for partition, offset in self._wanted.items() if self._committed.get(partition) != offset
        }
        if not self._wanted:
            return
        offsets = [
            TopicPartition(partition.topic, partition.partition, offset) for partition, offset in self._wanted.items()
        ]
        self._sent = dict(self._wanted)
        try:
            consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._fail(error.args[0], self._sent)
            self._sent = {}

    def settle(self, consumer: Consumer, is_down: Callable[[], bool]) -> None:
        """Wait briefly for the last commit: a closing consumer drops a commit that still looks for the coordinator."""
        begin = time.monotonic()
        again = 0.0
        while self._sent or self._wanted:
            waited = time.monotonic() - begin
            if waited >= (_SETTLE_DOWN_S if is_down() else _SETTLE_S):
                offsets = ", ".join(f"{partition} at {offset}" for partition, offset in self._wanted.items())
                LOG.warning("the last offsets are not committed to the consumer group: %s", offsets)
                return
            if self._is_due or waited >= again:
                self._send(consumer)
                again = waited + _AGAIN_S
            consumer.poll(0.05)

    def on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Handle the broker's answer to a commit."""
        sent, self._sent = self._sent, {}
        if error is not None:
            self._fail(error, sent)
            return
        refused = {
            KafkaTopicPartition(topic_partition.topic, topic_partition.partition): topic_partition.error
            for topic_partition in offsets
            if topic_partition.error is not None
        }
        for partition, offset in sent.items():
            if partition not in refused:
                self._succeed(partition, offset)
        if refused:
            self._fail(next(iter(refused.values())), refused)
            return
        self._is_due = bool(self._wanted)
        self._context.count("KafkaSourceReader.commitsSucceeded")

    def _succeed(self, partition: KafkaTopicPartition, offset: int) -> None:
        if partition not in self._committed:
            name = f"KafkaSourceReader.topic.{partition.topic}.partition.{partition.partition}"
            self._context.gauge(f"{name}.committedOffset", partial(self._committed.__getitem__, partition))
        self._committed[partition] = offset
        if self._wanted.get(partition) == offset:
            del self._wanted[partition]

    def _fail(self, error: KafkaError, partitions: Iterable[KafkaTopicPartition]) -> None:
        """Log a failure. The job continues: its checkpoints hold the offsets, and the next one commits later ones."""
        self._context.count("KafkaSourceReader.commitsFailed")
        LOG.warning("offsets could not be committed to the consumer group: %s (%s)", error.str(), error.name())
        if error.name() not in PASSING and not error.retriable():
            for partition in list(partitions):
                self._wanted.pop(partition, None)
