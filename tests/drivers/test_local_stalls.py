"""Functions of the local target that hold Python's lock, and the stacks that show them (E2)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, sys
from tests.datastream.environments import local_environment

def hold(value):
    ctypes.PyDLL(None).usleep(int(sys.argv[2]))
    return value

env = local_environment(execution__runtime_mode=sys.argv[1], penstock__slow_workers__threshold="500 ms")
made = env.from_collection([1]).map(lambda value: sys.modules["__main__"].hold(value))
print(list(made.execute_and_collect()))
"""


def run(mode: str, held_us: int) -> subprocess.CompletedProcess[str]:
    """A program whose function holds the lock for so long."""
    root = Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    command = [sys.executable, "-c", PROGRAM, mode, str(held_us)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=150)


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
def test_stacks_show_the_function_that_holds_the_lock(mode: str) -> None:
    """E2: nothing else of the process can run meanwhile."""
    ended = run(mode, 3_000_000)
    assert ended.stdout.splitlines() == ["[1]"], ended.stderr
    assert "Timeout (0:00:00.500000)!" in ended.stderr
    assert 'File "<string>", line 6 in hold' in ended.stderr


def test_functions_that_return_are_not_shown() -> None:
    """E2."""
    ended = run("STREAMING", 1_000)
    assert ended.stdout.splitlines() == ["[1]"], ended.stderr
    assert "Timeout" not in ended.stderr
