"""The program of docs/datastream.md runs."""

import re
import subprocess
import sys
from pathlib import Path

from tests.examples.test_readme import LOCAL

PAGE = Path(__file__).parents[2] / "docs" / "datastream.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_blocks_are_one_program(tmp_path: Path) -> None:
    """A2: what the page says of the transformations holds."""
    program = tmp_path / "program.py"
    program.write_text(LOCAL + "".join(BLOCKS))
    command = [sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "+I[north, 5]" in done.stdout
    assert "totals (uid totals, state)" in done.stdout
