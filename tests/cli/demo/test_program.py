"""The demo's job in one process, against a plain loop."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from penstock.base.errors import PenstockError
from penstock.cli.demo import program
from penstock.cli.demo import program as plain_python
from penstock.cli.demo.flights import Flights, prepare
from penstock.cli.demo.program import Answer, differences, print_comparison, read_output
from penstock.cli.demo.run import DemoOptions, run_demo
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment

LIMIT = 20_000


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Flights:
    return prepare(tmp_path_factory.mktemp("flights"), LIMIT)


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_the_output_is_that_of_a_plain_loop(flights: Flights, tmp_path: Path, parallelism: int) -> None:
    settings = {"execution.target": "local", "parallelism.default": parallelism}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    program.build(env, flights.departures, tmp_path, per_second=None)
    env.execute("flights")
    assert differences(read_output(tmp_path), plain_python.answer(flights.original)) == []


def test_late_flights_reach_the_side_output(flights: Flights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "OUT_OF_ORDERNESS", 0)
    settings = {"execution.target": "local", "penstock.source.batch-records": 100}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    program.build(env, flights.departures, tmp_path, per_second=None)
    env.execute("flights")
    ours = read_output(tmp_path)
    assert ours.late > 100
    assert differences(ours, plain_python.answer(flights.original)) == []


def test_the_demo_in_one_process_leaves_what_it_is_told_to_keep(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=100)
    options = DemoOptions(target="local", keep=tmp_path / "kept", limit=2_000)
    assert run_demo(options, console)
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "equal: all" in said
    assert f"the output is in {tmp_path / 'kept' / 'output'}" in said
    assert read_output(tmp_path / "kept" / "output").hourly
    with pytest.raises(PenstockError, match="already exists"):
        run_demo(options, console)


def test_a_difference_is_shown() -> None:
    console = Console(file=io.StringIO(), width=100)
    hour = ("EWR", "2013-01-01T10:00:00Z")
    ours, theirs = Answer({hour: (2, 9)}, {("UA", "2013-01-01"): 5}), Answer({hour: (3, 9)}, {})
    print_comparison(console, ours, theirs, "Spark SQL", differences(ours, theirs))
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "different: 2 rows are not the same" in said
    assert "Penstock (2, 9), check (3, 9)" in said
    assert "equal" not in said
