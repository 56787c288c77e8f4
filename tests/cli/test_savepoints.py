"""`penstock savepoint show` and `penstock state diff`."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.state.key_columns import COLUMNS_SCHEMA, ColumnsCapture, RowMeaning
from penstock.state.states import ListStateDescriptor, ValueStateDescriptor
from penstock.state_processor import SavepointReader, SavepointWriter
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import CheckpointMetadata, KeyedStateHandle, OperatorState, OperatorSubtaskState


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
    assert counter[:7] == ["counter", "counter", "2", "of", "128", "count", "value"]
    assert ("2,000" in counter) is count
    (positions,) = [line for line in lines if "positions" in line]
    assert positions[5:9] == ["positions", "list", "union", "3"]


def test_what_is_no_savepoint_is_said_in_one_line(store_directory: Path) -> None:
    """H5: a directory without metadata is an error, in one line."""
    result = CliRunner().invoke(main, ["savepoint", "show", str(store_directory)])
    assert result.exit_code == 1
    assert result.output.startswith(f"error: {store_directory}/_metadata cannot be read")
    assert result.output.count("\n") == 1


def test_counting_takes_state_in_columns_too(store_directory: Path) -> None:
    """H5: the entries of a state in columns, without the rows that later ones have replaced."""
    table = pa.table({"key0": [1, 2], "part0": [1, 1]})
    newest = pa.table({"key0": [1], "part0": [5]})
    meaning = RowMeaning(("key0",))
    target = store_directory / "columns"
    store = FileCheckpointStore(None, "job", 0)
    files = []
    for first, rows in ((0, table), (2, newest)):
        data = ColumnsCapture("groups", rows, ("key0",), "", first, meaning=meaning).to_bytes()
        files.append(store.write(1, f"part-{first}", data, str(target)))
    handle = KeyedStateHandle(0, 127, tuple(files), COLUMNS_SCHEMA)
    subtask = OperatorSubtaskState({"groups": (handle,)}, {})
    operator = OperatorState("0" * 32, None, "Group Aggregate", 1, 128, {0: subtask})
    store.complete(CheckpointMetadata(1, "job", "job", 0, True, (operator,)), str(target))
    result = CliRunner().invoke(main, ["savepoint", "show", str(target), "--count", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["operators"][0]["states"][0]["entries"] == 2


def write(directory: Path, counts: dict[str, float], positions: list[int], max_parallelism: int = 128) -> str:
    """A savepoint with a keyed state, timers and an operator state."""
    writer = SavepointWriter.new_savepoint(parallelism=2, max_parallelism=max_parallelism)
    writer.with_keyed_state("counter", ValueStateDescriptor("count"), list(counts.items()), 0, 1)
    writer.with_timers("counter", [(key, 5) for key in counts], 0, 1)
    writer.with_operator_state("reader", "positions", positions, "union")
    return writer.write(str(directory))


def invoke(*arguments: str) -> tuple[int, str]:
    """The exit code and the output of a command."""
    result = CliRunner().invoke(main, ["state", "diff", *arguments])
    return result.exit_code, result.output


NAN = float("nan")


@pytest.mark.parametrize("max_parallelism", [128, 64])
def test_differences_of_two_savepoints(store_directory: Path, max_parallelism: int) -> None:
    """H5: entries that were added, removed or changed, by state; NaN has not changed. The exit code is 1."""
    first = write(store_directory / "a", {"x": 1, "y": 2, "z": NAN, "w": 4}, [1, 2, 2])
    second = write(store_directory / "b", {"x": 1, "y": 3, "z": NAN, "v": 5}, [2, 3], max_parallelism)
    code, output = invoke(first, second, "--json", "--examples", "9")
    assert code == 1
    by_state = {state["state"]: state for state in json.loads(output)}
    assert {
        name: [state[kind] for kind in ("before", "after", "added", "removed", "changed")]
        for name, state in by_state.items()
    } == {
        "count": [4, 4, 1, 1, 1],
        "_penstock_timers_event": [4, 4, 1, 1, 0],
        "positions": [3, 2, 1, 2, 0],
    }
    assert sorted(by_state["count"]["examples"]) == ["+ 'v': 5", "- 'w': 4", "~ 'y': 2 -> 3"]
    assert sorted(by_state["_penstock_timers_event"]["examples"]) == ["+ 'v' in 5: None", "- 'w' in 5: None"]
    assert sorted(by_state["positions"]["examples"]) == ["+ 3", "- 1", "- 2"]
    code, output = invoke(first, second, "--examples", "1")
    assert code == 1
    assert [line.split()[2] for line in output.splitlines() if line.startswith("counter count ")] in (["~"], ["-"])


def test_equal_savepoints_and_those_with_other_states(store_directory: Path) -> None:
    """H5: exit code 0 if all are equal; a state that only one has was added as a whole."""
    first = write(store_directory / "a", {"x": 1}, [1])
    assert invoke(first, write(store_directory / "b", {"x": 1}, [1])) == (0, "All 3 states are equal.\n")
    writer = SavepointWriter.from_existing_savepoint(first)
    writer.with_keyed_state("other", ListStateDescriptor("items"), [("k", 1), ("k", 2)], 0, 1)
    code, output = invoke(first, writer.write(str(store_directory / "c")), "--json")
    assert code == 1
    (state,) = [state for state in json.loads(output) if state["operator"] == "other"]
    assert (state["state"], state["before"], state["after"], state["added"]) == ("items", 0, 1, 1)


def test_what_cannot_be_compared_ends_with_2(store_directory: Path, made: str) -> None:
    """H5: an error has an exit code of its own, as that of diff."""
    code, output = invoke(made, str(store_directory))
    assert code == 2
    assert output.startswith("error: ")


def test_states_that_are_written_keep_their_kind(made: str) -> None:
    """H5: a declared state is listed and read by its kind."""
    assert [state.kind for state in SavepointReader.read(made).operator("counter").states] == ["value"]
