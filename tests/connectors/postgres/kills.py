"""`python -m tests.connectors.postgres.kills --kills 20`: PostgreSQL → join → PostgreSQL on Spark, with kills.

While a writer changes the tables, something gets SIGKILL every few seconds: a Python worker, the driver with its JVM
and workers, the server of PostgreSQL, or the server's processes that send the log. What is killed is started again; a
driver begins with another parallelism. In the end the joined table must be the join, and every version of an order must
have been seen once.

The figures are times from a kill to the first version that was written after it and seen: a checkpoint has completed
meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import psycopg
from tests.connectors.postgres import pipeline
from tests.connectors.postgres.conftest import Database
from tests.servers.postgres import postgres_server

ROOT = Path(__file__).parents[3]
KINDS = ("worker", "driver", "server", "log senders")
PATIENCE_S = 180.0
POLL_S = 0.1


class Run:
    """A driver, started again when it has died."""

    program = "tests.connectors.postgres.pipeline"

    def __init__(self, database: Database, folder: Path, chance: random.Random) -> None:
        self._database = database
        self._folder = folder
        self._chance = chance
        self._process: subprocess.Popen[bytes] | None = None
        #: more options of the job
        self.more: dict[str, str] = {}

    def start(self) -> None:
        options = {
            "penstock.recovery.from-latest": "true",
            "execution.checkpointing.dir": f"file://{self._folder}/checkpoints",
            "execution.checkpointing.interval": "500 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 10_000,
            "restart-strategy.fixed-delay.delay": "200 ms",
            "parallelism.default": self._chance.choice([1, 2]),
            **self.more,
        }
        told = {"port": self._database.server.port, "database": self._database.name, "options": options}
        command = [sys.executable, "-m", self.program, json.dumps(told)]
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True)

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "driver.log").read_text()[-6000:]

    def family(self) -> Iterator[tuple[int, int, str]]:
        """All processes below the driver: number, parent, command."""
        assert self._process is not None
        children: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                children[parent].append((int(entry.name), parent, command))
        waiting = [self._process.pid]
        while waiting:
            for found in children[waiting.pop()]:
                waiting.append(found[0])
                yield found

    def kill_worker(self) -> bool:
        """Whether there was one."""
        found = list(self.family())
        daemons = {number for number, _, command in found if ".daemon pyspark" in command}
        workers = [number for number, parent, _ in found if parent in daemons]
        if not workers:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._chance.choice(workers), signal.SIGKILL)
        return True

    def kill(self) -> None:
        if self._process is not None:
            numbers = [number for number, _, _ in self.family()]
            for number in [self._process.pid, *numbers]:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            self._process.wait()
            self._process = None


class Writing:
    """Writes in a thread until it is stopped."""

    def __init__(self, database: Database, seed: int, pause_s: float) -> None:
        self._writer = pipeline.Writer(database.url, seed)
        self._pause_s = pause_s
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopped.wait(self._pause_s):
            with suppress(psycopg.OperationalError):
                self._writer.write()

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()


def wait_until_seen(database: Database, run: Run) -> float:
    """How long it takes until a version is seen that is written from now on."""
    begun = time.monotonic()
    version: int | None = None
    while True:
        run.check()
        assert time.monotonic() - begun < PATIENCE_S, "the job does not go on"
        with suppress(psycopg.OperationalError):
            if version is None:
                version = last_version(database)
            ((seen,),) = database.execute("SELECT coalesce(max(version), 0) FROM seen")
            if seen > version:
                return time.monotonic() - begun
        time.sleep(POLL_S)


def strike(kind: str, database: Database, run: Run) -> bool:
    if kind == "worker":
        return run.kill_worker()
    if kind == "driver":
        run.kill()
        run.start()
    elif kind == "server":
        database.server.restart()
    else:
        database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    return True


def last_version(database: Database) -> int:
    """The last version that was written."""
    ((version,),) = database.execute("SELECT coalesce(max(version), 0) FROM written")
    return int(version)


def wait_until_right(database: Database, run: Run, since: int) -> None:
    """`since`: the last version that may have been replaced before it was read."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        run.check()
        is_joined = database.execute(pipeline.JOINED) == database.execute(pipeline.JOINED_SHOULD_BE)
        wrong = database.execute(pipeline.WRONG.format(since=since))
        if is_joined and not wrong:
            return
        assert time.monotonic() < deadline, f"joined is {'' if is_joined else 'not '}right; {wrong[:20]}"
        time.sleep(0.5)


@click.command()
@click.option("--kills", default=20)
@click.option("--seed", default=1)
@click.option("--only", type=click.Choice(KINDS), multiple=True)
@click.option("--pause", "pause_s", default=0.02, help="between two transactions of the writer, in seconds")
def main(kills: int, seed: int, only: tuple[str, ...], pause_s: float) -> None:
    """See the module's text."""
    chance = random.Random(seed)
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, postgres_server() as server:
        database = Database(server, server.new_database())
        database.execute(pipeline.TABLES)
        run = Run(database, Path(folder), chance)
        run.start()
        try:
            writing = Writing(database, seed, pause_s)
            print(f"first version seen after {wait_until_seen(database, run):.1f} s", flush=True)
            since = last_version(database)
            for number in range(kills):
                time.sleep(chance.uniform(0.2, 4))
                kind = chance.choice(only or KINDS)
                while not strike(kind, database, run):
                    time.sleep(POLL_S)
                took = wait_until_seen(database, run)
                times[kind].append(took)
                print(f"{number + 1}: {kind}, seen again after {took:.1f} s", flush=True)
            writing.stop()
            wait_until_right(database, run, since)
            ((versions,),) = database.execute(f"SELECT count(*) FROM written WHERE version > {since}")
            ((joined,),) = database.execute("SELECT count(*) FROM joined")
        finally:
            run.kill()
    for kind, of_kind in sorted(times.items()):
        print(f"{kind}: {len(of_kind)} kills, median {statistics.median(of_kind):.1f} s, worst {max(of_kind):.1f} s")
    print(f"{versions} versions of orders, each seen once; {joined} joined rows, all right")


if __name__ == "__main__":
    main()
