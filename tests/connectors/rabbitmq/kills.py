"""Queues of RabbitMQ → keyed state → a queue, through SIGKILLs and suspensions at random moments.

`python -m tests.connectors.rabbitmq.kills --kills 20` publishes numbers at a rate. A job numbers the records of each
key and writes them to another queue (`pipeline`). Again and again a worker, the driver with the job master, or the
server gets SIGKILL, or the server is suspended for a while, as if the link were broken. A driver is followed by a new
one, and the server comes back with what it has confirmed. In the end no record may be missing; with correlation ids
(`--mode ids`) and with streams (`--mode stream`) each counts once in the state. The seed that it prints makes the
choice of the victims and the pauses the same again.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.connectors.kafka.kills import Job, await_records, kill_again_and_again, run_with_mode
from tests.connectors.rabbitmq import pipeline
from tests.servers.queues import QueueServer, RabbitServer, rabbit_server

#: How often each is the victim; the broker is the server, killed or suspended.
VICTIMS = {"worker": 4, "driver": 2, "broker": 4}
SUSPENDED_S = (0.2, 6.0)


class Feeder(threading.Thread):
    """Publishes numbers at a rate; `publish` returns when the server has them, and may be called again for a number."""

    def __init__(self, publish: Callable[[range], None], rate: float) -> None:
        super().__init__(daemon=True)
        self._publish, self._rate = publish, rate
        self._stopping = threading.Event()
        self.count = 0

    def run(self) -> None:
        begun = time.monotonic()
        while not self._stopping.wait(0.1):
            due = min(int((time.monotonic() - begun) * self._rate), self.count + 200)
            if self.count < due:
                with suppress(Exception):
                    self._publish(range(self.count, due))
                    self.count = due

    def stop(self) -> int:
        """No more; returns how many there are."""
        self._stopping.set()
        self.join()
        return self.count


class Broker:
    """The server as the other proofs know theirs: a kill is a kill, or a suspension."""

    def __init__(self, server: QueueServer, servers: str, chance: random.Random, kill: Callable[[], None]) -> None:
        self.bootstrap_servers = servers
        self._server, self._chance, self._kill = server, chance, kill
        self._is_suspended = False
        self.kinds = {"killed": 0, "suspended": 0}

    def kill(self) -> None:
        self._is_suspended = self._chance.random() < 0.5
        if self._is_suspended:
            self._server.suspend()
            time.sleep(self._chance.uniform(*SUSPENDED_S))
        else:
            self._kill()
        self.kinds["suspended" if self._is_suspended else "killed"] += 1

    def start(self) -> None:
        self._server.resume() if self._is_suspended else self._server.start()


class Lines(threading.Thread):
    """What comes out, which a reader takes from the queue; `read` returns some lines, and may fail."""

    def __init__(self, read: Callable[[], list[str]]) -> None:
        super().__init__(daemon=True)
        self._read = read
        self.lines: list[str] = []
        self._values: set[str] = set()

    def run(self) -> None:
        while True:
            with suppress(Exception):
                lines = self._read()
                self.lines += lines
                self._values |= {line.split(", ")[2] for line in lines}
            time.sleep(0.1)

    def count(self) -> int:
        """How many records have come out."""
        return len(self._values)


class QueueJob(Job):
    """The job and its drivers, one after another."""

    program = "tests.connectors.rabbitmq.pipeline"
    takes = ("servers", "folder", "target", "interval")

    def await_workers(self) -> list[int]:
        """In one process (`--target local`) the workers are threads of the driver, and no victims."""
        if self._arguments["target"] == "local":
            self.check()
            return []
        return super().await_workers()


def run_kills(
    job_class: type[Job],
    broker: Any,
    feeder: Feeder,
    lines: Lines,
    count: Callable[[int], Mapping[int, int] | None],
    folder: Path,
    arguments: tuple[random.Random, int, str, tuple[float, float], Mapping[str, int]],
) -> str:
    """Run one job, and kill so many processes; raises `AssertionError` when the output is wrong."""
    chance, kills, target, pause_s, victims = arguments
    begun_s = time.monotonic()
    if target == "local":
        victims = {victim: weight for victim, weight in victims.items() if victim != "worker"}
    job = job_class(broker, folder, target, ("", ""))

    def await_progress() -> None:
        if chance.random() < 0.75:
            before, deadline = lines.count(), time.monotonic() + 240
            while lines.count() <= before:
                job.check()
                assert time.monotonic() < deadline, "the job does not go on"
                time.sleep(0.1)

    feeder.start()
    lines.start()
    try:
        kinds = kill_again_and_again(chance, broker, job, kills, pause_s, victims, await_progress)
        records = feeder.stop()
        await_records(job, lines.count, records)
    finally:
        job.process.kill()
        job.process.wait()
    outcome = pipeline.check(records, lines.lines, count(records))
    return f"{kills} kills ({kinds}; server {broker.kinds}), {outcome}, {time.monotonic() - begun_s:.0f} s"


def run(
    seed: int,
    kills: int,
    rate: float,
    target: str,
    pause_s: tuple[float, float],
    victims: Mapping[str, int] = MappingProxyType(VICTIMS),
    mode: str = "ids",
) -> str:
    """Run one job with RabbitMQ."""
    import pika

    chance = random.Random(seed)
    server: RabbitServer
    with tempfile.TemporaryDirectory(prefix="penstock-rabbitmq-") as name, rabbit_server() as server:
        with server.channel() as channel:
            arguments = {"x-queue-type": "stream"} if mode == "stream" else None
            channel.queue_declare("in", durable=True, arguments=arguments)
            channel.queue_declare("out", durable=True)
        published: set[int] = set()

        def publish(numbers: range) -> None:
            # a stream keeps a number that is published again: note what is confirmed
            with server.channel() as channel:
                channel.confirm_delivery()
                for n in numbers:
                    if n not in published:
                        properties = pika.BasicProperties(correlation_id=str(n), delivery_mode=2)
                        channel.basic_publish("", "in", str(n).encode(), properties)
                        published.add(n)

        def read() -> list[str]:
            lines = []
            with server.channel() as channel:
                while (answer := channel.basic_get("out"))[0] is not None:
                    lines.append(answer[2].decode())
                    last = answer[0].delivery_tag
                if lines:
                    channel.basic_ack(last, multiple=True)
                    channel.queue_declare("out", passive=True)  # the acknowledgement has arrived
            return lines

        def count(records: int) -> Mapping[int, int] | None:
            """How often each number is in the stream: one whose confirm was lost is published again."""
            if mode == "queue":
                return None
            if mode == "ids":
                return dict.fromkeys(range(records), 1)
            counts: Counter[int] = Counter()
            with server.channel() as channel:
                channel.basic_qos(prefetch_count=1_000)
                for method, _, body in channel.consume(
                    "in", arguments={"x-stream-offset": "first"}, inactivity_timeout=3
                ):
                    if method is None:
                        return counts
                    counts[int(body)] += 1
                    channel.basic_ack(method.delivery_tag)
            return counts

        broker = Broker(server, f"{mode} {server.uri}", chance, server.kill)
        feeder, lines = Feeder(publish, rate), Lines(read)
        how = (chance, kills, target, pause_s, victims)
        return mode + ": " + run_kills(QueueJob, broker, feeder, lines, count, Path(name), how)


if __name__ == "__main__":
    run_with_mode(run, ("ids", "queue", "stream"))
