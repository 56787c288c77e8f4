"""Directories of temporary files that nobody leaves behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from penstock.drivers.held_directory import HeldDirectory


def test_what_a_killed_process_has_left_goes_with_the_next_one(tmp_path: Path) -> None:
    """The directories of those that live stay, whatever their process ids are."""
    program = f"""
import os, signal
from pathlib import Path
from penstock.drivers.held_directory import HeldDirectory
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
