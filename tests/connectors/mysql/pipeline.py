"""Files → keyed state → MySQL or MariaDB, as a job: rows once into a table without a key, and rows by key.

A feeder puts numbers into files of a folder, which the job watches. It numbers the records of each key. Each number is
inserted into `seen`, exactly once: the table has no key, so a number that is written twice is there twice. The last
number of each key, and how many there were, replace the row of the key in `counts`, at least once.

Run as a program, it is the job's driver: `python -m tests.connectors.mysql.pipeline '{"servers": …}'`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.connectors.kafka.programs import tell_workers
from tests.connectors.mysql.conftest import Database

from penstock.common import Configuration, RestartStrategies, Types, WatermarkStrategy
from penstock.common.time import Duration
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.connectors.jdbc import (
    JdbcConnectionOptions,
    JdbcExactlyOnceOptions,
    JdbcExecutionOptions,
    JdbcSink,
)
from penstock.datastream.state import ValueStateDescriptor

KEYS = 97
TABLES = (
    "CREATE TABLE seen (n BIGINT NOT NULL, number BIGINT NOT NULL)",
    "CREATE TABLE counts (k INT PRIMARY KEY, number BIGINT NOT NULL, last BIGINT NOT NULL)",
)
RETRIES = 8
TRIPLE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class Numbered(KeyedProcessFunction):
    """A key's records with their numbers, from 1."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterable[tuple[int, int, int]]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield value % KEYS, number, value


def check(records: int, database: Database) -> str:
    """Raise `AssertionError` unless `seen` has each record once, and `counts` the last one of each key."""
    wrong = database.execute("SELECT n, COUNT(*) FROM seen GROUP BY n HAVING COUNT(*) > 1")
    assert not wrong, f"{len(wrong)} numbers are there twice: {wrong[:20]}"
    numbers = {n for (n,) in database.execute("SELECT n FROM seen")}
    missing = set(range(records)) - numbers
    assert not missing, f"{len(missing)} numbers are missing: {sorted(missing)[:20]}"
    assert numbers == set(range(records))
    counts = {key: (number, last) for key, number, last in database.execute("SELECT k, number, last FROM counts")}
    for key in range(KEYS):
        values = range(key, records, KEYS)
        assert counts[key] == (len(values), max(values)), (key, counts[key])
    ((runs,),) = database.execute("SELECT COUNT(*) FROM penstock_commits")
    return f"{len(numbers)} rows, each once; {len(counts)} keys, all right; {runs} rows of the ledger"


def run(servers: str, folder: str, target: str, interval: str, parallelism: int = 2) -> None:
    """The program. `servers`: the URL of the database."""
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
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{folder}/numbers")
    lines = env.from_source(
        files.monitor_continuously(Duration.of_millis(200)).build(), WatermarkStrategy.no_watermarks(), "files"
    ).uid("files")
    numbers = lines.map(int, Types.LONG())
    numbered = numbers.key_by(lambda n: n % KEYS).process(Numbered(), TRIPLE).uid("numbered")
    there = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(servers).build()
    seen = JdbcSink.exactly_once_sink(
        "INSERT INTO seen (n, number) VALUES (?, ?)", PAIR, there, JdbcExactlyOnceOptions(max_retries=RETRIES)
    )
    numbered.map(lambda row: (row[2], row[1]), PAIR).sink_to(seen).uid("seen")
    counts = JdbcSink.sink(
        "INSERT INTO counts (k, number, last) VALUES (?, ?, ?) "
        "ON DUPLICATE KEY UPDATE number = VALUES(number), last = VALUES(last)",
        TRIPLE,
        there,
        JdbcExecutionOptions.builder().with_batch_size(50).with_max_retries(RETRIES).build(),
    )
    numbered.sink_to(counts).uid("counts")
    job = env.execute_async("files to MySQL")
    tell_workers(job, Path(folder, "workers"))
    job.get_job_execution_result().result()


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
