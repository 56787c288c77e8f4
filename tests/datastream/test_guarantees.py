"""What a job says about its guarantees when it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.datastream.environments import local_environment

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.codecs.serialization import Encoder
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink
from penstock.runtime.checkpoint.statistics import CheckpointSettings
from penstock.runtime.job.recovery import guarantees


def lines(count: int | None, tmp_path: Path, **options: Any) -> list[str]:
    env = local_environment(2, **options)
    source: Any = DataGeneratorSource(lambda i: i) if count is None else DataGeneratorSource(lambda i: i, count)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    stream.rebalance().map(abs).sink_to(sink).name("files")
    stream.print()
    return guarantees(env.job_graph(), CheckpointSettings.of(env.get_configuration()))


def test_a_sink_that_never_commits_is_named(tmp_path: Path) -> None:
    """J: two phases, no end and no checkpoints: nothing would ever be seen; others are not named."""
    (line,) = [line for line in lines(None, tmp_path) if "never commits" in line]
    assert line.startswith("sink 'files' never commits")
    assert "enable_checkpointing" in line


def test_a_sink_that_will_commit_is_not_named(tmp_path: Path) -> None:
    """J: not with checkpoints, and not where the input ends."""
    assert not [line for line in lines(None, tmp_path, execution__checkpointing__interval=10) if "never" in line]
    assert not [line for line in lines(100, tmp_path) if "never commits" in line]
