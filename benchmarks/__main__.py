"""`python -m benchmarks`: throughput at parallelism 1 with a checkpoint every second, beside a bare Python loop.

Each pair runs one after the other, so that a noisy machine is noisy for both; the ratio is what counts. Both sides must
emit as many records as the other, or the run fails.
"""

from __future__ import annotations

import gc
import json
import logging
import statistics
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import workloads
from benchmarks.sink import KEPT_MAX, CountingSink
from benchmarks.workloads import WORKLOADS, Workload, make_events
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment


def run_bare(workload: Workload, events: list[Any]) -> tuple[float, int]:
    """Seconds that the bare loop takes, and how many records it emits."""
    kept: list[Any] = []
    dropped = 0

    def emit(record: Any) -> None:
        nonlocal dropped
        kept.append(record)
        if len(kept) > KEPT_MAX:
            dropped += len(kept)
            kept.clear()

    begun = time.perf_counter()
    workload.bare(events, emit)
    return time.perf_counter() - begun, dropped + len(kept)


def run_penstock(workload: Workload, events: list[Any], interval_ms: int | None, target: str) -> tuple[float, int]:
    """Seconds from the job's start to its end, deployment and last checkpoint included, and records emitted."""
    configuration = Configuration()
    configuration.set_string("execution.target", target)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    if interval_ms is not None:
        env.enable_checkpointing(interval_ms)
    sink = CountingSink()
    workload.build(env, events).sink_to(sink)
    begun = time.perf_counter()
    env.execute(workload.name)
    return time.perf_counter() - begun, sink.total


def measure(workload: Workload, events: list[Any], pairs: int, interval_ms: int | None, target: str) -> dict[str, Any]:
    """The figures of one workload."""
    bare, engine = [], []
    for _ in range(pairs):
        bare_seconds, bare_records = run_bare(workload, events)
        engine_seconds, engine_records = run_penstock(workload, events, interval_ms, target)
        if bare_records != engine_records:
            raise AssertionError(f"{workload.name}: the loop emitted {bare_records} records, Penstock {engine_records}")
        bare.append(bare_seconds)
        engine.append(engine_seconds)
    ratios = [b / e for b, e in zip(bare, engine, strict=True)]
    return {
        "bare": len(events) / statistics.median(bare),
        "penstock": len(events) / statistics.median(engine),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


@click.command()
@click.option("--events", "count", default=2_000_000, show_default=True, help="Events a run.")
@click.option("--pairs", default=5, show_default=True, help="Pairs of runs a workload.")
@click.option("--interval", "interval_ms", default=1_000, show_default=True, help="Checkpoint interval, ms; 0: off.")
@click.option("--target", default="local", show_default=True, help="local, or spark (which adds the job's start).")
@click.option("--only", default="", help="Workloads, such as W1,W3.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
def main(count: int, pairs: int, interval_ms: int, target: str, only: str, json_path: Path | None) -> None:
    """Print throughput and the ratio to the bare loop."""
    logging.basicConfig(level=logging.WARNING)
    events = workloads.EVENTS
    events[:] = make_events(count)
    gc.freeze()
    console = Console()
    title = f"{count:,} events on {target}, parallelism 1, checkpoint every {interval_ms} ms, {pairs} pairs"
    table = Table(title=title)
    for column in ("", "workload", "bare loop, events/s", "Penstock, events/s", "ratio", "min", "max"):
        table.add_column(column, justify="left" if column in ("", "workload") else "right")
    figures = {}
    for key in only.split(",") if only else WORKLOADS:
        workload = WORKLOADS[key]
        run_penstock(workload, events, interval_ms or None, target)  # warms up imports, and Spark
        with console.status(f"{key} {workload.name}"):
            figure = figures[key] = measure(workload, events, pairs, interval_ms or None, target)
        ratios = (figure["ratio"], min(figure["ratios"]), max(figure["ratios"]))
        rates = (f"{figure['bare']:,.0f}", f"{figure['penstock']:,.0f}")
        table.add_row(key, workload.name, *rates, *(f"{ratio:.2f}" for ratio in ratios))
    console.print(table)
    if json_path is not None:
        json_path.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
