"""What a Kafka source does when brokers, topics or records are not there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.connectors.kafka.reading import EARLIEST, LATEST, poll_until, read_some, read_to_end, texts
from tests.servers.kafka import KafkaCluster, kafka_cluster, kafka_server
from tests.servers.waiting import await_true

from penstock.base.errors import OperationError
from penstock.connectors.kafka.partitions import KafkaPartitionSplit
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaTopicPartition
from penstock.testing.connectors import SourceRun

pytestmark = pytest.mark.slow

# The harness waits for the search for partitions, a job does not.
LOOKS_ONCE = {"partition_discovery_interval_ms": "-1"}
SOON = {"metadata_max_age_ms": "500", "topic_metadata_propagation_max_ms": "500"}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A broker for a test that kills it."""
    with kafka_server(tmp_path) as running:
        yield running


def truncated(kafka: KafkaCluster) -> str:
    """A topic of offsets 0 to 9, of which those before 6 are gone."""
    topic = kafka.create_topic()
    kafka.produce(topic, [str(number) for number in range(10)])
    kafka.delete_records(topic, 0, 6)
    return topic


def from_offset(cluster: SourceRun, topic: str, offset: int) -> SourceRun:
    """The source goes on at an offset, as after a checkpoint."""
    cluster.close()
    partition = KafkaTopicPartition(topic, 0)
    state = {"pending": [], "known": [partition], "has_looked": True}
    cluster.begin(state, [[KafkaPartitionSplit(partition, offset)]])
    return cluster


