"""What a savepoint names of a file sink stays until it is committed, whatever becomes of the job beside it (G9, H1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.datastream.test_micro_batch import MICRO, STREAMING, environment, lines_below

from penstock.base.errors import JobExecutionError, PenstockError
from penstock.base.restart_strategy import RestartStrategies
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Encoder
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.functions import KeyedProcessFunction, MapFunction

BATCH = RuntimeExecutionMode.BATCH


class FailsWhenTold(MapFunction):
    """Raises once, when there is a file `fail` in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def map(self, value: Any) -> Any:
        if (self.directory / "fail").exists() and not (self.directory / "failed").exists():
            (self.directory / "failed").touch()
            raise RuntimeError("as told")
        return value


class Ticks(KeyedProcessFunction):
    """A record whenever a millisecond has passed, which in micro-batch means: in nearly each epoch."""

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 1)
        yield timestamp


def files(path: Path) -> Any:
    return FileSink.for_row_format(str(path), Encoder.simple_string_encoder()).build()


def numbers(env: Any, tmp_path: Path, count: int | None) -> None:
    source: Any = DataGeneratorSource(lambda n: n, count)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    stream.map(FailsWhenTold(tmp_path)).uid("fails").sink_to(files(tmp_path / "out")).uid("files")


def parts_of_savepoint(out: Path) -> list[Path]:
    return [path for path in out.rglob(".part-*") if ".closed." in path.name]


def test_a_streaming_job_that_fails_behind_a_savepoint_leaves_its_files(tmp_path: Path, store_directory: Path) -> None:
    """G9, H1: the new attempt removes what the failed one has left, but for what the savepoint names."""
    settings = {
        "execution.checkpointing.interval": "1 h",
        "penstock.source.batch-records": 10,
        # One that goes on would commit what the savepoint names.
        "jobmanager.execution.failover-strategy": "full",
    }
    env = environment(2, STREAMING, **settings)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    numbers(env, tmp_path, None)
    job = env.execute_async()
    named: list[Path] = []
    while not named:
        savepoint = job.trigger_savepoint(str(store_directory / "savepoints")).result(60)
        named = parts_of_savepoint(tmp_path / "out")
    (tmp_path / "fail").touch()
    while not (tmp_path / "failed").exists() and not job.get_job_status().result().is_terminal_state():
        job.trigger_savepoint(str(store_directory / "later")).exception(60)
    while job.stop_with_savepoint(False, str(store_directory / "later")).exception(60) is not None:
        pass  # it is about to begin again
    job.wait()
    for path in (tmp_path / "out").rglob("part-*"):
        path.unlink()  # of the job that went on

    env = environment(2, STREAMING, **settings, **{"execution.state-recovery.path": savepoint})
    numbers(env, tmp_path, None)
    job = env.execute_async()
    job.stop_with_savepoint(False, str(store_directory / "savepoints")).result(60)
    job.wait()
    assert not any(path.exists() for path in named)
    assert sorted(map(int, lines_below(tmp_path / "out"))) == list(range(len(lines_below(tmp_path / "out"))))


