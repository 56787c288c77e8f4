"""The program of docs/async.md runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples.test_readme import LOCAL

PAGE = Path(__file__).parents[2] / "docs" / "async.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "begin", [LOCAL, pytest.param("", marks=pytest.mark.spark)], ids=["in one process", "on Spark"]
)
def test_the_blocks_are_one_program(begin: str, tmp_path: Path) -> None:
    """A1: what the page says of asynchronous functions holds."""
    assert len(BLOCKS) == 3
    program = tmp_path / "program.py"
    program.write_text(begin + "".join(BLOCKS))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
