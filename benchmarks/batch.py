"""`python -m benchmarks.batch`: batch execution beside the same computation written by hand in PySpark.

Both sides read the same Parquet of Nexmark bids, call the same Python functions for every record, and end in the same
data frame, whose rows Spark counts and sums up. Two computations: map and filter, by hand in `mapInArrow`; and the
bids of each auction in order of time, folded into one row for each that beats the highest so far, by hand in
`groupBy().applyInPandas()`, and once more shuffled and sorted by Spark, with the fold over the sorted rows in
`mapInArrow`, which knows where one auction ends: nothing in Python can be much faster. Penstock has key and time by
name there, as the other side has; and in a further row both by functions of the record, which by hand takes a
`mapInArrow` ahead of the shuffle that asks them; and in the last one Penstock alone. Runs alternate; the ratio is
Penstock's seconds over those of the other side, so less is better; CPU is the ratio of processor time, JVM included.
With `--spill` instead: a keyed job whose shuffle is much larger than the memory of the worker.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.processes import cpu_seconds
from penstock.common import Types, WatermarkStrategy
from penstock.connectors.nexmark import NexmarkSource
from penstock.datastream import KeyedProcessFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

Bid = tuple[int, int, int, str, int]
COLUMNS = ["auction", "bidder", "price", "channel", "date_time"]
BID = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.STRING(), Types.LONG()])
MAPPED = "auction BIGINT, bidder BIGINT, euros DOUBLE, channel STRING, date_time BIGINT"
RAISED = "auction BIGINT, price BIGINT, raised BIGINT, date_time BIGINT"
FILES = 8


# --- what both sides do to a record -----------------------------------------------------------------------------------


def in_euros(bid: Bid) -> tuple[int, int, float, str, int]:
    return bid[0], bid[1], round(bid[2] * 0.908, 2), bid[3], bid[4]


def is_wanted(bid: tuple[int, int, float, str, int]) -> bool:
    return bid[0] % 3 != 0 and bid[3] != "Apple"


def raise_of(highest: int, price: int) -> int | None:
    """By how much a bid beats the highest so far."""
    return price - highest if price > highest else None


def auction_of(bid: Bid) -> int:
    return bid[0]


def get_event_time(bid: Bid) -> int:
    return bid[4]


# --- Penstock ---------------------------------------------------------------------------------------------------------


class Raises(KeyedProcessFunction):
    """Emits a row for each bid that beats the highest so far."""

    def open(self, runtime_context: Any) -> None:
        self.highest = runtime_context.get_state(ValueStateDescriptor("highest"))

    def process_element(self, value: Bid, ctx: Any) -> Any:
        highest = self.highest.value() or 0
        raised = raise_of(highest, value[2])
        if raised is not None:
            self.highest.update(value[2])
            return [(value[0], value[2], raised, value[4])]
        return None


def environment(parallelism: int) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.set_parallelism(parallelism).set_runtime_mode(RuntimeExecutionMode.BATCH)


def map_filter(bids: DataFrame, parallelism: int) -> DataFrame:
    stream = environment(parallelism).from_dataframe(bids, BID)
    frame: DataFrame = stream.map(in_euros).filter(is_wanted).to_dataframe(MAPPED)
    return frame


def keyed(bids: DataFrame, parallelism: int) -> DataFrame:
    """Key and time by name: of a tuple the first field and the fifth."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("f4")
    stream = environment(parallelism).from_dataframe(bids, BID, strategy)
    frame: DataFrame = stream.key_by("f0").process(Raises()).to_dataframe(RAISED)
    return frame


def keyed_by_functions(bids: DataFrame, parallelism: int) -> DataFrame:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda bid, _: get_event_time(bid))
    stream = environment(parallelism).from_dataframe(bids, BID, strategy)
    frame: DataFrame = stream.key_by(auction_of).process(Raises()).to_dataframe(RAISED)
    return frame


# --- by hand ----------------------------------------------------------------------------------------------------------


