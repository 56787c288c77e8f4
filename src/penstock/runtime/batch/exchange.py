"""Exchanges of bounded runs: rows between tasks, their edges, the splits of sources, and the metrics of tasks.

`Rows` are the rows between the tasks of a batch job, by column. A row is either one record for a keyed operator, or a
batch of records for any other. A consumer receives the rows whose `target` is its subtask, sorted by (`place`,
`timestamp`, `edge`, `sequence`), None first. `place` is the subtask followed by a hash of the record's key, the same
for equal keys and never negative. A row without a key has place -1. A broadcast row has -2, so that it precedes all
records. Watermarks, which only epochs have, are at -4. A row without key and payload is empty, and the consumer skips
it. A row with a key but without a payload has its record in `records`. Place -3 holds accumulators of upstream
operators whose own rows do not reach the client: the consumer passes them on.

`BatchExchange` and `KeyedExchange` are the outputs of batch tasks: they convert records into rows with a destination.

`Consumer` describes the consumer of an edge, and so the form of the records on it.

`process_with_key` converts sorted rows, one record in each, back to batches for a keyed operator.

`SplitDealer` runs a source's enumerator outside STREAMING mode: splits are assigned ahead of the tasks that read them
(I1).

`JobFigures` adds up the metrics of tasks that run to an end: each task reports once, as a row.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count, groupby, islice, repeat
from typing import Any, Final, TypeVar

import xxhash

from penstock.base.errors import ContractError, UnsupportedError
from penstock.base.types import Row, RowKind
from penstock.codecs import pickling
from penstock.runtime.checkpoint import statistics
from penstock.runtime.columns import ColumnBatch, make_batch
from penstock.runtime.connector import Source, late_split
from penstock.runtime.graph import JobGraph, JobVertex, find_consumers
from penstock.runtime.job.view import merged_distributions
from penstock.runtime.operators.base import LockstepOperator
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.protocol import ExecutionId, OperatorFigures, TaskFigures, TaskMetrics
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.runtime.task.channels.result_partition import ByteCount, HashPartitioner, KeyMemory, Partitioner
from penstock.runtime.task.operator_chain import OperatorChain, OutEdge, Summary, VertexProgram, metrics_of_task
from penstock.state.keys import key_bytes, subtask_of_key_group
from penstock.storage.metadata import CheckpointMetadata, StateFile, checksum, encode_metadata

#: In place of an edge: a sink's committables, and bytes for the client. `target` is the operator's index in its chain.
COMMITTABLES: Final = -1
CLIENT: Final = -2
#: Also in place of an edge: accumulators of an operator's function, as pairs of name and pickled accumulator.
ACCUMULATORS: Final = -4
#: Metrics of a task and its functions, as a pickled `TaskMetrics`; `target` does not refer to an operator.
METRICS: Final = -5
NO_KEY_PLACE: Final = -1
BROADCAST_PLACE: Final = -2
PASSED_ON_PLACE: Final = -3
WATERMARK_PLACE: Final = -4
#: The place of an epoch's watermark whose sender had nothing to read, although others of its vertex may have had.
IDLE_PLACE: Final = -5
#: Likewise, for a producer without records whose strategy asks for idleness: no other input waits for it.
SILENT_PLACE: Final = -6
#: The place of an empty row that identifies its subtask, minus that subtask; used if no other column identifies it.
MARK_PLACE: Final = -16


class Rows:
    """See the module docstring; columns are parallel lists."""

    __slots__ = ("edges", "payloads", "places", "records", "sequences", "targets", "timestamps")

    def __init__(self) -> None:
        self.edges: list[int] = []
        self.targets: list[int] = []
        self.places: list[int] = []
        self.timestamps: list[int | None] = []
        self.sequences: list[int] = []
        self.payloads: list[bytes] = []
        self.records: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.edges)

    def columns(self) -> tuple[list[Any], ...]:
        """Return all columns that are transmitted, in order."""
        return self.edges, self.targets, self.places, self.timestamps, self.sequences, self.payloads

    def take(self) -> Rows:
        """Remove and return the rows so far."""
        taken = Rows()
        for mine, theirs in zip(self.columns(), taken.columns(), strict=True):
            theirs.extend(mine)
            mine.clear()
        return taken

    def append(
        self,
        edge: int,
        target: int,
        sequence: int,
        payload: bytes,
        timestamp: int | None = None,
        place: int = NO_KEY_PLACE,
    ) -> None:
        """Add a row without a key."""
        self.edges.append(edge)
        self.targets.append(target)
        self.places.append(place)
        self.timestamps.append(timestamp)
        self.sequences.append(sequence)
        self.payloads.append(payload)


#: The number of bits in a place below the subtask.
HASH_BITS: Final = 48
HASH_MASK: Final = (1 << HASH_BITS) - 1
#: A producer numbers its rows from its subtask index times this, so that no two producers share a number.
SEQUENCES_PER_SUBTASK = 1 << 40


def build_sequence(subtask: int) -> count[int]:
    """Return the sequence numbers of a producer's rows."""
    return count(subtask * SEQUENCES_PER_SUBTASK)


