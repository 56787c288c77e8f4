"""A source of the tests' broker, read by the hostile host of all sources, which here waits for a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.servers.kafka import KafkaCluster
from tests.servers.waiting import WAIT_S

from penstock.common import SimpleStringSchema
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource, KafkaSourceBuilder
from penstock.runtime.records import Batch
from penstock.testing.connectors import SourceRun

EARLIEST = KafkaOffsetsInitializer.earliest()
LATEST = KafkaOffsetsInitializer.latest()


def texts(kafka: KafkaCluster, *topics: str, **properties: str) -> KafkaSourceBuilder[Any]:
    """A source of text; `_` in names of properties stand for `.`."""
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    for key, value in properties.items():
        builder.set_property(key.replace("_", "."), value)
    builder.set_value_only_deserializer(SimpleStringSchema())
    return builder.set_topics(*topics) if topics else builder


def poll_until(
    cluster: SourceRun, condition: Callable[[], bool], batch_size: int = 1000, hostile: bool = False
) -> SourceRun:
    """Polls all readers in turn; when hostile, everything is restored from its snapshots after every batch."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain; read so far: {cluster.all_values[-10:]}"
        cluster.deliver()
        found = [cluster.poll(subtask, batch_size) for subtask in set(range(cluster.parallelism)) - cluster.ended]
        if not any(isinstance(one, Batch) for one in found):
            time.sleep(0.005)
        elif hostile:
            cluster.restart()
    return cluster


def read_to_end(source: Any, parallelism: int = 1, batch_size: int = 1000, hostile: bool = False) -> SourceRun:
    """Reads a source that stops."""
    cluster = SourceRun(source, parallelism)
    try:
        return poll_until(cluster, lambda: len(cluster.ended) == parallelism, batch_size, hostile)
    finally:
        cluster.close()


def read_some(source: Any, count: int, parallelism: int = 1) -> SourceRun:
    """Reads so many records of a source that goes on; the caller closes it."""
    cluster = SourceRun(source, parallelism)
    return poll_until(cluster, lambda: len(cluster.all_values) >= count)
