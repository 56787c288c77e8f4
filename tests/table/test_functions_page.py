"""The page of all functions is what the code makes of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from penstock.sql.functions.registry import SCALAR_FUNCTIONS

ROOT = Path(__file__).parents[2]


def test_the_page_is_as_the_code_makes_it() -> None:
    """Nobody has to look into the code for a function."""
    command = [
        sys.executable,
        str(ROOT / "scripts" / "functions.py"),
        str(ROOT / "docs" / "sql-functions.md"),
        "--check",
    ]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0, "run `make functions`"


def test_each_function_says_how_it_is_written_and_what_it_gives() -> None:
    """Functions without a section are refused wherever they stand."""
    silent = [one.name for one in SCALAR_FUNCTIONS.values() if one.section and not (one.usage and one.summary)]
    assert silent == []
