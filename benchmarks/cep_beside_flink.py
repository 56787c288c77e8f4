"""Patterns of `benchmarks.cep` beside Flink, whose library of patterns runs below `MATCH_RECOGNIZE` of Flink SQL.

In SQL a stage follows at once, so what may lie between two of them is a stage of its own, and each partial match holds
it. No pattern of SQL ends with an event that does not come, so *absence* is not here. Three sides have the same events
in memory and parallelism 1: `penstock.cep`, which has stages that follow later, Penstock SQL, and Flink SQL in a JVM
that is up. All find the same number of matches. They take turns; of each the best run counts.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.events import OUT_OF_ORDER_MS, EventsSpec, SharedEvents, get_events
from benchmarks.measuring import Settings, run_penstock
from benchmarks.nexmark_sql.flink_process import FlinkInstall, FlinkProcess, write_events
from benchmarks.nexmark_sql.regimes import Regime
from benchmarks.workloads import Workload, get_event_time
from penstock.common import Configuration, Duration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.event_loop import rare_collections
from penstock.table import Schema, StreamTableEnvironment

#: what each pattern says of a match
MEASURES: Final = {
    "sequence": "LOW.`time` AS began, HIGH.`time` AS ended",
    "loop": "LOW.`time` AS began, COUNT(MIDDLE.price) + COUNT(B.price) AS ended",
}
_COLUMNS: Final = "auction BIGINT, price BIGINT, `time` TIMESTAMP(3)"


def query(name: str) -> str:
    """Bids whose prices are low, then middle, then high, within 10 s."""
    return f"""
        SELECT * FROM bids MATCH_RECOGNIZE (
            PARTITION BY auction ORDER BY `time` MEASURES {MEASURES[name]}
            ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
            PATTERN (LOW A* MIDDLE B* HIGH) WITHIN INTERVAL '10' SECOND
            DEFINE LOW AS price < 64, A AS price < 256 OR price >= 384, MIDDLE AS price >= 256 AND price < 384,
                B AS price < 960, HIGH AS price >= 960
        )
    """


def in_penstock_sql(spec: EventsSpec, name: str, sink: str) -> float:
    """Seconds from the execution of the INSERT to its end."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local", "parallelism.default": "1"})
    )
    bound = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(OUT_OF_ORDER_MS))
    kinds = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
    bids = env.from_source(SharedEvents(spec), bound.with_timestamp_assigner(get_event_time), "bids", type_info=kinds)
    tables = StreamTableEnvironment.create(env)
    tables.get_config().set("table.local-time-zone", "UTC")
    schema = Schema.new_builder().column("f0", "BIGINT").column("f1", "BIGINT").column("f2", "BIGINT")
    schema = schema.column_by_metadata("time", "TIMESTAMP_LTZ(3)", "rowtime").watermark("time", "SOURCE_WATERMARK()")
    tables.create_temporary_view("shared", bids, schema.build())
    tables.execute_sql("CREATE TEMPORARY VIEW bids AS SELECT f0 AS auction, f1 AS price, `time` FROM shared")
    tables.execute_sql(sink)
    with rare_collections():
        begun = time.perf_counter()
        tables.execute_sql(f"INSERT INTO found {query(name)}").wait()
        return time.perf_counter() - begun


def sink_of(name: str, folder: Path | None, time_kind: str) -> str:
    """A table that keeps nothing, or writes a line for each match."""
    ended = time_kind if name == "sequence" else "BIGINT"
    options = "'connector' = 'blackhole'"
    if folder is not None:
        options = f"'connector' = 'filesystem', 'path' = '{folder.as_uri()}', 'format' = 'csv'"
    return f"CREATE TABLE found (auction BIGINT, began {time_kind}, ended {ended}) WITH ({options})"


def matches_in(folder: Path) -> int:
    """How many lines the files of a folder have."""
    return sum(len(file.read_bytes().splitlines()) for file in folder.rglob("*") if file.is_file())


class FlinkSide:
    """Flink SQL with the events, and a query.

    Args:
        install: where Flink is.
        file: the events.
        name: of the pattern.
        folder: where matches are to be written; None to keep nothing.
        scratch: an empty folder.
    """

    def __init__(self, install: FlinkInstall, file: Path, name: str, folder: Path | None, scratch: Path) -> None:
        source = f"""CREATE TABLE bids ({_COLUMNS}, WATERMARK FOR `time` AS `time` - INTERVAL '2' SECOND)
            WITH ('connector' = 'nexmark-arrow', 'path' = '{file}')"""
        scratch.mkdir()
        texts = [source, sink_of(name, folder, "TIMESTAMP(3)"), f"INSERT INTO found {query(name)}"]
        self.process = FlinkProcess(install, texts, scratch, Regime(mini_batch=False))


def beside_flink(install: FlinkInstall, workload: Workload, name: str, spec: EventsSpec, times: int) -> str:
    """Check that all sides find as much, and measure them; a line of a table."""
    spec = workload.spec(spec)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        file = root / "events.arrow"
        auctions, prices, stamps = spec.columns()
        columns = {"auction": auctions, "price": prices, "time": pa.array(stamps, pa.timestamp("ms"))}
        write_events(pa.table(columns).to_batches(), file)
        get_events(spec)
        settings = Settings(interval_ms=None)
        wanted = run_penstock(workload, spec, settings).records
        ours, theirs = root / "ours", root / "theirs"
        in_penstock_sql(spec, name, sink_of(name, ours, "TIMESTAMP_LTZ(3)"))
        with FlinkSide(install, file, name, theirs, root / "check").process as flink:
            flink.run(spec.count)
        matches = {"Penstock SQL": matches_in(ours), "Flink SQL": matches_in(theirs)}
        if set(matches.values()) != {wanted}:
            raise AssertionError(f"{name}: penstock.cep found {wanted} matches, {matches}")
        with FlinkSide(install, file, name, None, root / "timed").process as flink:
            flink.run(spec.count // 5)
            runs = [
                (
                    run_penstock(workload, spec, settings).seconds,
                    in_penstock_sql(spec, name, sink_of(name, None, "TIMESTAMP_LTZ(3)")),
                    flink.run(spec.count).wall_s,
                )
                for _ in range(times)
            ]
    cep, sql, flink_sql = (spec.count / min(seconds) for seconds in zip(*runs, strict=True))
    rates = f"{cep:,.0f} | {sql:,.0f} | {flink_sql:,.0f}"
    return f"| {name} | {wanted:,} | {rates} | {cep / flink_sql:.2f} | {sql / flink_sql:.2f} |"
