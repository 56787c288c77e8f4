"""Directories of temporary files that nobody leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.drivers.directories import HeldDirectory


def test_what_a_killed_process_has_left_goes_with_the_next_one(tmp_path: Path) -> None:
    """The directories of those that live stay, whatever their process ids are."""
    program = f"""
import os, signal
from pathlib import Path
from penstock.drivers.directories import HeldDirectory
made = HeldDirectory("query-", Path({str(tmp_path)!r}))
(made.path / "offsets").touch()
os.kill(os.getpid(), signal.SIGKILL)
"""
    alive = HeldDirectory("query-", tmp_path)
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    other = HeldDirectory("query-", tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([alive.path.parent, other.path.parent])
    for directory in (alive, other):
        directory.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ends", ["by itself", "by kill -9"])
def test_a_cached_stream_leaves_nothing(tmp_path: Path, ends: str) -> None:
    """Its records are on disk for as long as its process lives, or until the next one that caches a stream."""
    program = f"""
import os, signal
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
configuration = Configuration.from_dict({{"execution.target": "local", "execution.runtime-mode": "BATCH"}})
env = StreamExecutionEnvironment.get_execution_environment(configuration)
numbers = env.from_collection([1, 2]).cache()
numbers.print()
env.execute()
assert len(os.listdir({str(tmp_path)!r})) == 1
if {ends!r} == "by kill -9":
    os.kill(os.getpid(), signal.SIGKILL)
"""
    command, environment = [sys.executable, "-c", program], {**os.environ, "TMPDIR": str(tmp_path)}
    code = subprocess.run(command, check=False, capture_output=True, env=environment).returncode
    if ends == "by itself":
        assert (code, list(tmp_path.iterdir())) == (0, [])
    else:
        assert (code, len(list(tmp_path.iterdir()))) == (-signal.SIGKILL, 1)
        assert subprocess.run(command, check=False, capture_output=True, env=environment).returncode == -signal.SIGKILL
        assert len(list(tmp_path.iterdir())) == 1, "that of the second one, which has removed that of the first one"
