"""Numbers → keyed state → ClickHouse, exactly once, through SIGKILLs at random moments.

`PENSTOCK_CHDB=PYTHON python -m tests.connectors.clickhouse.kills --kills 20` runs a job that numbers the records of
each key, and inserts them. Again and again a worker, the driver with the job master, or the server, chDB, gets SIGKILL;
a driver is followed by a new one, and the server comes back after a moment. In the end the table must have each record
once, numbered without a gap. The seed that it prints makes the choice of the victims and the pauses the same again.

With an argument in JSON the program is the job's driver, which goes on from the newest checkpoint of those before it.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.connectors.kafka.kills import PATIENCE_S, Job, command, kill_again_and_again
from tests.connectors.kafka.programs import KEYS, tell_workers
from tests.connectors.mongodb.pipeline import Numbered, same
from tests.servers.clickhouse import ClickHouse, clickhouse_server

from penstock.common import Configuration, RestartStrategies, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.datastream.connectors.clickhouse import ClickHouseSink, ClickHouseTable, InsertSettings

#: How often each is the victim; the broker is the server.
VICTIMS = {"worker": 4, "driver": 2, "broker": 4}
#: How many seconds of records there are for each kill, at least.
SECONDS_A_KILL = 8
TABLE = (
    "CREATE TABLE numbers (key Int32, number Int64, value Int64) ENGINE = MergeTree ORDER BY (key, number) "
    "SETTINGS non_replicated_deduplication_window = 10000"
)


def to_row(record: tuple[int, int, int]) -> dict[str, int]:
    key, number, value = record
    return {"key": key, "number": number, "value": value}


def run_job(servers: str, folder: str, target: str, interval: str, records: int, rate: float) -> None:
    """The job's driver."""
    configuration = Configuration.from_dict(
        {
            "execution.checkpointing.dir": f"{folder}/checkpoints",
            "execution.checkpointing.interval": interval,
            "penstock.recovery.from-latest": "true",
            **({"execution.target": "local"} if target == "local" else {"spark.master": target}),
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10_000, 100))
    source = DataGeneratorSource(same, records, rate)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("source")
    numbered = numbers.key_by(lambda n: n % KEYS).process(Numbered()).uid("numbered")
    settings = InsertSettings(batch_rows=40, max_retries=20, retry_ms=200)
    table = ClickHouseTable(servers, "default", "numbers")
    numbered.map(to_row).sink_to(ClickHouseSink(table, DeliveryGuarantee.EXACTLY_ONCE, settings)).uid("rows")
    job = env.execute_async("Numbers to ClickHouse")
    tell_workers(job, Path(folder, "workers"))
    job.get_job_execution_result().result()


class ClickHouseJob(Job):
    """The job and its drivers, one after another."""

    program = "tests.connectors.clickhouse.kills"
    takes = ("servers", "folder", "target", "interval", "records", "rate")

    def __init__(self, server: Broker, folder: Path, target: str, records: int, rate: float) -> None:
        self._more = {"records": records, "rate": rate}
        super().__init__(server, folder, target, ("", ""))  # type: ignore[arg-type]

    def start(self) -> Any:
        self._arguments |= self._more
        return super().start()


class Broker:
    """The server as the other proofs know theirs."""

    def __init__(self, server: ClickHouse) -> None:
        self.bootstrap_servers = server.url
        self.kill, self.start = server.kill, server.start


def count(server: ClickHouse) -> int:
    """How many rows are there; 0 while the server is away."""
    with suppress(OSError, RuntimeError):
        return int(server.call("SELECT count() AS c FROM numbers")[0]["c"])
    return 0


def check(server: ClickHouse, records: int) -> str:
    """Raise `AssertionError` unless each record is there once, numbered from 1 on."""
    (about,) = server.call(
        "SELECT toInt64(count()) AS rows, toInt64(uniqExact(value)) AS values, "
        "toInt64(uniqExact(key, number)) AS pairs, toInt64(max(value)) AS last FROM numbers"
    )
    about = {name: int(value) for name, value in about.items()}
    assert about == {"rows": records, "values": records, "pairs": records, "last": records - 1}, about
    for row in server.call(
        "SELECT key, toInt64(max(number)) AS last, toInt64(count()) AS rows FROM numbers WHERE value % "
        f"{KEYS} = key GROUP BY key"
    ):
        assert int(row["last"]) == int(row["rows"]) == len(range(int(row["key"]), records, KEYS)), row
    return f"{records} rows"


def run(
    seed: int,
    kills: int,
    rate: float,
    target: str,
    pause_s: tuple[float, float],
    victims: Mapping[str, int] = MappingProxyType(VICTIMS),
) -> str:
    """Run one job, and kill so many processes; raises `AssertionError` when the output is wrong."""
    chance, begun_s = random.Random(seed), time.monotonic()
    if target == "local":  # its workers are threads of the driver
        victims = {name: weight for name, weight in victims.items() if name != "worker"}
    records = int(rate * SECONDS_A_KILL * kills)
    with tempfile.TemporaryDirectory(prefix="penstock-clickhouse-") as name, clickhouse_server() as server:
        server.call(TABLE)
        broker: Any = Broker(server)
        job = ClickHouseJob(broker, Path(name), target, records, rate)

        def await_progress() -> None:
            if chance.random() < 0.75:
                before, deadline = count(server), time.monotonic() + PATIENCE_S
                while count(server) <= before:
                    job.check()
                    assert time.monotonic() < deadline, "the job does not go on"
                    time.sleep(0.2)

        try:
            kinds = kill_again_and_again(chance, broker, job, kills, pause_s, victims, await_progress)
            struck_at = count(server)
            while job.process.poll() is None:
                assert time.monotonic() < begun_s + 4 * PATIENCE_S + records / rate, "the job does not end"
                time.sleep(0.5)
            assert job.process.returncode == 0, "the job failed"
        finally:
            job.process.kill()
            job.process.wait()
        found = check(server, records)
    took_s = time.monotonic() - begun_s
    return f"{kills} kills ({kinds}), the last at {struck_at} of {records} records; {found}, each once, {took_s:.0f} s"


main = command(run, 20, 300.0, (0.5, 5.0), "Kill workers, drivers and the server, and look at what it has in the end.")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("{"):
        run_job(**json.loads(sys.argv[1]))
    else:
        main()
