"""`collect` and `execute_and_collect`: all records, or so many of them; other sinks of the program lose nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import local_environment
from tests.said import said

from penstock.base.errors import UserFunctionError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.codecs.serialization import Encoder
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink

COUNT = 3_000


def numbers(env: Any, count: int | None = COUNT) -> Any:
    source: Any = DataGeneratorSource(lambda i: i) if count is None else DataGeneratorSource(lambda i: i, count)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def to_files(stream: Any, directory: Path) -> None:
    stream.sink_to(FileSink.for_row_format(str(directory), Encoder.simple_string_encoder()).build()).name("files")


def committed(directory: Path) -> list[int]:
    """What visible part files hold."""
    files = [path for path in directory.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return sorted(int(line) for path in files for line in path.read_text().splitlines())


MODES: list[dict[str, Any]] = [
    {},
    {"execution__checkpointing__interval": 20},
    {"execution__runtime_mode": "BATCH"},
    {"execution__runtime_mode": "MICRO_BATCH"},
]


@pytest.mark.parametrize("options", MODES, ids=str)
def test_collect_gives_all_records(options: dict[str, Any]) -> None:
    """E1: without a limit there is none."""
    assert sorted(numbers(local_environment(**options)).collect()) == list(range(COUNT))


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize("limit", [None, 5])
def test_a_sink_beside_the_collected_records_gets_all_of_a_bounded_stream(
    options: dict[str, Any], limit: int | None, tmp_path: Path
) -> None:
    """E1, G9: what is brought here does not cut short what other sinks commit."""
    stream = numbers(local_environment(**options))
    to_files(stream, tmp_path)
    assert len(stream.collect(limit)) == (limit or COUNT)
    assert committed(tmp_path) == list(range(COUNT))


def test_a_failure_after_the_limit_is_raised_when_other_sinks_wait_for_the_end(tmp_path: Path) -> None:
    """A2, E1: the job goes on for the other sinks, so its end counts."""

    def halve(value: int) -> int:
        return value // (COUNT - 1 - value)

    stream = numbers(local_environment(penstock__source__batch_records=16))
    stream.map(halve).name("fails").print()
    with pytest.raises(UserFunctionError, match="fails"):
        stream.execute_and_collect(limit=3)


def test_with_a_limit_and_no_other_sink_the_job_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    """E1: even one that never ends; there is nobody to lose anything, so nothing is said."""
    assert numbers(local_environment(), None).execute_and_collect(limit=5) == [0, 1, 2, 3, 4]
    assert said(caplog) == []


def test_cancelling_the_other_sinks_of_an_unbounded_job_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """E1: a job that never ends cannot be waited for: its other sinks are named before it is cancelled."""
    stream = numbers(local_environment(), None)
    to_files(stream, tmp_path)
    stream.print("shown")
    assert stream.collect(5) == [0, 1, 2, 3, 4]
    (warning,) = said(caplog)
    assert "5 records" in warning
    assert "'files', 'Print'" in warning


def test_closing_results_early_names_the_other_sinks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """E1: leaving the `with` block cancels the job, and with it what its other sinks have not committed."""
    stream = numbers(local_environment(), None)
    to_files(stream, tmp_path)
    with stream.execute_and_collect() as results:
        assert next(results) == 0
    (warning,) = said(caplog)
    assert "'files'" in warning


def test_closing_results_that_have_ended_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """E1: a job that has come to its end is not cancelled."""
    stream = numbers(local_environment())
    to_files(stream, tmp_path)
    with stream.execute_and_collect() as results:
        assert len(list(results)) == COUNT
    assert said(caplog) == []


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_at_least_one(limit: int) -> None:
    """E1: as in Flink; nothing runs."""
    with pytest.raises(ValueError, match="limit must be at least 1"):
        numbers(local_environment()).collect(limit)
