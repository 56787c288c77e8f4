"""Whole jobs that fail again and again: what is tried again, and when it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import local_environment

from penstock.base.errors import JobExecutionError, UserFunctionError
from penstock.base.restart_strategy import RestartStrategies
from penstock.codecs.serialization import Encoder
from penstock.connectors.file.sink import FileSink

FOR_EVER = RestartStrategies.fixed_delay_restart(1_000_000, 0)


class Absent:
    """Pickles well, and is nowhere to be found when it is loaded."""

    def __reduce__(self) -> Any:
        return __import__, ("no_such_module",)


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_a_function_that_fails_for_a_record_is_not_tried_for_ever(mode: str, tmp_path: Path) -> None:
    """G8: after 10 failures that are alike, with no checkpoint between, the job fails."""
    attempts = tmp_path / "attempts"

    def divide(value: int) -> float:
        with attempts.open("a") as file:
            file.write("x")
        return 1 / value

    env = local_environment(execution__runtime_mode=mode).enable_checkpointing(600_000)
    env.set_restart_strategy(FOR_EVER)
    env.from_collection([0]).map(divide).print()
    with pytest.raises(UserFunctionError, match="ZeroDivisionError") as caught:
        env.execute()
    assert attempts.read_text() == "x" * 10
    assert "10 times" in caught.value.__notes__[0]


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_a_program_that_cannot_be_loaded_fails_at_once(mode: str) -> None:
    """G8: a module that workers lack is not there at the next attempt either."""
    absent = Absent()
    env = local_environment(execution__runtime_mode=mode).enable_checkpointing(10)
    env.set_restart_strategy(FOR_EVER)
    env.from_collection([1]).map(lambda value: (absent, value)[1]).print()
    with pytest.raises(JobExecutionError, match=r"cannot be loaded in the worker.*No module named 'no_such_module'"):
        env.execute()


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_a_sink_that_may_not_write_fails_at_once(mode: str, tmp_path: Path) -> None:
    """G8: where a directory cannot be made, no attempt will make it."""
    (tmp_path / "file").write_text("no directory")
    env = local_environment(execution__runtime_mode=mode).enable_checkpointing(10)
    env.set_restart_strategy(FOR_EVER)
    sink = FileSink.for_row_format(str(tmp_path / "file" / "output"), Encoder.simple_string_encoder()).build()
    env.from_collection([1]).sink_to(sink)
    with pytest.raises(JobExecutionError, match="NotADirectoryError"):
        env.execute()


def test_checkpoints_that_cannot_be_written_fail_the_job_at_once(tmp_path: Path) -> None:
    """G8: the directory of checkpoints likewise."""
    (tmp_path / "file").write_text("no directory")
    env = local_environment(execution__checkpointing__dir=tmp_path / "file" / "checkpoints").enable_checkpointing(10)
    env.set_restart_strategy(FOR_EVER)
    env.from_collection([1]).print()
    with pytest.raises(JobExecutionError, match="NotADirectoryError"):
        env.execute()
