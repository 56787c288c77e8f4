"""A micro-batch task on Spark: passes Arrow batches of rows into an `EpochTask` and out of it.

The place of a row for the client is the index of its vertex. A task passes on the rows for the client of the tasks
upstream.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.drivers.event_loop import SystemClock, WaitingEventLoop
from penstock.drivers.spark.batch_stage import INPUT_COLUMNS, SCHEMA, StageError, failure_text, read_rows, to_arrow
from penstock.drivers.spark.frames import RecordShape, numbers, to_records
from penstock.drivers.worker_storage import BackendSettings, StorageSettings
from penstock.runtime.batch.exchange import NO_KEY_PLACE, Rows
from penstock.runtime.epochs.coordinator import EpochVertex, EpochWork
from penstock.runtime.epochs.task import EpochTask
from penstock.runtime.records import Batch
from penstock.runtime.task.failures import describe_failure

#: The columns that a task needs of its own rows and of the rows that it passes on.
CARRIED_COLUMNS = [*INPUT_COLUMNS, "sequence"]


@dataclass(frozen=True)
class EpochStage:
    """The settings of a vertex's tasks for one epoch; `works` by subtask, and `slots` by edge as in `batch_stage`.

    `frame`: the records that Spark has read for the source. They come in rows of the subtask and a struct, which is
    null in a row that only identifies the subtask.
    """

    vertex: EpochVertex
    works: list[EpochWork]
    slots: dict[int, list[int]]
    storage: StorageSettings
    backends: BackendSettings
    frame: RecordShape | None = None


def run_stage(payload: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one task. Its first row identifies the subtask; every task gets at least one row."""
    stage: EpochStage = pickle.loads(payload)
    is_source = not stage.vertex.inputs
    carried: list[pa.RecordBatch] = []
    arrived = (batch for batch in (batches if is_source else _own(batches, carried)) if batch.num_rows)
    first = next(arrived)
    subtask = first.column(0 if is_source else 1)[0].as_py()
    loop = WaitingEventLoop("penstock-async")
    try:
        task = EpochTask(
            stage.vertex,
            subtask,
            stage.works[subtask],
            SystemClock(),
            stage.storage.store(),
            stage.backends.backends(),
            uuid.uuid4().bytes[:8],
            loop.wait,
            loop.coroutines,
        )
        rows = chain((first,), arrived)
        inputs: Iterable[Rows] = ()
        values: Iterable[Batch] | None = None
        if stage.frame is not None:
            values = _read_batches(rows, stage.frame)
        elif is_source:
            for _ in arrived:
                pass  # Spark expects its input to be read
        else:
            inputs = (read_rows(batch) for batch in rows)
        for produced in task.run(inputs, values):
            if len(produced):
                yield to_arrow(_with_vertex(produced, stage.vertex.index), stage.slots)
            while carried:
                yield carried.pop()
    except (Exception, SystemExit) as error:
        raise StageError(
            failure_text(describe_failure(error, stage.vertex.name), stage.vertex.index, subtask)
        ) from error
    finally:
        loop.coroutines.close()


def _own(batches: Iterable[pa.RecordBatch], carried: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the task's own rows; move the rows for the client to `carried`."""
    for batch in batches:
        for_client = pc.less(batch.column(0), 0)
        if pc.any(for_client).as_py():
            carried.append(_handed_on(batch.filter(for_client)))
            batch = batch.filter(pc.invert(for_client))
        yield batch.select(INPUT_COLUMNS)


def _handed_on(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [rows.column(name) for name in SCHEMA.names[:-1]]
    slots = numbers(np.full(rows.num_rows, NO_KEY_PLACE, np.int32))
    columns = [column.cast(field.type) for column, field in zip([*columns, slots], SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _with_vertex(rows: Rows, vertex: int) -> Rows:
    for row, edge in enumerate(rows.edges):
        if edge < 0:
            rows.places[row] = vertex
    return rows


def _read_batches(batches: Iterable[pa.RecordBatch], shape: RecordShape) -> Iterator[Batch]:
    for batch in batches:
        records = batch.column(1)
        if records.null_count:
            records = records.drop_null()
        if len(records):
            yield Batch(to_records(records.flatten(), shape))
