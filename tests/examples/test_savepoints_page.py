"""The program of docs/savepoints.md runs."""

import re
import subprocess
import sys
from pathlib import Path

from tests.examples.test_readme import LOCAL

PAGE = Path(__file__).parents[2] / "docs" / "savepoints.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_blocks_are_one_program(tmp_path: Path) -> None:
    """H5: what the page says of savepoints holds."""
    program = tmp_path / "program.py"
    program.write_text(LOCAL + "".join(BLOCKS))
    command = [sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "counter Keyed Process ['count', 'recent'" in done.stdout
    assert {path.name for path in (tmp_path / "savepoints").iterdir()} > {"made", "changed"}
