"""Records into Kafka: the sink in a job beside confluent-kafka's bare loop, in one process and one run.

`python -m benchmarks.kafka_sink` starts a broker of its own. Messages are JSON of 200 bytes: sent as they are; made of
rows, in the bare loop by `json.dumps`; or read from a topic, decoded, and written to another one again. Times are CPU
seconds of this process (the broker has its own) and seconds of the clock; a ratio is the bare loop's time over the
job's.
"""

from __future__ import annotations

import gc
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.servers.kafka import KafkaCluster, kafka_server

from penstock.codecs.json_row import JsonRowDeserializationSchema, JsonRowSerializationSchema
from penstock.codecs.serialization import ByteArraySchema, SerializationSchema
from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)

TEXT = "x" * 171
ROW_TYPE = Types.ROW_NAMED(["id", "text"], [Types.LONG(), Types.STRING()])
JSON_SCHEMA = JsonRowSerializationSchema.builder().with_type_info(ROW_TYPE).build()
#: So that making records costs the same and little in both.
KINDS = 1_000
MESSAGES = [json.dumps({"id": 10_000 + number, "text": TEXT}).encode() for number in range(KINDS)]
ROWS = [Row(id=10_000 + number, text=TEXT) for number in range(KINDS)]
DICTS = [row.as_dict() for row in ROWS]
READ_AT_ONCE = 5_000
WHAT = {
    "sent": "200 bytes, as they are",
    "made": "JSON of 200 bytes, made of rows",
    "read": "JSON of 200 bytes, from a topic",
}


class Bench:
    """One kind of messages, by the bare loop and by jobs."""

    def __init__(self, kafka: KafkaCluster, kind: str, records: int) -> None:
        self.kafka, self.kind, self.records = kafka, kind, records
        self.full = kafka.create_topic("full")
        if kind == "read":
            self._produce(self.full, (MESSAGES[number % KINDS] for number in range(records)))

    # --- what a person would write with the client alone --------------------------------------------------------------

    def bare(self, topic: str) -> None:
        indexes = (number % KINDS for number in range(self.records))
        if self.kind == "sent":
            self._produce(topic, (MESSAGES[index] for index in indexes))
        elif self.kind == "made":
            self._produce(topic, (json.dumps(DICTS[index]).encode() for index in indexes))
        else:
            self._produce(topic, (json.dumps(json.loads(value)).encode() for value in self._consume()))

    def _produce(self, topic: str, values: Iterable[bytes]) -> None:
        settings = {"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
        producer = Producer(settings)
        for number, value in enumerate(values):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.1)
            if not number % 1_000:
                producer.poll(0)
        producer.flush()

    def _consume(self) -> Iterable[bytes]:
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": "bench"})
        consumer.assign([TopicPartition(self.full, 0, 0)])
        left = self.records
        while left:
            found = consumer.consume(min(left, READ_AT_ONCE), 0.1)
            left -= len(found)
            for message in found:
                yield message.value() or b""
        consumer.close()

    # --- the same in a job --------------------------------------------------------------------------------------------

    def job(self, topic: str, guarantee: DeliveryGuarantee) -> None:
        options = {"execution.target": "local", "execution.checkpointing.interval": "1 s"}
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options)).set_parallelism(1)
        schema: SerializationSchema[Any] = ByteArraySchema() if self.kind == "sent" else JSON_SCHEMA
        serializer = KafkaRecordSerializationSchema.builder().set_topic(topic).set_value_serialization_schema(schema)
        builder = KafkaSink.builder().set_bootstrap_servers(self.kafka.bootstrap_servers)
        builder.set_record_serializer(serializer.build()).set_property("transaction.timeout.ms", "600000")
        builder.set_delivery_guarantee(guarantee).set_transactional_id_prefix(topic)
        self._records(env).sink_to(builder.build())
        env.execute("to Kafka")

    def _records(self, env: StreamExecutionEnvironment) -> DataStream:
        no_time = WatermarkStrategy.no_watermarks()
        if self.kind != "read":
            made: list[Any] = list(MESSAGES if self.kind == "sent" else ROWS)
            return env.from_source(DataGeneratorSource(lambda n: made[n % KINDS], self.records), no_time, "records")
        source = (
            KafkaSource.builder()
            .set_bootstrap_servers(self.kafka.bootstrap_servers)
            .set_topics(self.full)
            .set_starting_offsets(KafkaOffsetsInitializer.earliest())
            .set_bounded(KafkaOffsetsInitializer.latest())
            .set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(ROW_TYPE).build())
            .build()
        )
        return env.from_source(source, no_time, "from Kafka")

    # --- figures ------------------------------------------------------------------------------------------------------

    @property
    def runs(self) -> dict[str, Callable[[str], None]]:
        return {
            "bare loop": self.bare,
            "KafkaSink, AT_LEAST_ONCE": lambda topic: self.job(topic, DeliveryGuarantee.AT_LEAST_ONCE),
            "KafkaSink, EXACTLY_ONCE": lambda topic: self.job(topic, DeliveryGuarantee.EXACTLY_ONCE),
        }

    def measure(self, rounds: int) -> dict[str, tuple[float, float]]:
        """The least seconds of CPU and of the clock of each."""
        best: dict[str, tuple[float, float]] = {}
        for _ in range(rounds):
            for what, run in self.runs.items():
                topic = self.kafka.create_topic("bench")
                gc.collect()
                cpu, wall = time.process_time(), time.perf_counter()
                run(topic)
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
                known = best.get(what, (cpu, wall))
                best[what] = min(cpu, known[0]), min(wall, known[1])
                self.kafka.delete_topic(topic)
        return best


@click.command()
@click.option("--records", default=1_000_000, show_default=True)
@click.option("--rounds", default=3, show_default=True, help="The best of so many counts.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(WHAT)), help="Some of them; all unless said.")
def main(records: int, rounds: int, kinds: tuple[str, ...]) -> None:
    """Measure, and print a table."""
    logging.getLogger("penstock.job").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder, kafka_server(Path(folder)) as kafka:
        print("| messages | written by | CPU (s) | records/s of CPU | clock (s) | ratio of CPU | ratio of clock |")
        print("| - | - | - | - | - | - | - |")
        for kind in kinds or WHAT:
            best = Bench(kafka, kind, records).measure(rounds)
            cpu_bare, wall_bare = best["bare loop"]
            for what, (cpu, wall) in best.items():
                ratios = f"{cpu_bare / cpu:.2f} | {wall_bare / wall:.2f}"
                print(
                    f"| {WHAT[kind]} | {what} | {cpu:.2f} | {records / cpu:,.0f} | {wall:.2f} | {ratios} |", flush=True
                )


if __name__ == "__main__":
    main()
