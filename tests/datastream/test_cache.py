"""Cached streams: computed once, read by later jobs of the environment, never wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.errors import ConfigurationError, JobExecutionError
from penstock.base.restart_strategy import RestartStrategies
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource, NumberSequenceSource
from penstock.datastream.functions import ProcessFunction


class Counted:
    """A function that leaves a mark for each record, so that computing again is seen."""

    def __init__(self, directory: Path, fails_at: int | None = None) -> None:
        self.marks, self.fails_at = directory / "marks", fails_at

    def __call__(self, value: Any) -> Any:
        with self.marks.open("a") as file:
            file.write("x")
        if value == self.fails_at and self.calls <= 2:
            raise RuntimeError("once")
        return value * 10

    @property
    def calls(self) -> int:
        return len(self.marks.read_text()) if self.marks.exists() else 0


class WithTime(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timestamp()


def numbers(env: Any) -> Any:
    return env.add_source(NumberSequenceSource(1, 4))


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("how", ["streaming", "checkpoints", "batch"])
def test_the_second_job_reads_what_the_first_has_computed(parallelism: int, how: str, tmp_path: Path) -> None:
    """A2: nothing upstream runs again, in streaming with and without checkpoints, and in batch execution."""
    mode = "BATCH" if how == "batch" else "STREAMING"
    env = local_environment(parallelism, penstock__cache__dir=tmp_path / "cache", execution__runtime_mode=mode)
    if how == "checkpoints":
        env.enable_checkpointing(1)
    counted = Counted(tmp_path)
    cached = numbers(env).map(counted).cache()
    assert sorted(collect(cached.map(lambda v: v + 1))) == [11, 21, 31, 41]
    assert counted.calls == 4
    assert sorted(collect(cached)) == [10, 20, 30, 40]
    assert sorted(collect(cached.key_by(lambda v: 0).sum()))[-1] == 100
    assert counted.calls == 4
    assert cached.cache() is cached
    assert "Cache (state)" in cached.explain()
    assert "Map" not in cached.explain()
    cached.invalidate()
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []
    assert sorted(collect(cached)) == [10, 20, 30, 40]
    assert counted.calls == 8
    env.close()
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []


def test_order_and_timestamps_are_kept() -> None:
    """A2: what comes from one subtask comes again in its order, with its event times."""
    env = local_environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value * 7)
    cached = env.from_collection(range(10_000)).cache()
    timed = numbers(env).assign_timestamps_and_watermarks(strategy).cache()

    assert collect(cached) == collect(cached) == list(range(10_000))
    assert sorted(collect(timed)) == [1, 2, 3, 4]
    assert sorted(collect(timed.process(WithTime()))) == [(n, 7 * n) for n in range(1, 5)]


def test_a_job_that_did_not_come_to_its_end_leaves_no_cache(tmp_path: Path) -> None:
    """A2: a failed job keeps nothing; the next one computes all."""
    env = local_environment()
    counted = Counted(tmp_path, fails_at=2)
    cached = numbers(env).map(counted).cache()
    with pytest.raises(JobExecutionError):
        collect(cached)
    before = counted.calls
    assert collect(cached) == [10, 20, 30, 40]
    assert counted.calls == before + 4


@pytest.mark.parametrize("interval_ms", [None, 1])
def test_a_job_that_restarts_keeps_each_record_once(interval_ms: int | None, tmp_path: Path) -> None:
    """A2, G9: what another attempt wrote is not there twice."""
    env = local_environment(2, penstock__source__batch_records=8)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    if interval_ms is not None:
        env.enable_checkpointing(interval_ms)
    marker = tmp_path / "marker"

    def fails_once(value: int) -> int:
        if value == 700 and not marker.exists():
            marker.write_text("failed")
            raise RuntimeError("once")
        return value

    source: DataGeneratorSource[int] = DataGeneratorSource(lambda i: i, 1_000)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    cached = stream.map(fails_once).cache()
    cached.print()
    env.execute()
    assert sorted(collect(cached)) == list(range(1_000))
    assert marker.exists()


def test_what_cannot_be_cached() -> None:
    """A2: streams without end, partitionings, and jobs that see only the rest of the records."""
    env = local_environment()
    endless: DataGeneratorSource[int] = DataGeneratorSource(lambda i: i)
    with pytest.raises(NotImplementedError, match="'endless' never ends"):
        env.from_source(endless, WatermarkStrategy.no_watermarks(), "endless").map(str).cache()
    with pytest.raises(TypeError, match="before key_by"):
        numbers(env).key_by(lambda v: v).cache()
    numbers(env).cache().print()
    env.get_configuration().set_string("execution.state-recovery.path", "/nowhere")
    with pytest.raises(ConfigurationError, match="cannot cache a stream"):
        env.execute()
