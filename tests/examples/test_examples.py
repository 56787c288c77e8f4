"""The examples give what a plain computation gives, in one process and on Spark."""

import re
import subprocess
import sys
from collections import Counter
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.datastream import DataStream, StreamExecutionEnvironment

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[!_]*.py"))
NAMES = [path.stem for path in EXAMPLES]
#: A batch has no late records, and tells a running sum once.
TELL_WHAT_IS_SO_FAR = {"late_data", "stock_prices", "word_count"}


def labelled(position: int, record: Any) -> tuple[int, Any]:
    return position, record


def collect(env: StreamExecutionEnvironment, built: DataStream | tuple[DataStream, ...]) -> list[Any]:
    """The records of a stream; of several, each in a pair with its stream's position."""
    if isinstance(built, tuple):
        first, *others = [stream.map(partial(labelled, position)) for position, stream in enumerate(built)]
        built = first.union(*others)
    with built.execute_and_collect() as results:  # type: ignore[union-attr]
        return list(results)


def compare(name: str, target: str, parallelism: int, directory: Path, more: dict[str, Any] | None = None) -> None:
    """Run an example, with more settings if need be, and compare it with its answer in `answers`."""
    example, plain = import_module(f"examples.{name}"), import_module(f"tests.examples.answers.{name}")
    settings = Configuration.from_dict(
        {
            "execution.target": target,
            "parallelism.default": parallelism,
            "restart-strategy.type": "none",  # a mistake is told, rather than made again
            **(more or {}),
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.enable_checkpointing(200)
    if hasattr(plain, "run"):  # an example of files
        plain.run(env, directory)
        return
    inputs = plain.inputs()
    results = collect(env, example.build(env, *inputs))
    if hasattr(plain, "check"):
        plain.check(results, *inputs)
    else:
        expected = plain.answer(*inputs)
        assert expected
        assert Counter(results) == expected


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_in_one_process(name: str, parallelism: int, tmp_path: Path) -> None:
    compare(name, "local", parallelism, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_no_example_depends_on_how_often_watermarks_come(name: str, tmp_path: Path) -> None:
    """C2: a source tells its watermark after each batch, here of three records."""
    compare(name, "local", 2, tmp_path, {"penstock.source.batch-records": 3})


@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("name", sorted(set(NAMES) - TELL_WHAT_IS_SO_FAR))
def test_a_batch_gives_the_same(name: str, parallelism: int, tmp_path: Path) -> None:
    """I1: as a batch every example gives the same results, but for those that tell results as they grow."""
    compare(name, "local", parallelism, tmp_path, {"execution.runtime-mode": "BATCH"})


@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_epochs_give_the_same(name: str, parallelism: int, tmp_path: Path) -> None:
    """I1: in micro-batch execution, at a few records an epoch, as in streaming."""
    options = {"execution.runtime-mode": "MICRO_BATCH", "execution.micro-batch.max-records": 100}
    compare(name, "local", parallelism, tmp_path, options)


@pytest.mark.spark
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_on_spark(name: str, parallelism: int, tmp_path: Path) -> None:
    compare(name, "spark", parallelism, tmp_path)


@pytest.mark.parametrize("script", EXAMPLES, ids=NAMES)
def test_each_example_runs_as_a_program(script: Path) -> None:
    command = [sys.executable, str(script), "--target", "local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 3


def test_every_example_stands_in_the_list_with_what_it_shows() -> None:
    listed = re.findall(
        r"^\| \[`(\w+)\.py`\]\(\1\.py\) \|", (EXAMPLES[0].parent / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == NAMES
