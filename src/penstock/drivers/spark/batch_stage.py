"""A batch task on Spark: passes Arrow batches of rows into a `BatchTask` and out of it."""

from __future__ import annotations

import base64
import pickle
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.drivers.event_loop import SystemClock, WaitingEventLoop, rare_collections
from penstock.drivers.spark import frames
from penstock.drivers.spark.lockstep import Meeting, kept_in_step
from penstock.runtime.batch.exchange import MARK_PLACE, NO_KEY_PLACE, Rows
from penstock.runtime.batch.task import BatchTask, BatchVertex
from penstock.runtime.operators.record.stateless import HandOverOperator
from penstock.runtime.protocol import Failure
from penstock.runtime.records import Batch
from penstock.runtime.task.failures import describe_failure

#: Spark partitions by `slot`, see `batch_frames.slots`.
SCHEMA = pa.schema(
    [
        ("edge", pa.int32()),
        ("target", pa.int32()),
        ("place", pa.int64()),
        ("timestamp", pa.int64()),
        ("sequence", pa.int64()),
        ("payload", pa.binary()),
        ("slot", pa.int32()),
    ]
)
NO_COLUMNS: Final[Mapping[int, frames.RecordShape]] = {}
#: The columns that a task needs; its rows arrive sorted.
INPUT_COLUMNS = ["edge", "target", "place", "timestamp", "payload"]
#: The delimiters of a failure in the text of an exception; Spark returns nothing but the text.
MARK = "penstock-failure:"
END_MARK = ":penstock"


class StageError(Exception):
    """A task failed. The text contains the `Failure`, see `extract_failure`."""


@dataclass(frozen=True)
class StageSettings:
    """The settings of a vertex's tasks.

    `splits`: per subtask of a source. `slots`: of each edge's consumers. `pointwise`: the forward edges, which connect
    equal subtasks. `frame`: the records of the data frame that the vertex reads, whose last column is the subtask; with
    `is_key`, only their keys, see `route_stage`. `columns`: the edges whose records come as columns, and the shapes of
    these records. `schema`: the schema of the data frame that the vertex makes of its records. `meeting`: for tasks
    that work in lockstep, see `lockstep`.
    """

    index: int
    vertex: BatchVertex
    splits: list[tuple[bytes, ...]] | None
    slots: dict[int, list[int]]
    pointwise: frozenset[int]
    frame: frames.RecordShape | None = None
    columns: Mapping[int, frames.RecordShape] = field(default_factory=dict)
    schema: pa.Schema | None = None
    is_key: bool = False
    meeting: Meeting | None = None


def run_stage(payload: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one task. Its first row identifies the subtask; only a task of an empty data frame may get no rows."""
    settings: StageSettings = pickle.loads(payload)
    with rare_collections():
        yield from _run(settings, iter(batches))


def _run(settings: StageSettings, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    first = next((batch for batch in rows if batch.num_rows), None)
    if first is None:
        return
    subtask = _read_subtask(first, settings)
    with open_task(settings, subtask) as task:
        if settings.frame is not None:
            shape = settings.frame
            output = task.run_values(Batch(frames.to_records(b.columns[:-1], shape)) for b in chain((first,), rows))
        elif settings.splits is None:
            output = task.run(read_rows(batch, settings.columns) for batch in chain((first,), rows))
        else:
            for _ in rows:
                pass  # Spark expects its input to be read
            output = task.run_source(settings.splits[subtask])
        if settings.meeting is not None:
            output = kept_in_step(task, output, settings.index, subtask, settings.meeting)
        yield from (
            _records(task, output, settings) if settings.schema is not None else _marked(output, settings, subtask)
        )


def _read_subtask(first: pa.RecordBatch, settings: StageSettings) -> int:
    """Return the subtask that the first row identifies."""
    if settings.frame is not None:
        subtask: int = first.column(first.num_columns - 1)[0].as_py()
    elif settings.splits is not None:
        subtask = first.column(0)[0].as_py()
    elif "target" in first.schema.names:
        subtask = first.column("target")[0].as_py()
    else:
        subtask = MARK_PLACE - first.column("place")[0].as_py()
    return subtask


@contextmanager
def open_task(settings: StageSettings, subtask: int) -> Iterator[BatchTask]:
    """Provide the task of a subtask for as long as it runs."""
    loop = WaitingEventLoop("penstock-async")
    try:
        with failures_told(settings, subtask):
            run = uuid.uuid4().hex[:16]  # Spark may run a task twice, even at the same time
            yield BatchTask(settings.vertex, subtask, SystemClock(), loop.wait, loop.coroutines, run)
    finally:
        loop.coroutines.close()


@contextmanager
def failures_told(settings: StageSettings, subtask: int) -> Iterator[None]:
    """Convert an exception to a `StageError` of that subtask."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise StageError(
            failure_text(describe_failure(error, settings.vertex.name), settings.index, subtask)
        ) from error


