"""What every driver's job does for those who wait for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import local_environment

from penstock.base.errors import CheckpointError, JobExecutionError
from penstock.base.job import JobStatus
from penstock.common import Encoder, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink
from penstock.drivers.running_job import RunningJob
from penstock.storage.leadership import DeposedError


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_what_must_be_done_before_the_result(fails: bool, mode: str) -> None:
    """E7: it is done by the time that anyone hears of the end, because the program may end then."""

    def maybe_fail(number: int) -> int:
        if fails:
            raise ValueError(number)
        return number

    env = local_environment(execution__runtime_mode=mode, restart_strategy__type="none")
    env.from_collection([1, 2]).map(maybe_fail).print()
    job = env.execute_async()
    seen: list[tuple[bool, bool]] = []
    job.before_result(lambda failure: seen.append((failure is None, job.get_job_execution_result().done())))
    if fails:
        with pytest.raises(JobExecutionError):
            job.wait()
    else:
        job.wait()
    assert seen == [(not fails, False)]


COUNT = 2_000


class Numbers:
    """A job that writes numbers, exactly once."""

    def __init__(self, directory: Path, mode: str) -> None:
        self._directory = directory
        self._rate = 1_000.0 if mode == "STREAMING" else None
        self._options: dict[str, Any] = {
            "execution__checkpointing__dir": directory / "checkpoints",
            "execution__checkpointing__savepoint_dir": directory / "savepoints",
            "execution__checkpointing__interval": "20 ms",
            "execution__runtime_mode": mode,
            "execution__micro_batch__interval": "20 ms",
            "execution__micro_batch__max_records": 20,
            "penstock__recovery__from_latest": "true",
            "pipeline__name": "numbers",
        }

    def begin(self) -> RunningJob:
        env = local_environment(**self._options)
        source = DataGeneratorSource(str, COUNT, self._rate)
        sink = FileSink.for_row_format(str(self._directory / "out"), Encoder.simple_string_encoder()).build()
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers").sink_to(sink).uid("out")
        return env.execute_async()

    def written(self) -> list[int]:
        files = (self._directory / "out").rglob("part-*")
        return sorted(int(line) for file in files for line in file.read_text().splitlines())


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_a_job_whose_driver_leads_no_longer_is_suspended(tmp_path: Path, mode: str) -> None:
    """E7, G9: it keeps its checkpoints, and commits nothing; the next job goes on where it was."""
    numbers = Numbers(tmp_path, mode)
    job = numbers.begin()
    while not numbers.written():
        time.sleep(0.01)
    job.lose_leadership("somebody said so")
    savepoint = job.trigger_savepoint()
    with pytest.raises(DeposedError, match="job 'numbers' was suspended: somebody said so"):
        job.wait()
    assert job.get_job_status().result() is JobStatus.SUSPENDED
    with pytest.raises(CheckpointError, match=r"the job is over|the job is SUSPENDED|somebody said so"):
        savepoint.result()
    written = numbers.written()
    assert written == list(range(len(written)))
    assert len(written) < COUNT
    job.lose_leadership("somebody says so again")
    numbers.begin().wait()
    assert numbers.written() == list(range(COUNT))


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_a_job_that_is_cancelled_and_loses_its_leadership(tmp_path: Path, mode: str) -> None:
    """E5, E7: whichever it heard first."""
    job = Numbers(tmp_path, mode).begin()
    job.cancel()
    job.lose_leadership("somebody said so")
    with pytest.raises(JobExecutionError, match=r"somebody said so|was cancelled"):
        job.wait()
    assert job.get_job_status().result() in (JobStatus.SUSPENDED, JobStatus.CANCELED)
