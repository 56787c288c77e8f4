"""`penstock savepoint show`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.state.states import ValueStateDescriptor
from penstock.state_processor import SavepointWriter


@pytest.fixture
def made(store_directory: Path) -> str:
    rows = [(f"key-{i}", i) for i in range(2_000)]
    writer = SavepointWriter.new_savepoint(parallelism=2)
    writer.with_keyed_state("counter", ValueStateDescriptor("count"), rows, 0, 1)
    writer.with_operator_state("reader", "positions", [1, 2, 3], "union")
    return writer.write(str(store_directory / "made"))


@pytest.mark.parametrize("count", [False, True])
def test_show_lists_operators_and_states(made: str, count: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """H5: what is in a savepoint is listed on the command line; entries of keyed states when asked for."""
    monkeypatch.setenv("COLUMNS", "140")
    result = CliRunner().invoke(main, ["savepoint", "show", made, *(["--count"] if count else [])])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert lines[0][:6] == ["savepoint", "1", "of", "job", "'state", "processor',"]
    (counter,) = [line for line in lines if "counter" in line]
    assert counter[:7] == ["counter", "counter", "2", "of", "128", "count", "keyed"]
    assert ("2,000" in counter) is count
    (positions,) = [line for line in lines if "positions" in line]
    assert positions[5:9] == ["positions", "list", "union", "3"]


def test_what_is_no_savepoint_is_said_in_one_line(store_directory: Path) -> None:
    """H5: a directory without metadata is an error, in one line."""
    result = CliRunner().invoke(main, ["savepoint", "show", str(store_directory)])
    assert result.exit_code == 1
    assert result.output.startswith(f"error: {store_directory}/_metadata cannot be read")
    assert result.output.count("\n") == 1