def test_epochs_behind_a_savepoint_leave_its_files(tmp_path: Path, store_directory: Path) -> None:
    """G9, H1: a timer of processing time has fired in the savepoint's epoch, so that it names a file."""
    settings = {"execution.micro-batch.interval": "2 ms"}

    def ticking(**options: Any) -> Any:
        env = environment(1, MICRO, **settings, **options)
        source: Any = DataGeneratorSource(lambda n: 1 // (n + 1), 1)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "one").uid("one")
        waiting: Any = DataGeneratorSource(lambda n: n, None)
        more = env.from_source(waiting, WatermarkStrategy.no_watermarks(), "more").uid("more").filter(lambda n: False)
        ticks = stream.union(more).key_by(lambda n: n).process(Ticks()).uid("ticks")
        ticks.sink_to(files(tmp_path / "out")).uid("files")
        return env

    job = ticking(**{"execution.micro-batch.max-records": 1}).execute_async()
    savepoint, pins = "", list[Path]()
    while not pins:
        savepoint = job.trigger_savepoint(str(store_directory / "savepoints")).result(60)
        pins = list((tmp_path / "out").rglob(".pins-*"))
    (pinned,) = [pins[0].parent / name for name in pins[0].read_text().split("\n")]
    written = pinned.read_text()
    job.stop_with_savepoint(False, str(store_directory / "savepoints")).result(60)
    job.wait()
    assert pinned.exists()

    options = {"execution.micro-batch.max-records": 1, "execution.state-recovery.path": savepoint}
    job = ticking(**options).execute_async()
    job.stop_with_savepoint(False, str(store_directory / "savepoints")).result(60)
    job.wait()
    assert not pinned.exists()
    assert set(written.split()) <= set(lines_below(tmp_path / "out"))


@pytest.mark.parametrize("mode", [MICRO, STREAMING])
def test_files_may_be_taken_away_once_they_are_visible(mode: Any, tmp_path: Path, store_directory: Path) -> None:
    """G9: by whoever reads the output; no epoch, restart or job that begins from the savepoint minds."""
    taken: list[str] = []

    def take_away() -> None:
        for path in (tmp_path / "out").rglob("part-*"):
            taken.extend(path.read_text().split())
            path.unlink()

    savepoint: str | None = None
    for count in (1_000, 2_000):
        options: Any = {"execution.micro-batch.max-records": 100, "penstock.source.batch-records": 10}
        options |= {} if savepoint is None else {"execution.state-recovery.path": savepoint}
        env = environment(1, mode, **options, **{"execution.checkpointing.interval": "5 ms"})
        numbers(env, tmp_path, None)
        job = env.execute_async()
        while len(taken) < count and not job.get_job_status().result().is_terminal_state():
            take_away()
        savepoint = job.stop_with_savepoint(False, str(store_directory / "savepoints")).result(60)
        job.wait()
        take_away()
    assert sorted(map(int, taken)) == list(range(len(taken)))


class TakesThePath(MapFunction):
    """Another job completes its savepoint at the back-fill's path; then this one fails, if it is to."""

    def __init__(self, savepoint: Path, path: Path, fails: bool) -> None:
        self.savepoint, self.path, self.fails = savepoint, path, fails

    def map(self, value: Any) -> Any:
        if not (self.path / "_metadata").exists():
            for file in self.savepoint.iterdir():
                (self.path / file.name).write_bytes(file.read_bytes())
        return 1 // (not self.fails)


@pytest.mark.parametrize("fails", [True, False])
def test_a_back_fill_leaves_the_savepoint_of_another_job_at_its_path(fails: bool, store_directory: Path) -> None:
    """H1: whether it fails for its own reasons, or because of that."""
    other = store_directory / "other"
    job = environment(1, BATCH, **{"execution.batch.savepoint-path": str(other)})
    job.from_collection([1, 2, 3]).key_by(lambda n: n).reduce(lambda one, other: one).print()
    job.execute()
    path = store_directory / "filled"
    env = environment(1, BATCH, **{"execution.batch.savepoint-path": str(path)})
    env.from_collection([1, 2, 3]).map(TakesThePath(other, path, fails)).print()
    with pytest.raises(PenstockError, match="ZeroDivision" if fails else "has meanwhile written a savepoint"):
        env.execute()
    assert (path / "_metadata").read_bytes() == (other / "_metadata").read_bytes()
    assert {file.name for file in path.iterdir()} >= {file.name for file in other.iterdir()}


def test_a_back_fill_whose_pass_fails_leaves_nothing_of_it(tmp_path: Path, store_directory: Path) -> None:
    """H1: neither of that pass nor of its claim on the path."""
    path = store_directory / "filled"
    env = environment(1, BATCH, **{"execution.batch.savepoint-path": str(path)})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    (tmp_path / "fail").touch()
    numbers(env, tmp_path, 100)
    env.execute()
    assert (tmp_path / "failed").exists()
    assert [file.name for file in path.iterdir()] == ["_metadata"]


def test_a_job_may_ask_to_fail_where_a_file_was_taken_away(tmp_path: Path, store_directory: Path) -> None:
    """G9: `with_missing_part_files("fail")`."""

    def submit(**options: Any) -> Any:
        env = environment(1, STREAMING, **options)
        stream = env.from_source(DataGeneratorSource(lambda n: n, None), WatermarkStrategy.no_watermarks(), "numbers")
        sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
        stream.uid("numbers").sink_to(sink.with_missing_part_files("fail").build()).uid("files")
        return env.execute_async()

    job = submit()
    while not list(tmp_path.rglob(".part-*")):
        pass
    savepoint = job.stop_with_savepoint(False, str(store_directory / "savepoints")).result(60)
    job.wait()
    for path in (tmp_path / "out").rglob("part-*"):
        path.unlink()
    job = submit(**{"execution.state-recovery.path": savepoint})
    with pytest.raises(JobExecutionError, match="with_missing_part_files"):
        job.wait()
