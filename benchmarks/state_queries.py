"""`python -m benchmarks.state_queries`: what queries against the state of a running job cost it.

One job counts and sums by key in SQL, at a fixed rate. Without queries and with them in turns, in the same run: each
query reads the counts of all keys through a snapshot, and the next one begins when it has its answer. The queries run
in the job's own process, where they disturb it most. The rate is that of records that the aggregate has read.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from penstock.common import Configuration
from penstock.table import EnvironmentSettings, TableEnvironment

NAME = "counts"


class Phase(NamedTuple):
    """Records per second, processor seconds per second, and the seconds that each query took."""

    rate: float
    processor: float
    queries: list[float]


class Job:
    """The running job."""

    def __init__(self, folder: str, backend: str, keys: int, rate: int, pause: str) -> None:
        self.tables = environment({"execution.checkpointing.interval": "10 s", "pipeline.name": NAME}, folder, backend)
        self.tables.execute_sql(
            "CREATE TABLE events (id BIGINT, v BIGINT) WITH ('connector' = 'datagen', "
            f"'rows-per-second' = '{rate}', 'fields.v.min' = '0', 'fields.v.max' = '99', 'fields.id.kind' = 'sequence',"
            " 'fields.id.start' = '0', 'fields.id.end' = '100000000000')"
        )
        self.tables.execute_sql("CREATE TABLE sums (k BIGINT, n BIGINT, s BIGINT) WITH ('connector' = 'blackhole')")
        insert = f"INSERT INTO sums SELECT MOD(id, {keys}), COUNT(*), SUM(v) FROM events GROUP BY MOD(id, {keys})"
        client = self.tables.execute_sql(insert).get_job_client()
        assert client is not None
        self.client: Any = client
        self.reader = environment({}, folder, backend)
        self.reader.execute_sql(
            "CREATE TABLE live (`rows` BIGINT) WITH ('connector' = 'savepoint', "
            f"'job.name' = '{NAME}', 'operator.name' = 'Group Aggregate', 'state.name' = 'group_columns', "
            f"'snapshot.max-age' = '0 s', 'snapshot.min-pause' = '{pause}')"
        )

    def records(self) -> int:
        """How many records the aggregate has read."""
        view = self.client.get_view().result()
        return sum(subtask.metrics.records_in for subtask in view.vertices[1].subtasks if subtask.metrics is not None)

    def count_keys(self) -> int:
        """Ask for the number of keys, and how often they came."""
        with self.reader.execute_sql("SELECT COUNT(*), SUM(`rows`) FROM live").collect() as rows:
            return int(list(rows)[-1][0])

    def measure(self, seconds: float, asks: bool) -> Phase:
        """Watch the job for some time, with queries or without."""
        ended, took = threading.Event(), []

        def ask() -> None:
            while not ended.is_set():
                begun = time.monotonic()
                self.count_keys()
                took.append(time.monotonic() - begun)

        thread = threading.Thread(target=ask, daemon=True)
        begun, records, processor = time.monotonic(), self.records(), time.process_time()
        if asks:
            thread.start()
        time.sleep(seconds)
        passed = time.monotonic() - begun
        phase = Phase((self.records() - records) / passed, (time.process_time() - processor) / passed, took)
        ended.set()
        if asks:
            thread.join()
        return phase


def environment(options: dict[str, str], folder: str, backend: str) -> TableEnvironment:
    """A table environment on the local target."""
    settings = {
        "execution.target": "local",
        "parallelism.default": "1",
        "state.backend.type": backend,
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        **options,
    }
    builder = EnvironmentSettings.new_instance().in_streaming_mode()
    return TableEnvironment.create(builder.with_configuration(Configuration.from_dict(settings)).build())


@click.command()
@click.option("--keys", default=1_000_000, show_default=True)
@click.option("--rate", default=50_000, show_default=True, help="Records per second.")
@click.option("--backend", type=click.Choice(["hashmap", "rocksdb"]), default="hashmap", show_default=True)
@click.option("--seconds", default=30.0, show_default=True, help="How long a phase takes.")
@click.option("--pairs", default=5, show_default=True, help="Phases without and with queries.")
@click.option("--pause", default="10 s", show_default=True, help="snapshot.min-pause")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
def main(keys: int, rate: int, backend: str, seconds: float, pairs: int, pause: str, json_path: Path | None) -> None:
    """Compare the rate of a job with and without queries against its state."""
    with tempfile.TemporaryDirectory(prefix="penstock-state-queries-") as folder:
        job = Job(folder, backend, keys, rate, pause)
        while job.records() < keys:
            time.sleep(1)
        rounds = [(job.measure(seconds, False), job.measure(seconds, True)) for _ in range(pairs)]
        known = job.count_keys()
        job.client.cancel().result()
        job.client.get_job_execution_result().exception()
    ratios = [queried.rate / alone.rate for alone, queried in rounds]
    took = [second for _, queried in rounds for second in queried.queries]
    table = Table(title=f"{backend}, {known:,} keys")
    for name in ("", "records/s", "processor s/s", "queries"):
        table.add_column(name, justify="right")
    for number, pair in enumerate(rounds, 1):
        for name, phase in zip(("alone", "queried"), pair, strict=True):
            cells = (f"{phase.rate:,.0f}", f"{phase.processor:.2f}", str(len(phase.queries)))
            table.add_row(f"{number} {name}", *cells)
    console = Console()
    console.print(table)
    console.print(
        f"ratio of rates: {statistics.median(ratios):.3f} (min {min(ratios):.3f}); "
        f"a query takes {statistics.median(took):.1f} s with its wait for the pause"
    )
    if json_path is not None:
        json_path.write_text(json.dumps({"ratios": ratios, "queries": took, "rounds": rounds, "keys": known}))


if __name__ == "__main__":
    main()
