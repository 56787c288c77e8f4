"""`DynamicKafkaSource` on a real broker: clusters and topics come, go and come back, and each record is read once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from tests.connectors.kafka.reading import EARLIEST, LATEST, poll_until, read_to_end
from tests.servers.kafka import KafkaCluster, kafka_server
from tests.servers.waiting import await_true
from tests.simulation.fresh_seeds import fresh_seeds

from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.common import Configuration, SimpleStringSchema, WatermarkStrategy
from penstock.datastream import CloseableIterator, StreamExecutionEnvironment
from penstock.datastream.connectors.dynamic_kafka import (
    ClusterMetadata,
    DynamicKafkaSource,
    DynamicKafkaSourceBuilder,
    KafkaMetadataService,
    KafkaStream,
    SingleClusterTopicMetadataService,
)
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer
from penstock.testing.connectors import SOURCE_CASES, SourceRun, SourceUnderTest, check_source

pytestmark = pytest.mark.slow

#: The streams that there are; tests change them while a source reads.
STREAMS: dict[str, KafkaStream] = {}
#: Clusters whose errors do not matter.
INACTIVE: set[str] = set()
#: How often the service fails before it answers.
FAILURES = [0]


class ListedStreams(KafkaMetadataService):
    """The streams of this process."""

    def get_all_streams(self) -> Collection[KafkaStream]:
        if FAILURES[0]:
            FAILURES[0] -= 1
            raise ConnectionError("the registry is away")
        return list(STREAMS.values())

    def is_cluster_active(self, kafka_cluster_id: str) -> bool:
        return kafka_cluster_id not in INACTIVE


@pytest.fixture(autouse=True)
def _nothing_is_left() -> None:
    STREAMS.clear()
    INACTIVE.clear()
    FAILURES[0] = 0


def list_stream(kafka: KafkaCluster, stream_id: str = "s", **topics: Collection[str]) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    clusters = {cluster: ClusterMetadata(names, servers) for cluster, names in topics.items() if names}
    STREAMS[stream_id] = KafkaStream(stream_id, clusters)


def build(interval_ms: int = 20, **properties: str) -> DynamicKafkaSourceBuilder[Any]:
    builder = DynamicKafkaSource.builder().set_stream_ids({"s"}).set_kafka_metadata_service(ListedStreams())
    builder.set_property("stream-metadata-discovery-interval-ms", str(interval_ms))
    for key, value in properties.items():
        builder.set_property(key.replace("__", "-").replace("_", "."), value)
    return builder.set_value_only_deserializer(SimpleStringSchema())


def describe_partition(text: str) -> str:
    return text.rpartition("#")[0]


class Producer:
    """Writes numbered records, and knows what must be read."""

    def __init__(self, kafka: KafkaCluster, topics: int, partitions: int = 2) -> None:
        self.kafka, self.partitions = kafka, partitions
        self.topics = [kafka.create_topic(partitions=partitions) for _ in range(topics)]
        self.written: list[str] = []

    def write(self, topic: str, partition: int, count: int) -> None:
        name = f"{topic}-{partition}"
        begun = sum(describe_partition(text) == name for text in self.written)
        texts = [f"{name}#{number}" for number in range(begun, begun + count)]
        self.kafka.produce(topic, texts, partition)
        self.written += texts

    def check(self, run: SourceRun) -> None:
        arrived = [value for _, value, _ in run.arrived]
        assert Counter(arrived) == Counter(self.written)
        for name in set(map(describe_partition, arrived)):
            numbers = [int(text.rpartition("#")[2]) for text in arrived if describe_partition(text) == name]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("case", SOURCE_CASES)
def test_a_source_that_stops(kafka: KafkaCluster, case: str) -> None:
    producer = Producer(kafka, 2)
    for topic in producer.topics:
        for partition in range(2):
            producer.write(topic, partition, 4)
    list_stream(kafka, east=producer.topics[:1], west=producer.topics[1:])

    def prepare() -> SourceUnderTest:
        source = build().set_bounded(LATEST).build()
        return SourceUnderTest(source, producer.written, order_of=describe_partition, real_time=True, silence_max=2_000)

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[2], places=3)


def test_random_histories(kafka: KafkaCluster) -> None:
    """Topics come, go and come back, beside restarts from snapshots, old ones too, and with other parallelisms."""
    for seed in fresh_seeds()[:3]:
        print(f"seed {seed}")
        check_history(kafka, seed)


def check_history(kafka: KafkaCluster, seed: int, steps: int = 40) -> None:
    chance = random.Random(seed)
    producer = Producer(kafka, 3)
    homes = {topic: chance.choice(["east", "west"]) for topic in producer.topics}

    def change(names: Collection[str]) -> None:
        list_stream(
            kafka,
            east=[name for name in names if homes[name] == "east"],
            west=[name for name in names if homes[name] == "west"],
        )

    change(producer.topics[:1])
    builder = build(partition_discovery_interval_ms=str(chance.choice([-1, 30]))).set_starting_offsets(EARLIEST)
    run = SourceRun(builder.build(), chance.randint(1, 3), real_time=True)
    old: list[Any] = []
    try:
        for _ in range(steps):
            step = chance.randrange(11)
            if step == 10:
                names = [topic for topic in producer.topics if chance.random() < 0.5]
                change(names)
                check_rest(run, producer, {*producer.topics} - {*names}, chance)
            elif step < 3:
                change([topic for topic in producer.topics if chance.random() < 0.5])
                for _ in range(chance.choice([0, 1, 1, 2])):
                    run.master.run_background()
                    for _ in range(chance.choice([0, 0, 1, 2, 4, 12])):  # messages, which a snapshot may precede
                        run.advance(1)
                    if chance.random() < 0.3:
                        old.append(run.snapshot(late_barrier=chance.random() < 0.5))
            elif step == 3:
                run.restart()
                old.clear()
            elif step == 4:
                old.append(run.snapshot(late_barrier=chance.random() < 0.5))
            elif step in (5, 6) and old:
                run.restart(old[-1], chance.choice([None, run.parallelism % 3 + 1]))
                old.clear()
            elif step == 7:
                producer.write(chance.choice(producer.topics), chance.randrange(2), chance.randint(1, 5))
            else:
                for _ in range(chance.choice([1, 5, 20, 100])):
                    run.advance(chance.randint(1, 4))
        change(producer.topics)
        poll_until(run, lambda: len(run.arrived) >= len(producer.written))
        for _ in range(50):  # more than what is due would arrive now
            run.advance(100)
        producer.check(run)
    finally:
        run.close_if_open()


def check_rest(run: SourceRun, producer: Producer, removed: set[str], chance: random.Random) -> None:
    """Nothing of a removed topic arrives once the readers know of it."""
    for _ in range(3):
        run.master.run_background()
        run.deliver()
    arrived = len(run.arrived)
    for topic in removed:
        producer.write(topic, chance.randrange(2), 1)
    for _ in range(10):
        run.advance(100)
        time.sleep(0.002)
    assert not [value for _, value, _ in run.arrived[arrived:] if value.rpartition("-")[0] in removed]


def test_what_is_gone_too_long_begins_anew(kafka: KafkaCluster) -> None:
    producer = Producer(kafka, 2, partitions=1)
    for topic in producer.topics:
        producer.write(topic, 0, 3)
    list_stream(kafka, east=producer.topics)
    run = SourceRun(build(stream__metadata__removed__cluster__retention__ms="0").build(), real_time=True)
    try:
        poll_until(run, lambda: len(run.arrived) == 6)
        list_stream(kafka, east=producer.topics[:1])
        await_true(lambda: bool(run.deliver()) or not run.readers[0].snapshot_state(0)[1:], "it is still read")
        time.sleep(0.01)
        for _ in range(3):
            run.deliver()
        list_stream(kafka, east=producer.topics)
        poll_until(run, lambda: len(run.arrived) == 9)
    finally:
        run.close_if_open()


def test_a_stream_moves_to_another_cluster_under_a_running_job(kafka: KafkaCluster, tmp_path: Path) -> None:
    with kafka_server(tmp_path / "west") as other:
        topics = [kafka.create_topic(partitions=2), other.create_topic(partitions=1)]
        for number in range(100):
            kafka.produce(topics[0], [b"%d" % number], number % 2)
        list_stream(kafka, east=topics[:1])
        settings = {"execution.target": "local", "execution.checkpointing.interval": "50 ms"}
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
        source = build(group_id="movers").build()
        stream = env.set_parallelism(2).from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(int)
        results = stream.execute_and_collect()
        assert isinstance(results, CloseableIterator)
        with results:
            values = [next(results) for _ in range(100)]
            STREAMS["s"] = KafkaStream(
                "s", {"west": ClusterMetadata({topics[1]}, {"bootstrap.servers": other.bootstrap_servers})}
            )
            other.produce(topics[1], [b"%d" % number for number in range(100, 200)])
            values += [next(results) for _ in range(100)]
        assert sorted(values) == list(range(200))


def test_an_inactive_cluster_holds_nothing_up(kafka: KafkaCluster) -> None:
    producer = Producer(kafka, 1)
    producer.write(producer.topics[0], 0, 3)
    list_stream(kafka, east=producer.topics)
    down = ClusterMetadata({"t"}, {"bootstrap.servers": "127.0.0.1:9", "brokers.unavailable.timeout.ms": "200"})
    STREAMS["s"] = KafkaStream("s", {**STREAMS["s"].cluster_metadata_map, "down": down})
    INACTIVE.add("down")
    run = SourceRun(build().build(), real_time=True)
    try:
        poll_until(run, lambda: len(run.arrived) == 3)
        INACTIVE.clear()
        with pytest.raises(OperationError, match="no Kafka broker has answered"):
            poll_until(run, lambda: False)
    finally:
        run.close_if_open()


def test_a_service_may_fail_for_a_while(kafka: KafkaCluster) -> None:
    producer = Producer(kafka, 1)
    producer.write(producer.topics[0], 0, 3)
    list_stream(kafka, east=producer.topics)
    FAILURES[0] = 2
    threshold = "stream-metadata-discovery-failure-threshold"
    run = SourceRun(build().set_property(threshold, "3").build(), real_time=True)
    try:
        poll_until(run, lambda: len(run.arrived) == 3)
        FAILURES[0] = 3
        with pytest.raises(OperationError, match=f"ListedStreams has failed 3 times .*{threshold}.*registry is away"):
            poll_until(run, lambda: False)
    finally:
        run.close_if_open()


def test_streams_of_one_cluster(kafka: KafkaCluster) -> None:
    producer = Producer(kafka, 2)
    for topic in producer.topics:
        producer.write(topic, 1, 2)
    service = SingleClusterTopicMetadataService("east", {"bootstrap.servers": kafka.bootstrap_servers})
    for chosen in (build(-1), build(-1).set_stream_pattern("|".join(producer.topics))):
        builder = chosen.set_kafka_metadata_service(service).set_bounded(LATEST)
        if builder is not chosen or builder._stream_ids is not None:
            builder.set_stream_ids(set(producer.topics))
        assert sorted(read_to_end(builder.build(), 2).all_values) == sorted(producer.written)


def test_a_cluster_may_have_offsets_of_its_own(kafka: KafkaCluster) -> None:
    producer = Producer(kafka, 2, partitions=1)
    for topic in producer.topics:
        producer.write(topic, 0, 3)
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    late = ClusterMetadata(producer.topics[1:], servers, KafkaOffsetsInitializer.latest())
    STREAMS["s"] = KafkaStream("s", {"east": ClusterMetadata(producer.topics[:1], servers), "west": late})
    assert read_to_end(build(-1).set_bounded(LATEST).build(), 2).all_values == producer.written[:3]


def test_settings_that_are_wrong_are_named() -> None:
    good = DynamicKafkaSource.builder().set_value_only_deserializer(SimpleStringSchema())
    with pytest.raises(ConfigurationError, match="needs set_kafka_metadata_service"):
        good.build()
    with pytest.raises(ConfigurationError, match="takes a KafkaMetadataService, not 'x'"):
        good.set_kafka_metadata_service("x")  # type: ignore[arg-type]
    good.set_kafka_metadata_service(ListedStreams())
    with pytest.raises(ConfigurationError, match="needs set_stream_ids or set_stream_pattern"):
        good.build()
    with pytest.raises(ConfigurationError, match="takes a set of ids, not 'orders'"):
        good.set_stream_ids("orders")
    with pytest.raises(ConfigurationError, match="is no regular expression"):
        good.set_stream_pattern("(")
    good.set_stream_ids({"orders"})
    with pytest.raises(ConfigurationError, match="discovery-interval-ms must be a whole number, not 'often'"):
        good.set_property("stream-metadata-discovery-interval-ms", "often").build()
    good.set_property("stream-metadata-discovery-interval-ms", "10")
    with pytest.raises(UnsupportedError, match="stream-enumerator-mode is 'global'"):
        good.set_property("stream-enumerator-mode", "global").build()
    good.set_property("stream-enumerator-mode", "per_cluster")
    with pytest.raises(ConfigurationError, match="runs in STREAMING, and in BATCH if it is bounded"):
        good.build().check_execution_mode("MICRO_BATCH", is_local=True)
    servers = {"bootstrap.servers": "a:1"}
    STREAMS["orders"] = KafkaStream("orders", {"east": ClusterMetadata({"t"}, servers)})
    STREAMS["more"] = KafkaStream("more", {"east": ClusterMetadata({"u"}, {"bootstrap.servers": "b:1"})})
    run = SourceRun(good.set_stream_pattern(".*").build())
    with pytest.raises(OperationError, match="name different properties or offsets for cluster 'east', 'orders' among"):
        run.deliver()
    run.close()
