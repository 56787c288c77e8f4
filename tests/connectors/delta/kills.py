"""Kafka → keyed state → Delta Lake, exactly once on Spark, through SIGKILLs at random moments.

`python -m tests.connectors.delta.kills --kills 20` feeds a topic at a rate. A job numbers the records of each key, adds
them to one table, and merges the last one of each key into another (`pipeline`). Again and again a worker or the driver
with the job master gets SIGKILL; a driver is followed by a new one, as under a supervisor. In the end a reader must see
each record once, numbered without a gap, and the last one of each key. The seed that it prints makes the choice of the
victims and the pauses the same again.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import click
from tests.connectors.delta import pipeline
from tests.connectors.kafka.kills import PATIENCE_S, ROOT, Feeder, Job, kill
from tests.servers.kafka import KafkaCluster, kafka_server

#: How often each is the victim.
VICTIMS = {"worker": 5, "driver": 3}
#: How often the job has committed something since the last kill; otherwise it is killed while it comes back.
HAS_COMMITTED = 0.75


class DeltaJob(Job):
    """The job and its drivers, one after another."""

    def __init__(self, kafka: KafkaCluster, folder: Path, target: str, topic: str) -> None:
        self._told = {
            "servers": kafka.bootstrap_servers,
            "topic": topic,
            "folder": str(folder),
            "target": target,
            "interval": "500 ms",
        }
        super().__init__(kafka, folder, target, (topic, ""))

    def start(self) -> subprocess.Popen[bytes]:
        self._workers.unlink(missing_ok=True)
        self._number += 1
        command = [sys.executable, "-m", "tests.connectors.delta.pipeline", json.dumps(self._told)]
        with (self._folder / f"log-{self._number}").open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        return self.process


def await_commit(job: DeltaJob, folder: Path, versions: int) -> None:
    """Until the table has more versions."""
    deadline = time.monotonic() + PATIENCE_S
    while pipeline.versions(folder) <= versions:
        job.check()
        assert time.monotonic() < deadline, "the job does not commit"
        time.sleep(0.1)


def await_output(job: DeltaJob, folder: Path, records: int) -> None:
    """Until readers see so many records at least, and there was a moment for more."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := pipeline.count(folder)) < records:
        job.check()
        if time.monotonic() > deadline:
            raise AssertionError(f"only {found} of {records} records came out")
        time.sleep(1)
    time.sleep(5)


def run(
    seed: int,
    kills: int,
    rate: float,
    target: str,
    pause_s: tuple[float, float],
    victims: Mapping[str, int] = MappingProxyType(VICTIMS),
) -> str:
    """Run one job, and kill so many processes; raises `AssertionError` when the tables are not exact."""
    chance, begun_s, seen = random.Random(seed), time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="penstock-delta-") as name, kafka_server(Path(name, "kafka")) as kafka:
        folder = Path(name)
        topic = kafka.create_topic("in", partitions=4)
        feeder, job = Feeder(kafka, topic, rate), DeltaJob(kafka, folder, target, topic)
        feeder.start()
        try:
            for number in range(kills):
                job.await_workers()
                if chance.random() < HAS_COMMITTED:
                    await_commit(job, folder, pipeline.versions(folder))
                time.sleep(chance.uniform(*pause_s))
                victim = chance.choices(list(victims), list(victims.values()))[0]
                job.check()
                kill(chance, kafka, job, victim)
                seen[victim] += 1
                print(f"{time.monotonic() - begun_s:6.1f} s  kill {number + 1}: {victim}", flush=True)
            records = feeder.stop()
            await_output(job, folder, records)
        finally:
            job.process.kill()
            job.process.wait()
        versions = pipeline.check(records, folder)
    kinds = ", ".join(f"{count} {victim}" for victim, count in seen.most_common())
    return f"{kills} kills ({kinds}), {records} records, each seen once, {versions}, {time.monotonic() - begun_s:.0f} s"


@click.command()
@click.option("--kills", default=20, show_default=True, help="How many processes are killed.")
@click.option("--rate", default=500.0, show_default=True, help="Records a second.")
@click.option("--target", default="local[2]", show_default=True, help="A Spark master, or local.")
@click.option("--pause", nargs=2, type=float, default=(0.5, 5.0), show_default=True, help="Between kills (s).")
@click.option("--seed", default=None, type=int, help="Makes the choices the same again.")
def main(kills: int, rate: float, target: str, pause: tuple[float, float], seed: int | None) -> None:
    """Kill workers and drivers, and look at what readers of the tables see."""
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    print(run(seed, kills, rate, target, pause))


if __name__ == "__main__":
    main()
