"""The programs of docs/micro-batch.md run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples.test_readme import LOCAL

PAGE = Path(__file__).parents[2] / "docs" / "micro-batch.md"
FIRST, *IN_BOTH_TEMPOS, OF_SPARK = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def run(program: str, folder: Path) -> list[str]:
    (folder / "program.py").write_text(program)
    command = [sys.executable, str(folder / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_epochs_and_streaming_go_on_from_each_other(tmp_path: Path) -> None:
    """I1, H4: what the page says of a program's own sources holds."""
    assert run(LOCAL + FIRST + "".join(IN_BOTH_TEMPOS), tmp_path) == ["12 counts, each once"]


@pytest.mark.spark
def test_sparks_streaming_sources_are_read_by_runs_behind_each_other(tmp_path: Path) -> None:
    """I1, G8: what the page says of streaming data frames holds."""
    assert run(FIRST + OF_SPARK, tmp_path) == ["['tea 3', 'tea 7']"]
