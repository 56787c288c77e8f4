"""The examples give what a plain computation gives, in one process and on Spark, in any execution mode."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples.execution_modes import EXAMPLES, EXECUTION_MODES, FOLDER, NAMES, compare

#: Those of one library do the same on Spark; one of them is enough there.
ON_SPARK = [name for name in NAMES if "." not in name]
#: In one process everything; on Spark each example as a stream, one in four as a batch and one in four in epochs: each
#: takes seconds there. `python -m tests.examples.execution_modes` runs all of it on Spark.
RUNS = [
    *(
        pytest.param(n, "local", parallelism, execution_mode)
        for n in NAMES
        for parallelism in (1, 4)
        for execution_mode in EXECUTION_MODES
    ),
    *(pytest.param(n, "spark", 4, "STREAMING", marks=pytest.mark.spark) for n in (*ON_SPARK, "cep.fraud_sequence")),
    *(pytest.param(n, "spark", 2, "BATCH", marks=pytest.mark.spark) for n in ON_SPARK[::4]),
    *(pytest.param(n, "spark", 2, "MICRO_BATCH", marks=pytest.mark.spark) for n in ON_SPARK[2::4]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "target", "parallelism", "execution_mode"), RUNS)
def test_the_final_result_is_the_same_in_every_execution_mode(
    name: str, target: str, parallelism: int, execution_mode: str, tmp_path: Path
) -> None:
    """I1: in micro-batch over several epochs."""
    epochs = 2 if target == "spark" else 12
    compare(name, target, parallelism, tmp_path, execution_mode, epochs)


@pytest.mark.parametrize("name", NAMES)
def test_no_example_depends_on_how_often_watermarks_come(name: str, tmp_path: Path) -> None:
    """C2: a source tells its watermark after each batch, here of three records."""
    compare(name, "local", 2, tmp_path, more={"penstock.source.batch-records": 3})


@pytest.mark.parametrize("script", EXAMPLES, ids=NAMES)
def test_each_example_runs_as_a_program(script: Path) -> None:
    command = [sys.executable, str(script), "--target", "local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 3


def test_every_example_stands_in_the_list_with_what_it_shows() -> None:
    listed = re.findall(r"^\| \[`([\w/]+)\.py`\]\(\1\.py\) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    graphs = [f"gelly.{path.stem}" for path in FOLDER.glob("gelly/*.py")]  # tests/gelly runs these
    assert sorted(name.replace("/", ".") for name in listed) == sorted([*NAMES, *graphs])