class Exchange:
    """Collects the rows of one edge, in place of a result partition. It ignores control elements."""

    def __init__(self, edge: int, rows: Rows, sequences: count[int], partitioner: Partitioner) -> None:
        self.partitioner = partitioner
        self._edge = edge
        self._rows = rows
        self._sequences = sequences

    def collect(self, batch: Batch) -> None:
        """Add the records of a batch."""
        raise NotImplementedError

    def broadcast(self, element: Any, flush: bool = False) -> None:
        """Do nothing: watermarks and the like are not sent, since each task knows when its input has ended."""


class BatchExchange(Exchange):
    """Sends whole batches, which a partitioner distributes over the edge's subtasks."""

    def __init__(
        self, edge: int, rows: Rows, sequences: count[int], partitioner: Partitioner, consumers: range
    ) -> None:
        super().__init__(edge, rows, sequences, partitioner)
        self._consumers = consumers

    def collect(self, batch: Batch) -> None:
        """Add a row for each consumer that receives part of the batch."""
        if self.partitioner.is_broadcast:
            payload = _dumps(batch)
            for consumer in self._consumers:
                self._rows.append(self._edge, consumer, next(self._sequences), payload, place=BROADCAST_PLACE)
            return
        for channel, part in self.partitioner.split(batch):
            self._rows.append(self._edge, self._consumers[channel], next(self._sequences), _dumps(part))


class Places(KeyMemory):
    """Computes the places of keys (see `rows`), by key group as in streaming."""

    def __init__(self, consumers: int, max_parallelism: int) -> None:
        super().__init__()
        self._consumers = consumers
        self._max_parallelism = max_parallelism

    def work_out(self, key: Any) -> int:
        """Return the key's subtask, followed by a hash of the key."""
        digest = xxhash.xxh3_64_intdigest(key_bytes(key))
        target = subtask_of_key_group(digest % self._max_parallelism, self._max_parallelism, self._consumers)
        return target << HASH_BITS | digest & HASH_MASK


class KeyedExchange(Exchange):
    """Sends a row for each record, at the place of its key.

    Without `has_payloads`, the driver carries the records to the rows' destinations; they arrive in the same order.
    """

    def __init__(
        self,
        edge: int,
        rows: Rows,
        sequences: count[int],
        partitioner: HashPartitioner,
        positions: Places,
        consumer_name: str,
        has_payloads: bool = True,
    ) -> None:
        super().__init__(edge, rows, sequences, partitioner)
        self._key_selector = partitioner.key_selector
        self._places = positions
        self._consumer_name = consumer_name
        self._has_payloads = has_payloads

    def collect(self, batch: Batch) -> None:
        """Add a row for each record, with a payload if asked for."""
        values, rows = batch.values, self._rows
        positions = self._places.of_records(self._key_selector, values, self._consumer_name)
        size = len(values)
        rows.edges.extend(repeat(self._edge, size))
        rows.targets.extend([position >> HASH_BITS for position in positions])
        rows.places.extend(positions)
        rows.timestamps.extend(repeat(None, size) if batch.timestamps is None else batch.timestamps)
        rows.sequences.extend(islice(self._sequences, size))
        if self._has_payloads:
            rows.payloads.extend(pickling.dumps_each(values, None if isinstance(batch, ColumnBatch) else batch.kinds))
        elif batch.kinds is None:
            rows.payloads.extend(repeat(b"", size))
        else:
            raise UnsupportedError(
                f"{self._consumer_name}: records with row kinds cannot go through Spark's own exchange"
            )


def _dumps(batch: Batch) -> bytes:
    if isinstance(batch, ColumnBatch) or batch.kinds is not None:
        return pickling.dumps((*batch.content()[:2], None, batch.kinds))
    apart = pickling.take_apart(batch.values)
    if apart is not None:
        return pickling.dumps((apart[1], batch.timestamps, apart[0]))
    return pickling.dumps((batch.values, batch.timestamps))


