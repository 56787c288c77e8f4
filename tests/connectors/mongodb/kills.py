"""Numbers → keyed state → documents, through SIGKILLs at random moments.

`python -m tests.connectors.mongodb.kills --kills 20` runs a job that numbers the records of each key, and writes a
document for each number and one for each key (`pipeline`). Again and again a worker, the driver with the job master, or
the server gets SIGKILL; a driver is followed by a new one, and the server, FerretDB, comes back after a moment with all
that it has confirmed. In the end there is a document for each record and no other, numbered without a gap, and the
document of each key has its last number. The seed that it prints makes the choice of the victims and the pauses the
same again.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.connectors.kafka.kills import PATIENCE_S, Job, command, kill_again_and_again
from tests.connectors.mongodb import pipeline
from tests.servers.mongodb import MongoServer, mongo_server

#: How often each is the victim; the broker is the server.
VICTIMS = {"worker": 4, "driver": 2, "broker": 4}
#: After how long (s) without progress FerretDB is started again: after SIGKILL amid writes it may answer pings alone.
STALL_S = 20.0
#: How many seconds of records there are for each kill, at least.
SECONDS_A_KILL = 8


class MongoJob(Job):
    """The job and its drivers, one after another."""

    program = "tests.connectors.mongodb.pipeline"
    takes = ("servers", "folder", "target", "interval", "records", "rate")

    def __init__(self, server: Broker, folder: Path, target: str, records: int, rate: float) -> None:
        self._more = {"records": records, "rate": rate}
        super().__init__(server, folder, target, ("", ""))  # type: ignore[arg-type]

    def start(self) -> Any:
        self._arguments |= self._more
        return super().start()


class Broker:
    """The server as the other proofs know theirs."""

    def __init__(self, server: MongoServer) -> None:
        self.bootstrap_servers = server.uri
        self.kill, self._server = server.kill, server

        self.start = server.start
        self.stalls = 0
        self._seen = (0, time.monotonic())

    def watch(self) -> None:
        """Start the server again if it has stalled."""
        now, (seen, since) = count(self._server), self._seen
        if now is not None and now > seen:
            self._seen = now, time.monotonic()
        elif time.monotonic() - since > STALL_S:
            self.stalls += 1
            self.kill()
            self.start()
            self._seen = seen, time.monotonic()


def count(server: MongoServer) -> int | None:
    """How many keys' last numbers there are together; None while the server is away, or takes too long."""
    import pymongo
    from pymongo.errors import PyMongoError

    client: Any = pymongo.MongoClient(server.uri, serverSelectionTimeoutMS=1_000, socketTimeoutMS=5_000)
    try:
        return int(sum(document["number"] for document in client["shop"]["last"].find({})))
    except PyMongoError:
        return None
    finally:
        client.close()


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
    with tempfile.TemporaryDirectory(prefix="penstock-mongo-") as name, mongo_server() as server:
        broker: Any = Broker(server)
        job = MongoJob(broker, Path(name), target, records, rate)

        def await_progress() -> None:
            if chance.random() < 0.75:
                before, deadline = count(server) or 0, time.monotonic() + PATIENCE_S
                while (count(server) or 0) <= before:
                    job.check()
                    broker.watch()
                    assert time.monotonic() < deadline, "the job does not go on"
                    time.sleep(0.2)

        try:
            kinds = kill_again_and_again(chance, broker, job, kills, pause_s, victims, await_progress)
            struck_at = count(server)
            while job.process.poll() is None:
                broker.watch()
                assert time.monotonic() < begun_s + 4 * PATIENCE_S + records / rate, "the job does not end"
                time.sleep(0.5)
            assert job.process.returncode == 0, "the job failed"
        finally:
            job.process.kill()
            job.process.wait()
        client = server.connect()
        found = pipeline.check(records, client["shop"])
        client.close()
    took_s = time.monotonic() - begun_s
    return (
        f"{kills} kills ({kinds}), {broker.stalls} restarts of a FerretDB that stalled, the last kill at {struck_at} "
        f"of {records} records; {found}, each once, {took_s:.0f} s"
    )


main = command(run, 20, 100.0, (0.5, 5.0), "Kill workers, drivers and the server, and look at what it has in the end.")


if __name__ == "__main__":
    main()
