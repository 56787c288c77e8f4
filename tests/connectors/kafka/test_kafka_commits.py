"""Which offsets a reader commits for which checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from penstock.connectors.kafka.consumer_offsets import OffsetCommits
from penstock.connectors.kafka.partitions import KafkaPartitionSplit, KafkaTopicPartition
from penstock.testing.connectors import ReaderHost

FIRST, SECOND = (KafkaTopicPartition("orders", number) for number in range(2))


class Consumer:
    """Notes commits; `answer` is what the client calls when the broker has answered the last one."""

    def __init__(self) -> None:
        self.commits: list[dict[int, int]] = []
        self.places: list[TopicPartition] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        self.places = offsets
        self.commits.append({one.partition: one.offset for one in offsets})

    def answer(self, commits: OffsetCommits, error: int | None = None) -> None:
        commits.on_commit(None if error is None else KafkaError(error), self.places)

    def poll(self, timeout: float) -> None:
        """The broker does not answer."""


def at(partition: KafkaTopicPartition, position: int) -> KafkaPartitionSplit:
    return KafkaPartitionSplit(partition, position, 10)


def test_a_partition_that_ends_after_a_checkpoint_is_committed_with_the_next_one() -> None:
    consumer: Any = Consumer()
    commits = OffsetCommits(ReaderHost(), enabled=True)
    commits.note(1, [at(FIRST, 4), at(SECOND, 5)])
    commits.finished(at(FIRST, 10))
    commits.commit(1, consumer)
    consumer.answer(commits)
    commits.note(2, [at(SECOND, 7)])
    commits.note(3, [at(SECOND, 8)])
    commits.commit(3, consumer)
    consumer.answer(commits)
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


def test_one_commit_is_on_its_way_at_a_time_and_the_next_one_is_the_newest() -> None:
    """librdkafka keeps no order among several: the group once stayed at 24 where 29 was committed after it."""
    consumer: Any = Consumer()
    commits = OffsetCommits(ReaderHost(), enabled=True)
    for checkpoint, position in enumerate((0, 5, 10), 1):
        commits.note(checkpoint, [at(FIRST, position)])
        commits.commit(checkpoint, consumer)
        commits.go_on(consumer)
    assert consumer.commits == [{0: 0}]
    consumer.answer(commits)
    commits.go_on(consumer)
    assert consumer.commits == [{0: 0}, {0: 10}]
    consumer.answer(commits)
    commits.go_on(consumer)
    assert not commits.are_open
    assert consumer.commits == [{0: 0}, {0: 10}]


@pytest.mark.parametrize(
    ("error", "kept"), [(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, True), (KafkaError.GROUP_AUTHORIZATION_FAILED, False)]
)
def test_what_failed_is_committed_with_the_next_checkpoint_if_the_failure_passes(error: int, kept: bool) -> None:
    consumer: Any = Consumer()
    host = ReaderHost()
    commits = OffsetCommits(host, enabled=True)
    commits.finished(at(FIRST, 10))
    commits.note(1, [at(SECOND, 5)])
    commits.commit(1, consumer)
    consumer.answer(commits, error)
    commits.go_on(consumer)
    assert consumer.commits == [{0: 10, 1: 5}]
    assert host.counts == {"KafkaSourceReader.commitsFailed": 1}
    commits.note(2, [at(SECOND, 6)])
    commits.commit(2, consumer)
    assert consumer.commits[1:] == [{0: 10, 1: 6} if kept else {1: 6}]


class Answering(Consumer):
    """Answers when it is polled, with these errors."""

    def __init__(self, commits: OffsetCommits, errors: list[int | None]) -> None:
        super().__init__()
        self.asked = commits
        self.errors = errors

    def poll(self, timeout: float) -> None:
        if self.asked.are_open:
            self.answer(self.asked, self.errors.pop(0))


def test_a_reader_that_closes_waits_until_its_last_offsets_are_committed() -> None:
    commits = OffsetCommits(ReaderHost(), enabled=True)
    consumer: Any = Answering(commits, [None, KafkaError.NOT_COORDINATOR, None])
    for checkpoint, position in ((1, 0), (2, 10)):
        commits.note(checkpoint, [at(FIRST, position)])
        commits.commit(checkpoint, consumer)
    commits.settle(consumer, lambda: False)
    assert consumer.commits == [{0: 0}, {0: 10}, {0: 10}]
    assert not consumer.errors


def test_but_not_for_ever(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.kafka.consumer_offsets._SETTLE_DOWN_S", 0.01)
    consumer: Any = Consumer()
    commits = OffsetCommits(ReaderHost(), enabled=True)
    commits.note(1, [at(FIRST, 7)])
    commits.commit(1, consumer)
    commits.settle(consumer, lambda: True)
    assert consumer.commits == [{0: 7}]
    assert "not committed to the consumer group: orders-0 at 7" in caplog.text
