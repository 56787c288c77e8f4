"""A webhook → keyed state → requests, through SIGKILLs at random moments.

`python -m tests.connectors.http.kills --kills 20` posts numbers to a webhook at a rate, and posts again what is not
acknowledged. A job leaves out what came twice, numbers the values of each key, and sends them to a server of ours,
which records requests (`pipeline`). Again and again a worker or the driver with the job master gets SIGKILL, or the
server ends all connections and comes back after a moment. In the end the server must have each value once, numbered
without a gap, when the last row of each number counts. The seed that it prints makes the choice of the victims and the
pauses the same again.
"""

from __future__ import annotations

import http.client
import random
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.connectors.http import pipeline
from tests.connectors.kafka.kills import PATIENCE_S, Job, await_records, command, kill_again_and_again
from tests.servers.http import HttpServer, http_server
from tests.servers.ports import free_port

#: How often each is the victim; the broker is the server.
VICTIMS = {"worker": 4, "driver": 2, "broker": 4}
SENDERS = 8
LINES = 25


class Feeder:
    """Posts numbers to the ports at a rate, in several threads; each posts again until it is answered 200."""

    def __init__(self, ports: list[int], rate: float) -> None:
        self._ports, self._rate = ports, rate
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._begun = time.monotonic()
        self.count = self.again = 0
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def _take(self) -> range:
        with self._lock:
            due = min(int((time.monotonic() - self._begun) * self._rate), self.count + LINES)
            taken = range(self.count, max(self.count, due))
            self.count = taken.stop
        return taken

    def _run(self, sender: int) -> None:
        while not self._stopping.wait(0.05):
            taken = self._take()
            body = "\n".join(map(str, taken)).encode()
            turn = sender
            while taken and not self._post(self._ports[turn % len(self._ports)], body):
                turn += 1
                self.again += 1
                time.sleep(0.1)

    def _post(self, port: int, body: bytes) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
        try:
            connection.request("POST", "/", body)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> int:
        """No more; returns how many there are, all acknowledged."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a sender is not answered"
        return self.count


class HttpJob(Job):
    """The job and its drivers, one after another."""

    program = "tests.connectors.http.pipeline"
    takes = ("servers", "topic", "folder", "target", "interval")

    def await_workers(self) -> list[int]:
        """In one process there is none besides the driver."""
        if self._arguments["target"] != "local":
            return super().await_workers()
        deadline = time.monotonic() + PATIENCE_S
        while not self._workers.exists():
            self.check()
            assert time.monotonic() < deadline, "the job does not begin"
            time.sleep(0.05)
        return []


class Broker:
    """The server as the other proofs know theirs."""

    def __init__(self, server: HttpServer) -> None:
        self.bootstrap_servers = server.url
        self.kill, self.start = server.kill, server.start


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
    ports = [free_port(), free_port()]
    with tempfile.TemporaryDirectory(prefix="penstock-http-") as name, http_server() as server:
        broker: Any = Broker(server)
        job = HttpJob(broker, Path(name), target, ("", ",".join(map(str, ports))))
        feeder = Feeder(ports, rate)

        def seen() -> int:
            return pipeline.count_rows([request.body for request in list(server.requests)])

        def await_progress() -> None:
            if chance.random() < 0.75:
                before, deadline = len(server.requests), time.monotonic() + PATIENCE_S
                while len(server.requests) <= before:
                    job.check()
                    assert time.monotonic() < deadline, "the job does not go on"
                    time.sleep(0.1)

        if target == "local":
            victims = {name: weight for name, weight in victims.items() if name != "worker"}
        try:
            kinds = kill_again_and_again(chance, broker, job, kills, pause_s, victims, await_progress)
            records = feeder.stop()
            await_records(job, seen, records)
        finally:
            with suppress(OSError):
                job.process.kill()
            job.process.wait()
        found = pipeline.check(records, [request.body for request in server.requests])
    took_s = time.monotonic() - begun_s
    return (
        f"{kills} kills ({kinds}), {records} records acknowledged after {feeder.again} repeated requests, each once by "
        f"its number; {found}, {took_s:.0f} s"
    )


WHAT = "Kill workers, drivers and the server, and look at what it has in the end."
main = command(run, 20, 200.0, (0.5, 5.0), WHAT)


if __name__ == "__main__":
    main()
