"""Kafka → keyed state → Kafka, exactly once on Spark, through SIGKILLs at random moments.

`python -m tests.connectors.kafka.kills --kills 50` feeds a topic at a rate. A job numbers the records of each key and
writes them to another topic. Again and again a worker, the driver with the job master, or the broker gets SIGKILL;
a driver is followed by a new one, as under a supervisor, and the broker comes back after a moment. In the end a reader
of committed records must see each record once, numbered without a gap. The seed that it prints makes the choice of the
victims and the pauses the same again (the moments of everything else are the machine's).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType

import click
from tests.connectors.kafka.programs import check
from tests.servers.kafka import KafkaCluster, kafka_server

ROOT = Path(__file__).parents[3]
#: How often each is the victim.
VICTIMS = {"worker": 5, "driver": 2, "broker": 2}
#: How long the job may take to come back.
PATIENCE_S = 240.0
BROKER_GONE_S = (0.2, 4.0)


class Feeder(threading.Thread):
    """Writes numbers to a topic at a rate, whatever becomes of the broker."""

    def __init__(self, kafka: KafkaCluster, topic: str, rate: float) -> None:
        super().__init__(daemon=True)
        self._producer = kafka.producer(enable_idempotence=True, linger_ms=20, message_timeout_ms=600_000)
        self._topic, self._rate = topic, rate
        self._stopping = threading.Event()
        self.count = 0

    def run(self) -> None:
        begun = time.monotonic()
        while not self._stopping.wait(0.05):
            due = int((time.monotonic() - begun) * self._rate)
            while self.count < due:
                self._producer.produce(self._topic, str(self.count))
                self.count += 1
            self._producer.poll(0)
        if self._producer.flush(PATIENCE_S):
            raise AssertionError("not all records were fed")

    def stop(self) -> int:
        """No more; returns how many there are."""
        self._stopping.set()
        self.join()
        return self.count


class Job:
    """The job and its drivers, one after another."""

    #: the module of the program, and the arguments that it takes
    program = "tests.connectors.kafka.programs"
    takes: tuple[str, ...] = ("servers", "topic", "source", "folder", "records", "target", "interval")

    def __init__(self, kafka: KafkaCluster, folder: Path, target: str, topics: tuple[str, str]) -> None:
        self._workers = folder / "workers"
        self._folder = folder
        self._number = 0
        self._arguments = {
            "servers": kafka.bootstrap_servers,
            "topic": topics[1],
            "source": topics[0],
            "folder": str(folder),
            "records": 0,
            "target": target,
            "interval": "500 ms",
        }
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        self._workers.unlink(missing_ok=True)
        self._number += 1
        arguments = {name: self._arguments[name] for name in self.takes}
        command = [sys.executable, "-m", self.program, json.dumps(arguments)]
        with (self._folder / f"log-{self._number}").open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        return self.process

    def check(self) -> None:
        if self.process.poll() is not None:
            text = (self._folder / f"log-{self._number}").read_text()
            raise AssertionError(f"driver {self._number} ended ({self.process.returncode}): {text[-9000:]}")

    @property
    def workers(self) -> list[int]:
        """The processes of the workers that are there."""
        if not self._workers.exists():
            return []
        return [process for process in json.loads(self._workers.read_text()) if Path(f"/proc/{process}").exists()]

    def await_workers(self) -> list[int]:
        deadline = time.monotonic() + PATIENCE_S
        while len(workers := self.workers) < 2:
            self.check()
            if time.monotonic() > deadline:
                raise AssertionError("the job has no workers")
            time.sleep(0.05)
        return workers

    def kill_driver(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()


def kill(chance: random.Random, kafka: KafkaCluster, job: Job, victim: str) -> None:
    if victim == "worker":
        with suppress(ProcessLookupError):
            os.kill(chance.choice(job.await_workers()), signal.SIGKILL)
    elif victim == "driver":
        job.kill_driver()
    else:
        kafka.kill()
        time.sleep(chance.uniform(*BROKER_GONE_S))
        kafka.start()


def kill_again_and_again(
    chance: random.Random,
    kafka: KafkaCluster,
    job: Job,
    kills: int,
    pause_s: tuple[float, float],
    victims: Mapping[str, int],
    before: Callable[[], None] = lambda: None,
) -> str:
    """Kill so many processes, each when the job has workers and `before` has returned; returns how many of each."""
    begun_s, struck = time.monotonic(), Counter[str]()
    for number in range(kills):
        job.await_workers()
        before()
        time.sleep(chance.uniform(*pause_s))
        victim = chance.choices(list(victims), list(victims.values()))[0]
        job.check()
        kill(chance, kafka, job, victim)
        struck[victim] += 1
        print(f"{time.monotonic() - begun_s:6.1f} s  kill {number + 1}: {victim}", flush=True)
    return ", ".join(f"{count} {victim}" for victim, count in struck.most_common())


def await_records(job: Job, count: Callable[[], int], records: int, moment_s: float = 3.0) -> None:
    """Until readers see so many records at least, and there was a moment for more."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := count()) < records:
        job.check()
        if time.monotonic() > deadline:
            raise AssertionError(f"only {found} of {records} records came out")
        time.sleep(1)
    time.sleep(moment_s)