@pytest.mark.parametrize(("reset", "after"), [("earliest", ["6", "7", "8", "9", "new"]), ("latest", ["new"])])
def test_deleted_records_are_passed_over_with_a_line_in_the_log(
    kafka: KafkaCluster, reset: str, after: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = truncated(kafka)
    cluster = from_offset(SourceRun(texts(kafka, topic, auto_offset_reset=reset).build()), topic, 2)
    poll_until(cluster, lambda: "KafkaSourceReader.offsetResets" in cluster.hosts[0].counts)
    kafka.produce(topic, ["new"])
    poll_until(cluster, lambda: "new" in cluster.all_values).close()
    assert cluster.all_values == after
    lost = 4 if reset == "earliest" else 8
    assert cluster.hosts[0].counts["KafkaSourceReader.recordsLost"] == lost
    assert f"{topic}-0 has no offset 2 any more, but 6 to 10" in caplog.text
    assert f"up to {lost} records are lost" in caplog.text


def test_deleted_records_fail_a_source_that_may_not_lose_any(kafka: KafkaCluster) -> None:
    topic = truncated(kafka)
    cluster = from_offset(SourceRun(texts(kafka, topic, auto_offset_reset="none").build()), topic, 2)
    with pytest.raises(OperationError, match=f"{topic}-0 has no offset 2 .* set the property auto.offset.reset"):
        poll_until(cluster, lambda: False)
    cluster.close()


def test_without_the_property_the_starting_offsets_decide(kafka: KafkaCluster) -> None:
    topic = truncated(kafka)
    starting = KafkaOffsetsInitializer.committed_offsets()
    cluster = SourceRun(texts(kafka, topic, group_id=topic).set_starting_offsets(starting).build())
    with pytest.raises(OperationError, match="has no offset 2"):
        poll_until(from_offset(cluster, topic, 2), lambda: False)
    cluster.close()
    cluster = SourceRun(texts(kafka, topic).set_starting_offsets(EARLIEST).build())
    poll_until(from_offset(cluster, topic, 2), lambda: len(cluster.all_values) == 4).close()


def test_a_compacted_topic_has_gaps_in_its_offsets(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.01")
    for value in range(20):
        kafka.produce(topic, [str(value)], key="same")
    source = texts(kafka, topic).set_bounded(LATEST).build()

    def is_compacted() -> bool:
        kafka.produce(topic, ["x"], key="other")  # begins a segment; only those before it are compacted
        values = [message.value() for message in kafka.read(topic)]
        return len(values) < 10 and set(values) == {b"19", b"x"}  # the last of each key, and no segment is left

    await_true(is_compacted, "nothing was compacted")
    read = read_to_end(source)
    assert set(read.all_values) == {"19", "x"}


def test_a_topic_deleted_while_it_is_read_fails_the_job(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["before"])
    cluster = read_some(texts(kafka, topic, **LOOKS_ONCE, **SOON).build(), 1)
    kafka.delete_topic(topic)
    with pytest.raises(OperationError, match=f"cannot find {topic}-0 any more, which it has read up to offset 1"):
        poll_until(cluster, lambda: False)
    cluster.close()


def test_a_deleted_topic_may_be_ignored_and_come_back(kafka: KafkaCluster, caplog: pytest.LogCaptureFixture) -> None:
    topic, other = kafka.create_topic(), kafka.create_topic()
    kafka.produce(topic, ["before"])
    cluster = read_some(texts(kafka, topic, other, missing_partition="ignore", **LOOKS_ONCE, **SOON).build(), 1)
    kafka.delete_topic(topic)
    poll_until(cluster, lambda: f"{topic}-0 is gone at offset 1; the source goes on without" in caplog.text)
    kafka.produce(other, ["other"])
    poll_until(cluster, lambda: len(cluster.all_values) == 2)
    kafka.create_topic_named(topic)
    kafka.produce(topic, ["passed over", "after"])
    poll_until(cluster, lambda: "after" in cluster.all_values).close()


def test_the_search_for_partitions_notes_that_one_is_missing(
    kafka: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.create_topic()
    partition = KafkaTopicPartition(topic, 5)
    state = {"pending": [], "known": [KafkaTopicPartition(topic, 0), partition], "has_looked": True}
    for choice in ("ignore", "fail"):
        cluster = SourceRun(texts(kafka, topic, missing_partition=choice).build())
        cluster.close()
        cluster.begin(state, [[]])
        if choice == "fail":
            with pytest.raises(OperationError, match=f"{topic}-5 cannot be found any more"):
                cluster.deliver()
        else:
            cluster.deliver()
            assert f"{topic}-5 cannot be found any more; the source goes on without" in caplog.text
        cluster.close()


def test_a_broker_that_is_killed_and_comes_back_is_read_on(own: KafkaCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    topic = own.create_topic()
    own.produce(topic, ["before"])
    cluster = read_some(texts(own, topic, **LOOKS_ONCE).build(), 1)
    own.kill()
    poll_until(cluster, lambda: "no Kafka broker of" in caplog.text)
    assert cluster.hosts[0].gauges["KafkaSourceReader.brokerOutages"]() == 1
    own.start()
    poll_until(cluster, lambda: "is back" in caplog.text)
    own.produce(topic, ["after"])
    poll_until(cluster, lambda: len(cluster.all_values) == 2).close()
    assert cluster.all_values == ["before", "after"]


def test_brokers_that_stay_away_fail_the_source_in_the_end(own: KafkaCluster) -> None:
    topic = own.create_topic()
    source = texts(own, topic, brokers_unavailable_timeout_ms="300", **LOOKS_ONCE).build()
    cluster = SourceRun(source)
    poll_until(cluster, lambda: bool(cluster.hosts[0].open_splits))
    own.kill()
    host = cluster.hosts[0]

    def time_passes() -> bool:
        host.now += 20
        return False

    with pytest.raises(OperationError, match=rf"no Kafka broker of {own.bootstrap_servers} could be reached"):
        poll_until(cluster, time_passes)
    cluster.close()
    cluster = SourceRun(source)
    with pytest.raises(OperationError, match=r"no Kafka broker has answered for .* Check bootstrap\.servers"):
        cluster.deliver()
    cluster.close()


def test_a_partition_is_read_on_from_another_broker_when_its_leader_dies(tmp_path: Path) -> None:
    with kafka_cluster(tmp_path) as three:
        topic = three.create_topic(partitions=3)
        for partition in range(3):
            three.produce(topic, ["before"], partition)
        cluster = read_some(texts(three, topic, **LOOKS_ONCE).build(), 3)
        three.kill(0)
        for partition in range(3):
            three.produce(topic, ["after"], partition)
        poll_until(cluster, lambda: len(cluster.all_values) == 6).close()
        assert sorted(cluster.all_values) == ["after"] * 3 + ["before"] * 3
