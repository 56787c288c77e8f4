"""Jobs of every execution mode with the REST server, for `rest_check.py` or a browser.

    python -m tests.server.rest.check_jobs [--target spark] [--mode streaming|batch|micro-batch] [--port 8081]

With `--check PATH` it runs that script against each of the jobs, and ends with the worst of its exit codes; with
`--together` against a server that has all of them at a time, once they run: the script takes the first one, which is
the stream. Without, it serves until Ctrl-C.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.drivers.spark.programs import wait_until

from penstock.base.configuration import Configuration
from penstock.base.job import JobStatus
from penstock.base.time import Duration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.drivers.running_job import RunningJob
from penstock.server.attachment import dispatcher

EXECUTION_MODES = ("streaming", "batch", "micro-batch")


def settings(target: str, execution_mode: str, port: str, folder: str, more: dict[str, str]) -> Configuration:
    values = {
        "execution.target": target,
        "parallelism.default": "2",
        "rest.bind-port": port,
        "execution.checkpointing.dir": f"{folder}/{execution_mode}/checkpoints",
        "execution.checkpointing.savepoint-dir": f"{folder}/{execution_mode}/savepoints",
        "pipeline.name": f"{execution_mode} on {target}",
        "penstock.source.batch-records": "10",  # so that a turn of the job is short
    }
    if execution_mode == "streaming":
        values["execution.checkpointing.interval"] = "1 s"
    else:
        values["execution.runtime-mode"] = execution_mode.replace("-", "_").upper()
    if execution_mode == "micro-batch":
        values |= {"execution.micro-batch.interval": "1 s", "execution.micro-batch.max-records": "1000"}
    return Configuration.from_dict(values | more)


def slowly(number: int) -> int:
    threading.Event().wait(0.001)
    return number


def start(configuration: Configuration, count: int) -> RunningJob:
    """Counts numbers by their last digit in windows, slowly enough to be looked at."""
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1)).with_timestamp_assigner(
        lambda number, _: number * 10
    )
    numbers = env.from_source(NumberSequenceSource(1, count), strategy, "numbers").map(slowly).name("slowly")
    counted = numbers.map(lambda number: (number % 10, 1)).name("digit").key_by(lambda pair: pair[0])
    windows = counted.window(TumblingEventTimeWindows.of(Duration.of_seconds(1)))
    windows.reduce(lambda one, other: (one[0], one[1] + other[1])).name("count").uid("count").filter(
        lambda _: False
    ).print()
    return env.execute_async()


@contextmanager
def running(
    target: str, execution_mode: str, port: str = "0", more: dict[str, str] | None = None, count: int = 10**9
) -> Iterator[RunningJob]:
    """A job that runs until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="penstock-rest-") as folder:
        job = start(settings(target, execution_mode, port, folder, more or {}), count)
        try:
            yield job
        finally:
            job.end()


def checked(script: Path, arguments: list[str]) -> int:
    """The exit code of the script."""
    from penstock.server.rest.server import servers

    return subprocess.run([sys.executable, str(script), "--url", servers[0].url, *arguments], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="local", choices=("local", "spark"))
    parser.add_argument("--mode", action="append", choices=EXECUTION_MODES)
    parser.add_argument("--port", default="8081-8090")
    parser.add_argument("--check", type=Path)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--arguments", default="--tier 2 --metrics --actions", help="for the script")
    options = parser.parse_args()
    if options.together and options.check is None:
        parser.error("--together needs --check")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    worst = 0
    with ExitStack() as stack:
        jobs = []
        for execution_mode in options.execution_mode or EXECUTION_MODES:
            job = stack.enter_context(running(options.target, execution_mode, options.port))
            if options.check is not None and not options.together:
                worst = max(worst, checked(options.check, ["--job", str(job.get_job_id()), *options.arguments.split()]))
                job.end()
            jobs.append(job)
        if options.together:
            wait_until(lambda: all(job.status() == JobStatus.RUNNING for job in jobs), "all jobs run")
            worst = checked(options.check, options.arguments.split())
        if options.check is None:
            print(*(job.job_id for job in dispatcher().jobs()))
            threading.Event().wait()
    return worst


if __name__ == "__main__":
    sys.exit(main())
