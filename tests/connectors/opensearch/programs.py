"""A job that counts keys and writes them into three indexes, run by a process that is killed.

`python -m tests.connectors.opensearch.programs '{"servers": …}'` reads numbers from a topic and numbers the records of
each key. Each record is a document of `numbered`. `counts` has the last record of each key, with its number as the
version. `odd` has the same without versions, and deletes the document of a key at each even number.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.connectors.iceberg.programs import Numbered
from tests.connectors.kafka.programs import KEYS, kafka_numbers, tell_workers

from penstock.common import Configuration, RestartStrategies
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.elasticsearch import (
    BulkAction,
    ElasticsearchEmitter,
    FlushBackoffType,
    OpensearchSink,
    OpensearchSinkBuilder,
)


class Emitter(ElasticsearchEmitter):
    def emit(self, element: tuple[int, int, int], timestamp: int | None) -> BulkAction:
        key, number, value = element
        document = {"k": key, "number": number, "value": value}
        if self._index == "numbered":
            return BulkAction.write("numbered", str(value), document)
        if self._index == "counts":
            return BulkAction.write("counts", str(key), document, number)
        return BulkAction.write("odd", str(key), document) if number % 2 else BulkAction.delete("odd", str(key))


def sink(url: str, index: str) -> OpensearchSink:
    builder = OpensearchSinkBuilder().set_hosts(url).set_emitter(Emitter(index)).set_bulk_flush_interval(100)
    return builder.set_bulk_flush_backoff_strategy(FlushBackoffType.EXPONENTIAL, 12, 50).build()


def run(servers: str, source: str, folder: str, target: str, interval: str, topic: str, parallelism: int = 2) -> None:
    """The program: it goes on from the newest checkpoint of the ones before. `topic`: the URL of the service."""
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
    numbered: Any = kafka_numbers(env, servers, source).key_by(lambda n: n % KEYS).process(Numbered()).uid("numbered")
    for index in ("numbered", "counts", "odd"):
        numbered.sink_to(sink(topic, index)).uid(f"to {index}")
    job = env.execute_async("to opensearch")
    tell_workers(job, Path(folder, "workers"))
    job.get_job_execution_result().result()


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
