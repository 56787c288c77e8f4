"""The programs of docs/batch.md run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "batch.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.spark
def test_the_blocks_are_one_program(tmp_path: Path) -> None:
    """I1, I2: what the page says of batch execution and of data frames holds."""
    program = tmp_path / "program.py"
    # The first block starts Spark where there is none; the page's second one makes a session of the program's own.
    program.write_text(BLOCKS[1].split("sales =")[0] + "".join(BLOCKS))
    command = [sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "('on', 2)" in done.stdout
    assert "('on', 1)" not in done.stdout
    assert "| tea|    1|1.0|" in done.stdout
    assert "tea rose by 1.0" in done.stdout
