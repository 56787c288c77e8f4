"""A job that counts keys and writes them into a table of Iceberg, run by a process that is killed.

`python -m tests.connectors.iceberg.programs '{"servers": …}'` reads numbers from a topic, numbers the records of each
key, and appends them to the table `db.numbered`. It keeps the last number of each key in `db.counts`, by key.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.connectors.iceberg.lake import Lake
from tests.connectors.kafka.programs import KEYS, kafka_numbers, tell_workers

from penstock.common import Configuration, RestartStrategies
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.iceberg import IcebergSink
from penstock.datastream.state import ValueStateDescriptor

SCHEMA = pa.schema([("k", pa.int32()), ("number", pa.int64()), ("value", pa.int64())])


class Numbered(KeyedProcessFunction):
    """A key's records with their numbers, from 1."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterable[tuple[int, int, int]]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield value % KEYS, number, value


def run(servers: str, source: str, folder: str, target: str, interval: str, parallelism: int = 2) -> None:
    """The program: it goes on from the newest checkpoint of the ones before."""
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
    lake = Lake(Path(folder, "lake"))
    numbered = kafka_numbers(env, servers, source).key_by(lambda n: n % KEYS).process(Numbered()).uid("numbered")
    appends = IcebergSink.for_row(SCHEMA).table_loader(lake.loader("numbered")).create_table("k").build()
    counts = IcebergSink.for_row(SCHEMA).table_loader(lake.loader("counts")).create_table()
    numbered.sink_to(appends).uid("appends")
    numbered.key_by(lambda row: row[0]).sink_to(counts.equality_field_columns("k").build()).uid("counts")
    job = env.execute_async("to iceberg")
    tell_workers(job, Path(folder, "workers"))
    job.get_job_execution_result().result()


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