def map_filter_by_hand(bids: DataFrame, parallelism: int) -> DataFrame:
    schema = pa.schema(
        [
            ("auction", pa.int64()),
            ("bidder", pa.int64()),
            ("euros", pa.float64()),
            ("channel", pa.string()),
            ("date_time", pa.int64()),
        ]
    )

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            records = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            kept = [mapped for mapped in map(in_euros, records) if is_wanted(mapped)]
            if kept:
                columns = [pa.array(v, f.type) for v, f in zip(zip(*kept, strict=True), schema, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return bids.coalesce(parallelism).mapInArrow(each, MAPPED)


def keyed_by_hand(bids: DataFrame, parallelism: int) -> DataFrame:
    def of_auction(group: pd.DataFrame) -> pd.DataFrame:
        group = group.sort_values("date_time", kind="stable")
        highest, found = 0, []
        for bid in group.itertuples(index=False, name=None):
            raised = raise_of(highest, bid[2])
            if raised is not None:
                highest = bid[2]
                found.append((bid[0], bid[2], raised, bid[4]))
        return pd.DataFrame(found, columns=["auction", "price", "raised", "date_time"])

    return (
        bids.coalesce(parallelism)
        .repartition(parallelism, "auction")
        .groupBy("auction")
        .applyInPandas(of_auction, RAISED)
    )


def keyed_by_sorting(bids: DataFrame, parallelism: int) -> DataFrame:
    return folded(bids.coalesce(parallelism).repartition(parallelism, "auction"), "auction", "date_time")


def keyed_by_asking(bids: DataFrame, parallelism: int) -> DataFrame:
    """Key and time are what Python functions of the record say, so it is made once to be asked."""

    def asked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            records = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            key = pa.array([auction_of(bid) for bid in records], pa.int64())
            at = pa.array([get_event_time(bid) for bid in records], pa.int64())
            yield pa.RecordBatch.from_arrays([*batch.columns, key, at], names=[*COLUMNS, "key", "at"])

    schema = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, date_time BIGINT, key BIGINT, at BIGINT"
    return folded(bids.coalesce(parallelism).mapInArrow(asked, schema).repartition(parallelism, "key"), "key", "at")


def folded(placed: DataFrame, key: str, time_column: str) -> DataFrame:
    """The bids that beat the highest so far, by a loop over sorted rows that sees where one key ends."""
    schema = pa.schema([(name, pa.int64()) for name in ("auction", "price", "raised", "date_time")])

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        auction, highest = None, 0
        for batch in batches:
            found = []
            for bid in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if bid[0] != auction:
                    auction, highest = bid[0], 0
                raised = raise_of(highest, bid[2])
                if raised is not None:
                    highest = bid[2]
                    found.append((auction, highest, raised, bid[4]))
            if found:
                columns = [pa.array(column, pa.int64()) for column in zip(*found, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return placed.sortWithinPartitions(key, time_column).select(*COLUMNS).mapInArrow(each, RAISED)


WORKLOADS: dict[str, tuple[Callable[[DataFrame, int], DataFrame], Callable[[DataFrame, int], DataFrame], str]] = {
    "map + filter": (map_filter, map_filter_by_hand, "round(sum(euros))"),
    "keyed: applyInPandas": (keyed, keyed_by_hand, "sum(raised)"),
    "keyed: sorted by hand": (keyed, keyed_by_sorting, "sum(raised)"),
    "by functions: sorted by hand": (keyed_by_functions, keyed_by_asking, "sum(raised)"),
    "by functions: by name by hand": (keyed_by_functions, keyed_by_sorting, "sum(raised)"),
}


# --- measuring --------------------------------------------------------------------------------------------------------


def write_bids(directory: Path, count: int) -> None:
    """Parquet files of bids."""
    source = NexmarkSource(bids_only=True, events_per_second=1_000)
    chunk, rows = 0, 0
    schema = pa.schema([(name, pa.string() if name == "channel" else pa.int64()) for name in COLUMNS])
    for file in range(FILES):
        with pq.ParquetWriter(directory / f"{file}.parquet", schema) as writer:
            while rows < count * (file + 1) // FILES:
                values = source.chunk(chunk).values
                chunk += 1
                columns = [pa.array(column, field.type) for column, field in zip(zip(*values), schema)]  # noqa: B905
                writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=len(values))
                rows += len(values)


def run(frame: DataFrame, checked: str) -> tuple[float, float, Any]:
    """Seconds, those of processor time of all processes, and what came of it."""
    begun, begun_cpu = time.perf_counter(), cpu_seconds(with_children=True)
    row = frame.selectExpr("count(*)", checked).first()
    seconds = time.perf_counter() - begun
    return seconds, cpu_seconds(with_children=True) - begun_cpu, None if row is None else tuple(row)


def measure(session: SparkSession, count: int, pairs: int, parallelism: int, only: str, table: Table) -> None:
    with tempfile.TemporaryDirectory() as directory:
        write_bids(Path(directory), count)
        bids = session.read.parquet(directory)
        for name, (ours, by_hand, checked) in WORKLOADS.items():
            if only not in name:
                continue
            few = bids.where("date_time % 97 = 0")
            run(ours(few, parallelism), checked)
            run(by_hand(few, parallelism), checked)
            seconds: tuple[list[float], list[float]] = ([], [])
            cpu_ratios = []
            for _ in range(pairs):
                taken, cpu_by_hand, found = run(by_hand(bids, parallelism), checked)
                seconds[0].append(taken)
                taken, cpu, other = run(ours(bids, parallelism), checked)
                seconds[1].append(taken)
                cpu_ratios.append(cpu / cpu_by_hand)
                if other != found:
                    raise AssertionError(f"{name}: by hand {found}, Penstock {other}")
            ratios = [b / a for a, b in zip(*seconds, strict=True)]
            table.add_row(
                f"{count:,}",
                name,
                f"{statistics.median(seconds[0]):.1f}",
                f"{statistics.median(seconds[1]):.1f}",
                *(f"{ratio:.2f}" for ratio in (statistics.median(ratios), min(ratios), max(ratios))),
                f"{statistics.median(cpu_ratios):.2f}",
            )


def spill(gigabytes: float, parallelism: int) -> str:
    """A keyed job whose rows are many times the worker's memory."""
    session = (
        SparkSession.builder.master(f"local[{parallelism}]")
        .config("spark.driver.memory", "1g")
        .config("spark.memory.fraction", "0.4")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    count = int(gigabytes * 1e9 / 1000)
    wide = session.range(0, count, 1, FILES * parallelism).selectExpr(
        "pmod(hash(id), 1000) AS key",
        "id",
        "concat_ws('', transform(sequence(1, 25), i -> sha1(cast(id * i AS STRING)))) AS text",
    )
    env = environment(parallelism)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: -row[1])
    types = Types.TUPLE([Types.INT(), Types.LONG(), Types.STRING()])
    stream = env.from_dataframe(wide, types, strategy).key_by(auction_of).process(InOrder())
    begun = time.perf_counter()
    frame = stream.to_dataframe("key INT, count BIGINT, bytes BIGINT, is_sorted BOOLEAN")
    row = frame.selectExpr("sum(count)", "sum(bytes)", "every(is_sorted)").first()
    seconds = time.perf_counter() - begun
    if row is None or row[0] != count or not row[2]:
        raise AssertionError(f"{count} rows, found {row}")
    jvm: Any = session._jvm
    quantiles = session.sparkContext._gateway.new_array(jvm.double, 0)  # type: ignore[union-attr]
    store = session.sparkContext._jsc.sc().statusStore()
    stages = store.stageList(None, False, False, quantiles, jvm.java.util.ArrayList())
    spilled = [stages.apply(i).diskBytesSpilled() for i in range(stages.size())]
    written = [stages.apply(i).shuffleWriteBytes() for i in range(stages.size())]
    heap = jvm.java.lang.Runtime.getRuntime().maxMemory()
    return (
        f"{row[0]:,} rows with {row[1] / 1e9:.2f} GB of text in {seconds:.0f} s, key by key in order of time; heap "
        f"{heap / 1e9:.2f} GB, shuffled {sum(written) / 1e9:.2f} GB, spilled {sum(spilled) / 1e9:.2f} GB to disk"
    )


class InOrder(KeyedProcessFunction):
    """(key, records, bytes of text, whether they came in order of time) when all of a key's have come."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("state"))

    def process_element(self, value: Any, ctx: Any) -> None:
        state = self.state.value()
        if state is None:
            state = (0, 0, True, ctx.timestamp())
            ctx.timer_service().register_event_time_timer(1)
        count, size, is_sorted, last = state
        self.state.update((count + 1, size + len(value[2]), is_sorted and last <= ctx.timestamp(), ctx.timestamp()))

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return [(ctx.get_current_key(), *self.state.value()[:3])]


@click.command()
@click.option(
    "--bids", "counts", default="1000000,5000000", show_default=True, help="Bids per run, separated by commas."
)
@click.option("--pairs", default=3, show_default=True, help="Pairs of runs per computation.")
@click.option("--parallelism", default=2, show_default=True, help="Of both sides.")
@click.option("--only", default="", help="Only computations whose name has this word.")
@click.option("--spill", "gigabytes", default=0.0, help="Instead: this many GB through a worker with a heap of 1 GB.")
def main(counts: str, pairs: int, parallelism: int, only: str, gigabytes: float) -> None:
    """Print seconds and ratios."""
    console = Console()
    if gigabytes:
        console.print(spill(gigabytes, parallelism))
        return
    session = (
        SparkSession.builder.master(f"local[{parallelism}]")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", str(parallelism))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    table = Table(title=f"parallelism {parallelism}, {pairs} pairs; ratio: Penstock's seconds over those by hand")
    for column in ("bids", "computation", "by hand, s", "Penstock, s", "ratio", "min", "max", "CPU"):
        table.add_column(column, justify="left" if column == "computation" else "right")
    for count in map(int, counts.split(",")):
        measure(session, count, pairs, parallelism, only, table)
    console.print(table)


if __name__ == "__main__":
    main()
