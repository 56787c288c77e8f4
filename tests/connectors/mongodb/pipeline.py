"""Generated numbers → keyed state → documents, as a job whose server, workers and drivers are killed.

As a program it is the job's driver: `python -m tests.connectors.mongodb.pipeline '{"servers": …}'`. It goes on from the
newest checkpoint of the drivers before it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.connectors.kafka.programs import KEYS, tell_workers

from penstock.common import Configuration, RestartStrategies, WatermarkStrategy
from penstock.connectors.mongodb.sink import mongo_settings
from penstock.connectors.mongodb.source import MongoAddress
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.mongodb import MongoSink, MongoWrite
from penstock.datastream.state import ValueStateDescriptor


class Numbered(KeyedProcessFunction):
    """A key's records with their numbers, from 1. Records of a key come in order, but those of subtasks mix."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterable[tuple[int, int, int]]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield value % KEYS, number, value


def to_record(record: tuple[int, int, int]) -> MongoWrite:
    """A document for each number of a key, which says what came as that number."""
    key, number, value = record
    return MongoWrite.replace(f"{key}:{number}", {"key": key, "number": number, "value": value})


def to_last(record: tuple[int, int, int]) -> MongoWrite:
    """The document of a key, whose number must be the last one in the end."""
    key, number, _ = record
    return MongoWrite.set(str(key), {"number": number})


def same(index: int) -> int:
    return index


def check(records: int, database: Any) -> str:
    """Raise `AssertionError` unless each record is there once, numbered from 1 on, and the last number of each key."""
    documents = list(database["records"].find({}))
    values = sorted(document["value"] for document in documents)
    assert values == list(range(records)), f"{len(values)} documents, {len(set(values))} values of {records}"
    numbers: dict[int, list[int]] = {}
    for document in documents:
        assert document["value"] % KEYS == document["key"]
        numbers.setdefault(document["key"], []).append(document["number"])
    for key, found in numbers.items():
        assert sorted(found) == list(range(1, len(found) + 1)), f"key {key}: {len(found)} documents"
        last = database["last"].find_one({"_id": str(key)})["number"]
        assert last == len(found), f"key {key}: the last number is {last} of {len(found)}"
    return f"{len(documents)} documents"


def run(servers: str, folder: str, target: str, interval: str, records: int, rate: float, parallelism: int = 2) -> None:
    """The program."""
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
    source = DataGeneratorSource(same, records, rate)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("source")
    numbered = numbers.key_by(lambda n: n % KEYS).process(Numbered()).uid("numbered")
    settings = mongo_settings(max_retries=10, retry_ms=200)
    for name, to_write in (("records", to_record), ("last", to_last)):
        numbered.sink_to(MongoSink(MongoAddress(servers, "shop", name), to_write, settings)).uid(name)
    job = env.execute_async("Numbers to MongoDB")
    tell_workers(job, Path(folder, "workers"))
    job.get_job_execution_result().result()


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
