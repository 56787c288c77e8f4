"""Kill the driver while a function writes epochs, and start it again: `python -m tests.spec.kill_batches --kills 20`.

The function writes each epoch into a database (SQLite, in one transaction with the number of the epoch) or into a Delta
table (in one version, with the number as that of an application's transaction). At the end each record must be there
once. `--target` is `local` or a Spark master, `--mode` STREAMING or MICRO_BATCH. It prints its seed.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment

NAME = "penstock"


def write_database(folder: str, frame: Any, epoch: int) -> None:
    with closing(sqlite3.connect(f"{folder}/rows.db", timeout=30)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS epochs (number INT PRIMARY KEY)")
        database.execute("CREATE TABLE IF NOT EXISTS rows (n INT)")
        if database.execute("INSERT OR IGNORE INTO epochs VALUES (?)", (epoch,)).rowcount:
            database.executemany("INSERT INTO rows VALUES (?)", [(row.n,) for row in frame.collect()])


def write_delta(folder: str, frame: Any, epoch: int) -> None:
    table = f"{folder}/delta"
    if DeltaTable.is_deltatable(table) and (DeltaTable(table).transaction_version(NAME) or 0) >= epoch:
        return
    rows = pa.table({"n": [row.n for row in frame.collect()]})
    properties = CommitProperties(app_transactions=[Transaction(NAME, epoch)])
    write_deltalake(table, rows, mode="append", commit_properties=properties)


def read_rows(folder: str, into: str) -> list[int]:
    if into == "delta":
        values: list[int] = pa.table(DeltaTable(f"{folder}/delta").to_pyarrow_table()).column("n").to_pylist()
        return values
    with closing(sqlite3.connect(f"{folder}/rows.db")) as database:
        return [row[0] for row in database.execute("SELECT n FROM rows")]


def run(folder: str, mode: str, target: str, into: str, records: int, rate: float) -> None:
    """The program."""
    settings = {
        "execution.runtime-mode": mode,
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        "execution.checkpointing.interval": "150 ms",
        "execution.micro-batch.interval": "150 ms",
        "execution.micro-batch.max-records": str(max(1, int(rate / 5))),
        "penstock.recovery.from-latest": "true",
        "spark.ui.enabled": "false",
        **({"execution.target": "local"} if target == "local" else {"spark.master": target}),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(2)
    pace = rate if mode == "STREAMING" else None
    source: Any = DataGeneratorSource(lambda n: (n,), records, rate_per_second=pace)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    write = write_delta if into == "delta" else write_database
    rows = stream.map(lambda row: row, output_type=Types.ROW_NAMED(["n"], [Types.LONG()]))
    rows.for_each_batch(lambda frame, epoch: write(folder, frame, epoch))
    env.execute("kill batches")


@click.command()
@click.option("--kills", default=20, show_default=True, help="Drivers to kill.")
@click.option("--mode", default="STREAMING", show_default=True, type=click.Choice(["STREAMING", "MICRO_BATCH"]))
@click.option("--target", default="local", show_default=True, help="local, or a Spark master such as local[4].")
@click.option("--into", default="database", show_default=True, type=click.Choice(["database", "delta"]))
@click.option("--records", default=40_000, show_default=True, help="Records.")
@click.option("--rate", default=1_000.0, show_default=True, help="Records a second.")
@click.option("--pause", nargs=2, type=float, default=(0.2, 5.0), show_default=True, help="How long (s) it writes.")
@click.option("--seed", default=None, type=int, help="Makes the moments of the kills the same again.")
@click.option("--run", "folder", default=None, hidden=True)
def main(
    kills: int, mode: str, target: str, into: str, records: int, rate: float, pause: tuple[float, float],
    seed: int | None, folder: str | None,
) -> None:  # fmt: skip
    """Kill drivers, and compare what is there at the end."""
    if folder is not None:
        run(folder, mode, target, into, records, rate)
        return
    seed = random.randrange(1 << 32) if seed is None else seed
    click.echo(f"seed {seed}")
    choose, done = random.Random(seed), 0
    with tempfile.TemporaryDirectory(prefix="penstock-kill-batches-") as place:
        command = [sys.executable, "-m", "tests.spec.kill_batches", "--run", place, "--mode", mode, "--target", target]
        command += ["--into", into, "--records", str(records), "--rate", str(rate)]
        for number in range(kills + 1):
            with open(f"{place}/log-{number}", "wb") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            if number < kills:
                await_work(process, Path(place), f"log-{number}")
                with suppress(subprocess.TimeoutExpired):
                    process.wait(choose.uniform(*pause))
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    done += 1
                    click.echo(f"kill {done}: {count(place, into)} rows")
            process.wait()
            if process.returncode not in (0, -signal.SIGKILL):
                raise SystemExit(Path(f"{place}/log-{number}").read_text()[-3000:])
            if process.returncode == 0:
                break
        found = Counter(read_rows(place, into))
        if found != Counter(range(records)):
            wrong = {n: found[n] for n in range(records) if found[n] != 1}
            raise SystemExit(f"{len(wrong)} records are not there once, such as {list(wrong.items())[:5]}")
        click.echo(f"{done} kills: each of {records} records is there once, {mode}, {target}, {into}")


def await_work(process: subprocess.Popen[bytes], folder: Path, log: str) -> None:
    """Wait until the job runs: Spark takes its time to start."""
    while process.poll() is None and ": running" not in (folder / log).read_text():
        time.sleep(0.05)


def count(folder: str, into: str) -> int:
    with suppress(Exception):
        return len(read_rows(folder, into))
    return 0


if __name__ == "__main__":
    main()
