"""Kafka → keyed state → Iceberg, exactly once on Spark, through SIGKILLs at random moments.

`python -m tests.connectors.iceberg.kills --kills 20` feeds a topic at a rate. A job numbers the records of each key and
appends them to a table, partitioned by key; it also keeps the last record of each key in a second table, which it
writes by key. Again and again a worker, or the driver with the job master, gets SIGKILL; a driver is followed by a new
one, as under a supervisor. Meanwhile another process appends rows of its own to the first table, so that commits meet.
In the end a reader must see each record once, numbered without a gap, and in the second table the last one of each key,
which Iceberg's own library in Java reads as well.
The seed that it prints makes the choice of the victims and the pauses the same again.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from tests.connectors.iceberg.java_library import rows_in_java
from tests.connectors.iceberg.lake import Lake
from tests.connectors.iceberg.programs import SCHEMA
from tests.connectors.kafka.kills import Feeder, Job, await_records, command, kill_again_and_again
from tests.connectors.kafka.programs import KEYS
from tests.servers.kafka import kafka_server

from penstock.base.errors import ConfigurationError

#: How often each is the victim.
VICTIMS = {"worker": 5, "driver": 3}
#: The key of the rows that somebody else appends.
OTHER = 1_000


class IcebergJob(Job):
    """The job and its drivers, one after another."""

    program = "tests.connectors.iceberg.programs"
    takes = ("servers", "source", "folder", "target", "interval")


class Neighbour(threading.Thread):
    """Appends rows to the same table, again and again."""

    def __init__(self, lake: Lake, pause_s: float) -> None:
        super().__init__(daemon=True)
        self._lake, self._pause_s = lake, pause_s
        self._stopping = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._stopping.wait(self._pause_s):
            rows = pa.table({"k": [OTHER], "number": [self.count], "value": [self.count]}, SCHEMA)
            try:
                with self._lake.loader("numbered").opened() as table:
                    table.append(rows)
            except (CommitFailedException, ConfigurationError):
                continue  # somebody else was first, or the job has not made the table yet
            self.count += 1

    def stop(self) -> int:
        self._stopping.set()
        self.join()
        return self.count


def check(lake: Lake, records: int, others: int) -> None:
    """Raise `AssertionError` unless each record is there once, numbered from 1 on in its key, and the last ones are."""
    rows = lake.rows("numbered", "k", "number", "value")
    own = sorted(row for row in rows if row[0] != OTHER)
    values = sorted(value for _, _, value in own)
    if values != list(range(records)):
        missing, more = len(set(range(records)) - set(values)), len(values) - len(set(values))
        raise AssertionError(f"{missing} of {records} records are missing, and {more} come twice")
    counts: dict[int, int] = defaultdict(int)
    for key, number, _ in own:
        counts[key] += 1
        if number != counts[key]:
            raise AssertionError(f"record {counts[key]} of key {key} has the number {number}")
    last = sorted(max(row for row in own if row[0] == key) for key in range(KEYS))
    found = sorted(lake.rows("counts", "k", "number", "value"))
    if found != last:
        raise AssertionError(f"the table by key has {found}, and should have {last}")
    if sorted(number for key, number, _ in rows if key == OTHER) != list(range(others)):
        raise AssertionError("rows that somebody else has appended are missing or come twice")


def check_in_java(lake: Lake) -> None:
    """Raise `AssertionError` unless Iceberg's own library reads the table by key as pyiceberg does."""
    found = rows_in_java(lake.table("counts"))
    expected = sorted(f"Record({', '.join(map(str, row))})" for row in lake.rows("counts"))
    if found != expected:
        raise AssertionError(f"Iceberg's library in Java reads {found}, and should read {expected}")


def seen(lake: Lake) -> int:
    """How many records readers see."""
    try:
        with lake.loader("numbered").opened() as table:
            return table.scan(row_filter=f"k != {OTHER}").count()
    except ConfigurationError:
        return 0


def run(
    seed: int,
    kills: int,
    rate: float,
    target: str,
    pause_s: tuple[float, float],
    victims: Mapping[str, int] = MappingProxyType(VICTIMS),
    neighbour_s: float = 2.0,
) -> str:
    """Run one job, and kill so many processes; raises `AssertionError` when the output is not exact."""
    chance, begun_s = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-iceberg-") as name, kafka_server(Path(name, "kafka")) as kafka:
        lake = Lake(Path(name, "lake")).create()
        topic = kafka.create_topic("in", partitions=4)
        feeder, job = Feeder(kafka, topic, rate), IcebergJob(kafka, Path(name), target, (topic, ""))
        neighbour = Neighbour(lake, neighbour_s)
        feeder.start()
        neighbour.start()
        try:
            kinds = kill_again_and_again(chance, kafka, job, kills, pause_s, victims)
            records = feeder.stop()
            others = neighbour.stop()
            await_records(job, lambda: seen(lake), records)
        finally:
            job.process.kill()
            job.process.wait()
        check(lake, records, others)
        check_in_java(lake)
        table = lake.table("numbered")
        files = sum(1 for _ in table.scan(row_filter=f"k != {OTHER}").plan_files())
    return (
        f"{kills} kills ({kinds}), {records} records in, each out once beside {others} of another writer; "
        f"{len(table.snapshots())} snapshots, {files} files, {time.monotonic() - begun_s:.0f} s"
    )


main = command(run, 20, 1_000.0, (0.5, 6.0), "Kill workers and drivers, and look at what readers of the tables see.")


if __name__ == "__main__":
    main()
