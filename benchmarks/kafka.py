"""`python -m benchmarks.kafka`: a Kafka source beside bare loops of the client library that do the same.

Both read a topic of JSON messages of about 200 bytes to its end, from a broker that the command starts. The bare loop
is what a program without Penstock would be: `consume`, an error check and `json.loads` for each message, and offsets
committed once a second, as Penstock has a checkpoint a second. A second pair leaves the messages in bytes.

`--beside-flink --flink PYTHON` compares jobs from a topic to a topic with PyFlink's and Flink SQL's instead, see
`kafka_beside_flink`.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table
from tests.servers.kafka import KafkaCluster, kafka_server

from benchmarks.kafka_beside_flink import compare, connector
from benchmarks.sink import KEPT_MAX, CountingSink
from penstock.common import Configuration, JsonRowDeserializationSchema, Types, WatermarkStrategy
from penstock.common.serialization import ByteArraySchema, DeserializationSchema
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

COMMIT_S = 1.0
BATCH = 4096
ROW = Types.ROW_NAMED(
    ["id", "user", "product", "price", "quantity", "at", "comment"],
    [Types.LONG(), Types.STRING(), Types.STRING(), Types.DOUBLE(), Types.INT(), Types.STRING(), Types.STRING()],
)


@dataclass
class Run:
    """Records a second of time, and seconds of this process's processors."""

    rate: float
    cpu_seconds: float


def message(number: int, chance: random.Random) -> bytes:
    order = {
        "id": number,
        "user": f"user-{chance.randrange(100_000)}",
        "product": f"product-{chance.randrange(10_000)}",
        "price": round(chance.random() * 100, 2),
        "quantity": chance.randrange(1, 9),
        "at": "2024-05-01T12:00:00Z",
        "comment": "x" * 66,
    }
    return json.dumps(order).encode()


def fill(kafka: KafkaCluster, records: int, partitions: int) -> str:
    topic = kafka.create_topic("orders", partitions)
    chance = random.Random(1)
    producer = kafka.producer(linger_ms=50, queue_buffering_max_messages=1_000_000)
    for number in range(records):
        producer.produce(topic, message(number, chance), partition=number % partitions)
        if number % 10_000 == 0:
            producer.poll(0)
            producer.flush()
    producer.flush()
    return topic


def bare_loop(kafka: KafkaCluster, topic: str, records: int, partitions: int, parse: Callable[[bytes], object]) -> int:
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "bare", "enable.auto.commit": False}
    consumer = Consumer({**config, "fetch.queue.backoff.ms": 10, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    kept: list[object] = []
    count, commit_at = 0, time.monotonic() + COMMIT_S
    while count < records:
        for found in consumer.consume(BATCH, 0.05):
            if found.error() is not None:
                raise RuntimeError(found.error())
            value = found.value()
            if value is not None:
                kept.append(parse(value))
                count += 1
        if len(kept) > KEPT_MAX:
            kept.clear()
        if time.monotonic() > commit_at:
            consumer.commit(asynchronous=True)
            commit_at += COMMIT_S
    consumer.close()
    return count


def penstock(kafka: KafkaCluster, topic: str, schema: DeserializationSchema[Any]) -> int:
    settings = {"execution.target": "local", "execution.checkpointing.interval": "1 s"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(1)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.bootstrap_servers)
        .set_topics(topic)
        .set_group_id("penstock")
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(schema)
        .build()
    )
    sink = CountingSink()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").sink_to(sink)
    env.execute("orders")
    return sink.total


def timed(run: Callable[[], int], records: int) -> Run:
    begun, cpu = time.monotonic(), time.process_time()
    found = run()
    if found != records:
        raise RuntimeError(f"{found} records, not {records}")
    return Run(records / (time.monotonic() - begun), time.process_time() - cpu)


@click.command()
@click.option("--records", default=1_000_000, show_default=True)
@click.option("--partitions", default=4, show_default=True)
@click.option("--pairs", default=3, show_default=True)
@click.option("--beside-flink", is_flag=True, help="From a topic to a topic, beside PyFlink and Flink SQL.")
@click.option(
    "--flink",
    default="build/flink/bin/python",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The Python of an environment with apache-flink.",
)
@click.option("--jar", type=click.Path(exists=True, path_type=Path), help="Flink's connector; else it is fetched.")
def main(records: int, partitions: int, pairs: int, beside_flink: bool, flink: Path, jar: Path | None) -> None:
    """Compare a Kafka source with bare loops, or jobs with Flink's."""
    if beside_flink:
        with tempfile.TemporaryDirectory() as directory, kafka_server(Path(directory)) as kafka:
            topic = fill(kafka, records, partitions)
            found = compare(kafka, topic, records, pairs, flink, (jar or connector()).absolute())
        Console(width=140).print(found)
        return
    json_rows = JsonRowDeserializationSchema.builder().type_info(ROW).build()
    table = Table(title=f"{records:,} messages of {len(message(1, random.Random(1)))} bytes, {partitions} partitions")
    for column in ("", "bare loop/s", "Penstock/s", "ratio", "ratios", "CPU s", "CPU ratio"):
        table.add_column(column)
    with tempfile.TemporaryDirectory() as directory, kafka_server(Path(directory)) as kafka:
        topic = fill(kafka, records, partitions)
        for name, parse, schema in (("JSON", json.loads, json_rows), ("bytes", bytes, ByteArraySchema())):
            ours, theirs = [], []
            for _ in range(pairs):
                theirs.append(timed(partial(bare_loop, kafka, topic, records, partitions, parse), records))
                ours.append(timed(partial(penstock, kafka, topic, schema), records))
            ratios = [one.rate / other.rate for one, other in zip(ours, theirs, strict=True)]
            cpu, twin_cpu = (statistics.median(run.cpu_seconds for run in runs) for runs in (ours, theirs))
            table.add_row(
                name,
                f"{statistics.median(run.rate for run in theirs):,.0f}",
                f"{statistics.median(run.rate for run in ours):,.0f}",
                f"{statistics.median(ratios):.2f}",
                " ".join(f"{ratio:.2f}" for ratio in ratios),
                f"{twin_cpu:.2f} / {cpu:.2f}",
                f"{twin_cpu / cpu:.2f}",
            )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
