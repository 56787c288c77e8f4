"""Runs a source's enumerator outside STREAMING mode: splits are assigned ahead of the tasks that read them (I1).

Metrics of tasks that run to an end: each task reports once, as a row, and the job adds up the reports.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.base.errors import ContractError
from penstock.codecs.pickling import dumps_named, loads_named
from penstock.runtime.batch.exchange import Exchange
from penstock.runtime.checkpoint.statistics import (
    CheckpointRecord,
    CheckpointStatistics,
    CheckpointStatus,
    SubtaskCheckpoint,
)
from penstock.runtime.connector import Source, late_split
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.job.view import merged_distributions
from penstock.runtime.operators.source.source import SourceOperator
from penstock.runtime.protocol import ExecutionId, OperatorFigures, TaskFigures, TaskMetrics
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.runtime.task.channels.input_gate import ByteCount
from penstock.runtime.task.operator_chain import OperatorChain, Summary, metrics_of_task
from penstock.storage.metadata import CheckpointMetadata, StateFile, checksum, encode_metadata

T = TypeVar("T")


def enumerate_splits(source: Source[Any, Any], parallelism: int) -> list[tuple[bytes, ...]]:
    """Return all splits of a bounded source, by subtask.

    Raises:
        ContractError: if the enumerator does not come to an end.
    """
    dealer = SplitDealer(source, parallelism, None)
    try:
        dealt = dealer.deal()
    finally:
        dealer.close()
    if not all(dealer.no_more):
        raise ContractError(
            f"the split enumerator of {type(source).__name__} neither assigned a split nor called "
            "signal_no_more_splits(); the enumerator of a bounded source must do one of them"
        )
    return dealt


class SplitDealer:
    """Assigns splits to `parallelism` subtasks, once for a batch or at the start of each epoch.

    Its methods do the enumerator's IO, so the driver must call them. The dealer runs the enumerator's background calls
    at once; calls with a delay run at the start of the next epoch.
    """

    def __init__(self, source: Source[Any, Any], parallelism: int, restored: StateFile | None) -> None:
        self.parallelism = parallelism
        self.no_more = [False] * parallelism
        self._new: list[list[bytes]] = [[] for _ in range(parallelism)]
        self._now: list[Callable[[], None]] = []
        self._next_epoch: list[Callable[[], None]] = []
        self._what = type(source).__name__
        state = None
        if restored is not None and restored.data is not None:
            state = loads_named(restored.data, f"the state of the split enumerator of {self._what}")
        self._enumerator = source.create_enumerator(self, state)
        self._enumerator.start()
        self._work()

    def deal(self) -> list[tuple[bytes, ...]]:
        """Return the new splits of each subtask, pickled, distributed as evenly as the enumerator allows."""
        self._now += self._next_epoch
        self._next_epoch = []
        self._work()
        dealt = -1
        while dealt != (dealt := sum(map(len, self._new)) + sum(self.no_more)):
            for subtask in range(self.parallelism):
                if not self.no_more[subtask]:
                    self._enumerator.handle_split_request(subtask)
                    self._work()
        new, self._new = self._new, [[] for _ in range(self.parallelism)]
        return [tuple(splits) for splits in new]

    def snapshot(self, epoch: int) -> StateFile:
        """Return the enumerator's state; assigned splits are in the readers' state."""
        data = dumps_named(self._enumerator.snapshot_state(epoch), f"the state of the split enumerator of {self._what}")
        return StateFile(len(data), checksum(data), data=data)

    def close(self) -> None:
        """Close and drop the enumerator and its pending calls, which refer to the dealer in a cycle. Call it last."""
        self._enumerator.close()
        self._now.clear()
        self._next_epoch.clear()
        del self._enumerator

    def _work(self) -> None:
        while self._now:
            self._now.pop(0)()

    # --- the enumerator's context ----------------------------------------------------------------------------------

    def assign_split(self, split: Any, subtask_index: int) -> None:
        if self.no_more[subtask_index]:
            raise late_split(self._what, subtask_index)
        self._new[subtask_index].append(dumps_named(split, f"a split of {self._what}"))

    def signal_no_more_splits(self, subtask_index: int) -> None:
        self.no_more[subtask_index] = True

    def call_async(
        self, work: Callable[[], T], handler: Callable[[T | None, BaseException | None], None], delay_ms: int = 0
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the handler decides
                handler(None, error)
            else:
                handler(result, None)

        (self._next_epoch if delay_ms > 0 else self._now).append(run)


class CountedInput:
    """The head of a chain as a consumer of batches; counts their records."""

    def __init__(self, process: Callable[[Batch, int], None]) -> None:
        self.records = 0
        self.bytes = ByteCount()
        self._process = process

    def __call__(self, batch: Batch, input_index: int) -> None:
        self.records += len(batch)
        self.bytes.add(batch)
        self._process(batch, input_index)


class CountedExchange:
    """An exchange in place of a result partition; counts the records that it receives."""

    def __init__(self, exchange: Exchange) -> None:
        self.records = 0
        self.bytes = ByteCount()
        self.partitioner = exchange.partitioner
        self.broadcast = exchange.broadcast
        self._collect = exchange.collect

    def collect(self, batch: Batch) -> None:
        """Pass a batch on."""
        self.records += len(batch)
        self.bytes.add(batch)
        self._collect(batch)


def task_metrics(
    execution: ExecutionId,
    chain: OperatorChain,
    head: CountedInput,
    exchanges: dict[int, CountedExchange],
    watermark_ms: int,
    busy_ms: int,
) -> bytes:
    """Return the payload of a `METRICS` row for a task that has finished its work in `busy_ms`."""
    source = chain.head
    records_in = source.records_out if isinstance(source, SourceOperator) else head.records
    records_out = sum(exchange.records for exchange in exchanges.values())
    operators = chain.figures(head.records, watermark_ms)
    figures = TaskFigures(
        busy_ms,
        bytes_in=head.bytes.bytes,
        bytes_out=sum(exchange.bytes.bytes for exchange in exchanges.values()),
        operators=operators,
        fired_timers=sum(context.fired_timers for context in chain.contexts),
    )
    metrics = metrics_of_task(operators)
    return pickle.dumps(TaskMetrics(execution, records_in, records_out, watermark_ms, *metrics, figures=figures), 5)


class JobFigures:
    """The metrics reported by a job's tasks, by (vertex, subtask); summed over epochs."""

    def __init__(self, job_graph: JobGraph) -> None:
        self._vertices = {o.operator_id: vertex.index for vertex in job_graph.vertices for o in vertex.operators}
        self.tasks: dict[tuple[int, int], TaskMetrics] = {}
        self.checkpoints = CheckpointStatistics()

    def add(self, payload: bytes) -> None:
        """Add the report of a task that has ended."""
        metrics: TaskMetrics = pickle.loads(payload)
        task = metrics.execution.vertex, metrics.execution.subtask
        known = self.tasks.get(task)
        self.tasks[task] = metrics if known is None else _sum(known, metrics)

    def epoch_completed(self, checkpoint: CheckpointMetadata, begun_ms: int, now_ms: int) -> None:
        """Record an epoch that began at `begun_ms` and has completed its checkpoint now."""
        record = CheckpointRecord(
            checkpoint.checkpoint_id,
            CheckpointStatus.COMPLETED,
            begun_ms,
            duration_ms=now_ms - begun_ms,
            state_bytes=checkpoint.state_bytes,
            subtasks=len(self.tasks),
            acknowledged=len(self.tasks),
            parts=self._parts(checkpoint, begun_ms, now_ms),
            metadata_bytes=len(encode_metadata(checkpoint)),
        )
        self.checkpoints = self.checkpoints.with_triggered().with_completed(record)

    def _parts(self, checkpoint: CheckpointMetadata, begun_ms: int, now_ms: int) -> tuple[SubtaskCheckpoint, ...]:
        """Return each subtask's part of a checkpoint; an epoch's parts are all present when the epoch ends."""
        sizes: dict[tuple[int, int], int] = dict.fromkeys(self.tasks, 0)
        for operator in checkpoint.operators:
            vertex = self._vertices.get(operator.operator_id)
            for subtask, state in operator.subtasks.items():
                if vertex is not None:
                    size = sum(file.length for file in state.state_files())
                    sizes[vertex, subtask] = sizes.get((vertex, subtask), 0) + size
        return tuple(
            SubtaskCheckpoint(vertex, subtask, now_ms, now_ms - begun_ms, size, size)
            for (vertex, subtask), size in sorted(sizes.items())
        )

    def epoch_failed(self, checkpoint_id: int, begun_ms: int, now_ms: int, reason: str) -> None:
        """Record an epoch that is run again, or that ends the job."""
        record = CheckpointRecord(
            checkpoint_id, CheckpointStatus.FAILED, begun_ms, duration_ms=now_ms - begun_ms, failure=reason
        )
        self.checkpoints = self.checkpoints.with_triggered().with_failed(record)


