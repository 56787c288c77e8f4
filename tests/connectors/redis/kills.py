"""Streams of Redis → keyed state → hashes and a stream, through SIGKILLs at random moments.

`python -m tests.connectors.redis.kills --kills 20` adds numbers to two streams at a rate. A job reads one by position
and the other one as a consumer group, numbers the records of each key, and writes them into hashes by field and, again,
into a stream (`pipeline`). Again and again a worker, the driver with the job master, or the server gets SIGKILL; a
driver is followed by a new one, and the server comes back after a moment, with all that it has confirmed (appendfsync
always). In the end the hashes must have each record once, numbered without a gap, and the stream each record at least
once. The seed that it prints makes the choice of the victims and the pauses the same again.
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

from tests.connectors.kafka.kills import PATIENCE_S, Job, await_records, command, kill_again_and_again
from tests.connectors.redis import pipeline
from tests.servers.redis import RedisServer, redis_server

#: How often each is the victim; the broker is the server.
VICTIMS = {"worker": 4, "driver": 2, "broker": 4}


class Feeder(threading.Thread):
    """Adds numbers to the streams at a rate. Their ids say which they are, so that none is added twice."""

    def __init__(self, server: RedisServer, rate: float) -> None:
        super().__init__(daemon=True)
        self._server, self._rate = server, rate
        self._stopping = threading.Event()
        self.count = 0

    def run(self) -> None:
        begun = time.monotonic()
        while not self._stopping.wait(0.1):
            due = int((time.monotonic() - begun) * self._rate)
            if self.count < due and self._add(range(self.count, due)):
                self.count = due

    def _add(self, numbers: range) -> bool:
        """Whether all are there."""
        with suppress(RuntimeError, OSError):
            ends = dict(zip(pipeline.STREAMS, map(self._last, pipeline.STREAMS), strict=True))
            commands: list[tuple[Any, ...]] = [
                ("XADD", stream, f"{number + 1}-0", "n", number)
                for number in numbers
                if number + 1 > ends[stream := pipeline.stream_of(number)]
            ]
            if commands:
                self._server.call(*commands)
            return True
        return False

    def _last(self, stream: str) -> int:
        (entries,) = self._server.call(("XREVRANGE", stream, "+", "-", "COUNT", 1))
        return int(entries[0][0].partition(b"-")[0]) if entries else 0

    def stop(self) -> int:
        """No more; returns how many there are."""
        self._stopping.set()
        self.join()
        return self.count


class RedisJob(Job):
    """The job and its drivers, one after another."""

    program = "tests.connectors.redis.pipeline"
    takes = ("servers", "folder", "target", "interval")


class Broker:
    """The server as the other proofs know theirs."""

    def __init__(self, server: RedisServer) -> None:
        self.bootstrap_servers = server.url
        self.kill, self.start = server.kill, server.start


def seen(server: RedisServer) -> int:
    with suppress(RuntimeError, OSError):
        return pipeline.count(server)
    return 0


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
        victims = {name: often for name, often in victims.items() if name != "worker"}
    with tempfile.TemporaryDirectory(prefix="penstock-redis-") as name, redis_server() as server:
        broker: Any = Broker(server)
        feeder, job = Feeder(server, rate), RedisJob(broker, Path(name), target, ("", ""))

        def await_progress() -> None:
            if chance.random() < 0.75:
                before, deadline = seen(server), time.monotonic() + PATIENCE_S
                while seen(server) <= before:
                    job.check()
                    assert time.monotonic() < deadline, "the job does not go on"
                    time.sleep(0.1)

        feeder.start()
        try:
            kinds = kill_again_and_again(chance, broker, job, kills, pause_s, victims, await_progress)
            records = feeder.stop()
            await_records(job, lambda: seen(server), records)
        finally:
            job.process.kill()
            job.process.wait()
        log = pipeline.check(records, server)
    took_s = time.monotonic() - begun_s
    return f"{kills} kills ({kinds}), {records} records, each once in the hashes; {log}, {took_s:.0f} s"


main = command(run, 20, 500.0, (0.5, 5.0), "Kill workers, drivers and the server, and look at what it has in the end.")


if __name__ == "__main__":
    main()
