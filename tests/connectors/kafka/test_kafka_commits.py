"""Which offsets a reader commits for which checkpoint."""

from __future__ import annotations

from typing import Any

from penstock.connectors.kafka.commits import OffsetCommits
from penstock.connectors.kafka.partitions import KafkaPartitionSplit, KafkaTopicPartition
from penstock.testing.connectors import ReaderHost

FIRST, SECOND = (KafkaTopicPartition("orders", number) for number in range(2))


class Consumer:
    def __init__(self) -> None:
        self.commits: list[dict[int, int]] = []

    def commit(self, offsets: list[Any], asynchronous: bool) -> None:
        assert asynchronous
        self.commits.append({one.partition: one.offset for one in offsets})


def at(partition: KafkaTopicPartition, position: int) -> KafkaPartitionSplit:
    return KafkaPartitionSplit(partition, position, 10)


def test_a_partition_that_ends_after_a_checkpoint_is_committed_with_the_next_one() -> None:
    consumer: Any = Consumer()
    commits = OffsetCommits(ReaderHost(), enabled=True)
    commits.note(1, [at(FIRST, 4), at(SECOND, 5)])
    commits.finished(at(FIRST, 10))
    commits.commit(1, consumer)
    commits.note(2, [at(SECOND, 7)])
    commits.note(3, [at(SECOND, 8)])
    commits.commit(3, consumer)
    commits.commit(2, consumer)
    commits.note(4, [at(SECOND, 9)])
    commits.commit(4, consumer)
    assert consumer.commits == [{0: 4, 1: 5}, {0: 10, 1: 8}, {1: 9}]


def test_nothing_is_committed_without_a_group() -> None:
    consumer: Any = Consumer()
    commits = OffsetCommits(ReaderHost(), enabled=False)
    commits.note(1, [at(FIRST, 4)])
    commits.commit(1, consumer)
    assert consumer.commits == []
