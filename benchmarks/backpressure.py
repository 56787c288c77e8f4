"""`python -m benchmarks.backpressure`: how long checkpoints take in a skewed job that cannot keep up, on Spark.

A fast source feeds a slow keyed function at parallelism 2, most records of one key, so the channels of one subtask
are always full. What they hold is set by the number of buffers a channel may have under way. An aligned barrier waits
behind all of it, an unaligned one overtakes it.
"""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.collect import DiscardingSink
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

PARALLELISM = 2
BUFFER_RECORDS = 256


def skewed(index: int) -> tuple[int, int]:
    return (0 if index % 10 else index % 97, index)


class Slow(KeyedProcessFunction):
    """Counts, and takes its time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: tuple[int, int], ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        time.sleep(self._seconds)


def durations(unaligned: bool, buffers: int, seconds: float, checkpoints: int) -> list[int]:
    """Milliseconds that the first checkpoints of a backed-up job take."""
    with tempfile.TemporaryDirectory(prefix="penstock-backpressure-") as folder:
        configuration = Configuration()
        configuration.set_string("execution.checkpointing.dir", folder)
        configuration.set_string("execution.checkpointing.unaligned.enabled", str(unaligned).lower())
        configuration.set_string("taskmanager.network.memory.buffers-per-channel", str(buffers))
        configuration.set_string("penstock.network.buffer-records", str(BUFFER_RECORDS))
        configuration.set_string("penstock.source.batch-records", str(BUFFER_RECORDS))
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(PARALLELISM).enable_checkpointing(3_000)
        source = DataGeneratorSource(skewed, count=None)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "fast")
        stream.key_by(lambda pair: pair[0]).process(Slow(seconds)).sink_to(DiscardingSink())
        job = env.execute_async("backpressure")
        found: dict[int, int] = {}
        try:
            while len(found) < checkpoints:
                time.sleep(0.05)
                progress = job.get_progress().result()
                if progress.last_checkpoint_id:
                    found[progress.last_checkpoint_id] = progress.last_checkpoint_ms
        finally:
            job.end()
        return list(found.values())


@click.command()
@click.option("--buffers", default="2,8,32", show_default=True, help="Buffers that a channel may have in flight.")
@click.option("--milliseconds", default=0.5, show_default=True, help="Time that the slow function takes per record.")
@click.option("--checkpoints", default=3, show_default=True, help="Checkpoints a job.")
def main(buffers: str, milliseconds: float, checkpoints: int) -> None:
    """Print how long checkpoints take, aligned and unaligned."""
    logging.basicConfig(level=logging.WARNING)
    table = Table(title=f"checkpoints of a job at its limit, parallelism {PARALLELISM}, {milliseconds} ms per record")
    for column in ("records a channel", "aligned, ms", "unaligned, ms"):
        table.add_column(column, justify="right")
    for count in map(int, buffers.split(",")):
        aligned, unaligned = (
            statistics.median(durations(mode, count, milliseconds / 1000, checkpoints)) for mode in (False, True)
        )
        table.add_row(f"{count * BUFFER_RECORDS:,}", f"{aligned:,.0f}", f"{unaligned:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
