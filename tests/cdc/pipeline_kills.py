"""A database of many tables → Iceberg and Kafka, through SIGKILLs of everything.

`python -m tests.cdc.pipeline_kills --tables 200 --kills 2` lets a database (`database`) change: rows of all tables, and
the schemas of ten of them. One pipeline writes into Iceberg, another one into Kafka (transactions). Again and again
all processes of both, workers and drivers, get SIGKILL at a random moment, and new drivers go on from their newest
checkpoints. In the end each Iceberg table must have the columns and rows of its source table, and the topic of each
table each change once, in order. The seed that it prints makes the changes and the pauses the same again.

`--source mariadb` (`mysql`, `postgres`) executes the changes in a real server, which is killed with the pipelines. What
was there when a pipeline read a table comes as rows of its snapshot, so each topic must be a chain: each message begins
with the row that the message before it left, and the last ones leave the rows of the source.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import click
from tests.cdc.database import Database, comparable, plain
from tests.cdc.sql_feeder import SqlFeeder, start_source
from tests.servers.kafka import KafkaCluster, kafka_server

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0
CHANGED_TABLES = 10

PIPELINE = """
source:
{source}

sink:
{sink}

pipeline:
  name: {name}
  parallelism: 2
  schema.change.behavior: evolve
  flink-conf:
    {target}
    execution.checkpointing.interval: {interval}
    execution.checkpointing.dir: {folder}/checkpoints-{name}
    penstock.recovery.from-latest: true
    restart-strategy.type: fixed-delay
    restart-strategy.fixed-delay.attempts: 1000
    restart-strategy.fixed-delay.delay: 1 s
"""
SCRIPT = """
  type: values
  path: {folder}/events.jsonl
  bounded: false
"""
ICEBERG = """
  type: iceberg
  catalog.properties.type: hadoop
  catalog.properties.warehouse: {folder}/lake
"""
KAFKA = """
  type: kafka
  properties.bootstrap.servers: {servers}
  properties.transaction.timeout.ms: 600000
  sink.delivery-guarantee: exactly-once
  sink.transactional-id-prefix: pipeline
