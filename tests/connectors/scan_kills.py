"""A bounded scan of OpenSearch or ClickHouse → files, exactly once, through SIGKILLs of workers, driver and server.

`python -m tests.connectors.scan_kills --system opensearch --kills 20` fills an index, or a table, with numbered rows. A
job reads them slowly, with checkpoints, into files that are committed exactly once. Again and again a worker, its
driver or the server gets SIGKILL; a driver is followed by a new one, which goes on from the newest checkpoint, and the
server comes back after a moment. When a scan is at its end, its files must have each number once, and the next scan
begins, until there were so many kills. The seed that it prints makes the choices the same again.

As a program of its own with arguments in JSON it is the job's driver.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from tests.connectors.kafka.programs import tell_workers
from tests.servers.clickhouse import clickhouse_server
from tests.servers.opensearch import opensearch_server

from penstock.common import Configuration, Encoder, RestartStrategies, Types, WatermarkStrategy
from penstock.connectors.conditions import Partitions
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.clickhouse import ClickHouseSource, ClickHouseTable
from penstock.datastream.connectors.elasticsearch import OpensearchSource
from penstock.datastream.connectors.file_system import FileSink
from penstock.runtime.connector import Source

ROWS = 6_000
PATIENCE_S = 300.0
VICTIMS = ("worker", "driver", "server")


def create_source(system: str, url: str) -> Source[Any, Any]:
    """Return the source, with small answers: a kill falls between two of them."""
    if system == "opensearch":
        return OpensearchSource(url, index="numbers", fetch_size=100, deserialize=lambda each: each.read()["n"])
    table = ClickHouseTable(url, "default", "numbers", settings=(("max_threads", "1"),))
    partitions = Partitions("n", 0, ROWS - 1, 4)
    return ClickHouseSource(table, "n", partitions=partitions, deserialize=lambda row: row["n"])


def wait_a_little(n: int) -> str:
    if n % 10 == 0:
        time.sleep(0.02)
    return str(n)


def run_driver(system: str, url: str, folder: str, target: str) -> None:
    """Run the job until the scan is at its end."""
    configuration = Configuration.from_dict(
        {
            "execution.checkpointing.dir": f"{folder}/checkpoints",
            "execution.checkpointing.interval": "300 ms",
            "penstock.recovery.from-latest": "true",
            **({"execution.target": "local"} if target == "local" else {"spark.master": target}),
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10_000, 200))
    numbers = env.from_source(create_source(system, url), WatermarkStrategy.no_watermarks(), "scan").uid("scan")
    sink = FileSink.for_row_format(f"{folder}/out", Encoder.simple_string_encoder()).build()
    numbers.map(wait_a_little, output_type=Types.STRING()).uid("slow").sink_to(sink).uid("files")
    job = env.execute_async("scan")
    tell_workers(job, Path(folder, "workers"))
    job.get_job_execution_result().result()


def fill_opensearch(server: Any) -> None:
    import urllib.request

    server.call("PUT", "/numbers", {"settings": {"number_of_shards": 2, "number_of_replicas": 0}})
    lines = "".join(f'{{"index":{{"_id":"{n}"}}}}\n{{"n":{n}}}\n' for n in range(ROWS))
    request = urllib.request.Request(
        f"{server.url}/numbers/_bulk?refresh=true", lines.encode(), {"Content-Type": "application/x-ndjson"}
    )
    urllib.request.urlopen(request, timeout=60).close()


def fill_clickhouse(server: Any) -> None:
    server.call("CREATE TABLE numbers (n Int64) ENGINE = MergeTree ORDER BY intDiv(n, 100)")
    server.call(f"INSERT INTO numbers SELECT number FROM numbers({ROWS})")


@contextmanager
def filled_server(system: str, folder: Path) -> Iterator[tuple[Any, Callable[[], None]]]:
    """A server with the rows, and what starts it again."""
    if system == "opensearch":
        with opensearch_server(folder) as search:
            fill_opensearch(search)

            def restart() -> None:
                search.start()
                deadline_s = time.monotonic() + PATIENCE_S
                while not search.is_up():  # on a busy machine this takes minutes
                    assert time.monotonic() < deadline_s, "OpenSearch does not answer"
                    time.sleep(0.5)

            yield search, restart
    else:
        with clickhouse_server() as house:
            fill_clickhouse(house)
            yield house, house.start


class Scan:
    """A scan with its drivers, one after another."""

    def __init__(self, system: str, url: str, folder: Path, target: str) -> None:
        self._arguments = json.dumps({"system": system, "url": url, "folder": str(folder), "target": target})
        self._folder, self._number = folder, 0
        folder.mkdir()
        self.start()

    def start(self) -> None:
        self._folder.joinpath("workers").unlink(missing_ok=True)
        self._number += 1
        command = [sys.executable, "-m", "tests.connectors.scan_kills", "--driver", self._arguments]
        with (self._folder / f"log-{self._number}").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def is_done(self) -> bool:
        """Whether the job has ended well; raises `AssertionError` if it has failed."""
        code = self.process.poll()
        if code:
            text = (self._folder / f"log-{self._number}").read_text()
            raise AssertionError(f"driver {self._number} ended ({code}): {text[-6000:]}")
        return code == 0

    def kill_driver(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()

    def find_workers(self) -> list[int]:
        """The processes of the workers that are alive."""
        listed = self._folder / "workers"
        processes = json.loads(listed.read_text()) if listed.exists() else []
        return [process for process in processes if Path(f"/proc/{process}").exists()]

    def read(self) -> list[int]:
        """The numbers in committed files."""
        files = [path for path in Path(self._folder, "out").rglob("*") if path.is_file()]
        return [int(line) for path in files if not path.name.startswith(".") for line in path.read_text().split()]


def run(system: str, seed: int, kills: int, target: str) -> str:
    """Scan again and again, and kill; raises `AssertionError` when a scan has not each number once."""
    chance, begun_s, struck, scans = random.Random(seed), time.monotonic(), Counter[str](), 0
    victims = VICTIMS[1:] if target == "local" else VICTIMS  # the workers of local are threads of the driver
    with (
        tempfile.TemporaryDirectory(prefix="penstock-scan-") as name,
        filled_server(system, Path(name, "server")) as (server, restart),
    ):
        while sum(struck.values()) < kills:
            scan = Scan(system, server.url, Path(name, f"scan-{scans}"), target)
            deadline_s = time.monotonic() + PATIENCE_S
            try:
                while not scan.is_done():
                    assert time.monotonic() < deadline_s, "the scan does not end"
                    before = len(scan.read())
                    pause_s = time.monotonic() + chance.uniform(1.0, 4.0)
                    # Progress first, so that each driver commits something.
                    while not scan.is_done() and (time.monotonic() < pause_s or len(scan.read()) <= before):
                        assert time.monotonic() < deadline_s, "the scan does not go on"
                        time.sleep(0.1)
                    if scan.is_done() or sum(struck.values()) >= kills:
                        continue
                    victim = chance.choice(victims)
                    workers = scan.find_workers()
                    if victim == "worker" and not workers:
                        continue  # the job restarts
                    if victim == "worker":
                        with suppress(ProcessLookupError):
                            os.kill(chance.choice(workers), signal.SIGKILL)
                    elif victim == "driver":
                        scan.kill_driver()
                    else:
                        server.kill()
                        time.sleep(chance.uniform(0, 1))
                        restart()
                    struck[victim] += 1
                    deadline_s = time.monotonic() + PATIENCE_S
                    print(f"{time.monotonic() - begun_s:6.1f} s  kill {sum(struck.values())}: {victim}", flush=True)
            finally:
                scan.process.kill()
                scan.process.wait()
            scans += 1
            assert sorted(scan.read()) == list(range(ROWS)), f"scan {scans} has not each number once"
            print(f"{time.monotonic() - begun_s:6.1f} s  scan {scans}: each of {ROWS} numbers once", flush=True)
    kinds = ", ".join(f"{count} {victim}" for victim, count in struck.most_common())
    return f"{kills} kills ({kinds}), {scans} scans of {ROWS} rows, each row once; {time.monotonic() - begun_s:.0f} s"


@click.command(help="Kill workers, driver and server of bounded scans, and look at what they have read.")
@click.option("--system", type=click.Choice(["opensearch", "clickhouse"]), default="opensearch", show_default=True)
@click.option("--kills", default=20, show_default=True, help="How many processes are killed.")
@click.option("--target", default="local[2]", show_default=True, help="A Spark master, or local.")
@click.option("--seed", default=None, type=int, help="Makes the choices the same again.")
@click.option("--driver", default=None, hidden=True)
def main(system: str, kills: int, target: str, seed: int | None, driver: str | None) -> None:
    if driver is not None:
        run_driver(**json.loads(driver))
        return
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}, process {os.getpid()}", flush=True)
    print(run(system, seed, kills, target))


if __name__ == "__main__":
    main()
