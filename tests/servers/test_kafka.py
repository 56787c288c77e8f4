"""The brokers of the tests keep what was written, whichever way they end."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.servers.kafka import KafkaCluster, kafka_cluster


def values(kafka: KafkaCluster, topic: str) -> list[bytes | None]:
    return [message.value() for message in kafka.read(topic)]


@pytest.mark.slow
def test_a_broker_serves_again_with_what_it_had_after_it_was_killed_and_after_it_was_stopped(tmp_path: Path) -> None:
    with kafka_cluster(tmp_path, 1) as kafka:
        topic = kafka.create_topic()
        kafka.produce(topic, ["a"])
        kafka.kill()
        kafka.start()
        kafka.produce(topic, ["b"])
        kafka.brokers[0].stop()
        kafka.start()
        kafka.brokers[0].pause()
        kafka.brokers[0].resume()
        assert values(kafka, topic) == [b"a", b"b"]


def test_a_transaction_is_seen_when_it_is_committed(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions(10)
    for value in ("aborted", "committed"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(10)
        assert b"committed" not in values(kafka, topic)
        if value == "aborted":
            producer.abort_transaction(10)
        else:
            producer.commit_transaction(10)
    assert values(kafka, topic) == [b"committed"]


@pytest.mark.slow
def test_three_brokers_serve_while_one_of_them_is_down(tmp_path: Path) -> None:
    with kafka_cluster(tmp_path) as kafka:
        topic = kafka.create_topic(partitions=3)
        kafka.kill(0)
        for partition in range(3):
            kafka.produce(topic, [str(partition)], partition)
        kafka.start(0)
        kafka.kill(1)
        assert values(kafka, topic) == [b"0", b"1", b"2"]
