"""`python -m benchmarks.startup`: seconds from `python job.py` to its first record, beside those of Spark alone.

Both are fresh processes, in turns, with the same session: the bare one runs a single task of `mapInArrow` that yields
one row. What a job takes beyond that is Penstock's own start: imports, the job master, the workers, the deployment.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

JOB = """
import sys, time
from pathlib import Path

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.runtime.connector import Sink, SinkWriter
from penstock.datastream import StreamExecutionEnvironment


class FirstOut(Sink):
    def __init__(self, path):
        self.path = path

    def create_writer(self, context):
        return Writer(self.path)


class Writer(SinkWriter):
    def __init__(self, path):
        self.path = path

    def write_batch(self, values, timestamps):
        now = time.monotonic()
        if not Path(self.path).exists():
            Path(self.path).write_text(repr(now))


env = StreamExecutionEnvironment.get_execution_environment(Configuration())
env.set_parallelism(int(sys.argv[2]))
numbers = env.from_source(CollectionSource(range(1000)), WatermarkStrategy.no_watermarks(), "numbers")
keyed = numbers.key_by(lambda number: number % 10)
keyed.reduce(lambda one, other: one + other).sink_to(FirstOut(sys.argv[1]))
env.execute("first record")
"""

BARE = """
import os, sys, time
from pathlib import Path

from penstock.drivers.spark.session import _start as start

session = start({}, int(sys.argv[2])).handle.session


def task(batches):
    import struct

    import pyarrow

    for _ in batches:
        pass
    # By hand: given a list, pyarrow looks whether it is from pandas, which takes a second to import.
    now = pyarrow.py_buffer(struct.pack("d", time.monotonic()))
    yield pyarrow.RecordBatch.from_arrays([pyarrow.Array.from_buffers(pyarrow.float64(), 1, [None, now])], ["now"])


row = session.range(0, 1, 1, 1).mapInArrow(task, "now double").collect()[0]
Path(sys.argv[1]).write_text(repr(row[0]))
"""


def seconds_of(program: str, parallelism: int) -> float:
    """From the start of the process until the program's first record was out."""
    with tempfile.TemporaryDirectory(prefix="penstock-startup-") as folder:
        script, word = Path(folder) / "job.py", Path(folder) / "first"
        script.write_text(program)
        begun = time.monotonic()
        subprocess.run([sys.executable, str(script), str(word), str(parallelism)], check=True, capture_output=True)
        return float(word.read_text()) - begun


@click.command()
@click.option("--pairs", default=5, show_default=True)
@click.option("--parallelism", default=2, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
def main(pairs: int, parallelism: int, json_path: Path | None) -> None:
    """Print seconds to the first record."""
    bare, job = [], []
    for _ in range(pairs):
        bare.append(seconds_of(BARE, parallelism))
        job.append(seconds_of(JOB, parallelism))
    beyond = [j - b for j, b in zip(job, bare, strict=True)]
    table = Table(title=f"seconds to the first record out, parallelism {parallelism}, {pairs} pairs")
    for column in ("", "median", "min", "max"):
        table.add_column(column, justify="right")
    for name, values in (("Spark alone", bare), ("job", job), ("beyond Spark", beyond)):
        table.add_row(name, *(f"{v:.2f}" for v in (statistics.median(values), min(values), max(values))))
    Console(width=100).print(table)
    if json_path is not None:
        json_path.write_text(json.dumps({"bare": bare, "job": job, "beyond": beyond}, indent=1))


if __name__ == "__main__":
    main()
