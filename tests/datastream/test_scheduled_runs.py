"""What a scheduler starts again and again: each run goes on where the last one found nothing more (I1, G8, C2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.test_micro_batch import MICRO, STREAMING, environment, lines_below
from tests.stores import at

from penstock.base.errors import CheckpointError, JobExecutionError
from penstock.base.job import JobStatus
from penstock.base.time import Duration, Time
from penstock.base.watermark_strategy import TimestampAssigner, WatermarkStrategy
from penstock.common import Encoder
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.datastream.window import TumblingEventTimeWindows


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(json.loads(value)["second"]) * 1_000


class Runs:
    """Counts in windows of 10 s of what is in the files of a folder; each run reads what has come since the last."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.source = "files"
        (directory / "in").mkdir()

    def put(self, name: str, *seconds: int) -> None:
        text = "".join(json.dumps({"key": "a", "second": second}) + "\n" for second in seconds)
        (self.directory / "in" / name).write_text(text)

    def job(self, parallelism: int = 1, mode: RuntimeExecutionMode = MICRO, **options: Any) -> Any:
        conf = {
            "execution.checkpointing.dir": self.directory / "checkpoints",
            "execution.checkpointing.interval": "50 ms",
            "penstock.recovery.from-latest": "true",
            "execution.state-recovery.ignore-unclaimed-state": "true",
            **options,
        }
        env = environment(parallelism, mode, **conf)
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(self.directory / "in"))
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(0))
        strategy = strategy.with_timestamp_assigner(Second())
        lines = env.from_source(source.monitor_continuously(10).build(), strategy, "files").uid(self.source)
        counts = lines.map(lambda line: (json.loads(line)["key"], 1)).key_by(lambda pair: pair[0])
        counts = counts.window(TumblingEventTimeWindows.of(Time.seconds(10)))
        counts = counts.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")
        sink = FileSink.for_row_format(str(self.directory / "out"), Encoder.simple_string_encoder()).build()
        counts.map(lambda pair: f"{pair[0]} {pair[1]}").sink_to(sink).uid("out")
        return env

    def run(self, parallelism: int = 1, **options: Any) -> None:
        self.job(parallelism, **options).execute("windows")

    @property
    def written(self) -> list[str]:
        return lines_below(self.directory / "out")


@pytest.fixture
def runs(store_directory: Path) -> Runs:
    return Runs(store_directory)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_late_record_stays_late(runs: Runs, parallelism: int) -> None:
    """C1, C2: a window that fired in one run does not fire again in the next, at whatever parallelism that runs; one
    that was open goes on."""
    runs.put("1", 1, 2, 3, 11, 12)
    runs.run()
    assert runs.written == ["a 3"]
    runs.put("2", 4, 13)
    runs.run(parallelism)
    assert runs.written == ["a 3"]
    runs.put("3", 21)
    runs.run()
    assert runs.written == ["a 3", "a 3"]


def test_event_time_waits_for_a_source_that_is_new(runs: Runs) -> None:
    """C2: of a source that the checkpoint does not know nothing has come yet, so nothing of it is late."""
    runs.put("1", 1, 2, 11)
    runs.run()
    (runs.directory / "in" / "1").unlink()
    runs.put("2", 5, 21)
    runs.source = "other files"
    runs.run()
    assert runs.written == ["a 1", "a 1", "a 2"]


def test_through_streaming_and_back(runs: Runs, store_directory: Path) -> None:
    """I1, C2: streaming begins from such a checkpoint, and its savepoints have no event time, as ever."""
    runs.put("1", 1, 2, 3, 11)
    runs.run()
    runs.put("2", 12)
    job = runs.job(mode=STREAMING).execute_async("windows")
    job.stop_with_savepoint(False, str(store_directory / "savepoints")).result()
    job.get_job_execution_result().result()
    runs.put("3", 21)
    runs.run()
    assert runs.written[-1] == "a 3"


def test_from_a_back_fill(runs: Runs) -> None:
    """I1, C2: what the history has fired does not fire again."""
    runs.put("1", 1, 2, 3, 11)
    filled = str(runs.directory / "filled")
    back_fill: dict[str, Any] = {"execution.batch.savepoint-path": filled, "penstock.recovery.from-latest": "false"}
    runs.job(mode=RuntimeExecutionMode.BATCH, **back_fill).execute("windows")
    runs.put("2", 4, 12, 21)
    begin: dict[str, Any] = {"execution.state-recovery.path": filled}
    runs.run(**begin)
    assert runs.written == ["a 2", "a 3"]


def test_a_run_after_one_that_was_stopped(runs: Runs, store_directory: Path) -> None:
    """H2: it goes on from the savepoint that the run was stopped with."""
    runs.put("1", 1, 11)
    often: dict[str, Any] = {"execution.micro-batch.interval": "10 ms"}
    job = runs.job(**often).execute_async("windows")
    path = job.stop_with_savepoint(False, str(store_directory / "savepoints")).result()
    job.get_job_execution_result().result()
    runs.put("2", 2, 21)
    runs.run()
    assert runs.written == ["a 1", "a 1"]
    assert at(path).exists()


def test_a_damaged_checkpoint_is_not_passed_over(runs: Runs) -> None:
    """G9, G11: nor begun anew for want of another one."""
    runs.put("1", 1, 11)
    runs.run()
    (metadata,) = runs.directory.glob("checkpoints/*/chk-*/_metadata")
    metadata.write_bytes(metadata.read_bytes()[:-1])
    with pytest.raises(JobExecutionError, match=r"cannot be restored: .*the checksum does not match"):
        runs.run()
    fall_back: dict[str, Any] = {"penstock.recovery.past-damaged-checkpoint": "fall-back"}
    runs.run(**fall_back)
    assert runs.written == ["a 1", "a 1"]


def test_a_bounded_program_has_its_end(store_directory: Path) -> None:
    """G8, G9: another run finds that nothing is left to do."""
    for _ in range(2):
        conf = {"execution.checkpointing.dir": store_directory / "checkpoints", "penstock.recovery.from-latest": "true"}
        env = environment(1, MICRO, **conf)
        sink = FileSink.for_row_format(str(store_directory / "out"), Encoder.simple_string_encoder()).build()
        env.from_collection(["a", "b"]).sink_to(sink)
        job = env.execute_async("letters")
        job.get_job_execution_result().result()
        assert job.get_job_status().result() is JobStatus.FINISHED
        with pytest.raises(CheckpointError, match="the job is over"):
            job.trigger_savepoint(str(store_directory / "savepoints")).result(60)
    assert lines_below(store_directory / "out") == ["a", "b"]
