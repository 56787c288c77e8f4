"""The inside of a batch task on Spark: Arrow batches of rows in and out of a `BatchTask`."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from penstock.core.batch.rows import NO_KEY_PLACE, Rows
from penstock.core.batch.task import BatchTask, BatchVertex
from penstock.core.protocol import Failure
from penstock.core.task.failures import failure_of
from penstock.drivers.clock import SystemClock
from penstock.drivers.event_loop import WaitingEventLoop

#: `slot` is what Spark partitions by: see `batch_frames.slots`.
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
DDL = "edge INT, target INT, place BIGINT, timestamp BIGINT, sequence BIGINT, payload BINARY, slot INT"
#: Before and after a failure in the text of an exception, which is all that Spark brings back.
MARK = "penstock-failure:"
END_MARK = ":penstock"


class StageError(Exception):
    """A task failed; the text has the `Failure`, see `failure_in`."""


@dataclass(frozen=True)
class StageSettings:
    """What a vertex's tasks need to know. `splits` of each subtask for a source; `slots` of each edge's consumers.

    `pointwise`: the forward edges, which connect equal subtasks.
    """

    index: int
    vertex: BatchVertex
    splits: list[tuple[bytes, ...]] | None
    slots: dict[int, list[int]]
    pointwise: frozenset[int]


def run_stage(payload: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task. Its first row tells which subtask it is; every task gets at least one."""
    settings: StageSettings = pickle.loads(payload)
    rows = iter(batches)
    first = next(rows)
    while not first.num_rows:
        first = next(rows)
    subtask = 0
    loop = WaitingEventLoop("penstock-async")
    try:
        if settings.splits is None:
            subtask = first.column(1)[0].as_py()
            task = _task(settings, subtask, loop)
            output = task.run(_rows(batch) for batch in chain((first,), rows))
        else:
            subtask = first.column(0)[0].as_py()
            for _ in rows:
                pass  # Spark expects its input to be read
            output = _task(settings, subtask, loop).run_source(settings.splits[subtask])
        yield _arrow(_marks(settings, subtask), settings)
        for produced in output:
            if len(produced):
                yield _arrow(produced, settings)
    except Exception as error:
        raise StageError(failure_text(failure_of(error, settings.vertex.name), settings.index, subtask)) from error
    finally:
        loop.coroutines.close()


def _task(settings: StageSettings, subtask: int, loop: WaitingEventLoop) -> BatchTask:
    return BatchTask(settings.vertex, subtask, SystemClock(), loop.wait, loop.coroutines)


def _marks(settings: StageSettings, subtask: int) -> Rows:
    """A row for every consumer, so that each of their tasks has one."""
    rows = Rows()
    for edge, slots in settings.slots.items():
        if edge in settings.pointwise:
            rows.append(edge, subtask, 0, b"")
        elif subtask == 0:
            for consumer in range(len(slots)):
                rows.append(edge, consumer, 0, b"")
    return rows


def _rows(batch: pa.RecordBatch) -> Rows:
    rows = Rows()
    for column, values in zip(rows.columns(), batch.columns, strict=False):
        column.extend(values.to_pylist())
    return rows


def _arrow(rows: Rows, settings: StageSettings) -> pa.RecordBatch:
    slots: list[int] = [
        settings.slots[edge][target] if edge >= 0 else NO_KEY_PLACE
        for edge, target in zip(rows.edges, rows.targets, strict=True)
    ]
    columns: list[Any] = [*rows.columns(), slots]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def failure_text(failure: Failure, vertex: int, subtask: int) -> str:
    """A failure and its place as text that survives Spark."""
    data = msgspec.msgpack.encode((vertex, subtask, failure))
    return f"{failure.reason}\n{MARK}{base64.b64encode(data).decode()}{END_MARK}"


def failure_in(text: str) -> tuple[int, int, Failure] | None:
    """(vertex, subtask, failure) from the text of what Spark raised; None when there is none."""
    begin = text.find(MARK)
    end = text.find(END_MARK, begin)
    if begin < 0 or end < 0:
        return None
    data = base64.b64decode(text[begin + len(MARK) : end])
    return msgspec.msgpack.decode(data, type=tuple[int, int, Failure])
