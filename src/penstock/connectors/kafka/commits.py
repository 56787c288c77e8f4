"""The offsets of completed checkpoints, committed to the consumer group for others to see.

Nothing is read back from there: a job goes on from its checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.connectors.kafka.library import LOG
from penstock.connectors.kafka.partitions import KafkaPartitionSplit, KafkaTopicPartition
from penstock.core.connector import SourceReaderContext

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

_SETTLE_S: Final = 3.0


class OffsetCommits:
    """What to commit for which checkpoint.

    Args:
        context: where commits are counted.
        enabled: whether to commit at all.
    """

    def __init__(self, context: SourceReaderContext, enabled: bool) -> None:
        self._context = context
        self._enabled = enabled
        self._noted: dict[int, dict[KafkaTopicPartition, int]] = {}
        #: partitions that were read to their stop since the last commit
        self._finished: dict[KafkaTopicPartition, int] = {}
        self._committed: dict[KafkaTopicPartition, int] = {}
        self._open = 0

    @property
    def are_open(self) -> bool:
        """Whether an answer is waited for."""
        return self._open > 0

    def finished(self, split: KafkaPartitionSplit) -> None:
        """A partition was read to its stop: the next checkpoint commits that."""
        self._finished[split.partition] = split.position

    def note(self, checkpoint_id: int, splits: Sequence[KafkaPartitionSplit]) -> None:
        """The checkpoint holds these positions."""
        if self._enabled:
            self._noted[checkpoint_id] = {**self._finished, **{one.partition: one.position for one in splits}}

    def commit(self, checkpoint_id: int, consumer: Consumer) -> None:
        """The checkpoint has completed."""
        from confluent_kafka import KafkaException, TopicPartition

        if not self._enabled or checkpoint_id not in self._noted:
            return
        offsets = self._noted[checkpoint_id]
        self._noted = {noted: of for noted, of in self._noted.items() if noted > checkpoint_id}
        # A partition may have been read to its stop since the checkpoint: then the next one commits that.
        self._finished = {one: offset for one, offset in self._finished.items() if offsets.get(one) != offset}
        moved = {one: offset for one, offset in offsets.items() if self._committed.get(one) != offset}
        if not moved:
            return
        places = [TopicPartition(one.topic, one.partition, offset) for one, offset in moved.items()]
        try:
            consumer.commit(offsets=places, asynchronous=True)
            self._open += 1
        except KafkaException as error:
            self._fail(error.args[0])

    def settle(self, consumer: Consumer) -> None:
        """Wait a moment for the answers to commits: a consumer that closes sends none that still look for the group."""
        deadline = time.monotonic() + _SETTLE_S
        while self._open and time.monotonic() < deadline:
            consumer.poll(0.05)

    def on_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        """The broker has answered."""
        self._open -= 1
        first = error or next((one.error for one in places if one.error is not None), None)
        if first is not None:
            self._fail(first)
            return
        self._context.count("KafkaSourceReader.commitsSucceeded")
        for one in places:
            partition = KafkaTopicPartition(one.topic, one.partition)
            if partition not in self._committed:
                name = f"KafkaSourceReader.topic.{one.topic}.partition.{one.partition}"
                self._context.gauge(f"{name}.committedOffset", partial(self._committed.__getitem__, partition))
            self._committed[partition] = one.offset

    def _fail(self, error: KafkaError) -> None:
        """The job goes on: its own checkpoints hold the offsets, and the next one commits later ones."""
        self._context.count("KafkaSourceReader.commitsFailed")
        LOG.warning("offsets could not be committed to the consumer group: %s (%s)", error.str(), error.name())
