"""`python -m benchmarks.small_batches DIR`: Nexmark's queries at a steady rate, where batches have one row or a few.

DIR has the files of the Nexmark benchmark, see `benchmarks.nexmark_sql`. Events are made before. Each query runs on
the local target at parallelism 1, without mini-batches, and writes into `blackhole`. Printed is the processor time of
an event: that of the run, less that of a run of one event, which starts and ends the same job.

At a rate, the sizes of batches depend on the machine: a source that was held up emits more rows at once. With `--rows`,
every batch of the source has as many rows, and they come as fast as possible.

With `--base FOLDER`, the package in another folder `src` runs the same in turns with this one, and the median of the
ratios is printed.
"""

from __future__ import annotations

import logging
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from benchmarks.nexmark_sql.queries import query
from benchmarks.nexmark_sql.running import Runs
from penstock.base.options import SOURCE_BATCH_RECORDS

QUERIES = "q1,q4,q17,q20"
EVENT_RATE = 10_000
_ROOT = Path(__file__).parents[1]


#: a rate that no run reaches
UNLIMITED: Final = 10**9


def measure(folder: Path, name: str, events: int, per_second: int, rows: int) -> float:
    """Return the processor time of an event, in µs. `rows`: of each batch; 0 for as many as are due."""
    with tempfile.TemporaryDirectory() as scratch:
        asked = query(folder, name, Path(scratch))
        options = {SOURCE_BATCH_RECORDS.key(): str(rows)} if rows else {}
        rate = UNLIMITED if rows else per_second
        runs = Runs(folder, events, EVENT_RATE, mini_batch=False, per_second=rate, options=options)
        _, start_s = runs.warmed(asked)
        _, whole_s = runs.seconds(asked)
    return (whole_s - start_s) / events * 1e6


def measure_apart(source: Path, arguments: list[str]) -> float:
    """Measure in a process of its own, with the package in `source`."""
    environment = {**os.environ, "PYTHONPATH": f"{source}:{_ROOT}"}
    command = [sys.executable, "-m", "benchmarks.small_batches", *arguments, "--bare"]
    answer = subprocess.run(command, env=environment, cwd=_ROOT, stdout=subprocess.PIPE, check=True, text=True)
    return float(answer.stdout)


def describe(name: str, micros: float, per_second: int, rows: int) -> str:
    """Return the line of a query."""
    tempo = f"batches of {rows}" if rows else f"{micros * per_second / 1e6:7.1%} of a core"
    return f"{name:4} {micros:8.1f} µs an event, {tempo}"


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--queries", default=QUERIES, show_default=True)
@click.option("--events", default=4_000, show_default=True, help="how many")
@click.option("--rate", "per_second", default=1_000, show_default=True, help="events a second")
@click.option("--rows", default=0, help="rows of each batch; without it, events come at the rate")
@click.option("--base", type=click.Path(exists=True, path_type=Path), help="the folder src of another revision")
@click.option("--pairs", default=3, show_default=True, help="with --base: how often each side runs")
@click.option("--bare", is_flag=True, help="print the number alone")
def main(
    folder: Path, queries: str, events: int, per_second: int, rows: int, base: Path | None, pairs: int, bare: bool
) -> None:
    """See the module docstring."""
    logging.disable(logging.WARNING)
    for name in queries.split(","):
        if base is None:
            micros = measure(folder, name, events, per_second, rows)
            print(micros if bare else describe(name, micros, per_second, rows), flush=True)
            continue
        arguments = [str(folder), "--queries", name, "--events", str(events), "--rate", str(per_second)]
        arguments += ["--rows", str(rows)]
        sides = [(measure_apart(base, arguments), measure_apart(_ROOT / "src", arguments)) for _ in range(pairs)]
        before, after = (statistics.median(side) for side in zip(*sides, strict=True))
        ratio = statistics.median(one / other for one, other in sides)
        print(f"{describe(name, after, per_second, rows)}; base {before:8.1f}, ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
