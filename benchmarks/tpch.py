"""TPC-H in batch, beside the same SQL given to Spark by hand: `python -m benchmarks.tpch DIRECTORY`.

DIRECTORY has a Parquet file for each table, as `tpchgen-cli parquet -s 1 --output-dir=DIRECTORY` writes them. Each
query runs in turns, through a table environment and through `spark.sql`, and its answers are compared. Each side's best
run counts, of wall time and of processor time, which is that of Spark's process and of this one, and which other work
on the machine disturbs less. Planning is shown apart: here until Spark has the query, by hand until Spark has analysed
it.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.tpch_queries import QUERIES, TABLES
from penstock.table import EnvironmentSettings, TableEnvironment

#: how far answers may be apart: of means Spark keeps fewer digits
_APART = Decimal("0.000001")


def environment(settings: Mapping[str, str] | None = None) -> TableEnvironment:
    """A table environment in batch that knows the tables, which are views of Spark's session."""
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for key, value in (settings or {}).items():
        tables.get_config().set(key, value)
    for name, columns in TABLES.items():
        tables.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'spark', 'table' = '{name}')")
    return tables


def differences(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> str:
    """What is different between two answers, or nothing."""
    if len(found) != len(wanted):
        return f"{len(found)} rows, not {len(wanted)}"
    for one, other in zip(found, wanted, strict=True):
        if not all(map(_alike, one, other)):
            return f"{one}, not {other}"
    return ""


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, Decimal | float) and isinstance(other, Decimal | float):
        left, right = Decimal(one), Decimal(other)
        return abs(left - right) <= _APART * max(abs(left), abs(right), Decimal(1))
    return bool(one == other)


Rows = list[tuple[Any, ...]]


class Spent(NamedTuple):
    """Seconds of a run: all, of processor time, and of planning."""

    wall: float
    cpu: float
    planning: float


class Clock:
    """Measures runs, with the processor time of this process and of Spark's."""

    def __init__(self, spark: Any) -> None:
        self._processes = [os.getpid(), int(spark._jvm.java.lang.ProcessHandle.current().pid())]

    def spent(self, plan: Callable[[], Any], rows: Callable[[Any], Rows]) -> tuple[Spent, Rows]:
        """What it takes to plan and then to run, and the rows."""
        begin, cpu = time.perf_counter(), self._cpu()
        planned = plan()
        planning = time.perf_counter() - begin
        found = rows(planned)
        return Spent(time.perf_counter() - begin, self._cpu() - cpu, planning), found

    def _cpu(self) -> float:
        ticks = 0
        for process in self._processes:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def best(runs: Sequence[Spent]) -> Spent:
    """The least of each figure."""
    return Spent(*map(min, zip(*runs, strict=True)))


@click.command()
@click.argument("directory", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--runs", default=3, help="How often each side of a query is timed, besides once to warm up; the best counts."
)
@click.option(
    "--seconds", default=0.0, help="How long each side of a query is timed at least: a short query runs more often."
)
@click.option("--only", default="", help="Only these queries, as 1,6,14.")
@click.option("--master", default="local[2]", help="The Spark master.")
def main(directory: Path, runs: int, seconds: float, only: str, master: str) -> None:
    """Compare answers and times."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.memory", "8g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for name in TABLES:
        spark.read.parquet(str(directory / f"{name}.parquet")).createOrReplaceTempView(name)
    tables = environment()
    clock = Clock(spark)
    chosen = [int(one) for one in only.split(",") if one] or list(QUERIES)
    ratios = []
    wrong = 0
    for number in chosen:
        mine, theirs, reason = _compared(number, spark, tables, clock, (runs, seconds))
        ratios.append(Spent(*(one / max(other, 0.001) for one, other in zip(mine, theirs, strict=True))))
        wrong += bool(reason)
        print(_line(number, mine, theirs, ratios[-1]), flush=True)
        if reason:
            print(f"   answers differ: {reason}", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} answers agree")
    for name, of_name in (("ratio", [one.wall for one in ratios]), ("ratio of CPU", [one.cpu for one in ratios])):
        mean = statistics.geometric_mean(of_name)
        print(f"{name}: median {statistics.median(of_name):.2f}, geometric mean {mean:.2f}, most {max(of_name):.2f}")


def _compared(
    number: int, spark: Any, tables: TableEnvironment, clock: Clock, least: tuple[int, float]
) -> tuple[Spent, Spent, str]:
    query = QUERIES[number]

    def by_hand() -> tuple[Spent, Rows]:
        return clock.spent(lambda: spark.sql(query), lambda frame: [tuple(row) for row in frame.collect()])

    def ours() -> tuple[Spent, Rows]:
        return clock.spent(lambda: tables.sql_query(query).execute(), _rows)

    (_, wanted), (_, found) = by_hand(), ours()
    mine: list[Spent] = []
    theirs: list[Spent] = []
    for turn in itertools.count():
        if turn >= least[0] and sum(one.wall for one in theirs) >= least[1]:
            break
        # Neither side is always the first.
        for side in (ours, by_hand) if turn % 2 else (by_hand, ours):
            (mine if side is ours else theirs).append(side()[0])
    return best(mine), best(theirs), differences(found, wanted)


def _rows(result: Any) -> Rows:
    with result.collect() as rows:
        return [tuple(row) for row in rows]


def _line(number: int, mine: Spent, theirs: Spent, ratio: Spent) -> str:
    times = f"{mine.wall:6.2f} s, Spark by hand {theirs.wall:6.2f} s, ratio {ratio.wall:5.2f}"
    cpu = f"CPU {mine.cpu:6.2f} and {theirs.cpu:6.2f} s, ratio {ratio.cpu:5.2f}"
    return f"q{number:<3} {times}; {cpu}; planning {mine.planning:5.2f} and {theirs.planning:5.2f} s"


if __name__ == "__main__":
    main()
