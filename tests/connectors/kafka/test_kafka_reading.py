"""What a Kafka source reads, from where to where."""

from __future__ import annotations

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from tests.connectors.kafka.reading import EARLIEST, LATEST, poll_until, read_some, read_to_end, texts
from tests.servers.kafka import KafkaCluster
from tests.servers.waiting import await_true

from penstock.base.errors import OperationError
from penstock.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaTopicPartition,
)
from penstock.testing.connectors import SourceRun


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def strings(start: int, stop: int) -> list[str]:
    return [str(number) for number in range(start, stop)]


def test_a_bounded_source_reads_each_partition_once_in_order_and_ends(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=3)
    for partition in range(3):
        kafka.produce(topic, numbers(100 * partition, 100 * partition + 100), partition)
    source = texts(kafka, topic).set_starting_offsets(EARLIEST).set_bounded(LATEST).build()
    for parallelism, hostile in ((1, False), (2, False), (4, True)):
        read = read_to_end(source, parallelism, batch_size=30, hostile=hostile)
        values = [int(value) for value in read.all_values]
        assert sorted(values) == list(range(300))
        for partition in range(3):
            of_partition = [value for value in values if value // 100 == partition]
            assert of_partition == sorted(of_partition)


def test_a_bounded_source_does_not_read_what_comes_after_it_has_looked(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, numbers(0, 10))
    cluster = SourceRun(texts(kafka, topic).set_bounded(LATEST).build())
    cluster.deliver()
    kafka.produce(topic, numbers(10, 20))
    poll_until(cluster, lambda: len(cluster.ended) == 1).close()
    assert cluster.all_values == strings(0, 10)


def test_an_empty_topic_ends_a_bounded_source(kafka: KafkaCluster) -> None:
    source = texts(kafka, kafka.create_topic(partitions=2)).set_bounded(LATEST).build()
    assert read_to_end(source, parallelism=3).all_values == []


def await_stable_end(kafka: KafkaCluster, topic: str) -> None:
    """Wait until the end for committed readers is the end: a commit returns before its mark is in the topic."""
    partition = TopicPartition(topic, 0)

    def end(level: IsolationLevel) -> int:
        offsets = kafka.admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)
        return int(offsets[partition].result().offset)

    await_true(
        lambda: end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED), "the last transaction"
    )


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions_are_seen_as_the_property_says(kafka: KafkaCluster, isolation: str) -> None:
    """The marks of transactions take up offsets, the last one too; a bounded source ends all the same."""
    topic = kafka.create_topic()
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions(10)
    for value in ("kept", "aborted", "last"):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(10)
        producer.abort_transaction(10) if value == "aborted" else producer.commit_transaction(10)
    await_stable_end(kafka, topic)
    source = texts(kafka, topic, isolation_level=isolation).set_bounded(LATEST).build()
    kept = ["kept", "last"] if isolation == "read_committed" else ["kept", "aborted", "last"]
    assert read_to_end(source).all_values == kept


def test_latest_begins_with_what_comes_next(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["before"])
    cluster = SourceRun(texts(kafka, topic).set_starting_offsets(LATEST).build())
    cluster.deliver()
    kafka.produce(topic, ["after"])
    poll_until(cluster, lambda: len(cluster.all_values) == 1).close()
    assert cluster.all_values == ["after"]


def test_a_timestamp_begins_at_the_first_record_from_then_on(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=2)
    for time_ms in (1_000, 2_000, 3_000):
        kafka.produce(topic, [str(time_ms)], timestamp=time_ms)
    kafka.produce(topic, ["of the other partition"], 1, timestamp=1_500)
    at = KafkaOffsetsInitializer.timestamp
    read = read_to_end(texts(kafka, topic).set_starting_offsets(at(1_001)).set_bounded(LATEST).build())
    assert sorted(read.all_values) == ["2000", "3000", "of the other partition"]
    assert sorted(read.timestamps) == [1_500, 2_000, 3_000]
    read = read_to_end(texts(kafka, topic).set_starting_offsets(at(1_600)).set_bounded(at(3_000)).build())
    assert read.all_values == ["2000"], "a partition without a record from then on begins at its end"


def test_offsets_begin_and_stop_where_they_say(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=2)
    for partition in range(2):
        kafka.produce(topic, numbers(10 * partition, 10 * partition + 10), partition)
    first, second = (KafkaTopicPartition(topic, partition) for partition in range(2))
    starting = KafkaOffsetsInitializer.offsets({first: 7})
    stopping = KafkaOffsetsInitializer.offsets({first: 9, second: 3})
    read = read_to_end(texts(kafka, topic).set_starting_offsets(starting).set_bounded(stopping).build())
    assert sorted(map(int, read.all_values)) == [7, 8, 10, 11, 12]


