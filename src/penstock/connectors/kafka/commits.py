"""Commits the offsets of completed checkpoints to the consumer group, for others to see.

The committed offsets are never read back: a job continues from its checkpoints.

One commit is in flight at a time. The client does not order several: while one still looks for the group's coordinator,
or is retried, a later one may overtake it, and the group would stay at the earlier offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.connectors.kafka.library import LOG, PASSING
from penstock.connectors.kafka.partitions import KafkaPartitionSplit, KafkaTopicPartition
from penstock.core.connector import SourceReaderContext

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

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