def _marked(output: Iterator[Rows], settings: StageSettings, subtask: int) -> Iterator[pa.RecordBatch]:
    yield to_arrow(_marks(settings, subtask), settings.slots)
    for produced in output:
        if len(produced):
            yield to_arrow(produced, settings.slots)


def _records(task: BatchTask, output: Iterator[Rows], settings: StageSettings) -> Iterator[pa.RecordBatch]:
    """Return the records that the tail of the chain hands over."""
    tail = task.operators[-1]
    assert isinstance(tail, HandOverOperator)
    for _ in output:
        values = [value for batch in tail.take() for value in batch.values]
        if values:
            yield frames.to_record_batch(values, settings.schema, settings.vertex.name)


def _marks(settings: StageSettings, subtask: int) -> Rows:
    """Return a row for every consumer, so that each of its tasks has at least one."""
    rows = Rows()
    for edge, slots in settings.slots.items():
        if edge in settings.pointwise:
            rows.append(edge, subtask, 0, b"")
        elif subtask == 0:
            for consumer in range(len(slots)):
                rows.append(edge, consumer, 0, b"")
    return rows


def record_column(edge: int, index: int) -> str:
    """Return the name of a column that holds a field of an edge's records."""
    return f"record_{edge}_{index}"


def read_rows(batch: pa.RecordBatch, columns: Mapping[int, frames.RecordShape] = NO_COLUMNS) -> Rows:
    """Convert the columns that a task needs to rows, see `batch_job`; derivable columns may be missing."""
    rows = Rows()
    size, names = batch.num_rows, batch.schema.names
    positions = batch.column("place")
    rows.places = positions.to_pylist()
    rows.timestamps = batch.column("timestamp").to_pylist()
    rows.edges = batch.column("edge").to_pylist() if "edge" in names else [next(iter(columns))] * size
    rows.payloads = [b""] * size
    if "payload" in names:
        rows.payloads = batch.column("payload").to_pylist()
    if columns:
        rows.records = [None] * size
        is_record, of_edge = positions.to_numpy() >= 0, np.array(rows.edges)
        for edge, shape in columns.items():
            _fill(rows.records, batch, np.flatnonzero(is_record & (of_edge == edge)), edge, shape)
    return rows


def _fill(records: list[Any], batch: pa.RecordBatch, indices: Any, edge: int, shape: frames.RecordShape) -> None:
    """Fill in the records of an edge that come as columns."""
    fields = [batch.column(record_column(edge, i)) for i in range(len(shape.names))]
    if len(indices) == len(records):
        records[:] = frames.to_records(fields, shape)
    elif len(indices):
        edge_records = frames.to_records([column.take(frames.numbers(indices)) for column in fields], shape)
        for index, record in zip(indices.tolist(), edge_records, strict=True):
            records[index] = record


def to_arrow(rows: Rows, slots: Mapping[int, list[int]]) -> pa.RecordBatch:
    """Convert rows to Arrow, with the slots of their targets by edge."""
    edges, targets = (np.fromiter(column, np.int32, len(rows)) for column in (rows.edges, rows.targets))
    slot_numbers = np.full(len(rows), NO_KEY_PLACE, np.int32)
    for edge in set(rows.edges):
        if edge >= 0:
            of_edge = edges == edge
            slot_numbers[of_edge] = np.asarray(slots[edge], np.int32)[targets[of_edge]]
    columns = [
        frames.numbers(edges),
        frames.numbers(targets),
        frames.numbers(np.fromiter(rows.places, np.int64, len(rows))),
        frames.numbers_or_null(rows.timestamps),
        frames.numbers(np.fromiter(rows.sequences, np.int64, len(rows))),
        frames.binary(rows.payloads),
        frames.numbers(slot_numbers),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def failure_text(failure: Failure, vertex: int, subtask: int) -> str:
    """Encode a failure and its location as text that survives Spark.

    Its first line is for readers of a data frame's error.
    """
    data = msgspec.msgpack.encode((vertex, subtask, failure))
    where = "" if failure.operator_name is None else f"operator {failure.operator_name!r}, subtask {subtask + 1}: "
    record = "" if failure.record is None else f"; record: {failure.record}"
    return f"{where}{failure.reason}{record}\n{MARK}{base64.b64encode(data).decode()}{END_MARK}"


def extract_failure(text: str) -> tuple[int, int, Failure] | None:
    """Decode (vertex, subtask, failure) from the text of a Spark exception; None if it contains no failure."""
    begin = text.find(MARK)
    end = text.find(END_MARK, begin)
    if begin < 0 or end < 0:
        return None
    data = base64.b64decode(text[begin + len(MARK) : end])
    return msgspec.msgpack.decode(data, type=tuple[int, int, Failure])
