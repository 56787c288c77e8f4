"""The outputs of batch tasks: they convert records into rows with a destination.

The edges of a bounded run: their consumers, and the form of the records on them.

Rows between the tasks of a batch job, by column.

A row is either one record for a keyed operator, or a batch of records for any other. A consumer receives the rows whose
`target` is its subtask, sorted by (`place`, `timestamp`, `edge`, `sequence`), None first. `place` is the subtask
followed by a hash of the record's key, the same for equal keys and never negative. A row without a key has place -1. A
broadcast row has -2, so that it precedes all records. Watermarks, which only epochs have, are at -4. A row without key
and payload is empty, and the consumer skips it. A row with a key but without a payload has its record in `records`.
Place -3 holds accumulators of upstream operators whose own rows do not reach the client: the consumer passes them on.

Converts sorted rows, one record in each, back to batches for a keyed operator.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count, groupby, islice, repeat
from typing import Any, Final

import xxhash

from penstock.base.errors import UnsupportedError
from penstock.base.types import Row, RowKind
from penstock.codecs.pickling import NO_KIND, dumps, dumps_each, loads_each, make_rows, take_apart
from penstock.runtime.columns.batch import ColumnBatch, make_batch
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, find_consumers
from penstock.runtime.operators.lockstep import LockstepOperator
from penstock.runtime.records import Batch
from penstock.runtime.task.channels.partitioners import HashPartitioner, KeyMemory, Partitioner
from penstock.runtime.task.operator_chain import OutEdge, VertexProgram
from penstock.state.key_bytes import key_bytes
from penstock.state.keys import subtask_of_key_group

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
            rows.payloads.extend(dumps_each(values, None if isinstance(batch, ColumnBatch) else batch.kinds))
        elif batch.kinds is None:
            rows.payloads.extend(repeat(b"", size))
        else:
            raise UnsupportedError(
                f"{self._consumer_name}: records with row kinds cannot go through Spark's own exchange"
            )


def _dumps(batch: Batch) -> bytes:
    if isinstance(batch, ColumnBatch) or batch.kinds is not None:
        return dumps((*batch.content()[:2], None, batch.kinds))
    apart = take_apart(batch.values)
    if apart is not None:
        return dumps((apart[1], batch.timestamps, apart[0]))
    return dumps((batch.values, batch.timestamps))


def loads_batch(payload: bytes) -> Batch:
    """Load the batch of a row without a key."""
    values, timestamps, *fields_and_kinds = pickle.loads(payload)
    if len(fields_and_kinds) == 1:
        return Batch(make_rows(fields_and_kinds[0], values), timestamps)
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
        return loads_each(payloads)
    records = rows.records[begin:end]
    if not any(payloads):
        return records, None
    loaded, kinds = loads_each([payload for payload in payloads if payload])
    next_value, next_kind = iter(loaded), iter(kinds or ())
    values = [next(next_value) if payload else record for payload, record in zip(payloads, records, strict=True)]
    return values, kinds and bytes([next(next_kind) if payload else NO_KIND for payload in payloads])


def _batches(row: tuple[int, Any, int | None]) -> tuple[int, bool]:
    """Return the key that consecutive rows of a batch share: all records of a batch have a timestamp, or none has."""
    return row[0], row[2] is None


def _batch(values: list[Any], timestamps: list[Any], kinds: bytes | None) -> Batch:
    if kinds is not None and NO_KIND in kinds:
        kinds = _with_those_of_rows(kinds, values)
    return Batch(values, None if timestamps[0] is None else timestamps, kinds)


def _with_those_of_rows(kinds: bytes, values: list[Any]) -> bytes | None:
    """Fill in row kinds that are not stored separately: a `Row` has its own, and all other records are inserts."""
    if kinds.count(NO_KIND) == len(kinds):
        return None
    own = [value.get_row_kind().value if isinstance(value, Row) else RowKind.INSERT.value for value in values]
    return bytes([of_row if kind == NO_KIND else kind for kind, of_row in zip(kinds, own, strict=True)])
