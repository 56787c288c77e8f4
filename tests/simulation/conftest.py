"""Seeds that no one has run before: another range each day."""

import datetime

import pytest

FRESH_SEEDS = 500


def fresh_seeds() -> range:
    """Today's."""
    first = datetime.datetime.now(tz=datetime.UTC).date().toordinal() * 1_000
    return range(first, first + FRESH_SEEDS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seeds = fresh_seeds()
    terminalreporter.write_line(f"fresh seeds of today: penstock-sim --seeds {seeds.start}..{seeds.stop - 1}")
