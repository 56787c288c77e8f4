"""Promises end to end, on Spark."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.jobs import JOBS, Job
from tests.spec.kill_loop import run_with_kills

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_program_gives_the_answer_of_plain_python(job: Job, parallelism: int) -> None:
    """A1, A2, B2, C1, D1, E8: word count, session windows, keyed state with timers, at parallelism 1, 2 and 4."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism).enable_checkpointing(200)
    assert sorted(job.build(env).execute_and_collect(job.name)) == sorted(job.expected())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["aligned", "unaligned", "aligned with a time-out"])
def test_sigkill_of_workers_never_changes_the_committed_output(mode: str) -> None:
    """G5, G8, G9: workers die at random moments; what was committed is what plain Python computes."""
    configuration = Configuration()
    if mode != "aligned":
        configuration.set_string("execution.checkpointing.unaligned.enabled", "true")
    if mode == "aligned with a time-out":
        configuration.set_string("execution.checkpointing.aligned-checkpoint-timeout", "5 ms")
    chance, kills = random.Random(1), 0
    while kills < 2:  # on a busy machine a job may come to its end first
        kills += run_with_kills(chance, 2 - kills, 60_000, 10_000, (1.5, 2.5), configuration)[0]


@pytest.mark.slow
def test_checkpoints_and_output_in_s3() -> None:
    """G5, G8, G9: the same with a store that has neither renaming nor appending, with settings in the environment."""
    command = [sys.executable, "-m", "tests.spec.kill_loop", "--kills", "1", "--records", "40000", "--store", "s3"]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert "the committed output was equal every time" in ended.stdout, ended.stdout + ended.stderr
