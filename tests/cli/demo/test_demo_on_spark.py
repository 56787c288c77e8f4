"""The demo as a user runs it, on a slice of the year: a worker dies, and the output is Spark SQL's."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "penstock.cli.main", "demo"]


@pytest.mark.spark
def test_a_worker_is_killed_and_the_output_is_right(tmp_path: Path) -> None:
    """G9: each row is written once though a worker is killed; the user sees no word of Java or Python's internals."""
    options = ["--limit", "20000", "--rate", "2500", "--keep", str(tmp_path / "kept")]
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert re.search(r"killed worker-\S+, process \d+ on \S+, with SIGKILL after \d+ checkpoints", done.stdout)
    assert re.search(r"finished in .* [1-9]\d* restart", done.stdout)
    assert "equal: all" in done.stdout
    assert not [path for path in (tmp_path / "kept" / "output").rglob(".*") if path.is_file()], "files half written"
