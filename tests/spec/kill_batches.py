"""Kill the driver while a function writes epochs, and start it again: `python -m tests.spec.kill_batches --kills 20`.

`--into` says where the function writes each epoch, and at the end each record must be there once:

- `database`: SQLite, in one transaction with the number of the epoch;
- `jdbc`: PostgreSQL, by Spark's jdbc format and `JdbcEpochWriter`;
- `delta`: a Delta table, in one version by delta-rs, with the number as that of an application's transaction;
- `spark-delta`: the same by `DeltaEpochWriter`, Delta Lake's format of Spark, which needs Spark 4.0;
- `iceberg`: an Iceberg table by Iceberg's format of Spark 4.0, with the epoch in the summary of the snapshot.

`--target` is `local` or a Spark master, `--mode` STREAMING or MICRO_BATCH. It prints its seed.
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
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final

import click
import psycopg
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from tests.servers import spark_jars
from tests.servers.postgres import postgres_server

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.spark import DeltaEpochWriter, JdbcEpochWriter

NAME: Final = "penstock"
_EPOCH: Final = "penstock-epoch"
#: what the program prints when it begins to write an epoch
_WRITES: Final = "writes epoch"
#: how much faster the last program is, which nobody kills
_LAST_RATE: Final = 20


def write_database(folder: str, frame: Any, epoch: int) -> None:
    with closing(sqlite3.connect(f"{folder}/rows.db", timeout=30)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS epochs (number INT PRIMARY KEY)")
        database.execute("CREATE TABLE IF NOT EXISTS rows (n INT)")
        if database.execute("INSERT OR IGNORE INTO epochs VALUES (?)", (epoch,)).rowcount:
            database.executemany("INSERT INTO rows VALUES (?)", [(row.n,) for row in frame.collect()])


def write_jdbc(folder: str, frame: Any, epoch: int) -> None:
    url = Path(f"{folder}/url").read_text()
    JdbcEpochWriter(NAME, {"url": url, "dbtable": "rows", "user": "postgres"})(frame, epoch)


def write_delta(folder: str, frame: Any, epoch: int) -> None:
    table = f"{folder}/delta"
    if DeltaTable.is_deltatable(table) and (DeltaTable(table).transaction_version(NAME) or 0) >= epoch:
        return
    rows = pa.table({"n": [row.n for row in frame.collect()]})
    properties = CommitProperties(app_transactions=[Transaction(NAME, epoch)])
    write_deltalake(table, rows, mode="append", commit_properties=properties)


def write_spark_delta(folder: str, frame: Any, epoch: int) -> None:
    DeltaEpochWriter(NAME, f"{folder}/delta")(frame, epoch)


def write_iceberg(folder: str, frame: Any, epoch: int) -> None:
    spark = frame.sparkSession
    spark.sql("CREATE TABLE IF NOT EXISTS lake.db.rows (n BIGINT) USING iceberg")
    summaries = [row.summary for row in spark.sql("SELECT summary FROM lake.db.rows.snapshots").collect()]
    if max((int(summary.get(_EPOCH, 0)) for summary in summaries), default=0) < epoch:
        frame.writeTo("lake.db.rows").option(f"snapshot-property.{_EPOCH}", str(epoch)).append()


def read_database(folder: str) -> list[int]:
    with closing(sqlite3.connect(f"{folder}/rows.db")) as database:
        return [row[0] for row in database.execute("SELECT n FROM rows")]


def read_jdbc(folder: str) -> list[int]:
    url = Path(f"{folder}/url").read_text().removeprefix("jdbc:")
    with psycopg.connect(url, user="postgres") as connection:
        return [row[0] for row in connection.execute("SELECT n FROM rows")]


def read_delta(folder: str) -> list[int]:
    values: list[int] = pa.table(DeltaTable(f"{folder}/delta").to_pyarrow_table()).column("n").to_pylist()
    return values


def read_iceberg(folder: str) -> list[int]:
    from pyiceberg.table import StaticTable

    metadata = Path(f"{folder}/lake/db/rows/metadata")
    number = int((metadata / "version-hint.text").read_text())
    values: list[int] = StaticTable.from_metadata(str(metadata / f"v{number}.metadata.json")).scan().to_arrow()[
        "n"
    ].to_pylist()  # fmt: skip
    return values


#: how the program writes an epoch, how its rows are read, and the jars that Spark needs
TARGETS: Final[dict[str, tuple[Callable[[str, Any, int], None], Callable[[str], list[int]], tuple[str, ...]]]] = {
    "database": (write_database, read_database, ()),
    "jdbc": (write_jdbc, read_jdbc, ("postgresql",)),
    "delta": (write_delta, read_delta, ()),
    "spark-delta": (write_spark_delta, read_delta, ("delta",)),
    "iceberg": (write_iceberg, read_iceberg, ("iceberg",)),
}


def settings_of_jars(folder: str, into: str) -> dict[str, str]:
    """What a session of Spark needs to write there."""
    names = TARGETS[into][2]
    settings = {"spark.jars": spark_jars.find(*names)} if names else {}
    if into == "spark-delta":
        settings["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    elif into == "iceberg":
        settings |= {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": f"{folder}/lake",
        }
    return settings


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
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        **({"execution.target": "local"} if target == "local" else {"spark.master": target}),
        **settings_of_jars(folder, into),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(2)
    pace = rate if mode == "STREAMING" else None
    source: Any = DataGeneratorSource(lambda n: (n,), records, rate_per_second=pace)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    rows = stream.map(lambda row: row, output_type=Types.ROW_NAMED(["n"], [Types.LONG()]))

    def write(frame: Any, epoch: int) -> None:
        print(f"{_WRITES} {epoch}", flush=True)
        TARGETS[into][0](folder, frame, epoch)

    rows.for_each_batch(write)
    env.execute("kill batches")


@click.command()
@click.option("--kills", default=20, show_default=True, help="Drivers to kill.")
@click.option("--mode", default="STREAMING", show_default=True, type=click.Choice(["STREAMING", "MICRO_BATCH"]))
@click.option("--target", default="local", show_default=True, help="local, or a Spark master such as local[4].")
@click.option("--into", default="database", show_default=True, type=click.Choice(list(TARGETS)))
@click.option("--records", default=60_000, show_default=True, help="Records.")
@click.option("--rate", default=100.0, show_default=True, help="Records a second.")
@click.option("--epochs", nargs=2, type=int, default=(1, 4), show_default=True, help="Epochs that it begins to write.")
@click.option("--pause", nargs=2, type=float, default=(0.0, 3.0), show_default=True, help="How long (s) it goes on.")
@click.option("--seed", default=None, type=int, help="Makes the moments of the kills the same again.")
@click.option("--run", "folder", default=None, hidden=True)
def main(
    kills: int, mode: str, target: str, into: str, records: int, rate: float, epochs: tuple[int, int],
    pause: tuple[float, float], seed: int | None, folder: str | None,
) -> None:  # fmt: skip
    """Kill drivers, and compare what is there at the end."""
    if folder is not None:
        run(folder, mode, target, into, records, rate)
        return
    for name in TARGETS[into][2]:
        spark_jars.fetch(name)
    seed = random.randrange(1 << 32) if seed is None else seed
    click.echo(f"seed {seed}")
    choose, done = random.Random(seed), 0
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-kill-batches-"))
        if into == "jdbc":
            Path(f"{place}/url").write_text(stack.enter_context(postgres_server()).jdbc_url())
        command = [sys.executable, "-m", "tests.spec.kill_batches", "--run", place, "--mode", mode, "--target", target]
        command += ["--into", into, "--records", str(records)]
        for number in range(kills + 1):
            pace = ["--rate", str(rate if number < kills else rate * _LAST_RATE)]
            with open(f"{place}/log-{number}", "wb") as log:
                process = subprocess.Popen([*command, *pace], stdout=log, stderr=log, start_new_session=True)
            if number < kills:
                await_work(process, Path(place) / f"log-{number}", choose.randint(*epochs))
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
        found = Counter(TARGETS[into][1](place))
        if found != Counter(range(records)):
            wrong = {n: found[n] for n in range(records) if found[n] != 1}
            raise SystemExit(f"{len(wrong)} records are not there once, such as {list(wrong.items())[:5]}")
        click.echo(f"{done} kills: each of {records} records is there once, {mode}, {target}, {into}")


def await_work(process: subprocess.Popen[bytes], log: Path, epochs: int) -> None:
    """Wait until the program has begun to write so many epochs: Spark takes its time to start."""
    while process.poll() is None and log.read_text().count(_WRITES) < epochs:
        time.sleep(0.05)


def count(folder: str, into: str) -> int:
    with suppress(Exception):
        return len(TARGETS[into][1](folder))
    return 0


if __name__ == "__main__":
    main()
