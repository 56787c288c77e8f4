"""Files → keyed state → MySQL or MariaDB, through SIGKILLs at random moments.

`python -m tests.connectors.mysql.kills --kills 20 --server mariadb` puts numbers into files at a rate. A job writes
them exactly once into one table, and by key, at least once, into another (`pipeline`). Again and again a worker, the
driver with the job master, or the server gets SIGKILL; a driver is followed by a new one, and the server comes back
after a moment. In the end the first table must have each number once, and the second the last number of each key. The
seed that it prints makes the choice of the victims and the pauses the same again.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from tests.connectors.kafka.kills import PATIENCE_S, Job, await_records, command, kill_again_and_again
from tests.connectors.mysql import pipeline
from tests.connectors.mysql.conftest import Database
from tests.servers.mysql import MARIADB, MYSQL, mysql_server

from penstock.connectors.mysql import client

#: How often each is the victim; the broker is the server.
VICTIMS = {"worker": 4, "driver": 2, "broker": 4}


class Feeder(threading.Thread):
    """Puts numbers into files at a rate."""

    def __init__(self, folder: Path, rate: float) -> None:
        super().__init__(daemon=True)
        self._folder, self._rate = folder, rate
        self._stopping = threading.Event()
        self.count = 0

    def run(self) -> None:
        begun = time.monotonic()
        while not self._stopping.wait(1.0):
            due = int((time.monotonic() - begun) * self._rate)
            hidden = self._folder / f".{due}"
            hidden.write_text("".join(f"{number}\n" for number in range(self.count, due)))
            hidden.rename(self._folder / f"{due:09}")
            self.count = due

    def stop(self) -> int:
        """No more; returns how many there are."""
        self._stopping.set()
        self.join()
        return self.count


class MySqlJob(Job):
    """The job and its drivers, one after another."""

    program = "tests.connectors.mysql.pipeline"
    takes = ("servers", "folder", "target", "interval")


class Broker:
    """The server as the other proofs know theirs."""

    def __init__(self, database: Database) -> None:
        self.bootstrap_servers = database.url
        self.kill, self.start = database.server.kill, database.server.start


def count_seen(database: Database) -> int:
    with suppress(client.load_library().err.MySQLError, OSError):
        return int(database.execute("SELECT COUNT(*) FROM seen")[0][0])
    return 0


def run(
    seed: int,
    kills: int,
    rate: float,
    target: str,
    pause_s: tuple[float, float],
    victims: Mapping[str, int] = MappingProxyType(VICTIMS),
    server: str = MARIADB,
) -> str:
    """Run one job, and kill so many processes; raises `AssertionError` when the output is wrong."""
    chance, begun_s = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-mysql-kills-") as name, mysql_server(server) as started:
        database = Database(started, started.new_database())
        database.execute(*pipeline.TABLES)
        (Path(name) / "numbers").mkdir()
        broker: Any = Broker(database)
        feeder, job = Feeder(Path(name) / "numbers", rate), MySqlJob(broker, Path(name), target, ("", ""))

        def await_progress() -> None:
            if chance.random() < 0.75:
                before, deadline = count_seen(database), time.monotonic() + PATIENCE_S
                while count_seen(database) <= before:
                    job.check()
                    assert time.monotonic() < deadline, "the job does not go on"
                    time.sleep(0.1)

        if target == "local":  # its workers are threads of the driver
            victims = {"driver": 5, "broker": 5}
        feeder.start()
        try:
            kinds = kill_again_and_again(chance, broker, job, kills, pause_s, victims, await_progress)
            records = feeder.stop()
            await_records(job, lambda: count_seen(database), records)
        finally:
            feeder.stop()
            job.process.kill()
            job.process.wait()
        result = pipeline.check(records, database)
        shown = started.programs.shown
    return f"{shown}: {kills} kills ({kinds}); {result}; {time.monotonic() - begun_s:.0f} s"


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--server", type=click.Choice([MARIADB, MYSQL]), default=MARIADB, show_default=True)
@click.argument("others", nargs=-1, type=click.UNPROCESSED)
def main(server: str, others: tuple[str, ...]) -> None:
    """Kill workers, drivers and the server, and look at what it has in the end."""

    def run_on(seed: int, kills: int, rate: float, target: str, pause: tuple[float, float]) -> str:
        return run(seed, kills, rate, target, pause, server=server)

    command(run_on, 20, 500.0, (0.5, 5.0), "See the program's text.").main(list(others))


if __name__ == "__main__":
    main()
