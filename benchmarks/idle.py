"""`python -m benchmarks.idle`: what a job on Spark costs while nothing comes: processor time by process.

The job is W2 at parallelism 2 with a source that never has a record. Workers and the program, in which the job master
lives, are watched for some seconds once all is up.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.meeting import MeetingPlace, MeetingSink, SilentSource
from benchmarks.workloads import add, select_key
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment

START_SECONDS_MAX = 60


def processor_seconds(process: int) -> float:
    """User and system time of a process and all its threads so far, from /proc."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(seconds: float, parallelism: int, retry_ms: int, checkpoint_ms: int) -> dict[str, float]:
    """The share of one core (0 to 1) that each process takes."""
    with tempfile.TemporaryDirectory(prefix="penstock-idle-") as folder:
        place = MeetingPlace(folder)
        env = StreamExecutionEnvironment.get_execution_environment(Configuration())
        env.set_parallelism(parallelism)
        if checkpoint_ms:
            env.enable_checkpointing(checkpoint_ms)
        stream = env.from_source(SilentSource(place, retry_ms), WatermarkStrategy.no_watermarks(), "silence")
        stream.key_by(select_key).reduce(add).sink_to(MeetingSink(place))
        job = env.execute_async("idle")
        try:
            begun = time.monotonic()
            while len(place.heard("worker")) < parallelism:
                assert time.monotonic() < begun + START_SECONDS_MAX, "the workers did not come up"
                time.sleep(0.1)
            time.sleep(3)
            processes = {f"worker {i}": pid for i, pid in enumerate(place.heard("worker"), 1)}
            processes["program, with the job master"] = os.getpid()
            before = {name: processor_seconds(pid) for name, pid in processes.items()}
            begun = time.monotonic()
            time.sleep(seconds)
            passed = time.monotonic() - begun
            return {name: (processor_seconds(pid) - before[name]) / passed for name, pid in processes.items()}
        finally:
            job.end()


@click.command()
@click.option("--seconds", default=20.0, show_default=True, help="How long to watch.")
@click.option("--parallelism", default=2, show_default=True)
@click.option(
    "--retry", "retry_ms", default=0, show_default=True, help="How often the source looks, ms; 0: by default."
)
@click.option("--interval", "checkpoint_ms", default=0, show_default=True, help="Checkpoint interval, ms; 0: off.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
def main(seconds: float, parallelism: int, retry_ms: int, checkpoint_ms: int, json_path: Path | None) -> None:
    """Print the share of a core that each process takes."""
    logging.basicConfig(level=logging.WARNING)
    figures = run(seconds, parallelism, retry_ms, checkpoint_ms)
    table = Table(title=f"an idle job over {seconds:g} s")
    table.add_column("process")
    table.add_column("of a core", justify="right")
    for name, share in figures.items():
        table.add_row(name, f"{share:.2%}")
    Console(width=100).print(table)
    if json_path is not None:
        json_path.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
