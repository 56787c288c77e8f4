"""Kafka to Kafka beside PyFlink and Flink SQL: the same program, the same broker, parallelism 1.

Each run is a process of its own that reads a topic to its end and writes to another, with a checkpoint a second. Its
rate is taken from the broker's own times of the first and the last record that came out, so no start counts. Functions
of Python are compared with those of PyFlink in both of its modes, and SQL with Flink's, which runs on the JVM alone.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Message, TopicPartition
from rich.table import Table
from tests.servers.kafka import KafkaCluster

from penstock.cli.trial.servers import installed

PROGRAM = Path(__file__).with_name("kafka_program.py")
CONNECTOR = "flink-sql-connector-kafka"
CONNECTOR_VERSION = "5.0.0-2.2"
TIMEOUT_S = 600
#: What the environment of another Python must not see.
OURS = ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON")


@dataclass
class Side:
    """One way to run it.

    Attributes:
        title: for the table.
        kind: stream or sql.
        library: penstock or pyflink.
        options: those of the job.
        rates: what was measured, in records a second.
    """

    title: str
    kind: str
    library: str
    options: dict[str, str]
    rates: list[float] = field(default_factory=list)


def sides(jar: Path) -> list[Side]:
    """All ways, ours first in each kind."""
    local, flink = {"execution.target": "local"}, {"pipeline.jars": jar.as_uri()}
    return [
        Side("Penstock, functions of Python", "stream", "penstock", local),
        Side("PyFlink, thread mode", "stream", "pyflink", {**flink, "python.execution-mode": "thread"}),
        Side("PyFlink, process mode", "stream", "pyflink", {**flink, "python.execution-mode": "process"}),
        Side("Penstock SQL", "sql", "penstock", local),
        Side("Flink SQL", "sql", "pyflink", flink),
    ]


def connector() -> Path:
    """Flink's connector, fetched once."""
    name = f"{CONNECTOR}-{CONNECTOR_VERSION}"
    return installed(name, [f"org.apache.flink:{CONNECTOR}:{CONNECTOR_VERSION}"]) / "jars" / f"{name}.jar"


def compare(kafka: KafkaCluster, source: str, records: int, rounds: int, flink: Path, jar: Path) -> Table:
    """The rates of all sides, in turns. Raises `RuntimeError` with its log when one fails."""
    found = sides(jar)
    for _ in range(rounds):
        for side in found:
            python = Path(sys.executable) if side.library == "penstock" else flink
            side.rates.append(_rate(kafka, side, source, records, python))
            print(f"{side.title}: {side.rates[-1]:,.0f} records/s", flush=True)
    table = Table(title=f"{records:,} orders of 200 bytes as JSON, from a topic to a topic")
    for column in ("", "records/s", "Penstock's rate over it", "ratios of each round"):
        table.add_column(column)
    ours = found[0]
    for side in found:
        if side.library == "penstock":
            ours = side
        ratios = [mine / theirs for mine, theirs in zip(ours.rates, side.rates, strict=True)]
        table.add_row(
            side.title,
            f"{statistics.median(side.rates):,.0f}",
            "" if side is ours else f"{statistics.median(ratios):.2f}",
            "" if side is ours else " ".join(f"{ratio:.2f}" for ratio in ratios),
        )
    return table


def _rate(kafka: KafkaCluster, side: Side, source: str, records: int, python: Path) -> float:
    """Run it; how many records came out in a second."""
    target = kafka.create_topic("billed", message_timestamp_type="LogAppendTime")
    arguments = {"kind": side.kind, "library": side.library, "options": side.options}
    arguments |= {"servers": kafka.bootstrap_servers, "source": source, "target": target}
    # Not resolved: a link in a folder of an environment is what makes Python see its packages.
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    environment["PATH"] = f"{python.absolute().parent}{os.pathsep}{environment['PATH']}"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        done = subprocess.run(
            [python.absolute(), PROGRAM, json.dumps(arguments)],
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            log.seek(0)
            raise RuntimeError(f"{side.title} failed: {log.read()[-5000:]}")
    first, last = _ends(kafka, target)
    kafka.delete_topic(target)
    if last.offset() != records - 1:
        raise RuntimeError(f"{side.title} gave {(last.offset() or 0) + 1} records, not {records}")
    return records / ((last.timestamp()[1] - first.timestamp()[1]) / 1000)


def _ends(kafka: KafkaCluster, topic: str) -> tuple[Message, Message]:
    """The first and the last record of a topic of one partition."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "ends"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        found = []
        for offset in (0, end - 1):
            consumer.assign([TopicPartition(topic, 0, offset)])
            message = consumer.poll(10)
            if message is None or message.error() is not None:
                raise RuntimeError(f"{topic} cannot be read")
            found.append(message)
        return found[0], found[1]
    finally:
        consumer.close()
