"""Kinesis → keyed state → Kinesis, DynamoDB or SQS, as a job whose workers and drivers are killed.

As a program it is the job's driver: `python -m tests.connectors.aws.pipeline '{"servers": …}'`. It goes on from the
newest checkpoint of the drivers before it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.connectors.kafka.programs import KEYS, tell_workers

from penstock.common import Configuration, RestartStrategies, SimpleStringSchema, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.dynamodb import DynamoDbSink, DynamoDbWriteRequest
from penstock.datastream.connectors.kinesis import KinesisStreamsSink, KinesisStreamsSource, PartitionKeyGenerator
from penstock.datastream.connectors.sqs import SqsMessage, SqsSink
from penstock.datastream.state import ValueStateDescriptor


class Numbered(KeyedProcessFunction):
    """A key's records with their numbers, from 1."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterable[str]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield f"{value % KEYS} {number} {value}"


class ByKey(PartitionKeyGenerator[str]):
    def apply(self, element: str) -> str:
        return element.partition(" ")[0]


def to_message(record: str) -> SqsMessage:
    return SqsMessage(record, group_id=record.partition(" ")[0], deduplication_id=record.replace(" ", "-"))


def to_item(record: str) -> DynamoDbWriteRequest:
    key, number, value = map(int, record.split())
    return DynamoDbWriteRequest.put({"value": value, "key": key, "number": number})


def build_sink(kind: str, place: str, properties: dict[str, str]) -> Any:
    """The sink; `place` is the stream, the table or the queue."""
    if kind == "kinesis":
        streams = KinesisStreamsSink.builder().set_stream_arn(place).set_kinesis_client_properties(properties)
        streams.set_serialization_schema(SimpleStringSchema()).set_partition_key_generator(ByKey())
        return streams.set_max_time_in_buffer_ms(200).set_max_in_flight_requests(4).build()
    if kind == "dynamodb":
        items = DynamoDbSink.builder().set_table_name(place).set_dynamodb_properties(properties)
        return items.set_element_converter(to_item).set_max_time_in_buffer_ms(200).set_max_in_flight_requests(4).build()
    messages = SqsSink.builder().set_sqs_url(place).set_sqs_client_properties(properties)
    return messages.set_message_converter(to_message).set_max_time_in_buffer_ms(200).build()


def run(servers: str, folder: str, target: str, interval: str, parallelism: int = 2) -> None:
    """The program. `servers` is JSON: the stream, how to connect to it, the sink, its place, and how to connect."""
    arn, source_properties, kind, place, sink_properties = json.loads(servers)
    configuration = Configuration.from_dict(
        {
            "execution.checkpointing.dir": f"{folder}/checkpoints",
            "execution.checkpointing.interval": interval,
            "penstock.recovery.from-latest": "true",
            **({"execution.target": "local"} if target == "local" else {"spark.master": target}),
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10_000, 100))
    config = {"source.init.position": "TRIM_HORIZON", "source.shard.discovery.interval": "1 s", **source_properties}
    builder = KinesisStreamsSource.builder().set_stream_arn(arn).set_source_config(config)
    source = builder.set_deserialization_schema(SimpleStringSchema()).build()
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "stream").map(int).uid("source")
    numbered = numbers.key_by(lambda n: n % KEYS).process(Numbered()).uid("numbered")
    numbered.sink_to(build_sink(kind, place, sink_properties)).uid("sink")
    job = env.execute_async(f"Kinesis to {kind}")
    tell_workers(job, Path(folder, "workers"))
    job.get_job_execution_result().result()


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
