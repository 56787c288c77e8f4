"""Kafka → keyed state → Delta Lake, exactly once on Spark, through SIGKILLs at random moments.

`python -m tests.connectors.delta.kills --kills 20` feeds a topic at a rate. A job numbers the records of each key, adds
them to one table, and merges the last one of each key into another (`pipeline`). Again and again a worker or the driver
with the job master gets SIGKILL; a driver is followed by a new one, as under a supervisor. In the end a reader must see
each record once, numbered without a gap, and the last one of each key. The seed that it prints makes the choice of the
victims and the pauses the same again.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.connectors.delta import pipeline
from tests.connectors.kafka.kills import PATIENCE_S, Feeder, Job, await_records, command, kill_again_and_again
from tests.servers.kafka import kafka_server

#: How often each is the victim.
VICTIMS = {"worker": 5, "driver": 3}
#: How often the job has committed something since the last kill; otherwise it is killed while it comes back.
HAS_COMMITTED = 0.75


class DeltaJob(Job):
    """The job and its drivers, one after another."""

    program = "tests.connectors.delta.pipeline"
    takes = ("servers", "topic", "folder", "target", "interval")


def await_commit(job: DeltaJob, folder: Path, versions: int) -> None:
    """Until the table has more versions."""
    deadline = time.monotonic() + PATIENCE_S
    while pipeline.versions(folder) <= versions:
        job.check()
        assert time.monotonic() < deadline, "the job does not commit"
        time.sleep(0.1)


def run(
    seed: int,
    kills: int,
    rate: float,
    target: str,
    pause_s: tuple[float, float],
    victims: Mapping[str, int] = MappingProxyType(VICTIMS),
) -> str:
    """Run one job, and kill so many processes; raises `AssertionError` when the tables are not exact."""
    chance, begun_s = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-delta-") as name, kafka_server(Path(name, "kafka")) as kafka:
        folder = Path(name)
        topic = kafka.create_topic("in", partitions=4)
        feeder, job = Feeder(kafka, topic, rate), DeltaJob(kafka, folder, target, (topic, topic))

        def before() -> None:
            if chance.random() < HAS_COMMITTED:
                await_commit(job, folder, pipeline.versions(folder))

        feeder.start()
        try:
            kinds = kill_again_and_again(chance, kafka, job, kills, pause_s, victims, before)
            records = feeder.stop()
            await_records(job, lambda: pipeline.count(folder), records, 5.0)
        finally:
            job.process.kill()
            job.process.wait()
        versions = pipeline.check(records, folder)
    return f"{kills} kills ({kinds}), {records} records, each seen once, {versions}, {time.monotonic() - begun_s:.0f} s"


main = command(run, 20, 500.0, (0.5, 5.0), "Kill workers and drivers, and look at what readers of the tables see.")


if __name__ == "__main__":
    main()
