"""A driver that was stopped goes on beside the one that was started in its place: each record counts once (E7)."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.spec.test_driver_is_killed import COUNT, lines, started

pytestmark = pytest.mark.slow


def wait_for_output(directory: Path, process: subprocess.Popen[str]) -> None:
    had = len(lines(directory))
    while process.poll() is None and len(lines(directory)) == had:
        time.sleep(0.02)


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
@pytest.mark.parametrize("goes_on", ["while the other one runs", "when the other one has ended"])
def test_one_that_is_stopped_and_goes_on(store_directory: Path, mode: str, goes_on: str) -> None:
    """E7, G8, G9: it commits, deletes and marks nothing more, and its program hears why."""
    is_slow = goes_on == "while the other one runs"
    with started(store_directory, rate=500, mode=mode) as stopped:
        wait_for_output(store_directory, stopped)
        stopped.send_signal(signal.SIGSTOP)
        with started(store_directory, rate=500 if is_slow else 0, mode=mode) as other:
            if is_slow:
                wait_for_output(store_directory, other)
                stopped.send_signal(signal.SIGCONT)
            out, err = other.communicate()
            assert out == "executed\n", err
        stopped.send_signal(signal.SIGCONT)
        out, err = stopped.communicate()
    assert out == ""
    assert "DeposedError: job 'counts' was suspended: another driver, number 2 of this name, has taken" in err
    assert lines(store_directory) == list(range(COUNT))


def test_a_third_one_begins_where_the_second_one_was(store_directory: Path) -> None:
    """E7, G8: whatever the first one has made visible since."""
    with started(store_directory, rate=500) as first:
        wait_for_output(store_directory, first)
        first.send_signal(signal.SIGSTOP)
        with started(store_directory, rate=500) as second:
            wait_for_output(store_directory, second)
            second.send_signal(signal.SIGSTOP)
            first.send_signal(signal.SIGCONT)
            assert "was suspended: another driver, number 2 of this name" in first.communicate()[1]
            with started(store_directory) as third:
                out, err = third.communicate()
                assert out == "executed\n", err
            second.send_signal(signal.SIGCONT)
            assert "was suspended: another driver, number 3 of this name" in second.communicate()[1]
    assert lines(store_directory) == list(range(COUNT))
