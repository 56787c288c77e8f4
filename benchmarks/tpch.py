"""TPC-H in batch, beside the same SQL given to Spark by hand: `python -m benchmarks.tpch DIRECTORY`.

DIRECTORY has a Parquet file for each table, as `tpchgen-cli -s 1 --format=parquet --output-dir=DIRECTORY` writes them.
Each query runs in turns, through a table environment and through `spark.sql`; its answers are compared.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

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


def _timed(run: Callable[[], list[tuple[Any, ...]]]) -> tuple[float, list[tuple[Any, ...]]]:
    begin = time.perf_counter()
    rows = run()
    return time.perf_counter() - begin, rows


@click.command()
@click.argument("directory", type=click.Path(exists=True, path_type=Path))
@click.option("--runs", default=3, help="How often each query is timed, besides once to warm up.")
@click.option("--only", default="", help="Only these queries, as 1,6,14.")
@click.option("--master", default="local[2]", help="The Spark master.")
def main(directory: Path, runs: int, only: str, master: str) -> None:
    """Compare answers and times."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.memory", "8g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for name in TABLES:
        spark.read.parquet(str(directory / f"{name}.parquet")).createOrReplaceTempView(name)
    tables = environment()
    chosen = [int(one) for one in only.split(",") if one] or list(QUERIES)
    ratios = []
    wrong = 0
    for number in chosen:
        ratio, reason = _compared(number, spark, tables, runs)
        ratios.append(ratio)
        wrong += bool(reason)
        print(f"   answers differ: {reason}" if reason else "", end="\n" if reason else "", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} answers agree")
    print(f"ratio: median {statistics.median(ratios):.2f}, geometric mean {statistics.geometric_mean(ratios):.2f}")


def _compared(number: int, spark: Any, tables: TableEnvironment, runs: int) -> tuple[float, str]:
    query = QUERIES[number]

    def by_hand() -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark.sql(query).collect()]

    def ours() -> list[tuple[Any, ...]]:
        with tables.sql_query(query).execute().collect() as rows:
            return [tuple(row) for row in rows]

    (_, wanted), (_, found) = _timed(by_hand), _timed(ours)
    pairs = [(_timed(ours)[0], _timed(by_hand)[0]) for _ in range(runs)]
    mine, theirs = (min(times) for times in zip(*pairs, strict=True))
    ratio = mine / theirs
    print(f"q{number:<3} {mine:7.2f} s  Spark by hand {theirs:7.2f} s  ratio {ratio:5.2f}", flush=True)
    return ratio, differences(found, wanted)


if __name__ == "__main__":
    main()
