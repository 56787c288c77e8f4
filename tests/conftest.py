"""What a run of the tests says at its end; here, for pytest reads no other such file when processes share the tests."""

import pytest
from tests.simulation.fresh_seeds import fresh_seeds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the seeds that only this commit's tests run."""
    seeds = fresh_seeds()
    terminalreporter.write_line(f"seeds of this commit: penstock-sim --seeds {seeds.start}..{seeds.stop - 1}")
