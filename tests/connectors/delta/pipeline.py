"""Kafka → keyed state → Delta Lake, as a job: each record into one table, and the last one of each key into another.

As a program it is the job's driver: `python -m tests.connectors.delta.pipeline '{"servers": …}'`. It goes on from the
newest checkpoint of the drivers before it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from tests.connectors.kafka.programs import KEYS, kafka_numbers, tell_workers

from penstock.common import Configuration, RestartStrategies, Row, Types
from penstock.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.delta import DeltaSink
from penstock.datastream.state import ValueStateDescriptor

COLUMNS = Types.ROW_NAMED(["key", "number", "value"], [Types.INT(), Types.LONG(), Types.LONG()])


class Numbered(KeyedProcessFunction):
    """A key's records with their numbers, from 1."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterable[Row]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield Row(key=value % KEYS, number=number, value=value)


def build(numbers: DataStream, folder: Path) -> None:
    numbered = numbers.key_by(lambda n: n % KEYS).process(Numbered(), COLUMNS).uid("numbered")
    every = DeltaSink.for_row_data(folder / "every").with_partition_columns("key").with_compaction(20).build()
    last = DeltaSink.for_row_data(folder / "last").with_key_columns("key").build()
    numbered.sink_to(every).uid("every")
    numbered.sink_to(last).uid("last")


def count(folder: Path) -> int:
    """How many records readers see."""
    return int(DeltaTable(folder / "every").count()) if DeltaTable.is_deltatable(folder / "every") else 0


def versions(folder: Path) -> int:
    """How many there are of the table with each record."""
    return len(list((folder / "every" / "_delta_log").glob("*.json")))


def check(records: int, folder: Path) -> str:
    """Raise `AssertionError` unless readers see each record once, with numbers from 1 on for each key."""
    every = DeltaTable(folder / "every")
    columns = every.to_pyarrow_table().to_pydict()
    values = sorted(columns["value"])
    expected = list(range(records))
    if values != expected:
        missing, more = len(set(expected) - set(values)), len(values) - len(set(values))
        raise AssertionError(f"{missing} of {records} records are missing, and {more} come twice")
    numbers: dict[int, list[int]] = {}
    for key, number in sorted(zip(columns["key"], columns["number"], strict=True)):
        numbers.setdefault(key, []).append(number)
    for key, of_key in numbers.items():
        if of_key != list(range(1, len(of_key) + 1)):
            raise AssertionError(f"the records of key {key} are not numbered from 1 on")
    last = DeltaTable(folder / "last")
    merged = last.to_pyarrow_table().to_pydict()
    found = dict(zip(merged["key"], merged["number"], strict=True))
    if len(merged["key"]) != len(found) or found != {key: len(of_key) for key, of_key in numbers.items()}:
        raise AssertionError(f"the table of last records is {merged}")
    return f"{every.version()} and {last.version()} versions"


def run(servers: str, topic: str, folder: str, target: str, interval: str, parallelism: int = 2) -> None:
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
    build(kafka_numbers(env, servers, topic), Path(folder))
    job = env.execute_async("Kafka to Delta Lake")
    tell_workers(job, Path(folder, "workers"))
    job.get_job_execution_result().result()


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
