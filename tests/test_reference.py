"""The API reference is built from the docstrings, and nothing is amiss with them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_in(5)

ROOT = Path(__file__).parents[1]


def test_the_reference_is_built_without_warnings(tmp_path: Path) -> None:
    """Every public name has a docstring, every annotation a meaning, and pages name their modules."""
    command = [sys.executable, str(ROOT / "scripts" / "reference.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "penstock" / "datastream" / "state.html").read_text()
    assert re.search(r"<title>penstock.datastream.state", page)
    assert "StateTtlConfig" in page
    page = (tmp_path / "penstock" / "datastream" / "data_stream.html").read_text()
    assert "state in savepoints; unique in the job" in page, (
        "uid() has its place at the streams whose operator it names"
    )
    assert "Set an evictor, which removes records" in page
    assert not (tmp_path / "penstock" / "runtime" / "task.html").exists()