def loads_batch(payload: bytes) -> Batch:
    """Load the batch of a row without a key."""
    values, timestamps, *fields_and_kinds = pickle.loads(payload)
    if len(fields_and_kinds) == 1:
        return Batch(pickling.make_rows(fields_and_kinds[0], values), timestamps)
    return make_batch(values, timestamps, *fields_and_kinds[1:])


@dataclass(frozen=True)
class Consumer:
    """The consumer of an edge. `is_keyed`: the head of its vertex needs its records key by key.

    `has_records`: the records reach it without this task, which only determines their destinations.
    """

    parallelism: int
    max_parallelism: int
    is_keyed: bool
    has_records: bool = False


def is_keyed(vertex: JobVertex) -> bool:
    """Return whether the head of a vertex holds state per key, so that its input must come key by key."""
    program: VertexProgram = pickle.loads(vertex.program)
    return bool(program.operators[0].factory().is_keyed)


def keeps_step(vertex: JobVertex) -> bool:
    """Return whether the head of a vertex exchanges messages with its other subtasks, so that all must run at once."""
    program: VertexProgram = pickle.loads(vertex.program)
    return isinstance(program.operators[0].factory(), LockstepOperator)


def consumers_of_vertex(job_graph: JobGraph, vertex: JobVertex, keyed: list[bool]) -> dict[int, Consumer]:
    """Return the consumer of each output edge of a vertex; `keyed`: per vertex, whether its input comes key by key."""
    return {
        edge.index: Consumer(
            job_graph.vertices[edge.target].parallelism,
            job_graph.vertices[edge.target].max_parallelism,
            keyed[edge.target],
        )
        for edge in job_graph.get_outputs(vertex.index)
    }


def find_targets(out: OutEdge, consumer: Consumer, subtask: int, parallelism: int) -> range:
    """Return the consuming subtasks that a subtask, one of `parallelism`, reaches over an edge."""
    if out.partitioner.is_pointwise:
        return find_consumers(subtask, parallelism, consumer.parallelism)
    return range(consumer.parallelism)


def build_exchange(
    out: OutEdge, consumer: Consumer, rows: Rows, sequences: count[int], subtask: int, parallelism: int
) -> Exchange:
    """Create the exchange for the records that a subtask of `parallelism` sends over an edge; it adds to `rows`."""
    partitioner = out.partitioner
    if consumer.is_keyed and isinstance(partitioner, HashPartitioner):
        return KeyedExchange(
            out.edge,
            rows,
            sequences,
            partitioner,
            Places(consumer.parallelism, consumer.max_parallelism),
            out.consumer_name,
            not consumer.has_records,
        )
    reached = find_targets(out, consumer, subtask, parallelism)
    partitioner.set_up(subtask, len(reached), consumer.max_parallelism, out.consumer_name)
    return BatchExchange(out.edge, rows, sequences, partitioner, reached)


def first_with_key(rows: Rows, begin: int, end: int) -> int:
    """Return the index of the first row with a key; rows without a key precede them."""
    return begin if rows.places[begin] >= 0 else bisect_left(rows.places, 0, begin, end)


def process_with_key(
    rows: Rows, begin: int, end: int, inputs: Mapping[int, int], process: Callable[[Batch, int], None]
) -> None:
    """Process a range of rows, all with a key, in few batches; `inputs`: the input index of each edge."""
    if begin == end:
        return
    edges = rows.edges[begin:end]
    values, kinds = _load_records(rows, begin, end)
    timestamps = rows.timestamps[begin:end]
    if edges.count(edges[0]) == len(edges) and timestamps.count(None) in (0, len(edges)):
        process(_batch(values, timestamps, kinds), inputs[edges[0]])
        return
    begun = 0
    for (edge, _), run in groupby(zip(edges, values, timestamps, strict=True), _batches):
        _, of_run, times = zip(*run, strict=True)
        ended = begun + len(times)
        process(_batch(list(of_run), list(times), kinds and kinds[begun:ended]), inputs[edge])
        begun = ended


def _load_records(rows: Rows, begin: int, end: int) -> tuple[list[Any], bytes | None]:
    """Return the records of rows for a keyed operator, and the row kinds stored separately from them."""
    payloads = rows.payloads[begin:end]
    if rows.records is None:
        return pickling.loads_each(payloads)
    records = rows.records[begin:end]
    if not any(payloads):
        return records, None
    loaded, kinds = pickling.loads_each([payload for payload in payloads if payload])
    next_value, next_kind = iter(loaded), iter(kinds or ())
    values = [next(next_value) if payload else record for payload, record in zip(payloads, records, strict=True)]
    return values, kinds and bytes([next(next_kind) if payload else pickling.NO_KIND for payload in payloads])


