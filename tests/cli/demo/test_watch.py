"""Whether the demo's job went through what it was to go through."""

import io

import pytest
from rich.console import Console

from penstock.cli.demo.run import DemoOptions, Outcome, survived


@pytest.mark.parametrize(
    ("options", "outcome", "said"),
    [
        (DemoOptions(), Outcome(killed_pid=1, restarts=1), ""),
        (DemoOptions(), Outcome(), "no worker was killed: the job ended too soon"),
        (DemoOptions(), Outcome(restarts=1), "no worker was killed: the job ended too soon"),
        (DemoOptions(), Outcome(killed_pid=1), "the job did not restart after a worker was killed"),
        (DemoOptions(kill=False), Outcome(), ""),
        (DemoOptions(target="local"), Outcome(), ""),
    ],
)
def test_without_a_kill_and_a_restart_the_demo_fails(options: DemoOptions, outcome: Outcome, said: str) -> None:
    file = io.StringIO()
    assert survived(Console(file=file, width=100), options, outcome) is (said == "")
    assert file.getvalue().splitlines() == ([said] if said else [])
