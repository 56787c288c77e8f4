"""`python -m benchmarks.quiet`: what a job of many vertices costs while an event comes now and then.

The job is a source, several maps and a sink, each a vertex of its own, at parallelism 1. The source emits a few events
a second. The processes are watched for some seconds once the job runs: on the local target this one, which runs the
tasks too; on Spark the workers, Spark's JVM, and this one with the job master. For each process the benchmark shows the
share of a core, and how often one of its threads woke up.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.idle import processor_seconds
from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.collect import DiscardingSink
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from penstock.runtime.connector import SourceReader, SourceReaderContext

START_SECONDS_MAX = 60


class _Passing:
    """Passes events on, and leaves the id of its process in a file at the first one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._has_said = False

    def map(self, value: Any) -> Any:
        """Return the event."""
        if not self._has_said:
            self._has_said = True
            Path(self._path, str(os.getpid())).touch()
        return value


class PolledSource(DataGeneratorSource[float]):
    """Does not know when the next event is due, as a reader of a server does not: it is polled."""

    def create_reader(self, context: SourceReaderContext) -> Any:
        """Create a reader that is polled."""
        reader: Any = super().create_reader(context)
        reader.retry_after_ms = lambda: SourceReader.retry_after_ms(reader)
        return reader


class Figures(NamedTuple):
    """What a process does per second: the share of one core (0 to 1) that it takes, and the wake-ups of its threads."""

    share: float
    wakeups: float


def count_wakeups(process: int) -> int:
    """Return how often threads of a process have waited so far."""
    waits = 0
    for status in Path(f"/proc/{process}/task").glob("*/status"):
        with suppress(OSError):  # the thread has ended
            waits += int(status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return waits


def find_jvms() -> list[int]:
    """Return the processes of Java below this one."""
    jvms = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name == "java" and int(rest.split()[1]) == os.getpid():
                jvms.append(int(stat.parent.name))
    return jvms


def run(target: str, vertices: int, per_second: float, is_polled: bool, seconds: float) -> dict[str, Figures]:
    """Return the figures of each process."""
    with tempfile.TemporaryDirectory(prefix="penstock-quiet-") as folder:
        configuration = Configuration()
        configuration.set_string("execution.target", target)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(1)
        env.disable_operator_chaining()
        limit = RateLimiterStrategy.per_second(per_second)
        make = PolledSource if is_polled else DataGeneratorSource
        source = make(float, count=1_000_000, rate_limiter_strategy=limit)
        stream: DataStream = env.from_source(source, WatermarkStrategy.no_watermarks(), "events")
        for _ in range(vertices - 2):
            stream = stream.map(_Passing(folder).map)
        stream.sink_to(DiscardingSink())
        job = env.execute_async("quiet")
        try:
            begun = time.monotonic()
            while not os.listdir(folder):
                assert time.monotonic() < begun + START_SECONDS_MAX, "no event came"
                time.sleep(0.1)
            time.sleep(3)
            workers = [int(name) for name in os.listdir(folder) if int(name) != os.getpid()]
            watched = {"program": os.getpid(), **{f"worker {process}": process for process in sorted(workers)}}
            watched |= {f"JVM {process}": process for process in find_jvms()}
            before = {process: (processor_seconds(process), count_wakeups(process)) for process in watched.values()}
            begun = time.monotonic()
            time.sleep(seconds)
            passed = time.monotonic() - begun
            return {
                name: Figures(
                    (processor_seconds(process) - before[process][0]) / passed,
                    (count_wakeups(process) - before[process][1]) / passed,
                )
                for name, process in watched.items()
            }
        finally:
            job.end()


@click.command(help=__doc__)
@click.option("--target", default="local", show_default=True, help="local or spark")
@click.option("--vertices", default=10, show_default=True)
@click.option("--rate", "per_second", default=1.0, show_default=True, help="events a second")
@click.option("--polled", "is_polled", is_flag=True, help="the source does not know when the next event is due")
@click.option("--seconds", default=20.0, show_default=True, help="how long to watch")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="write the figures here")
def main(
    target: str, vertices: int, per_second: float, is_polled: bool, seconds: float, json_path: Path | None
) -> None:
    """See the module docstring."""
    logging.basicConfig(level=logging.WARNING)
    figures = run(target, vertices, per_second, is_polled, seconds)
    for name, (share, wakeups) in figures.items():
        print(f"{name:20} {share:6.2%} of a core, {wakeups:6.1f} wake-ups a second")
    if json_path is not None:
        json_path.write_text(json.dumps({name: each._asdict() for name, each in figures.items()}, indent=1))


if __name__ == "__main__":
    main()
