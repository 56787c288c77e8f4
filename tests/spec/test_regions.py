"""Regions of a job restart alone, and the output is that of a run without faults (E6, G8, G9)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.spec.kill_loop import committed
from tests.spec.regions_program import Noted, Numbered

from penstock.common import Configuration, Encoder, RestartStrategies, WatermarkStrategy
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.sink import FileSink
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.running_job import RunningJob

RECORDS = 6_000
RATE = 1_500
PATIENCE_S = 120


def openings(folder: Path, name: str) -> dict[int, list[int]]:
    """The attempts of each subtask."""
    found: dict[int, list[int]] = {}
    for path in sorted(folder.glob(f"{name}-*")):
        _, subtask, attempt = path.name.rsplit("-", 2)
        found.setdefault(int(subtask), []).append(int(attempt))
    return found


def environment(store: Path, target: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.target", target)
    configuration.set_string("execution.checkpointing.dir", str(store / "checkpoints"))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2).enable_checkpointing(200)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 100))
    return env


def numbers(env: StreamExecutionEnvironment, name: str) -> Any:
    source = DataGeneratorSource(int, count=RECORDS, rate_per_second=RATE)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name)


def written(stream: Any, out: Path) -> None:
    sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder())
    stream.sink_to(sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build())


@pytest.mark.parametrize("target", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_pipeline_goes_on_while_another_one_restarts(tmp_path: Path, store_directory: Path, target: str) -> None:
    """E6, G8, G9: they share workers and the connections between these, and exchange no records."""
    env = environment(store_directory, target)
    for name, breaks_at in (("fine", None), ("fails", RECORDS // 2)):
        keyed = numbers(env, name).key_by(lambda value: value % 7)
        written(keyed.process(Numbered(tmp_path, name, breaks_at)), tmp_path / name)
    job = env.execute_async("two pipelines")
    job.get_job_execution_result().result(PATIENCE_S)
    assert openings(tmp_path, "fine") == {0: [0], 1: [0]}
    assert openings(tmp_path, "fails") == {0: [0, 1], 1: [0, 1]}
    for name in ("fine", "fails"):
        expected = {f"{name} {key} {n + 1}": 1 for key in range(7) for n in range(len(range(key, RECORDS, 7)))}
        assert committed(str(tmp_path / name)) == expected


@pytest.mark.spark
def test_a_lost_worker_takes_only_its_own_slot_with_it(tmp_path: Path, store_directory: Path) -> None:
    """E2, E6, G8: where records stay in their slot, the other slots go on, and keep their processes."""
    env = environment(store_directory, "spark")
    written(numbers(env, "numbers").map(Noted(tmp_path)), tmp_path / "out")
    job = env.execute_async("slots")
    pids = wait_for_workers(job)
    wait_for_output(tmp_path / "out", job)
    os.kill(min(pids), signal.SIGKILL)
    job.get_job_execution_result().result(PATIENCE_S)
    attempts = sorted(openings(tmp_path, "forward").values())
    assert attempts == [[0], [0, 1]]
    assert committed(str(tmp_path / "out")) == {str(n): 1 for n in range(RECORDS)}


def wait_for_workers(job: RunningJob) -> set[int]:
    """The processes of the workers, once the job runs."""
    deadline = time.monotonic() + PATIENCE_S
    while len(pids := {process_id for _, _, process_id in job.get_progress().result().workers}) < 2:
        assert time.monotonic() < deadline, "the workers never came"
        time.sleep(0.05)
    return pids


def wait_for_output(out: Path, job: RunningJob) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not committed(str(out)):
        assert time.monotonic() < deadline, "nothing was ever committed"
        assert not job.get_job_execution_result().done(), "the job was too fast"
        time.sleep(0.05)
