"""`python -m benchmarks.nexmark_sql DIR`: Nexmark's queries in SQL, from the files of the benchmark in DIR.

Events are made before and held in memory, so that a run is about the query. Without more options each query writes into
`blackhole`, and its events a second are shown, as a whole and without the start, which is what a run over one event
takes; `--beside-duckdb` shows the same of DuckDB with one thread over a table in memory (it writes files where the
query does), and `--beside-flink` that of Flink SQL (see `beside_flink`). Five options compare each query's result,
which is the table that its changes stand for, with DuckDB's:

\b
    --check         it runs to its end
    --check-batch   the same query in BATCH, by Spark's SQL
    --check-epochs  the same in MICRO_BATCH, some epochs long
    --restore       it is stopped amid the events with a savepoint, and goes on at the next parallelism
    --kill          a worker's process is killed amid the events, and the job goes on (`--target spark`)

Events then have a millisecond each, so that nothing is of the same time. q6 is refused by Flink, too. q10 writes its
files, which are read. q12 counts by the clock: its windows are a second long then, and what is compared is how often
each bidder was counted. Of q19 the columns are that rows of the same price do not exchange. The function of q14 is in
Python, and the side input of q13 is made here.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.nexmark_sql import beside_flink as flink_side
from benchmarks.nexmark_sql import queries as nexmark
from benchmarks.nexmark_sql.checks import check_lines
from benchmarks.nexmark_sql.duck import Duck
from benchmarks.nexmark_sql.events import AT_ONCE, Pace
from benchmarks.nexmark_sql.events import events as made_events
from benchmarks.nexmark_sql.flink_process import FlinkInstall, write_events
from benchmarks.nexmark_sql.queries import QUERIES, REFUSED
from benchmarks.nexmark_sql.regimes import Regime, takes_regime
from benchmarks.nexmark_sql.running import Runs
from benchmarks.nexmark_sql.speed import time_query
from penstock.base.errors import PenstockError


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--queries", default=",".join(QUERIES), help="such as q5,q7")
@click.option("--events", default=1_000_000, help="how many")
@click.option("--parallelism", default="1", help="such as 1,2,4")
@click.option("--target", default="local", help="local or spark")
@takes_regime
@click.option("--check", "checks", flag_value="check", multiple=True, help="compare with DuckDB")
@click.option("--check-batch", "checks", flag_value="check-batch", multiple=True, help="and what BATCH gives")
@click.option("--check-epochs", "checks", flag_value="check-epochs", multiple=True, help="and what MICRO_BATCH gives")
@click.option("--restore", "checks", flag_value="restore", multiple=True, help="and stop and restore in the middle")
@click.option("--kill", "checks", flag_value="kill", multiple=True, help="and kill a worker in the middle")
@click.option("--beside-duckdb", is_flag=True)
@click.option("--beside-flink", is_flag=True)
@click.option(
    "--flink",
    default="build/flink/bin/python",
    show_default=True,
    type=click.Path(path_type=Path),
    help="the Python of an environment with apache-flink",
)
@click.option("--heap", default="6g", help="of Flink's JVM; it holds the events as rows")
@click.option("--runs", "times", default=3, help="of each side at least; the best counts")
@click.option("--memory", is_flag=True, help="beside Flink: memory, and sizes of savepoints")
@click.option("--markdown", is_flag=True, help="beside Flink: a table")
def main(
    folder: Path,
    queries: str,
    events: int,
    parallelism: str,
    target: str,
    regime: Regime,
    checks: tuple[str, ...],
    beside_duckdb: bool,
    beside_flink: bool,
    flink: Path,
    heap: str,
    times: int,
    memory: bool,
    markdown: bool,
) -> None:
    logging.disable(logging.WARNING)
    pace = Pace() if checks else Pace(chunks=AT_ONCE)
    runs = Runs(folder, events, 1_000 if checks else 10_000, target, chunks=pace.chunks)
    names = queries.split(",")
    if beside_flink:
        at_once = replace(runs, waits_ms=0)
        print_beside_flink(FlinkInstall(flink, heap), at_once, names, times, memory, markdown)
        return
    with tempfile.TemporaryDirectory() as checkpoints:
        runs = runs.in_regime(regime, Path(checkpoints))
        duck = Duck(folder, made_events(events, runs.rate, pace), runs.rate) if checks or beside_duckdb else None
        parallelisms = [int(number) for number in parallelism.split(",")]
        sys.exit(sum(print_query(runs, duck, name, parallelisms, checks, times) for name in names) > 0)


def print_query(
    runs: Runs, duck: Duck | None, name: str, parallelisms: list[int], checks: tuple[str, ...], times: int
) -> int:
    """Print a line for each run of a query, and return how many of them are wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        query = nexmark.query(runs.folder, name, scratch)
        lines: Iterator[str]
        if checks:
            assert duck is not None
            lines = check_lines(runs, duck, query, parallelisms, checks, scratch)
        else:
            lines = (time_query(runs, duck, query, parallelism, scratch, times) for parallelism in parallelisms)
        try:
            for line in lines:
                print(f"{name:4} {line}", flush=True)
                wrong += bool(checks) and not line.endswith(" right")
        except PenstockError as error:
            print(f"{name:4} refused or failed: {type(error).__name__}: {str(error)[:300]}", flush=True)
            wrong += name != REFUSED
        except AssertionError as error:
            print(f"{name:4} {error}", flush=True)
            wrong += 1
    return wrong


def print_beside_flink(
    install: FlinkInstall, runs: Runs, names: list[str], times: int, memory: bool, markdown: bool
) -> None:
    """Print each query as it is done."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "events.arrow"
        write_events(made_events(runs.events, runs.rate, Pace(chunks=runs.chunks)), file)
        beside = flink_side.BesideFlink(install, runs, file, times, memory)
        found = map(beside.compared, names)
        lines = flink_side.table(runs.events, found, memory) if markdown else flink_side.lines(runs.events, found)
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
