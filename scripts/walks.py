"""Counts the files of Penstock that are entered on five walks: a record, a barrier, a savepoint, an epoch, a query.

    python scripts/walks.py [--files]

Four walks are one job of the local driver: numbers, keyed, counted and written by a two-phase sink. The fifth is the
`execute_sql` of a windowed aggregate, from the call until its job is started. A profiler notes every file whose
functions are called between the walk's beginning and its end, with what the driver does meanwhile.
docs/architecture.md tells the walks.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import penstock
from penstock.base.configuration import Configuration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.runtime.connector import Committer, Sink, SinkWriter
from penstock.table import EnvironmentSettings, TableEnvironment

ROOT = f"{Path(penstock.__file__).parent}/"
PATIENCE_S = 60
#: Functions by file and name; a call of the first begins the walk, one of the second ends it.
WALKS = {
    "a record, from the source to the sink's writer": (("walks.py", "generate"), ("walks.py", "write_batch")),
    "a barrier, from the trigger to the commit": (("split_reader.py", "snapshot_state"), ("walks.py", "commit")),
    "a savepoint at another parallelism, to the first record": (
        ("job_master.py", "start"),
        ("walks.py", "process_element"),
    ),
    "an epoch, from commit to commit": (("walks.py", "commit"), ("walks.py", "commit")),
    "execute_sql of a windowed aggregate, to the started job": (("walks.py", "run_query"), ("walks.py", "wait")),
}
TABLE = """
    CREATE TABLE numbers (number BIGINT, made_at AS LOCALTIMESTAMP, WATERMARK FOR made_at AS made_at)
    WITH ('connector' = 'datagen', 'rows-per-second' = '2000')
"""
QUERY = """
    SELECT window_start, number % 7, COUNT(*)
    FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(made_at), INTERVAL '1' SECOND))
    GROUP BY window_start, window_end, number % 7
"""


def generate(index: int) -> int:
    return index


class Count(KeyedProcessFunction):
    """Counts the records of a key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()


class Writer(SinkWriter[Any, Any]):
    """Prepares what was written."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self.values += values

    def flush(self, end_of_input: bool) -> None: ...

    def prepare_commit(self) -> list[Any]:
        values, self.values = self.values, []
        return [values] if values else []


class Commits(Committer[Any]):
    """Makes nothing visible."""

    def commit(self, committables: Sequence[Any]) -> None: ...


class Out(Sink[Any]):
    """Two-phase, into nowhere."""

    def create_writer(self, context: Any) -> Writer:
        return Writer()

    def create_committer(self, context: Any) -> Commits:
        return Commits()


class Profiler:
    """Notes files from one call to another."""

    def __init__(self, first: tuple[str, str], last: tuple[str, str]) -> None:
        self.files: dict[str, None] = {}
        self.is_done = False
        self._first, self._last = first, last
        self._is_on = False

    def __call__(self, frame: Any, event: str, arg: Any) -> None:
        if event != "call" or self.is_done:
            return
        path: str = frame.f_code.co_filename
        called = path.rpartition("/")[2], frame.f_code.co_name
        if self._is_on:
            if path.startswith(ROOT):
                self.files[path.removeprefix(ROOT)] = None
            self.is_done = called == self._last
        else:
            self._is_on = called == self._first


def start(folder: str, parallelism: int, **options: str) -> Any:
    """The job, which runs until it is cancelled; options with `__` in the place of dots and `_` of hyphens."""
    settings = {
        "execution.target": "local",
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.dir": folder,
        "execution.micro-batch.interval": "100 ms",
        **{name.replace("__", ".").replace("_", "-"): value for name, value in options.items()},
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    source = DataGeneratorSource(generate, None, 2_000.0)
    numbers = env.set_parallelism(parallelism).from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    counted = numbers.uid("numbers").key_by(lambda number: number % 7).process(Count()).uid("count")
    counted.sink_to(Out()).uid("out")
    return env.execute_async("walk")


def create_table() -> TableEnvironment:
    """The environment of the query; the walk begins with what is imported already."""
    settings = Configuration.from_dict({"execution.target": "local"})
    environment = TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(settings).build())
    environment.execute_sql(TABLE)
    environment.execute_sql("SELECT COUNT(*) FROM (VALUES 1)").collect().close()
    return environment


def run_query(environment: TableEnvironment) -> Any:
    """The job of the query."""
    job = environment.execute_sql(QUERY).get_job_client()
    wait()
    return job


def wait() -> None:
    """Where the walk of a query ends."""


def walk(profiler: Profiler, begin: Callable[[], Any]) -> None:
    """Run a job until the walk has ended."""
    threading.setprofile(profiler)
    sys.setprofile(profiler)
    try:
        job = begin()
        end = time.monotonic() + PATIENCE_S
        while not profiler.is_done:
            assert time.monotonic() < end, "the walk did not end"
            time.sleep(0.01)
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    job.cancel()


def main() -> None:
    """Print the count of each walk, and with `--files` the files."""
    logging.disable(logging.CRITICAL)
    for name, (first, last) in WALKS.items():
        profiler = Profiler(first, last)
        with tempfile.TemporaryDirectory() as folder:
            if "savepoint" in name:
                job = start(folder, 1)
                time.sleep(1)
                path = job.stop_with_savepoint(False, f"{folder}/savepoint").result()
                walk(profiler, lambda: start(folder, 3, execution__state_recovery__path=path))  # noqa: B023 - called here
            elif "execute_sql" in name:
                environment = create_table()
                walk(profiler, lambda: run_query(environment))  # noqa: B023 - as above
            else:
                mode = "MICRO_BATCH" if "epoch" in name else "STREAMING"
                walk(profiler, lambda: start(folder, 1, execution__runtime_mode=mode))  # noqa: B023 - as above
            time.sleep(1)  # the job ends
        print(f"{len(profiler.files):3} files: {name}")
        if "--files" in sys.argv:
            print(*(f"      {file}" for file in profiler.files), sep="\n")


if __name__ == "__main__":
    main()
