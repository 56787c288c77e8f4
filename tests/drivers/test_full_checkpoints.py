"""A full checkpoint writes all state anew, and later ones build on it (G7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.base.configuration import Configuration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.running_job import RunningJob
from penstock.runtime.checkpoint.statistics import CheckpointRecord, CheckpointStatus
from penstock.storage.metadata import METADATA_NAME, CheckpointMetadata, decode_metadata

NO_TIME = WatermarkStrategy.no_watermarks()


def begun(directory: Path, backend: str, restored: str | None = None) -> RunningJob:
    options: dict[str, Any] = {
        "execution.target": "local",
        "execution.checkpointing.dir": str(directory),
        "execution.checkpointing.num-retained": 200,
        "execution.checkpointing.data-inline-threshold": "0 b",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "state.backend.type": backend,
        "restart-strategy.type": "none",
    }
    if restored is not None:
        options["execution.state-recovery.path"] = restored
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    numbers = env.from_source(DataGeneratorSource(int, None, rate_per_second=2_000), NO_TIME, "numbers").uid("numbers")
    summed = numbers.map(lambda number: (number % 500, 1)).key_by(lambda pair: pair[0]).sum(1).uid("sum")
    summed.filter(lambda _: False).print().uid("print")
    return env.execute_async("full")


def taken(job: RunningJob, is_full: bool = False) -> CheckpointRecord:
    """A checkpoint that is complete."""
    number = None
    while number is None:
        number = job.trigger_checkpoint(is_full).result()
    found: CheckpointRecord = wait_for(
        lambda: next((r for r in job.get_view().result().checkpoints.history if r.checkpoint_id == number), None)
    )
    assert found.status is CheckpointStatus.COMPLETED, found.failure
    return found


def wait_for(find: Callable[[], Any]) -> Any:
    while (found := find()) is None:
        threading.Event().wait(0.05)
    return found


def count_records(job: RunningJob) -> int:
    """How many records the first vertex has read."""
    subtasks = job.get_view().result().vertices[0].subtasks
    return sum(subtask.metrics.records_in for subtask in subtasks if subtask.metrics is not None)


def find_file_owners(record: CheckpointRecord) -> set[str]:
    """The checkpoints in whose directories its files are."""
    assert record.path is not None
    directory = Path(urlsplit(record.path).path)
    metadata: CheckpointMetadata = decode_metadata((directory / METADATA_NAME).read_bytes(), str(directory))
    paths = [
        file.path
        for operator in metadata.operators
        for state in operator.subtasks.values()
        for file in state.state_files()
    ]
    return {Path(path).parent.name for path in paths if path is not None}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_full_checkpoint_refers_to_no_earlier_one(tmp_path: Path, backend: str) -> None:
    job = begun(tmp_path, backend)
    try:
        wait_for(lambda: True if job.get_view().result().status.name == "RUNNING" else None)
        first = taken(job)
        wait_for(lambda: True if count_records(job) > 4_000 else None)
        for _ in range(3):
            second = taken(job)
        assert f"chk-{first.checkpoint_id}" in find_file_owners(first)
        full = taken(job, is_full=True)
        assert find_file_owners(full) == {f"chk-{full.checkpoint_id}"}
        later = taken(job)
        assert f"chk-{second.checkpoint_id}" not in find_file_owners(later), "it builds on the full one"
    finally:
        job.end()
    job = begun(tmp_path / "restored", backend, full.path)
    try:
        wait_for(lambda: job.get_view().result().checkpoints.restored)
        taken(job)
    finally:
        job.end()
