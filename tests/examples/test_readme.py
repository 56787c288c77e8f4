"""The programs in the README run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)

LOCAL = """
from penstock.common.options import EXECUTION_TARGET
from penstock.datastream import StreamExecutionEnvironment as Environment
_made = Environment.__init__
def _make(self, configuration=None):
    _made(self, configuration)
    self.get_configuration().write(EXECUTION_TARGET, "local")
Environment.__init__ = _make
"""


def run(program: str, folder: Path) -> list[str]:
    """What the program prints, without the numbers of the subtasks; sorted, for their order is free."""
    path = folder / "program.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(line.partition("> ")[2] or line for line in done.stdout.splitlines())


def test_there_are_programs() -> None:
    assert BLOCKS


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_in_one_process(number: int, tmp_path: Path) -> None:
    assert run(LOCAL + BLOCKS[number], tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_on_spark_it_prints_the_same(number: int, tmp_path: Path) -> None:
    assert run(BLOCKS[number], tmp_path) == run(LOCAL + BLOCKS[number], tmp_path)
