"""A real job for the real driver: counts per key, through a shuffle, collected exactly once."""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collect import CollectedRecords, CollectSink
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.drivers.spark.job import SparkJobClient
from penstock.plan.job_graph import build_job_graph
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.graph import JobGraph
from penstock.runtime.operators.connector import SinkOperator, SourceOperator
from penstock.runtime.operators.keyed.aggregates import KeyedReduceOperator
from penstock.runtime.operators.record.stateless import MapOperator
from penstock.runtime.task.channels.result_partition import HashPartitioner

KEYS = 7
PATIENCE_S = 150


def counting_job(count: int | None, rate_per_second: float | None, parallelism: int, function: Any = None) -> JobGraph:
    """(key, running count) of the numbers up to `count`, by their rest modulo KEYS."""
    numbers = DataGeneratorSource(lambda index: index, count, rate_per_second)
    source = Transformation(
        "source", lambda: SourceOperator(numbers, WatermarkStrategy.no_watermarks()), source=numbers, is_stateful=True
    )
    pairs = function or (lambda number: (number % KEYS, 1))
    mapped = Transformation("map", lambda: MapOperator(pairs), (Upstream(source),))
    reduced = Transformation(
        "reduce",
        lambda: KeyedReduceOperator(lambda a, b: (a[0], a[1] + b[1]), lambda pair: pair[0]),
        (Upstream(mapped, HashPartitioner(lambda pair: pair[0])),),
        is_stateful=True,
    )
    sink = Transformation("collect", lambda: SinkOperator(CollectSink()), (Upstream(reduced),), is_stateful=True)
    configuration = Configuration.from_dict({"parallelism.default": parallelism})
    return build_job_graph([source, mapped, reduced, sink], configuration, "counting")


def expected_counts(count: int) -> dict[int, list[int]]:
    """What `counting_job` must give: for each key the counts 1, 2, 3 and so on, each once."""
    return {key: list(range(1, len(range(key, count, KEYS)) + 1)) for key in range(KEYS)}


class CollectingListener:
    """Remembers what the job says."""

    def __init__(self) -> None:
        self.statuses: list[str] = []
        self.lines: list[str] = []
        self.reasons: list[str | None] = []
        self._collected = CollectedRecords()
        self.counts: dict[int, list[int]] = defaultdict(list)

    def on_job_status(self, status: str, reason: str | None) -> None:
        self.statuses.append(status)
        self.reasons.append(reason)

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        for key, count in self._collected.take(payload):
            self.counts[key].append(count)

    def on_log(self, line: str) -> None:
        self.lines.append(line)


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition; fail when it does not come about in good time."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"in vain waited for: {what}"
        time.sleep(0.05)


def wait_for_checkpoint(client: SparkJobClient, number: int) -> None:
    """Wait until so many checkpoints have completed."""
    progress = client.get_progress
    wait_until(lambda: progress().result(PATIENCE_S).checkpoints_completed >= number, f"checkpoint {number}")
