"""Streams that move, or a share group → keyed state → Kafka, through SIGKILLs and suspensions at random moments.

`python -m tests.connectors.kafka.stream_kills --kills 20` writes numbers at a rate into topics of one broker. A job
numbers the records of each key and writes them to another topic. Again and again a worker, the driver with the job
master, or the broker gets SIGKILL, or the broker is suspended for a while. With `--mode dynamic` the job reads them by
`DynamicKafkaSource`, and again and again topics leave the stream, or come back under the id of the same cluster: each
record counts once in the state. With `--mode share` two readers are members of a share group: no record is missing. The
seed that it prints makes the choice of the victims and the pauses the same again.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from tests.connectors.kafka.kills import run_with_mode
from tests.connectors.rabbitmq.kills import VICTIMS, Broker, Feeder, Lines, QueueJob, run_kills
from tests.connectors.rabbitmq.pipeline import run_job
from tests.servers.kafka import KafkaCluster, kafka_server

from penstock.common import SimpleStringSchema
from penstock.datastream.connectors import Sink, Source
from penstock.datastream.connectors.dynamic_kafka import (
    ClusterMetadata,
    DynamicKafkaSource,
    KafkaMetadataService,
    KafkaStream,
)
from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaShareGroupSource, KafkaSink

TOPICS = ("in-0", "in-1", "in-2", "in-3")
#: how often, in publications, the stream changes
CHANGES = 3


class Listed(KafkaMetadataService):
    """The topics in a file; each belongs to one of two clusters, which are the same broker."""

    def __init__(self, file: str, servers: str) -> None:
        self.file, self.servers = file, servers

    def get_all_streams(self) -> Collection[KafkaStream]:
        topics = json.loads(Path(self.file).read_text())
        properties = {"bootstrap.servers": self.servers}
        parts = {name: {topic for topic in topics if int(topic[-1]) % 2 == odd} for odd, name in enumerate(("a", "b"))}
        clusters = {name: ClusterMetadata(part, properties) for name, part in parts.items() if part}
        return [KafkaStream("numbers", clusters)]


class StreamJob(QueueJob):
    """The job and its drivers, one after another."""

    program = "tests.connectors.kafka.stream_kills"


class Server:
    """One broker, as `Broker` knows servers."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self.kafka = kafka

    def kill(self) -> None:
        self.kafka.kill()

    def start(self) -> None:
        self.kafka.start()

    def suspend(self) -> None:
        self.kafka.brokers[0].pause()

    def resume(self) -> None:
        self.kafka.brokers[0].resume()


def run_pipeline(servers: str, folder: str, target: str, interval: str, parallelism: int = 2) -> None:
    """The program of the job. `servers` is `MODE FILE SERVERS`."""
    mode, file, address = servers.split(" ")

    def build() -> tuple[Source[Any, Any], Sink[Any]]:
        schema = KafkaRecordSerializationSchema.builder().set_topic("out")
        schema = schema.set_value_serialization_schema(SimpleStringSchema())
        sink = KafkaSink.builder().set_bootstrap_servers(address).set_record_serializer(schema.build()).build()
        if mode == "share":
            more = {"offset_reset": "earliest", "members": 4}
            return KafkaShareGroupSource(address, "job", TOPICS, SimpleStringSchema(), **more), sink  # type: ignore[arg-type]
        builder = DynamicKafkaSource.builder().set_stream_ids({"numbers"})
        builder = builder.set_kafka_metadata_service(Listed(file, address)).set_group_id("job")
        builder = builder.set_property("stream-metadata-discovery-interval-ms", "200")
        return builder.set_value_only_deserializer(SimpleStringSchema()).build(), sink

    run_job(build, folder, target, interval, parallelism)


def run(
    seed: int,
    kills: int,
    rate: float,
    target: str,
    pause_s: tuple[float, float],
    victims: Mapping[str, int] = MappingProxyType(VICTIMS),
    mode: str = "dynamic",
) -> str:
    """Run one job with a broker."""
    chance = random.Random(seed)
    locks = {"group.share.min.record.lock.duration.ms": 1_000, "group.share.record.lock.duration.ms": 10_000}
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as name, kafka_server(Path(name, "k"), **locks) as kafka:
        file, changes = Path(name, "topics.json"), 0
        file.write_text(json.dumps(TOPICS))
        for topic in (*TOPICS, "out"):
            kafka.create_topic_named(topic, 2 if topic != "out" else 1)
        movements = random.Random(seed + 1)

        def publish(numbers: range) -> None:
            nonlocal changes
            changes += 1
            if changes % CHANGES == 0:
                listed = [topic for topic in TOPICS if movements.random() < 0.6] or [TOPICS[0]]
                new = file.with_suffix(".new")
                new.write_text(json.dumps(listed))
                new.rename(file)
            topic = movements.choice(TOPICS)
            kafka.produce(topic, [str(number) for number in numbers], movements.randrange(2))

        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "proof", "log_level": 0})
        consumer.assign([TopicPartition("out", 0, 0)])

        def read() -> list[str]:
            messages = [message for message in consumer.consume(2_000, 1.0) if message.error() is None]
            return [message.value().decode() for message in messages]  # type: ignore[union-attr]

        class LastFeeder(Feeder):
            def stop(self) -> int:
                count = super().stop()
                file.write_text(json.dumps(TOPICS))
                return count

        def count(records: int) -> Mapping[int, int] | None:
            if mode == "share":
                return None
            return Counter(int(message.value()) for topic in TOPICS for message in kafka.read(topic))  # type: ignore[arg-type]

        server: Any = Server(kafka)
        broker = Broker(server, f"{mode} {file} {kafka.bootstrap_servers}", chance, kafka.kill)
        how = (chance, kills, target, pause_s, victims)
        outcome = run_kills(StreamJob, broker, LastFeeder(publish, rate), Lines(read), count, Path(name), how)
        consumer.close()
        return f"{mode}, {changes // CHANGES} changes of the stream: {outcome}"


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("{"):
        run_pipeline(**json.loads(sys.argv[1]))
    else:
        run_with_mode(run, ("dynamic", "share"))
