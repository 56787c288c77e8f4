"""A job that counts keys and writes them to Kafka exactly once, run in this process or by a process that is killed.

As a program: `python -m tests.connectors.kafka.programs '{"servers": …}'` runs it until it ends or dies. With `die`, it
ends itself by SIGKILL at one of `STEPS`, the first time that it comes there after its `after`th checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any
from unittest import mock

from penstock.common import Configuration, RestartStrategies, SimpleStringSchema, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.datastream.state import ValueStateDescriptor

KEYS = 7
#: When the program dies: the class and method, and whether before or after the call.
STEPS = {
    "before the flush": ("penstock.connectors.kafka.sink.TransactionalWriter", "flush", False),
    "after the flush": ("penstock.connectors.kafka.sink.TransactionalWriter", "flush", True),
    "after it was prepared": (
        "penstock.connectors.kafka.sink.TransactionalWriter",
        "snapshot_state",
        True,
    ),
    "before the commit": ("penstock.connectors.kafka.producer.KafkaCommitter", "commit", False),
    "amid the commit": ("penstock.connectors.kafka.cluster.KafkaCluster", "commit", True),
    "after the commit": ("penstock.connectors.kafka.producer.KafkaCommitter", "commit", True),
}


class Numbered(KeyedProcessFunction):
    """A key's records with their numbers, from 1."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterable[str]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield json.dumps([value % KEYS, number, value])


def kafka_sink(servers: str, topic: str, guarantee: DeliveryGuarantee, **properties: str) -> KafkaSink[Any]:
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    builder = KafkaSink.builder().set_bootstrap_servers(servers).set_record_serializer(schema)
    builder.set_delivery_guarantee(guarantee).set_transactional_id_prefix(f"sink-of-{topic}")
    builder.set_property("transaction.timeout.ms", "120000")
    for name, value in properties.items():
        builder.set_property(name.replace("_", "."), value)
    return builder.build()


def kafka_numbers(env: StreamExecutionEnvironment, servers: str, topic: str) -> DataStream:
    """The numbers of a topic, without an end."""
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(topic)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "kafka source").uid("source").map(int).uid("int")


def generated_numbers(env: StreamExecutionEnvironment, records: int, rate: float | None) -> DataStream:
    source = DataGeneratorSource(lambda index: index, count=records, rate_per_second=rate)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")


def build(numbers: DataStream, sink: KafkaSink[Any]) -> None:
    numbered = numbers.key_by(lambda n: n % KEYS).process(Numbered()).uid("numbered")
    numbered.sink_to(sink).uid("kafka")


def check(records: int, values: Iterable[bytes | None]) -> None:
    """Raise `AssertionError` unless each record is there once, and those of each key are numbered from 1 on."""
    found = sorted(tuple(json.loads(value)) for value in values if value is not None)
    counts: dict[int, int] = defaultdict(int)
    indexes = sorted(index for _, _, index in found)
    expected = list(range(records))
    if indexes != expected:
        missing, more = len(set(expected) - set(indexes)), len(indexes) - len(set(indexes))
        raise AssertionError(f"{missing} of {records} records are missing, and {more} come twice")
    for key, number, _ in found:
        counts[key] += 1
        if number != counts[key]:
            raise AssertionError(f"record {counts[key]} of key {key} has the number {number}")


def _dies(step: str, after: int, folder: str) -> Any:
    """Within this, the program ends itself at a step."""
    owner, method, is_after = STEPS[step]
    module, _, name = owner.rpartition(".")
    original = getattr(getattr(__import__(module, fromlist=[name]), name), method)
    calls, lock = [0], threading.Lock()

    def count() -> None:
        with lock:
            calls[0] += 1
            if calls[0] > after:
                Path(folder, "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)

    def patched(self: Any, *args: Any) -> Any:
        if not is_after:
            count()
        result = original(self, *args)
        if is_after:
            count()
        return result

    return mock.patch(f"{owner}.{method}", patched)


def tell_workers(job: Any, path: Path) -> None:
    """Write down again and again which processes the job's workers are."""
    result = job.get_job_execution_result()
    while not result.done():
        try:
            workers = [process for _, _, process in job.get_progress().result().workers]
        except CancelledError:
            break
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(workers))
        temporary.rename(path)
        time.sleep(0.2)


def run(
    servers: str,
    topic: str,
    folder: str,
    records: int,
    rate: float | None = None,
    parallelism: int = 2,
    target: str = "local",
    die: str | None = None,
    after: int = 2,
    interval: str = "200 ms",
    mode: str = "STREAMING",
    source: str | None = None,
) -> None:
    """The program: it goes on from the newest checkpoint of the ones before."""
    configuration = Configuration.from_dict(
        {
            "execution.checkpointing.dir": f"{folder}/checkpoints",
            "execution.checkpointing.interval": interval,
            "execution.runtime-mode": mode,
            "execution.micro-batch.interval": interval,
            "execution.micro-batch.max-records": str(int((rate or 10_000) / 5)),
            "penstock.recovery.from-latest": "true",
            **({"execution.target": "local"} if target == "local" else {"spark.master": target}),
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10_000, 100))
    if source is None:
        numbers = generated_numbers(env, records, rate if mode == "STREAMING" else None)
    else:
        numbers = kafka_numbers(env, servers, source)
    build(numbers, kafka_sink(servers, topic, DeliveryGuarantee.EXACTLY_ONCE))
    if die is None:
        job = env.execute_async(f"to {topic}")
        tell_workers(job, Path(folder, "workers"))
        job.get_job_execution_result().result()
    else:
        with _dies(die, after, folder):
            env.execute(f"to {topic}")


Run = Callable[..., None]

if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
