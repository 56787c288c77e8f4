"""Spark runs a task twice at a time (speculation, an executor that was given up): each writes its own files.

No Spark is needed for that: its side of a task is an iterator of Arrow batches.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.datastream.test_micro_batch import environment, lines_below

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Encoder
from penstock.connectors.file.buckets import RollingPolicy
from penstock.connectors.file.sink import FileSink
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.datastream import RuntimeExecutionMode
from penstock.drivers.spark import batch_stage, epoch_stage
from penstock.drivers.worker_storage import BackendSettings, StorageSettings
from penstock.runtime.batch.exchange import COMMITTABLES, enumerate_splits
from penstock.runtime.batch.task import batch_vertices
from penstock.runtime.epochs.coordinator import Dealt, EpochCoordinator, epoch_vertices
from penstock.runtime.epochs.task import ANSWER
from penstock.runtime.graph import JobGraph
from penstock.testing.connectors import SinkHost

RECORDS = 20_000


def job(mode: RuntimeExecutionMode, out: Path, **options: Any) -> tuple[Any, JobGraph]:
    env = environment(1, mode, **options)
    source: Any = NumberSequenceSource(0, RECORDS - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder())
    numbers.sink_to(sink.with_rolling_policy(RollingPolicy(part_bytes=20_000)).build())
    return env, env.job_graph("job")


def interleaved(one: Iterator[pa.RecordBatch], other: Iterator[pa.RecordBatch]) -> tuple[list[Any], list[Any]]:
    """What two runs give that take turns."""
    rows: tuple[list[Any], list[Any]] = [], []
    runs = [(one, rows[0]), (other, rows[1])]
    while runs:
        for run, gathered in list(runs):
            batch = next(run, None)
            if batch is None:
                runs.remove((run, gathered))
            else:
                gathered.extend(batch.to_pylist())
    return rows


def commit(graph: JobGraph, rows: list[Any]) -> None:
    operators = pickle.loads(graph.vertices[0].program).operators
    for row in rows:
        if row["edge"] == COMMITTABLES:
            chained = operators[row["target"]]
            committer = chained.factory().sink.create_committer(SinkHost(operator=chained.operator_id))
            committer.commit(pickle.loads(row["payload"]))
            committer.end_job()


def subtask() -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"id": [0]})]


def test_of_a_batch(tmp_path: Path) -> None:
    """I2, G9: the driver commits what one of them has left, and what the other wrote goes."""
    _, graph = job(RuntimeExecutionMode.BATCH, tmp_path)
    (source,) = graph.vertices[0].sources.values()
    settings = batch_stage.StageSettings(
        0, batch_vertices(graph, "job")[0], enumerate_splits(source, 1), {}, frozenset()
    )
    payload = pickle.dumps(settings)
    _, counts = interleaved(*(batch_stage.run_stage(payload, subtask()) for _ in range(2)))
    commit(graph, counts)
    assert lines_below(tmp_path) == sorted(map(str, range(RECORDS)))
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_of_an_epoch(store_directory: Path) -> None:
    """G9, G11: files of state have names of their own, too."""
    out = store_directory / "out"
    options = {"execution.checkpointing.dir": str(store_directory / "state")}
    env, graph = job(
        RuntimeExecutionMode.MICRO_BATCH, out, **options, **{"execution.checkpointing.data-inline-threshold": "1 b"}
    )
    configuration = env.get_configuration()
    (operator_id,), (source,) = graph.vertices[0].sources, graph.vertices[0].sources.values()
    dealt = {operator_id: Dealt(tuple(enumerate_splits(source, 1)), (True,))}
    works = EpochCoordinator(graph, "job", None).works(dealt)
    stage = epoch_stage.EpochStage(
        epoch_vertices(graph, "job")[0],
        [works[0, 0]],
        {},
        StorageSettings.of(configuration, "job"),
        BackendSettings.of(configuration, "job"),
    )
    payload = pickle.dumps(stage)
    runs = interleaved(*(epoch_stage.run_stage(payload, subtask()) for _ in range(2)))
    files = []
    for rows in runs:
        (answer,) = [pickle.loads(row["payload"]) for row in rows if row["edge"] == ANSWER]
        files.append({file.path for state in answer.operators.values() for file in state.state_files()})
    assert files[0]
    assert files[0].isdisjoint(files[1])
    commit(graph, runs[1])
    assert lines_below(out) == sorted(map(str, range(RECORDS)))
    assert not [path for path in out.rglob(".*") if path.is_file()]