def _batches(row: tuple[int, Any, int | None]) -> tuple[int, bool]:
    """Return the key that consecutive rows of a batch share: all records of a batch have a timestamp, or none has."""
    return row[0], row[2] is None


def _batch(values: list[Any], timestamps: list[Any], kinds: bytes | None) -> Batch:
    if kinds is not None and pickling.NO_KIND in kinds:
        kinds = _with_those_of_rows(kinds, values)
    return Batch(values, None if timestamps[0] is None else timestamps, kinds)


def _with_those_of_rows(kinds: bytes, values: list[Any]) -> bytes | None:
    """Fill in row kinds that are not stored separately: a `Row` has its own, and all other records are inserts."""
    if kinds.count(pickling.NO_KIND) == len(kinds):
        return None
    own = [value.get_row_kind().value if isinstance(value, Row) else RowKind.INSERT.value for value in values]
    return bytes([of_row if kind == pickling.NO_KIND else kind for kind, of_row in zip(kinds, own, strict=True)])


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

    receives_source_events = False

    def __init__(self, source: Source[Any, Any], parallelism: int, restored: StateFile | None) -> None:
        self.parallelism = parallelism
        self.no_more = [False] * parallelism
        self._new: list[list[bytes]] = [[] for _ in range(parallelism)]
        self._now: list[Callable[[], None]] = []
        self._next_epoch: list[Callable[[], None]] = []
        self._what = type(source).__name__
        state = None
        if restored is not None and restored.data is not None:
            state = pickling.loads_named(restored.data, f"the state of the split enumerator of {self._what}")
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
        data = pickling.dumps_named(
            self._enumerator.snapshot_state(epoch), f"the state of the split enumerator of {self._what}"
        )
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
        self._new[subtask_index].append(pickling.dumps_named(split, f"a split of {self._what}"))

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
        self.checkpoints = statistics.CheckpointStatistics()

    def add(self, payload: bytes) -> None:
        """Add the report of a task that has ended."""
        metrics: TaskMetrics = pickle.loads(payload)
        task = metrics.execution.vertex, metrics.execution.subtask
        known = self.tasks.get(task)
        self.tasks[task] = metrics if known is None else _sum(known, metrics)

    def epoch_completed(self, checkpoint: CheckpointMetadata, begun_ms: int, now_ms: int) -> None:
        """Record an epoch that began at `begun_ms` and has completed its checkpoint now."""
        record = statistics.CheckpointRecord(
            checkpoint.checkpoint_id,
            statistics.CheckpointStatus.COMPLETED,
            begun_ms,
            duration_ms=now_ms - begun_ms,
            state_bytes=checkpoint.state_bytes,
            subtasks=len(self.tasks),
            acknowledged=len(self.tasks),
            parts=self._parts(checkpoint, begun_ms, now_ms),
            metadata_bytes=len(encode_metadata(checkpoint)),
        )
        self.checkpoints = self.checkpoints.with_triggered().with_completed(record)

    def _parts(
        self, checkpoint: CheckpointMetadata, begun_ms: int, now_ms: int
    ) -> tuple[statistics.SubtaskCheckpoint, ...]:
        """Return each subtask's part of a checkpoint; an epoch's parts are all present when the epoch ends."""
        sizes: dict[tuple[int, int], int] = dict.fromkeys(self.tasks, 0)
        for operator in checkpoint.operators:
            vertex = self._vertices.get(operator.operator_id)
            for subtask, state in operator.subtasks.items():
                if vertex is not None:
                    size = sum(file.length for file in state.state_files())
                    sizes[vertex, subtask] = sizes.get((vertex, subtask), 0) + size
        return tuple(
            statistics.SubtaskCheckpoint(vertex, subtask, now_ms, now_ms - begun_ms, size, size)
            for (vertex, subtask), size in sorted(sizes.items())
        )

    def epoch_failed(self, checkpoint_id: int, begun_ms: int, now_ms: int, reason: str) -> None:
        """Record an epoch that is run again, or that ends the job."""
        record = statistics.CheckpointRecord(
            checkpoint_id, statistics.CheckpointStatus.FAILED, begun_ms, duration_ms=now_ms - begun_ms, failure=reason
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
