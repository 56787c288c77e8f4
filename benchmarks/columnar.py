"""W5: count, sum and maximum of prices by auction and 10 s of event time, from Parquet; beside DuckDB on one thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.events import EventsSpec
from benchmarks.workloads import WINDOW_MS, Emit, Event, Workload, key_of, with_time
from penstock.connectors.file.source import FileSource
from penstock.datastream import AggregateFunction, DataStream, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.formats.parquet import ParquetFormat

FOLDER = Path("build/benchmarks")
Totals = tuple[int, int, int]

QUERY = f"""
    SELECT auction, (date_time // {WINDOW_MS}) * {WINDOW_MS} AS begins, count(*), sum(price), max(price)
    FROM read_parquet(?) GROUP BY auction, begins
"""


def parquet_of(spec: EventsSpec) -> Path:
    """The events as a Parquet file with the columns auction, price and date_time (ms); made once and kept."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = FOLDER / f"bids-{spec.count}-{spec.keys}-{spec.seed}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        begun = path.with_suffix(".part")
        names = ["auction", "price", "date_time"]
        pq.write_table(pa.table(dict(zip(names, spec.columns(), strict=True))), begun, row_group_size=1 << 17)
        begun.rename(path)
    return path


def duckdb_window(path: Path, emit: Emit) -> int:
    """How many results there are; all of them are made."""
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        return len(connection.execute(QUERY, [str(path)]).fetchnumpy()["auction"])


class CountSumMax(AggregateFunction):
    def create_accumulator(self) -> Totals:
        return (0, 0, 0)

    def add(self, value: Event, accumulator: Totals) -> Totals:
        count, total, highest = accumulator
        return (count + 1, total + value[1], max(highest, value[1]))

    def get_result(self, accumulator: Totals) -> Totals:
        return accumulator

    def merge(self, acc_a: Totals, acc_b: Totals) -> Totals:
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1], max(acc_a[2], acc_b[2]))


def columnar_window(env: StreamExecutionEnvironment, path: Path) -> DataStream:
    """The same over the file, record by record."""
    source = FileSource.for_bulk_file_format(ParquetFormat(["auction", "price", "date_time"], as_tuple=True), path)
    bids: Any = env.from_source(source.build(), with_time(), "bids")
    return bids.key_by(key_of).window(TumblingEventTimeWindows.of(WINDOW_MS)).aggregate(CountSumMax())


COLUMNAR = Workload(
    "columnar: 10 s count, sum, max",
    duckdb_window,
    lambda env, spec: columnar_window(env, parquet_of(spec)),
    twin_name="DuckDB, one thread",
    input_of=parquet_of,
)
