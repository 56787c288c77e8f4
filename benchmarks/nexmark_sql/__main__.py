"""`python -m benchmarks.nexmark_sql DIR`: Nexmark's queries in SQL, from the files of the benchmark in DIR.

Events are made before and held in memory, so that a run is about the query. Without more options each query writes into
`blackhole`, and its events a second are shown; `--beside-duckdb` shows the same of DuckDB with one thread over a table
in memory. With `--check` each query's result, which is the table that its changes stand for, is compared with
DuckDB's; with `--restore` it is stopped amid the events with a savepoint, and goes on at the next parallelism. Events
then have a millisecond each, so that nothing is of the same time. q6 is refused by Flink, too. q12 counts by the
clock, so it is not compared; of q19 the columns are that rows of the same price do not exchange. The function of q14
is in Python, and the side input of q13 is made here.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.nexmark_sql.duck import Duck
from benchmarks.nexmark_sql.events import events as made_events
from benchmarks.nexmark_sql.kept import Folded
from benchmarks.nexmark_sql.queries import NexmarkQuery, query
from benchmarks.nexmark_sql.running import Runs
from penstock.base.errors import PenstockError

QUERIES = tuple(f"q{number}" for number in range(23))
#: refused, and by the clock
NOT_COMPARED = ("q6", "q12")

#: the columns that are compared, where rows of the same price may be in any order
COMPARED = {"q19": (0, 2, 7)}


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--queries", default=",".join(QUERIES), help="such as q5,q7")
@click.option("--events", default=1_000_000, help="how many")
@click.option("--parallelism", default="1", help="such as 1,2,4")
@click.option("--target", default="local", help="local or spark")
@click.option("--mini-batch/--no-mini-batch", default=True)
@click.option("--check", is_flag=True, help="compare with DuckDB")
@click.option("--restore", is_flag=True, help="and stop and restore in the middle")
@click.option("--beside-duckdb", is_flag=True)
def main(
    folder: Path,
    queries: str,
    events: int,
    parallelism: str,
    target: str,
    mini_batch: bool,
    check: bool,
    restore: bool,
    beside_duckdb: bool,
) -> None:
    logging.disable(logging.WARNING)
    rate = 1_000 if check or restore else 10_000
    runs = Runs(folder, events, rate, target, mini_batch=mini_batch)
    table = made_events(events, rate)
    duck = Duck(folder, table, rate) if check or restore or beside_duckdb else None
    parallelisms = [int(one) for one in parallelism.split(",")]
    wrong = 0
    for name in queries.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            found = query(folder, name, Path(scratch))
            try:
                if check or restore:
                    assert duck is not None
                    lines = checked(runs, duck, found, parallelisms, Path(scratch) if restore else None)
                    wrong += sum(not line.endswith(" right") for line in lines)
                else:
                    lines = [timed(runs, duck, found, one) for one in parallelisms]
            except PenstockError as error:
                lines = [f"refused or failed: {type(error).__name__}: {str(error)[:300]}"]
                wrong += name not in NOT_COMPARED
            for line in lines:
                print(f"{name:4} {line}", flush=True)
    sys.exit(wrong > 0)


def checked(runs: Runs, duck: Duck, found: NexmarkQuery, parallelisms: list[int], scratch: Path | None) -> list[str]:
    """What is said of a query's results, a line for each run."""
    wanted = None if found.name in NOT_COMPARED else Duck.folded(duck.rows(found))
    lines = []
    for place, parallelism in enumerate(parallelisms):
        at = replace(runs, parallelism=parallelism)
        title = f"parallelism {parallelism}"
        if scratch is None:
            rows = at.rows(found)
        else:
            following = parallelisms[(place + 1) % len(parallelisms)]
            title += f" restored at {following}"
            rows = at.restored_rows(found, scratch, following)
        if wanted is None:
            lines.append(f"{title}: {rows.total()} rows, not compared, right")
            continue
        asked, given = (compared(found.name, one) for one in (wanted, rows))
        missing, extra = asked - given, given - asked
        if missing or extra:
            some = f"missing {list(missing)[:2]}, extra {list(extra)[:2]}"
            lines.append(f"{title}: {missing.total()} missing, {extra.total()} extra of {wanted.total()}: {some}")
        else:
            lines.append(f"{title}: {wanted.total()} rows, right")
    return lines


def compared(name: str, rows: Folded) -> Folded:
    """What is compared of rows."""
    if name not in COMPARED:
        return rows
    kept: Folded = Counter()
    for row, times in rows.items():
        kept[tuple([row[place] for place in COMPARED[name]])] += times
    return kept


def timed(runs: Runs, duck: Duck | None, found: NexmarkQuery, parallelism: int) -> str:
    """How fast a query is."""
    at = replace(runs, parallelism=parallelism)
    seconds, cpu = at.seconds(found)
    micros = cpu / runs.events * 1e6
    line = f"parallelism {parallelism}: {runs.events / seconds:12,.0f} events/s, {micros:6.2f} µs of CPU an event"
    if duck is not None and found.name not in NOT_COMPARED:
        other = duck.seconds(found)
        line += f", DuckDB {runs.events / other:12,.0f} events/s, ratio {other / seconds:.3f}"
    return line


if __name__ == "__main__":
    main()
