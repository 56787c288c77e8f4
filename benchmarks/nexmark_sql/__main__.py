"""`python -m benchmarks.nexmark_sql DIR`: Nexmark's queries in SQL, from the files of the benchmark in DIR.

Events are made before and held in memory, so that a run is about the query. Without more options each query writes into
`blackhole`, and its events a second are shown, as a whole and without the start, which is what a run over one event
takes; `--beside-duckdb` shows the same of DuckDB with one thread over a table in memory (it writes files where the
query does).

`--backend`, `--checkpoints`, `--no-mini-batch` and `--rate` say how users run it. With `--rate` so many events come a
second; shown are processor time, the share of a core, and the latency from when an event is due to its row in the sink,
for queries whose rows tell the event. Four options compare, each by turns, with the same options on both sides:

\b
    --beside-flink  with Flink SQL (see `beside_flink`)
    --regimes       with Flink SQL, ten queries on the heap and on RocksDB with checkpoints, and without mini-batches
    --beside-own    what checkpoints and RocksDB cost: with itself on the heap without checkpoints
    --beside REV    with another revision of Penstock, by processor time

Five options compare each query's result, which is the table that its changes stand for, with DuckDB's:

\b
    --check         it runs to its end
    --check-batch   the same query in BATCH, by Spark's SQL
    --check-epochs  the same in MICRO_BATCH, some epochs long
    --restore       it is stopped amid the events with a savepoint, and goes on at the next parallelism
    --kill          a worker's process is killed amid the events, and the job goes on (`--target spark`)

Events then have a millisecond each, so that nothing is of the same time. q6 is refused by Flink, too. q10 writes its
files, which are read. The function of q14 is in Python, and the side input of q13 is made here.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks.nexmark_sql import queries as nexmark
from benchmarks.nexmark_sql.beside_build import compare_queries
from benchmarks.nexmark_sql.beside_flink import BesideFlink
from benchmarks.nexmark_sql.beside_own import compare_regimes
from benchmarks.nexmark_sql.cell_tables import write_lines, write_tables
from benchmarks.nexmark_sql.cells import CellFile
from benchmarks.nexmark_sql.checks import check_lines
from benchmarks.nexmark_sql.duck import Duck
from benchmarks.nexmark_sql.events import AT_ONCE, Pace
from benchmarks.nexmark_sql.events import events as made_events
from benchmarks.nexmark_sql.flink_process import FlinkInstall
from benchmarks.nexmark_sql.queries import QUERIES, REFUSED
from benchmarks.nexmark_sql.query_process import PATIENCE_S
from benchmarks.nexmark_sql.regimes import EVENT_RATE, QUERIES_OF_REGIMES, Regime, find_regimes, takes_regime
from benchmarks.nexmark_sql.running import Runs
from benchmarks.nexmark_sql.speed import time_query
from penstock.base.errors import PenstockError

#: where results are compared: nothing is of the same time
EVENT_RATE_OF_CHECKS = 1_000


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--queries", help="such as q5,q7; all, or with --regimes ten", default="")
@click.option("--events", default=500_000, show_default=True, help="how many")
@click.option("--parallelism", default="1", show_default=True, help="such as 1,2,4")
@click.option("--target", type=click.Choice(["local", "spark"]), default="local", show_default=True)
@takes_regime
@click.option("--runs", "times", type=click.IntRange(min=1), default=3, show_default=True, help="of each side")
@click.option("--check", "checks", flag_value="check", multiple=True, help="compare with DuckDB")
@click.option("--check-batch", "checks", flag_value="check-batch", multiple=True, help="and what BATCH gives")
@click.option("--check-epochs", "checks", flag_value="check-epochs", multiple=True, help="and what MICRO_BATCH gives")
@click.option("--restore", "checks", flag_value="restore", multiple=True, help="and stop and restore in the middle")
@click.option("--kill", "checks", flag_value="kill", multiple=True, help="and kill a worker in the middle")
@click.option("--beside-duckdb", is_flag=True)
@click.option("--beside-flink", is_flag=True)
@click.option("--regimes", "in_regimes", is_flag=True, help="ten queries beside Flink, in three regimes")
@click.option("--beside-own", is_flag=True, help="RocksDB, and checkpoints, beside the heap without")
@click.option("--beside", "base", metavar="REV", help="another revision")
@click.option(
    "--flink",
    default="build/flink/bin/python",
    show_default=True,
    type=click.Path(path_type=Path),
    help="the Python of an environment with apache-flink",
)
@click.option("--heap", default="6g", show_default=True, help="of Flink's JVM; it holds the events as rows")
@click.option("--patience", "patience_s", default=PATIENCE_S, show_default=True, help="seconds for a run of Flink")
@click.option("--memory", is_flag=True, help="beside Flink: memory beyond the events, and sizes of savepoints")
@click.option("--markdown", is_flag=True, help="beside Flink: tables")
@click.option(
    "--cells",
    "cells_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="beside Flink: a JSON file of finished cells, which another run of the same command skips",
)
def main(
    folder: Path,
    queries: str,
    events: int,
    parallelism: str,
    target: str,
    regime: Regime,
    times: int,
    checks: tuple[str, ...],
    beside_duckdb: bool,
    beside_flink: bool,
    in_regimes: bool,
    beside_own: bool,
    base: str | None,
    flink: Path,
    heap: str,
    patience_s: int,
    memory: bool,
    markdown: bool,
    cells_path: Path | None,
) -> None:
    logging.disable(logging.WARNING)
    names = queries.split(",") if queries else list(QUERIES_OF_REGIMES if in_regimes else QUERIES)
    if unknown := [name for name in names if name not in QUERIES]:
        raise click.UsageError(f"there is no query {', '.join(unknown)}; there are {', '.join(QUERIES)}")
    compares_processes = base is not None or beside_own or beside_flink or in_regimes
    if compares_processes and (target, parallelism) != ("local", "1"):
        raise click.UsageError(
            "beside Flink or another Penstock, queries run on one core: --target local, parallelism 1"
        )
    if base is not None:
        print_lines(compare_queries(base, folder, names, regime, events, times))
    elif beside_own:
        print_lines(compare_regimes(folder, names, regime, events, times))
    elif beside_flink or in_regimes:
        with tempfile.TemporaryDirectory() as scratch:
            beside = BesideFlink(FlinkInstall(flink, heap), folder, events, times, memory, Path(scratch), patience_s)
            regimes = find_regimes(regime) if in_regimes else [regime]
            cells = beside.measure_all(names, regimes, CellFile(cells_path))
            write = write_tables if markdown or in_regimes else write_lines
            print_lines(write(cells, memory))
    else:
        sys.exit(run_here(folder, names, events, target, regime, times, checks, beside_duckdb, parallelism))


def print_lines(lines: Iterator[str]) -> None:
    """Print each line as it comes."""
    for line in lines:
        print(line, flush=True)


def run_here(
    folder: Path,
    names: list[str],
    events: int,
    target: str,
    regime: Regime,
    times: int,
    checks: tuple[str, ...],
    beside_duckdb: bool,
    parallelism: str,
) -> int:
    """Measure or check the queries in this process; the exit status."""
    pace = Pace() if checks else Pace(chunks=AT_ONCE)
    runs = Runs(folder, events, EVENT_RATE_OF_CHECKS if checks else EVENT_RATE, target, chunks=pace.chunks)
    parallelisms = [int(number) for number in parallelism.split(",")]
    with tempfile.TemporaryDirectory() as checkpoints:
        runs = runs.with_regime(regime, Path(checkpoints))
        duck = None
        if checks or beside_duckdb:
            duck = Duck(folder, made_events(events, runs.rate, pace), runs.rate)
        return int(sum(print_query(runs, duck, name, parallelisms, checks, times) for name in names) > 0)


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


if __name__ == "__main__":
    main()
