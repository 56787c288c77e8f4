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
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.nexmark_sql import beside_flink as flink_side
from benchmarks.nexmark_sql.duck import Duck
from benchmarks.nexmark_sql.events import AT_ONCE, Pace
from benchmarks.nexmark_sql.events import events as made_events
from benchmarks.nexmark_sql.flink_process import FlinkInstall, write_events
from benchmarks.nexmark_sql.kept import Folded
from benchmarks.nexmark_sql.queries import NexmarkQuery, query
from benchmarks.nexmark_sql.running import Runs
from penstock.base.errors import PenstockError

QUERIES = tuple(f"q{number}" for number in range(23))
REFUSED = "q6"
BY_CLOCK = "q12"
#: how long a query runs at least where speed is measured
LEAST_S = 5

#: the columns that are compared, where rows of the same price may be in any order
COMPARED = {"q19": (0, 2, 7)}


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--queries", default=",".join(QUERIES), help="such as q5,q7")
@click.option("--events", default=1_000_000, help="how many")
@click.option("--parallelism", default="1", help="such as 1,2,4")
@click.option("--target", default="local", help="local or spark")
@click.option("--mini-batch/--no-mini-batch", default=True)
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
    mini_batch: bool,
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
    rate = 1_000 if checks else 10_000
    pace = Pace() if checks else Pace(chunks=AT_ONCE)
    runs = Runs(folder, events, rate, target, mini_batch=mini_batch, chunks=pace.chunks)
    if beside_flink:
        at_once = replace(runs, waits_ms=0)
        print_beside_flink(FlinkInstall(flink, heap), at_once, queries.split(","), times, memory, markdown)
        return
    table = made_events(events, rate, pace)
    duck = Duck(folder, table, rate) if checks or beside_duckdb else None
    parallelisms = [int(one) for one in parallelism.split(",")]
    wrong = 0
    for name in queries.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            found = query(folder, name, Path(scratch))
            try:
                for line in shown(runs, duck, found, parallelisms, checks, Path(scratch), times):
                    print(f"{name:4} {line}", flush=True)
                    wrong += bool(checks) and not line.endswith(" right")
            except PenstockError as error:
                print(f"{name:4} refused or failed: {type(error).__name__}: {str(error)[:300]}", flush=True)
                wrong += name != REFUSED
            except AssertionError as error:
                print(f"{name:4} {error}", flush=True)
                wrong += 1
    sys.exit(wrong > 0)


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


def shown(
    runs: Runs,
    duck: Duck | None,
    found: NexmarkQuery,
    parallelisms: list[int],
    checks: tuple[str, ...],
    scratch: Path,
    times: int,
) -> Iterator[str]:
    """What is said of a query, a line for each run."""
    if not checks:
        for parallelism in parallelisms:
            yield timed(runs, duck, found, parallelism, scratch, times)
        return
    assert duck is not None
    found = found.with_short_windows()
    if found.name == REFUSED:
        runs.rows(found)
    wanted = compared(found.name, Duck.folded(duck.rows(found)))
    for check in checks:
        if check == "check-epochs" and found.name == BY_CLOCK:
            yield "in epochs: the job is over when there is nothing to read, which its last windows are not: right"
            continue
        for place, parallelism in enumerate(parallelisms[:1] if check == "check-batch" else parallelisms):
            at = replace(runs, parallelism=parallelism)
            following = parallelisms[(place + 1) % len(parallelisms)]
            title = {
                "check": f"parallelism {parallelism}",
                "check-batch": "batch",
                "check-epochs": f"parallelism {parallelism} in epochs",
                "restore": f"parallelism {parallelism} restored at {following}",
                "kill": f"parallelism {parallelism} after a kill",
            }[check]
            rows = run_query(at, found, check, following, scratch / f"{check}-{parallelism}")
            yield f"{title}: {verdict(wanted, compared(found.name, rows))}"


def run_query(runs: Runs, found: NexmarkQuery, check: str, following: int, scratch: Path) -> Folded:
    """What one run gives."""
    if check == "check-batch":
        return runs.batch_rows(found)
    if check == "check-epochs":
        return runs.epoch_rows(found)
    if check == "restore":
        return runs.restored_rows(found, scratch, following)
    if check == "kill":
        return runs.rows_after_a_kill(found, scratch)
    return runs.rows(found)


def verdict(wanted: Folded, given: Folded) -> str:
    """How the rows that a run gave differ from those that are wanted."""
    missing, extra = wanted - given, given - wanted
    if not missing and not extra:
        return f"{wanted.total()} rows, right"
    some = f"missing {list(missing)[:2]}, extra {list(extra)[:2]}"
    return f"{missing.total()} missing, {extra.total()} extra of {wanted.total()}: {some}"


def compared(name: str, rows: Folded) -> Folded:
    """What is compared of rows."""
    found: Folded = Counter()
    if name == BY_CLOCK:
        counts: Counter[int] = Counter()
        for (bidder, count, *_), times in rows.items():
            counts[bidder] += count * times
        return Counter(counts.items())
    if name not in COMPARED:
        return rows
    for row, times in rows.items():
        found[tuple([row[place] for place in COMPARED[name]])] += times
    return found


def timed(runs: Runs, duck: Duck | None, found: NexmarkQuery, parallelism: int, scratch: Path, times: int) -> str:
    """How fast a query is: as a whole, and without the start, which is what a run over one event takes."""
    at = replace(runs, parallelism=parallelism)
    start, start_cpu = at.warmed(found)
    is_compared = duck is not None and found.name not in (REFUSED, BY_CLOCK)
    mine: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    begun = time.monotonic()
    # By turns, since a machine's speed changes; and short runs more often, to find as good a moment as long ones do.
    while len(mine) < times or time.monotonic() - begun < LEAST_S:
        mine.append(at.seconds(found))
        if is_compared:
            assert duck is not None
            theirs.append(duck.seconds(found, scratch / f"duck-{len(mine)}"))
    seconds, cpu = best(mine)
    shown = [
        f"{runs.events / seconds:12,.0f} events/s",
        f"{runs.events / max(seconds - start, 1e-9):12,.0f} without the start of {start:.3f} s",
        f"{cpu / runs.events * 1e6:6.2f} µs of CPU an event",
    ]
    if theirs:
        other, other_cpu = best(theirs)
        shown += [
            f"DuckDB {runs.events / other:12,.0f} events/s",
            f"ratio {other / seconds:.3f}",
            f"without the start {other / max(seconds - start, 1e-9):.3f}",
            f"of CPU {other_cpu / cpu:.3f} and {other_cpu / max(cpu - start_cpu, 1e-9):.3f}",
        ]
    return f"parallelism {parallelism}: {', '.join(shown)}"


def best(runs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The shortest wall time and the least processor time of some runs."""
    walls, cpus = zip(*runs, strict=True)
    return min(walls), min(cpus)


if __name__ == "__main__":
    main()
