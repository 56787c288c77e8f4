"""Kafka → keyed state → OpenSearch, at least once on Spark, through SIGKILLs at random moments.

`python -m tests.connectors.opensearch.kills --kills 20` feeds a topic at a rate. A job numbers the records of each key
and writes them into three indexes (see `programs`). Again and again a worker, the driver with the job master, or the
server of OpenSearch gets SIGKILL; a driver is followed by a new one, as under a supervisor, and the server comes back
after a moment. In the end each record must be a document, numbered without a gap, and the other two indexes must have
the last record of each key, or none where it was deleted. The seed that it prints makes the choice of the victims and
the pauses the same again.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from tests.connectors.kafka.kills import PATIENCE_S, Feeder, Job, await_records, command, kill_again_and_again
from tests.connectors.kafka.programs import KEYS
from tests.servers.kafka import kafka_server
from tests.servers.opensearch import Opensearch, opensearch_server

#: How often each is the victim.
VICTIMS = {"worker": 4, "driver": 2, "server": 3}


class OpensearchJob(Job):
    """The job and its drivers, one after another."""

    program = "tests.connectors.opensearch.programs"
    takes = ("servers", "source", "folder", "target", "interval", "topic")


def read(server: Opensearch, index: str) -> dict[str, Any]:
    return {id: json.loads(text) for id, text in server.documents(index).items()}


def check(server: Opensearch, records: int) -> None:
    """Raise `AssertionError` unless the indexes have what the records come to."""
    numbered = read(server, "numbered")
    if sorted(map(int, numbered)) != list(range(records)):
        raise AssertionError(f"{len(set(range(records)) - set(map(int, numbered)))} of {records} records are missing")
    of_keys: dict[int, list[dict[str, int]]] = defaultdict(list)
    for document in sorted(numbered.values(), key=lambda document: document["number"]):
        of_keys[document["k"]].append(document)
    last: dict[str, dict[str, int]] = {}
    for key, documents in of_keys.items():
        if [document["number"] for document in documents] != list(range(1, len(documents) + 1)):
            raise AssertionError(f"the numbers of key {key} are not those from 1 to {len(documents)}")
        last[str(key)] = documents[-1]
    assert len(last) == min(KEYS, records)
    for index, expected in (
        ("counts", last),
        ("odd", {key: document for key, document in last.items() if document["number"] % 2}),
    ):
        if read(server, index) != expected:
            raise AssertionError(f"index {index} has {read(server, index)}, and should have {expected}")


def count(server: Opensearch) -> int:
    try:
        server.call("POST", "/numbered/_refresh")
        return int(server.call("GET", "/numbered/_count")["count"])
    except OSError:
        return 0


class Progress:
    """Waits until the server is there and the job writes again."""

    def __init__(self, server: Opensearch, job: OpensearchJob) -> None:
        self._server, self._job = server, job
        self._count = 0

    def await_more(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (found := count(self._server)) <= self._count:
            self._job.check()
            if time.monotonic() > deadline:
                raise AssertionError(f"the job writes no more than {found} documents")
            time.sleep(0.2)
        self._count = found


def run(
    seed: int,
    kills: int,
    rate: float,
    target: str,
    pause_s: tuple[float, float],
    victims: Mapping[str, int] = MappingProxyType(VICTIMS),
) -> str:
    """Run one job, and kill so many processes; raises `AssertionError` when an index does not equal the source."""
    chance, begun_s = random.Random(seed), time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-opensearch-") as name,
        kafka_server(Path(name, "kafka")) as kafka,
        opensearch_server(Path(name, "opensearch")) as server,
    ):
        topic = kafka.create_topic("in", partitions=4)
        job = OpensearchJob(kafka, Path(name), target, (topic, server.url))
        feeder = Feeder(kafka, topic, rate)
        feeder.start()
        writes_again = Progress(server, job).await_more
        try:
            # The server is the third victim, in the place of Kafka's broker.
            kinds = kill_again_and_again(chance, cast(Any, server), job, kills, pause_s, victims, writes_again)
            records = feeder.stop()
            server.await_up()
            await_records(job, lambda: count(server), records)
        finally:
            job.process.kill()
            job.process.wait()
        check(server, records)

    took_s = time.monotonic() - begun_s
    return f"{kills} kills ({kinds}), {records} records in: the three indexes equal the source; {took_s:.0f} s"


main = command(run, 20, 200.0, (1.0, 4.0), "Kill workers, drivers and the server, and look at the indexes at the end.")


if __name__ == "__main__":
    main()