def _sum(earlier: TaskMetrics, later: TaskMetrics) -> TaskMetrics:
    return TaskMetrics(
        later.execution,
        earlier.records_in + later.records_in,
        earlier.records_out + later.records_out,
        max(earlier.watermark_ms, later.watermark_ms, MIN_TIMESTAMP),
        _added(earlier.counters, later.counters),
        {**earlier.gauges, **later.gauges},
        _merged(earlier.distributions, later.distributions),
        figures=_figures_sum(earlier.figures, later.figures),
    )


def _figures_sum(earlier: TaskFigures | None, later: TaskFigures | None) -> TaskFigures | None:
    if earlier is None or later is None:
        return later or earlier
    known = {figures.operator_id: figures for figures in earlier.operators}
    return TaskFigures(
        earlier.busy_ms + later.busy_ms,
        bytes_in=earlier.bytes_in + later.bytes_in,
        bytes_out=earlier.bytes_out + later.bytes_out,
        operators=tuple(_operator_sum(known.get(figures.operator_id), figures) for figures in later.operators),
        fired_timers=earlier.fired_timers + later.fired_timers,
    )


def _operator_sum(earlier: OperatorFigures | None, later: OperatorFigures) -> OperatorFigures:
    if earlier is None:
        return later
    return OperatorFigures(
        later.operator_id,
        earlier.records_in + later.records_in,
        earlier.records_out + later.records_out,
        max(earlier.input_watermark_ms, later.input_watermark_ms),
        max(earlier.output_watermark_ms, later.output_watermark_ms),
        _added(earlier.counters, later.counters),
        {**earlier.gauges, **later.gauges},
        _merged(earlier.distributions, later.distributions),
        later.measured,
    )


def _added(earlier: dict[str, int], later: dict[str, int]) -> dict[str, int]:
    return {name: earlier.get(name, 0) + later.get(name, 0) for name in {**earlier, **later}}


def _merged(earlier: dict[str, Summary], later: dict[str, Summary]) -> dict[str, Summary]:
    merged = dict(earlier)
    for name, summary in later.items():
        merged[name] = merged_distributions(merged.get(name), summary)
    return merged
