"""The page of all options is what the code makes of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from penstock.base.options import REGISTRY

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "options.md"


def test_the_page_is_as_the_code_makes_it() -> None:
    """A2: nobody has to look into the code for an option."""
    command = [sys.executable, str(ROOT / "scripts" / "options.py"), str(PAGE), "--check"]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0, "run `make options`"


def test_each_default_can_be_written_as_it_stands_there() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| .+? \| (?:`([^`]+)`)? ?\| ", PAGE.read_text(), re.MULTILINE)
    assert sorted(key for key, _ in rows) == sorted(REGISTRY)
    for key, text in rows:
        option = REGISTRY[key]
        if text:
            assert option.value_type().convert(text) == option.default_value(), key
