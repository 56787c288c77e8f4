"""A program for `spark-submit` on a cluster whose machines have nothing of this repository.

`packaged_job.py FOLDER RECORDS RATE` makes so many records, at a rate a second. Executors have only what the archive of
`penstock package-env` holds, so what runs there is all in this file. In FOLDER, which all machines see, it leaves its
output and its checkpoints. Each record says which Python counted it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from penstock.common import Configuration, Encoder, WatermarkStrategy
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.sink import FileSink
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

KEYS = 7


class Counted(KeyedProcessFunction):
    """Each record with the number that it has among those of its key, and where it was counted."""

    def open(self, runtime_context: Any) -> None:
        import numpy
        import pyarrow

        import penstock

        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        files = [sys.executable, *(str(module.__file__) for module in (os, penstock, pyarrow, numpy))]
        self.place = [os.getcwd(), os.getpid(), *files]

    def process_element(self, value: int, ctx: Any) -> Any:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield json.dumps([value, number, *self.place])


def build_settings(folder: str) -> dict[str, str]:
    """The configuration."""
    return {
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        "execution.checkpointing.interval": "200 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "100 ms",
        "penstock.recovery.from-latest": "true",
        "parallelism.default": "2",
    }


def build(env: StreamExecutionEnvironment, folder: str, records: int, rate: float) -> None:
    """Numbers, counted by key, into files that appear when a checkpoint is complete."""
    source = DataGeneratorSource(int, count=records, rate_per_second=rate)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    sink = (
        FileSink.for_row_format(f"{folder}/out", Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    numbers.key_by(lambda number: number % KEYS).process(Counted()).uid("counted").sink_to(sink).uid("out")


def main() -> None:
    """Run the job to its end, and say in FOLDER how it went: a line of JSON whenever something has changed."""
    folder, records, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(build_settings(folder)))
    build(env, folder, records, rate)
    job = env.execute_async("packaged")
    result, known = job.get_job_execution_result(), ""
    with Path(folder, f"driver-{os.getpid()}.jsonl").open("w", buffering=1) as said:
        while not result.done():
            try:
                progress = job.get_progress().result()
            except CancelledError:
                break  # it ended just now
            now = json.dumps(
                {
                    "status": progress.status,
                    "restarts": progress.restarts,
                    "checkpoints": progress.checkpoints_completed,
                    "workers": progress.workers,
                }
            )
            if now != known:
                known = now
                print(known, file=said)
            time.sleep(0.05)
        result.result()
        print(json.dumps({"status": "ENDED"}), file=said)


if __name__ == "__main__":
    main()