"""


class Pipeline:
    """A pipeline and its drivers, one after another. Each driver leads a group with its workers."""

    def __init__(self, folder: Path, name: str, source: str, sink: str, target: str, interval: str) -> None:
        self._folder, self.name, self._number = folder, name, 0
        options = "execution.target: local" if target == "local" else f'spark.master: "{target}"'
        text = PIPELINE.format(folder=folder, source=source, sink=sink, name=name, target=options, interval=interval)
        (folder / f"{name}.yaml").write_text(text)
        self.process = self.start()

    def _log(self) -> Path:
        return self._folder / f"log-{self.name}-{self._number}"

    def start(self) -> subprocess.Popen[bytes]:
        self._number += 1
        command = [sys.executable, "-m", "penstock.cdc.pipeline", str(self._folder / f"{self.name}.yaml")]
        with self._log().open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        return self.process

    def check(self) -> None:
        if self.process.poll() is not None:
            raise AssertionError(f"driver {self._number} of {self.name} has ended: {self._log().read_text()[-6000:]}")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Feeder(threading.Thread):
    """Writes the lines of a database into its script at a rate."""

    def __init__(self, database: Database, file: IO[str], rate: float) -> None:
        super().__init__(daemon=True)
        self._lines, self._file, self._rate = database.lines, file, rate
        self.count = 0

    def run(self) -> None:
        begun = time.monotonic()
        while self.count < len(self._lines):
            due = min(len(self._lines), int((time.monotonic() - begun) * self._rate))
            self._file.writelines(json.dumps(line) + "\n" for line in self._lines[self.count : due])
            self._file.flush()
            self.count = due
            time.sleep(0.05)

    def check(self) -> None:
        """A file does not fail."""


def make_database(chance: random.Random, tables: int, changes: int) -> Database:
    database = Database(chance)
    names = [f"shop.t{number:03}" for number in range(tables)]
    for name in names:
        database.create(name)
    evolving = chance.sample(names, min(CHANGED_TABLES, tables))
    ddl = {chance.randrange(changes) for _ in range(5 * len(evolving))}
    for number in range(changes):
        database.change_row(chance.choice(names))
        if number in ddl:
            database.change_schema(chance.choice(evolving))
    for name in evolving:
        database.change_schema(name)
        database.change_row(name)
    return database


def compare_iceberg(database: Database, folder: Path, has_positions: bool = True) -> str | None:
    """Whether the tables of the lake are those of the database; None if they are."""
    from penstock.connectors.iceberg.tables import CatalogLoader

    catalog = CatalogLoader.of("p", {"type": "hadoop", "warehouse": f"{folder}/lake"}).load_catalog()
    for name, table in database.tables.items():
        try:
            found = catalog.load_table(tuple(name.split(".")))
        except Exception as error:  # noqa: BLE001 - it is not there yet
            return f"{name}: {error!r}"
        columns = [field.name for field in found.schema().fields]
        if columns != list(table.columns) if has_positions else set(columns) != set(table.columns):
            return f"{name} has the columns {columns}, expected {list(table.columns)}"
        rows = found.scan().to_arrow().to_pylist()
        if sorted(map(repr, map(normal(table.columns), rows))) != sorted(
            map(repr, map(normal(table.columns), table.rows.values()))
        ):
            return f"{name}: {len(rows)} rows, {len(table.rows)} expected, and not the same"
    return None


def normal(columns: dict[str, str]) -> Any:
    """A function that makes rows comparable."""
    return lambda row: {name: comparable(kind, plain(row[name])) for name, kind in columns.items()}


def expected_messages(database: Database) -> dict[str, list[tuple[str, Any, Any]]]:
    """The changes of each table: operation, and the names and key of the row before and after."""
    changes: dict[str, list[tuple[str, Any, Any]]] = {}
    for line in database.lines:
        (kind, name), *_ = line.items()
        if kind == "insert":
            changes.setdefault(name, []).append(("c", None, row_of(line["row"])))
        elif kind == "update":
            changes.setdefault(name, []).append(("u", row_of(line["before"]), row_of(line["after"])))
        elif kind == "delete":
            changes.setdefault(name, []).append(("d", row_of(line["row"]), None))
    return changes


def row_of(row: dict[str, Any] | None) -> Any:
    if row is None:
        return None
    return {k: round(float(v), 3) if _is_number(v) else v for k, v in sorted(row.items())}


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, int | float):
        return True
    try:
        float(value)
    except ValueError:
        return False
    return "." in value and value.strip("-.0123456789") == ""


def read_messages(kafka: KafkaCluster) -> dict[str, list[tuple[str, Any, Any]]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    topics = [topic for topic in consumer.list_topics(timeout=30).topics if topic.startswith("shop.")]
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in topics])
    messages: dict[str, list[tuple[str, Any, Any]]] = {topic: [] for topic in topics}
    left = set(topics)
    while left:
        for message in consumer.consume(1000, timeout=10):
            if message.error() is not None:
                left.discard(str(message.topic()))
                continue
            value = json.loads(message.value() or b"")
            entry = (value["op"], row_of(value["before"]), row_of(value["after"]))
            messages[str(message.topic())].append(entry)
    consumer.close()
    return messages


def compare_kafka(database: Database, kafka: KafkaCluster) -> str | None:
    """Whether the topics have each change once, in order; None if they do."""
    found = read_messages(kafka)
    for name, changes in expected_messages(database).items():
        messages = found.get(name, [])
        if messages != changes:
            at = next((i for i, (a, b) in enumerate(zip(messages, changes, strict=False)) if a != b), "the end")
            return f"topic {name}: {len(messages)} messages, {len(changes)} changes; they differ at {at}"
    return None


def compare_chains(database: Database, kafka: KafkaCluster) -> str | None:
    """Whether the messages of each topic lead to the rows of the database, each from the one before; None if so."""
    messages_of = read_messages(kafka)
    for name, table in database.tables.items():
        rows: dict[int, Any] = {}
        for number, (_, before, after) in enumerate(messages_of.get(name, [])):
            if before is not None:
                row = rows.pop(before["id"], None)
                if row is None or any(row[column] != before[column] for column in ("id", "name", "n")):
                    raise AssertionError(f"message {number} of topic {name} begins with {before}, and there is {row}")
            if after is not None:
                if after["id"] in rows:
                    raise AssertionError(f"message {number} of topic {name} repeats the row {after['id']}")
                rows[after["id"]] = after
        ends = {row["id"]: (row["name"], row["n"]) for row in table.rows.values()}
        if {key: (row["name"], row["n"]) for key, row in rows.items()} != ends:
            return f"topic {name} ends with {len(rows)} rows, not with the {len(ends)} of the source"
    return None


def run(seed: int, tables: int, changes: int, kills: int, rate: float, target: str, interval: str, source: str) -> str:
    """Run both pipelines, and kill them so often; raises `AssertionError` when a target is wrong."""
    chance, begun_s = random.Random(seed), time.monotonic()
    database = make_database(random.Random(seed), tables, changes)
    schema_changes = sum(1 for line in database.lines if "column" in next(iter(line)))
    with tempfile.TemporaryDirectory(prefix="penstock-pipeline-") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "kafka").mkdir()
        server = None if source == "values" else stack.enter_context(start_source(source))
        file = stack.enter_context((folder / "events.jsonl").open("w"))
        with kafka_server(folder / "kafka") as kafka:
            feeder: Any = Feeder(database, file, rate) if server is None else SqlFeeder(server, database.lines, rate)
            sinks = {"iceberg": ICEBERG.format(folder=folder), "kafka": KAFKA.format(servers=kafka.bootstrap_servers)}
            read = SCRIPT.format(folder=folder)
            feeder.start()
            if server is not None:
                feeder.await_tables(tables)
            pipelines = [
                Pipeline(folder, each, read if server is None else server.definition(each), sink, target, interval)
                for each, sink in sinks.items()
            ]
            try:
                for number in range(kills):
                    until = (number + chance.uniform(0.3, 1.0)) / kills * len(database.lines) / rate
                    time.sleep(max(1.0, until - (time.monotonic() - begun_s)))
                    for pipeline in pipelines:
                        pipeline.kill()
                    if server is not None:
                        server.server.restart()
                    for pipeline in pipelines:
                        pipeline.start()
                feeder.join()
                feeder.check()
                reason: str | None = "nothing was compared"
                deadline = time.monotonic() + PATIENCE_S
                while reason is not None:
                    assert time.monotonic() < deadline, reason
                    time.sleep(2)
                    for pipeline in pipelines:
                        pipeline.check()
                    reason = compare_iceberg(database, folder, server is None or server.has_positions)
                    reason = reason or (compare_kafka if server is None else compare_chains)(database, kafka)
            finally:
                for pipeline in pipelines:
                    pipeline.kill()
    took_s = time.monotonic() - begun_s
    return (
        f"{source}: {tables} tables, {changes} changes of rows, {schema_changes} of schemas, {kills} kills of "
        f"everything: Iceberg has the rows of the source, Kafka each change once; {took_s:.0f} s"
    )


@click.command(help=__doc__)
@click.option("--tables", default=200, show_default=True)
@click.option("--changes", default=20_000, show_default=True, help="How many changes of rows.")
@click.option("--kills", default=2, show_default=True)
@click.option("--rate", default=400.0, show_default=True, help="Changes per second.")
@click.option("--target", default="local", show_default=True, help="local, or the master of Spark.")
@click.option("--interval", default="2 s", show_default=True, help="Between checkpoints.")
@click.option("--source", type=click.Choice(["values", "mariadb", "mysql", "postgres"]), default="values")
@click.option("--seed", type=int, default=None)
def main(seed: int | None, **options: Any) -> None:
    seed = random.randrange(1 << 32) if seed is None else seed
    click.echo(f"seed {seed}")
    click.echo(run(seed, **options))


if __name__ == "__main__":
    main()
