"""The programs of the pages that explain one concept each run: the blocks of a page are one program."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.examples.test_readme import LOCAL

DOCS = Path(__file__).parents[2] / "docs"
#: What docs/checkpoints.md prints until its job is cancelled.
COUNTS = re.compile(r"\(\d, \d+\)")
QUICKSTART = """[('ann', 2), ('bob', 1), ('ann', 1)]
Penstock Streaming Job: 2 vertices, 1 slots
[0] parallelism 1
    Collection Source (state)
    Timestamps/Watermarks
    Map
[1] parallelism 1
    <- [0] HASH
    Window Reduce (state)

('ann', 1)
('ann', 2)
('ann', 3)
('bob', 1)
""".splitlines()
#: What a page's program prints, lines in any order, without the numbers of subtasks.
PAGES: dict[str, list[str]] = {
    "checkpoints.md": ["3000 results, none lost and none twice"],
    "coming-from-pyflink.md": ["(ann,0,2)", "(ann,10000,1)", "(bob,0,1)"],
    "iterations.md": [
        "[('A', 0), ('B', 3), ('C', 1), ('D', 8)]",
        "[('a', 1.19), ('b', 1.16), ('c', 0.64)]",
        "[3, 5, 7]",
        "{1.414214}",
    ],
    "keyed-state.md": [],
    "process-functions.md": ["broken> ann ?", "halved 0 ZeroDivisionError: integer division or modulo by zero"],
    "quickstart.md": QUICKSTART,
    "running.md": ["option parallelism.default (integer) has value 'many': write a whole number"],
    "state.md": [],
    "testing-your-functions.md": [
        "test_a_total_comes_after_a_minute passed",
        "test_a_whole_program passed",
        "test_totals_in_every_hostile_way passed",
        "test_totals_survive_a_failure_and_another_parallelism passed",
        "test_what_is_kept_in_self_is_found_out passed",
    ],
    "time.md": [],
}


def run(page: str, prelude: str, folder: Path) -> list[str]:
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    program = folder / "program.py"
    program.write_text(prelude + "".join(blocks))
    command = [sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return sorted(re.sub(r"^\d+> ", "", line) for line in done.stdout.splitlines())


def is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_what_is_called_missing_is_missing() -> None:
    """A2: a module of PyFlink that has come is taken off the list in docs/coming-from-pyflink.md."""
    text = (DOCS / "coming-from-pyflink.md").read_text()
    called_missing = re.findall(r"`(pyflink\.[\w.]+)`", text[text.index("## Not there") : text.index("## What may")])
    assert len(called_missing) > 10
    assert [name for name in called_missing if is_there(name.replace("pyflink", "penstock"))] == []


@pytest.mark.parametrize("page", PAGES)
def test_in_one_process(page: str, tmp_path: Path) -> None:
    """A2: what the page says holds."""
    printed = run(page, LOCAL, tmp_path)
    assert [line for line in printed if page != "checkpoints.md" or not COUNTS.match(line)] == sorted(PAGES[page])


@pytest.mark.spark
@pytest.mark.parametrize("page", ["quickstart.md", "running.md"])
def test_on_spark(page: str, tmp_path: Path) -> None:
    """E8: what the page says holds on Spark."""
    printed = run(page, "", tmp_path)
    assert printed == sorted(PAGES[page])
