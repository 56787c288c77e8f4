"""Directories on a machine's disk: those of processes that are no more go, and no others (D3)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.protocol import ExecutionId
from penstock.drivers.rocksdb_backends import RocksDBBackends
from penstock.drivers.worker_directories import WorkerDirectories
from penstock.state.rocksdb.settings import RocksDBSettings

HOLDER = """
import sys, time
from penstock.drivers.worker_directories import WorkerDirectories
made = WorkerDirectories(sys.argv[1], "job").make()
(made.path / "state").write_text("precious")
print(made.path, flush=True)
time.sleep(600)
"""


def test_one_that_is_in_use_stays(tmp_path: Path) -> None:
    """D3: another worker of the job that begins looks, and leaves it."""
    made = WorkerDirectories(str(tmp_path), "job").make()
    WorkerDirectories(str(tmp_path), "job")
    assert made.path.is_dir()
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_number_of_a_process_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D3: a container's process may have a number that no process has here, and share the disk with this one."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1 << 30)
        made = WorkerDirectories(str(tmp_path), "job").make()
    WorkerDirectories(str(tmp_path), "job")
    assert made.path.is_dir()


def test_what_a_killed_process_has_left_goes(tmp_path: Path) -> None:
    """D3: with the process goes its lock, whatever kills it; other jobs' directories are not looked at."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        path = Path(holder.stdout.readline().strip())
        WorkerDirectories(str(tmp_path), "job")
        assert (path / "state").read_text() == "precious"
        holder.send_signal(signal.SIGKILL)
    WorkerDirectories(str(tmp_path), "another job")
    assert path.is_dir()
    WorkerDirectories(str(tmp_path), "job")
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D3: nobody can tell whether a directory is in use, so only whoever made it removes it."""

    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError("not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    made = WorkerDirectories(str(tmp_path), "job").make()
    WorkerDirectories(str(tmp_path), "job")
    assert list(tmp_path.iterdir()) == [made.path]
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_stores_of_rocksdb_live_in_such(tmp_path: Path) -> None:
    """D3: a backend's directory is there while it is open, and gone with its lock when it is closed."""
    backends = RocksDBBackends(WorkerDirectories(str(tmp_path), "job"), RocksDBSettings())
    backend = backends.make(ExecutionId(0, 0, 0), "id", "operator", 128, (0, 127))
    WorkerDirectories(str(tmp_path), "job")
    assert len(list(tmp_path.iterdir())) == 1
    backend.close()
    assert list(tmp_path.iterdir()) == []