def test_committed_offsets_begin_where_the_group_is_or_as_the_strategy_says(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, numbers(0, 10))
    kafka.produce(topic, numbers(10, 20), 1)
    kafka.commit(topic, topic, {0: 4})

    def reading_from(*strategy: KafkaOffsetResetStrategy) -> list[int]:
        starting = KafkaOffsetsInitializer.committed_offsets(*strategy)
        source = texts(kafka, topic, group_id=topic).set_starting_offsets(starting).set_bounded(LATEST)
        return sorted(map(int, read_to_end(source.build()).all_values))

    assert reading_from(KafkaOffsetResetStrategy.EARLIEST) == [*range(4, 20)]
    assert reading_from(KafkaOffsetResetStrategy.LATEST) == [*range(4, 10)]
    with pytest.raises(OperationError, match=f"has committed no offset for {topic}-1: give"):
        reading_from()


def test_a_pattern_reads_the_topics_whose_whole_names_match(kafka: KafkaCluster) -> None:
    names = [kafka.create_topic(name) for name in ("orders", "orders-old", "xorders")]
    for name in names:
        kafka.produce(name, [name])
    suffixes = "|".join(name[-8:] for name in names)
    source = texts(kafka).set_topic_pattern(f"orders.*-({suffixes})").set_bounded(LATEST).build()
    assert sorted(read_to_end(source).all_values) == sorted(names[:2])


def test_partitions_read_those_and_no_others(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=3)
    for partition in range(3):
        kafka.produce(topic, [str(partition)], partition)
    wanted = {KafkaTopicPartition(topic, 0), KafkaTopicPartition(topic, 2)}
    read = read_to_end(texts(kafka).set_partitions(wanted).set_bounded(LATEST).build())
    assert sorted(read.all_values) == ["0", "2"]


def test_a_topic_that_does_not_exist_is_named(kafka: KafkaCluster) -> None:
    with pytest.raises(OperationError, match="there is no topic nowhere"):
        read_to_end(texts(kafka, "nowhere").set_bounded(LATEST).build())
    topic = kafka.create_topic()
    with pytest.raises(OperationError, match=f"there is no partition {topic}-7"):
        read_to_end(texts(kafka).set_partitions({KafkaTopicPartition(topic, 7)}).set_bounded(LATEST).build())


def test_new_partitions_and_topics_are_found_while_it_runs_and_read_from_their_first_record(
    kafka: KafkaCluster,
) -> None:
    topic = kafka.create_topic("found")
    suffix = topic[-8:]
    source = texts(kafka).set_topic_pattern(f"found-({suffix}|more-{suffix}.*)")
    cluster = SourceRun(source.set_starting_offsets(LATEST).build(), 2)
    cluster.deliver()
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, ["partition"], 1)
    poll_until(cluster, lambda: len(cluster.all_values) == 1)
    cluster.restart()
    more = kafka.create_topic(f"found-more-{suffix}")
    kafka.produce(more, ["topic"])
    poll_until(cluster, lambda: len(cluster.all_values) == 2)
    cluster.restart()
    kafka.produce(topic, ["old partition"])
    poll_until(cluster, lambda: len(cluster.all_values) == 3).close()
    assert sorted(cluster.all_values) == ["old partition", "partition", "topic"]


def test_a_source_goes_on_from_its_checkpoint_at_another_parallelism(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=3)
    for partition in range(3):
        kafka.produce(topic, numbers(10 * partition, 10 * partition + 5), partition)
    source = texts(kafka, topic).build()
    before = read_some(source, 15, parallelism=3)
    snapshot = before.snapshot()
    before.close()
    for partition in range(3):
        kafka.produce(topic, numbers(10 * partition + 5, 10 * partition + 10), partition)
    after = SourceRun(source, 2)
    after.close()
    splits = snapshot.splits
    after.begin(snapshot.enumerator_state, [splits[0] + splits[2], splits[1]])
    poll_until(after, lambda: len(after.all_values) >= 15).close()
    assert sorted(map(int, before.all_values + after.all_values)) == [*range(30)]


def test_whole_records_have_key_headers_time_partition_and_offset(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, ["v"], 1, key="k", timestamp=5, headers=[("h", b"1"), ("h", None)])
    kafka.produce(topic, [None], 1, timestamp=6)
    source = texts(kafka, topic).set_deserializer(KafkaRecordDeserializationSchema.whole_records())
    assert read_to_end(source.set_bounded(LATEST).build()).all_values == [
        KafkaRecord(topic, 1, 0, 5, b"k", b"v", [("h", b"1"), ("h", None)]),
        KafkaRecord(topic, 1, 1, 6, None, None, []),
    ]


def test_a_tombstone_is_no_record_for_a_schema_of_values(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", None, "b", None])
    read = read_to_end(texts(kafka, topic).set_bounded(LATEST).build())
    assert read.all_values == ["a", "b"]
    assert len(read.timestamps) == 2