def run(
    seed: int,
    kills: int,
    rate: float,
    target: str,
    pause_s: tuple[float, float],
    victims: Mapping[str, int] = MappingProxyType(VICTIMS),
) -> str:
    """Run one job, and kill so many processes; raises `AssertionError` when the output is not exact."""
    chance, begun_s = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as name, kafka_server(Path(name, "kafka")) as kafka:
        topics = kafka.create_topic("in", partitions=4), kafka.create_topic("out", partitions=3)
        feeder, job = Feeder(kafka, topics[0], rate), Job(kafka, Path(name), target, topics)
        feeder.start()
        try:
            kinds = kill_again_and_again(chance, kafka, job, kills, pause_s, victims)
            records = feeder.stop()
            await_records(job, lambda: len(kafka.read(topics[1])), records)
            output = [message.value() for message in kafka.read(topics[1])]
        finally:
            job.process.kill()
            job.process.wait()
        check(records, output)
        every = len(kafka.read(topics[1], "read_uncommitted"))
    return (
        f"{kills} kills ({kinds}), {records} records in, each out once of {every} written, "
        f"{time.monotonic() - begun_s:.0f} s"
    )


def command(run: Callable[..., str], kills: int, rate: float, pause_s: tuple[float, float], what: str) -> click.Command:
    """The command of a proof, with what its options are unless given."""

    @click.command(help=what)
    @click.option("--kills", default=kills, show_default=True, help="How many processes are killed.")
    @click.option("--rate", default=rate, show_default=True, help="Records a second.")
    @click.option("--target", default="local[2]", show_default=True, help="A Spark master, or local.")
    @click.option("--pause", nargs=2, type=float, default=pause_s, show_default=True, help="Between kills (s).")
    @click.option("--seed", default=None, type=int, help="Makes the choices the same again.")
    def main(kills: int, rate: float, target: str, pause: tuple[float, float], seed: int | None) -> None:
        seed = int(time.time()) if seed is None else seed
        print(f"seed {seed}", flush=True)
        print(run(seed, kills, rate, target, pause))

    return main


def run_with_mode(run: Callable[..., str], modes: Sequence[str]) -> None:
    """Run the command of a proof that has modes; without `--mode` in the command line, the first of them."""
    mode = modes[0]
    if "--mode" in sys.argv:
        at = sys.argv.index("--mode")
        mode = sys.argv[at + 1]
        del sys.argv[at : at + 2]
    assert mode in modes, f"--mode is one of {', '.join(modes)}"
    what = "Kill workers, drivers and the server, and look at what comes out."
    command(partial(run, mode=mode), 20, 300.0, (0.5, 4.0), what)()


#: What the command is for.
WHAT = "Kill workers, drivers and the broker, and look at what readers of committed records see."
main = command(run, 50, 1_000.0, (0.5, 5.0), WHAT)


if __name__ == "__main__":
    main()
