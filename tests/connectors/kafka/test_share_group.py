"""`KafkaShareGroupSource` on a real broker: what is accepted at checkpoints, and what comes again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.connectors.rabbitmq.test_rabbitmq import environment
from tests.servers.kafka import KafkaCluster, kafka_server
from tests.servers.waiting import await_true

from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.common import Configuration, SimpleStringSchema, WatermarkStrategy
from penstock.datastream import CloseableIterator
from penstock.datastream.connectors.kafka import KafkaRecordDeserializationSchema, KafkaShareGroupSource
from penstock.testing.connectors import SourceRun

HAS_SHARE_GROUPS = hasattr(confluent_kafka, "ShareConsumer")
needs_share_groups = pytest.mark.skipif(not HAS_SHARE_GROUPS, reason="confluent-kafka is older than share groups")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker, with locks that are soon over."""
    directory: Path = tmp_path_factory.mktemp("kafka")
    with kafka_server(
        directory,
        **{"group.share.min.record.lock.duration.ms": 1_000, "group.share.record.lock.duration.ms": 3_000},
    ) as cluster:
        yield cluster


def fill(kafka: KafkaCluster, count: int, partitions: int = 2) -> tuple[str, list[str]]:
    """Return a topic, and the texts that were written into it."""
    topic = kafka.create_topic(partitions=partitions)
    texts = [f"{number:05d}" for number in range(count)]
    for partition in range(partitions):
        kafka.produce(topic, texts[partition::partitions], partition)
    return topic, texts


def build(kafka: KafkaCluster, topic: str, group: str = "", **more: Any) -> KafkaShareGroupSource:
    more.setdefault("offset_reset", "earliest")
    return KafkaShareGroupSource(kafka.bootstrap_servers, group or f"of-{topic}", [topic], SimpleStringSchema(), **more)


def advance_until(run: SourceRun, condition: Callable[[], bool]) -> None:
    def is_true() -> bool:
        run.advance(100)
        return condition()

    await_true(is_true, "in vain")


NEW = ["new 0", "new 1"]


def read_rest(kafka: KafkaCluster, topic: str, count: int = 0) -> list[str]:
    """What the group still has, `count` records at least, up to a new one of each partition."""
    for partition, text in enumerate(NEW):
        kafka.produce(topic, [text], partition)
    run = SourceRun(build(kafka, topic), real_time=True)
    try:
        advance_until(run, lambda: len(run.arrived) >= count + len(NEW) and {*NEW} <= {*run.all_values})
        return [value for _, value, _ in run.arrived]
    finally:
        run.close_if_open()


@needs_share_groups
def test_records_are_accepted_when_a_checkpoint_completes(lending: KafkaCluster) -> None:
    topic, texts = fill(lending, 40)
    run = SourceRun(build(lending, topic), real_time=True)
    advance_until(run, lambda: len(run.arrived) == len(texts))
    assert Counter(run.all_values) == Counter(texts)
    run.complete(run.snapshot())
    run.close()
    assert sorted(read_rest(lending, topic)) == NEW


@needs_share_groups
def test_records_that_no_checkpoint_covers_come_again(lending: KafkaCluster) -> None:
    topic, texts = fill(lending, 40)
    run = SourceRun(build(lending, topic), real_time=True)
    advance_until(run, lambda: len(run.arrived) == len(texts))
    run.close()  # gives them back
    assert Counter(read_rest(lending, topic, len(texts))) == Counter([*texts, *NEW])


@needs_share_groups
def test_one_reader_drops_what_it_has_seen(lending: KafkaCluster) -> None:
    """The locks are over before the checkpoint: the records come again, and count once."""
    topic, texts = fill(lending, 10)
    run = SourceRun(build(lending, topic), real_time=True)
    advance_until(run, lambda: len(run.arrived) == len(texts))
    threading.Event().wait(4)
    run.complete(run.snapshot())
    lending.produce(topic, [b"new"], 0)
    advance_until(run, lambda: "new" in run.all_values)
    run.complete(run.snapshot())
    run.close()
    assert Counter(run.all_values) == Counter([*texts, "new"])


@needs_share_groups
def test_more_readers_than_partitions_share_the_records(lending: KafkaCluster) -> None:
    topic, texts = fill(lending, 300, partitions=1)
    source = build(lending, topic, properties={"max.poll.records": "20"})
    stream = environment(3).from_source(source, WatermarkStrategy.no_watermarks(), "queue")
    results = stream.execute_and_collect()
    assert isinstance(results, CloseableIterator)
    with results:
        assert Counter(next(results) for _ in texts) == Counter(texts)


@needs_share_groups
def test_whole_records(lending: KafkaCluster) -> None:
    topic, texts = fill(lending, 10)
    schema = KafkaRecordDeserializationSchema.whole_records()
    source = KafkaShareGroupSource(lending.bootstrap_servers, f"of-{topic}", [topic], schema, offset_reset="earliest")
    run = SourceRun(source, real_time=True)
    advance_until(run, lambda: len(run.arrived) == len(texts))
    run.close()
    assert {(record.topic, record.partition, record.value.decode()) for record in run.all_values} == {
        (topic, number % 2, text) for number, text in enumerate(texts)
    }


@needs_share_groups
def test_what_is_missing_is_named(lending: KafkaCluster) -> None:
    run = SourceRun(build(lending, "nowhere"), real_time=True)
    with pytest.raises(OperationError, match="the Kafka topic nowhere of the share group of-nowhere does not exist"):
        advance_until(run, lambda: False)
    run.close_if_open()


def test_settings_that_are_wrong_are_named() -> None:
    def make(group: str = "g", topics: Any = ("t",), schema: Any = None, **more: Any) -> KafkaShareGroupSource:
        source = KafkaShareGroupSource("localhost:9092", group, topics, schema or SimpleStringSchema(), **more)
        source.configure(Configuration())
        return source

    with pytest.raises(ConfigurationError, match="needs the name of a share group"):
        make("")
    with pytest.raises(ConfigurationError, match="takes the names of topics, not 't'"):
        make(topics="t")
    with pytest.raises(ConfigurationError, match="offset_reset is earliest or latest, not 'none'"):
        make(offset_reset="none")
    with pytest.raises(ConfigurationError, match="takes a schema, not 'x'"):
        make(schema="x")
    with pytest.raises(ConfigurationError, match="is 1 member or more, not 0"):
        make(members=0)
    if not HAS_SHARE_GROUPS:
        with pytest.raises(UnsupportedError, match=r"share groups need confluent-kafka 2\.16 or later, and"):
            make()
        return
    with pytest.raises(ConfigurationError, match=r"`isolation\.level` is not applicable for share consumer"):
        make(properties={"isolation.level": "read_committed"})
    with pytest.raises(ConfigurationError, match='No such configuration property: "nonsense"'):
        make(properties={"nonsense": "1"})
    source = make()
    assert not source.replayable, "without checkpoints records are accepted at once"
    with pytest.raises(ConfigurationError, match="MICRO_BATCH opens its connections"):
        source.check_execution_mode("MICRO_BATCH", is_local=True)
