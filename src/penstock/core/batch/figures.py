"""Figures of tasks that run to an end: each reports once, as a row, and a job adds up what its tasks report."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from penstock.core.batch.exchange import Exchange
from penstock.core.checkpoint.statistics import CheckpointRecord, CheckpointStatistics, CheckpointStatus
from penstock.core.job.progress import merged_distributions
from penstock.core.operators.source.source import SourceOperator
from penstock.core.protocol import ExecutionId, TaskMetrics
from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.core.task.metrics import metrics_of
from penstock.core.task.operator_chain import OperatorChain
from penstock.storage.metadata import CheckpointMetadata


class CountedInput:
    """The head of a chain, for batches; counts their records."""

    def __init__(self, process: Callable[[Batch, int], None]) -> None:
        self.records = 0
        self._process = process

    def __call__(self, batch: Batch, input_index: int) -> None:
        self.records += len(batch)
        self._process(batch, input_index)


class CountedExchange:
    """An exchange in the place of a result partition; counts the records that it takes."""

    def __init__(self, exchange: Exchange) -> None:
        self.records = 0
        self.partitioner = exchange.partitioner
        self.broadcast = exchange.broadcast
        self._collect = exchange.collect

    def collect(self, batch: Batch) -> None:
        """Pass a batch on."""
        self.records += len(batch)
        self._collect(batch)


def task_metrics(
    execution: ExecutionId,
    chain: OperatorChain,
    head: CountedInput,
    exchanges: dict[int, CountedExchange],
    watermark_ms: int,
) -> bytes:
    """The payload of a `METRICS` row, when the task has done its work."""
    source = chain.head
    records_in = source.records_out if isinstance(source, SourceOperator) else head.records
    records_out = sum(exchange.records for exchange in exchanges.values())
    return pickle.dumps(TaskMetrics(execution, records_in, records_out, watermark_ms, *metrics_of(chain.contexts)), 5)


class JobFigures:
    """What the tasks of a job have reported, by (vertex, subtask); of several epochs, all together."""

    def __init__(self) -> None:
        self.tasks: dict[tuple[int, int], TaskMetrics] = {}
        self.checkpoints = CheckpointStatistics()

    def add(self, payload: bytes) -> None:
        """A task has come to its end, and what it did counts."""
        metrics: TaskMetrics = pickle.loads(payload)
        task = metrics.execution.vertex, metrics.execution.subtask
        known = self.tasks.get(task)
        self.tasks[task] = metrics if known is None else _sum(known, metrics)

    def epoch_completed(self, checkpoint: CheckpointMetadata, begun_ms: int, now_ms: int) -> None:
        """An epoch that began at `begun_ms` and has its checkpoint now."""
        record = CheckpointRecord(
            checkpoint.checkpoint_id,
            CheckpointStatus.COMPLETED,
            begun_ms,
            duration_ms=now_ms - begun_ms,
            state_bytes=checkpoint.state_bytes,
        )
        self.checkpoints = self.checkpoints.with_triggered().with_completed(record)

    def epoch_failed(self, checkpoint_id: int, begun_ms: int, now_ms: int, reason: str) -> None:
        """An epoch that is run again, or ends the job."""
        record = CheckpointRecord(
            checkpoint_id, CheckpointStatus.FAILED, begun_ms, duration_ms=now_ms - begun_ms, failure=reason
        )
        self.checkpoints = self.checkpoints.with_triggered().with_failed(record)


def _sum(one: TaskMetrics, later: TaskMetrics) -> TaskMetrics:
    counters = dict(one.counters)
    for name, count in later.counters.items():
        counters[name] = counters.get(name, 0) + count
    distributions: dict[str, Any] = dict(one.distributions)
    for name, summary in later.distributions.items():
        distributions[name] = merged_distributions(distributions.get(name), summary)
    return TaskMetrics(
        later.execution,
        one.records_in + later.records_in,
        one.records_out + later.records_out,
        max(one.watermark_ms, later.watermark_ms, MIN_TIMESTAMP),
        counters,
        {**one.gauges, **later.gauges},
        distributions,
    )
