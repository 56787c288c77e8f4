"""`python -m benchmarks.quiet`: what a job of many vertices costs while an event comes now and then.

The job is a source, several maps and a sink, each a vertex of its own, at parallelism 1. The source emits a few events
a second. The processes are watched for some seconds once the job runs: on the local target this one, which runs the
tasks too; on Spark the workers, and this one with the job master.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from benchmarks.idle import processor_seconds
from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.collect import DiscardingSink
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy

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


def run(target: str, vertices: int, per_second: float, seconds: float) -> dict[str, float]:
    """Return the share of one core (0 to 1) that each process takes."""
    with tempfile.TemporaryDirectory(prefix="penstock-quiet-") as folder:
        configuration = Configuration()
        configuration.set_string("execution.target", target)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(1)
        env.disable_operator_chaining()
        limit = RateLimiterStrategy.per_second(per_second)
        source = DataGeneratorSource(float, count=1_000_000, rate_limiter_strategy=limit)
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
            watched = {os.getpid(), *map(int, os.listdir(folder))}
            before = {process: processor_seconds(process) for process in watched}
            begun = time.monotonic()
            time.sleep(seconds)
            passed = time.monotonic() - begun
            return {
                "program" if process == os.getpid() else f"worker {process}": (
                    (processor_seconds(process) - before[process]) / passed
                )
                for process in sorted(watched)
            }
        finally:
            job.end()


@click.command(help=__doc__)
@click.option("--target", default="local", show_default=True, help="local or spark")
@click.option("--vertices", default=10, show_default=True)
@click.option("--rate", "per_second", default=1.0, show_default=True, help="events a second")
@click.option("--seconds", default=20.0, show_default=True, help="how long to watch")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="write the figures here")
def main(target: str, vertices: int, per_second: float, seconds: float, json_path: Path | None) -> None:
    """See the module docstring."""
    logging.basicConfig(level=logging.WARNING)
    figures = run(target, vertices, per_second, seconds)
    for name, share in figures.items():
        print(f"{name:20} {share:.2%} of a core")
    if json_path is not None:
        json_path.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
