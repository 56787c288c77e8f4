"""The inside of a micro-batch task on Spark: Arrow batches of rows in and out of an `EpochTask`."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from penstock.core.batch.rows import Rows
from penstock.core.epochs.task import EpochTask
from penstock.core.epochs.work import EpochVertex, EpochWork
from penstock.core.task.failures import failure_of
from penstock.drivers.backends import BackendSettings
from penstock.drivers.clock import SystemClock
from penstock.drivers.event_loop import WaitingEventLoop
from penstock.drivers.spark.batch_stage import StageError, failure_text, rows_of, to_arrow
from penstock.drivers.worker_storage import StorageSettings


@dataclass(frozen=True)
class EpochStage:
    """What a vertex's tasks need to know of one epoch; `works` and `slots` as in `batch_stage`, by subtask and edge."""

    vertex: EpochVertex
    works: list[EpochWork]
    slots: dict[int, list[int]]
    storage: StorageSettings
    backends: BackendSettings


def run_stage(payload: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task. Its first row tells which subtask it is; every task gets at least one."""
    stage: EpochStage = pickle.loads(payload)
    arrived = iter(batches)
    first = next(arrived)
    while not first.num_rows:
        first = next(arrived)
    is_source = not stage.vertex.inputs
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
            uuid.uuid4().bytes,
            loop.wait,
            loop.coroutines,
        )
        if is_source:
            for _ in arrived:
                pass  # Spark expects its input to be read
            inputs: Iterable[Rows] = ()
        else:
            inputs = (rows_of(batch) for batch in chain((first,), arrived))
        for produced in task.run(inputs):
            if len(produced):
                yield to_arrow(produced, stage.slots)
    except Exception as error:
        raise StageError(failure_text(failure_of(error, stage.vertex.name), stage.vertex.index, subtask)) from error
    finally:
        loop.coroutines.close()
