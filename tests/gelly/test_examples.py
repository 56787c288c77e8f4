"""The examples of graphs give what networkx gives, in one process in every execution mode, and one of them on Spark."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples.execution_modes import EXECUTION_MODES, compare

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "examples" / "gelly"
SCRIPTS = sorted(FOLDER.glob("[!_]*.py"))
NAMES = [path.stem for path in SCRIPTS]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("parallelism", "execution_mode"), [*zip((1, 4, 2), EXECUTION_MODES, strict=True)])
def test_the_final_result_is_the_same_in_every_execution_mode(
    name: str, parallelism: int, execution_mode: str, tmp_path: Path
) -> None:
    """I1: as networkx says."""
    compare(f"gelly.{name}", "local", parallelism, tmp_path, execution_mode)


@pytest.mark.spark
@pytest.mark.parametrize("name", ["triangles", "shortest_flights"])
def test_examples_run_on_spark(name: str, tmp_path: Path) -> None:
    """One with supersteps, and one without."""
    compare(f"gelly.{name}", "spark", 2, tmp_path, "BATCH")


@pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)
def test_each_example_runs_as_a_program(script: Path) -> None:
    command = [sys.executable, str(script), "--target", "local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 3


def test_every_example_stands_in_the_list_with_what_it_shows() -> None:
    readme = (FOLDER.parent / "README.md").read_text()
    listed = re.findall(r"^\| \[`gelly/(\w+)\.py`\]\(gelly/\1\.py\) \|", readme, re.MULTILINE)
    assert sorted(listed) == NAMES
