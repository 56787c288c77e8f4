"""W5: count, sum and maximum of prices by auction and 10 s of event time, from Parquet; beside DuckDB on one thread."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.events import OUT_OF_ORDER_MS, EventsSpec
from benchmarks.workloads import WINDOW_MS, Emit, Workload
from penstock.common import Duration, WatermarkStrategy
from penstock.connectors.file.source import FileSource
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.expressions import col, lit
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.formats.parquet import ParquetFormat

FOLDER = Path("build/benchmarks")

QUERY = f"""
    SELECT auction, (date_time // {WINDOW_MS}) * {WINDOW_MS} AS begins, count(*), sum(price), max(price)
    FROM read_parquet(?) GROUP BY auction, begins
"""


def parquet_of(spec: EventsSpec) -> Path:
    """The events as a Parquet file with the columns auction, price and date_time (ms); made once and kept."""
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
    duckdb: Any = import_module("duckdb")  # which only `make bench` installs
    with duckdb.connect(config={"threads": 1}) as connection:
        return len(connection.execute(QUERY, [str(path)]).fetchnumpy()["auction"])


def columnar_window(env: StreamExecutionEnvironment, path: Path) -> DataStream:
    """The same over the file, by kernels, with one thread of Arrow's too."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    bids = ParquetFormat(["auction", "price", "date_time"], as_columns=True)
    source = FileSource.for_bulk_file_format(bids, str(path)).build()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(OUT_OF_ORDER_MS))
    stream = env.from_source(source, strategy.with_timestamp_column("date_time"), "bids")
    window = stream.key_by("auction").window(TumblingEventTimeWindows.of(WINDOW_MS))
    price = col("price")
    return window.select(lit(1).count.alias("bids"), price.sum.alias("sum"), price.max.alias("highest"))


COLUMNAR = Workload(
    "columnar: 10 s count, sum, max",
    duckdb_window,
    lambda env, spec: columnar_window(env, parquet_of(spec)),
    twin_name="DuckDB, one thread",
    input_of=parquet_of,
)
