"""Directories on a machine's disk: directories of ended processes are removed, and no others (D3)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.state.rocks import keyed

from penstock.drivers.directories import WorkerDirectories
from penstock.drivers.worker_storage import RocksDBBackends
from penstock.runtime.protocol import ExecutionId
from penstock.runtime.task.operator_chain import OperatorChain, VertexProgram
from penstock.state.backend import KeyedStateBackend
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import MemoryBudget, RocksDBSettings, SlotMemory
from penstock.state.states import ValueStateDescriptor

HOLDER = """
import sys, time
from penstock.drivers.directories import WorkerDirectories
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


@pytest.mark.parametrize("job_id", ["job", "another job"])
def test_directory_of_a_killed_process_is_removed_whatever_the_next_job(tmp_path: Path, job_id: str) -> None:
    """D3: the lock ends with the process. A driver that starts again after a kill has a new job id."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        path = Path(holder.stdout.readline().strip())
        other = tmp_path / "penstock-logs-job-1"
        other.mkdir()
        (other / ".lock").touch()
        WorkerDirectories(str(tmp_path), job_id)
        assert (path / "state").read_text() == "precious"
        holder.send_signal(signal.SIGKILL)
    WorkerDirectories(str(tmp_path), job_id)
    assert list(tmp_path.iterdir()) == [other]
    WorkerDirectories(str(tmp_path), job_id, "penstock-logs-")
    assert list(tmp_path.iterdir()) == []


def test_directory_that_cannot_be_removed_now_is_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D3: such as while a file system still uses its files. The lock file stays until the last file is removed."""
    made = WorkerDirectories(str(tmp_path), "job").make()
    (made.path / "state").touch()

    def refuse(path: str) -> None:
        raise OSError(f"{path} is in use")

    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", refuse)
        made.remove()
    assert (made.path / "state").exists()
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


# --- failures ---------------------------------------------------------------------------------------------------------

EXECUTION = ExecutionId(0, 0, 0)
EVERY_GROUP = (0, 127)


def test_directory_is_removed_when_closing_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """D3: RocksDB writes its buffers when it closes, which fails on a full disk. Nobody needs them any more."""
    budget = MemoryBudget(64 << 20, "taskmanager.memory.managed.size", 0.5, 0.33)
    memory = SlotMemory(budget)
    backends = RocksDBBackends(WorkerDirectories(str(tmp_path), "job"), RocksDBSettings(memory=memory))
    opened = []
    for name in ("other", "sum of orders"):
        backend = backends.make(EXECUTION, name, name, 128, EVERY_GROUP)
        assert isinstance(backend, RocksDBKeyedStateBackend)
        keyed(backend, "key")
        backend.value_state(ValueStateDescriptor("v")).update(1)
        backend.settle()
        opened.append(backend)
    assert memory.buffer_bytes == budget.write_buffer_bytes(2)
    other, failing = opened
    shutil.rmtree(failing.directory / "db")  # so that writing the buffers fails
    failing.close()
    assert "sum of orders: cannot close the RocksDB state" in caplog.text
    assert list(tmp_path.iterdir()) == [other.directory]
    assert memory.buffer_bytes == budget.write_buffer_bytes(1)
    failing.close()  # changes nothing
    other.close()
    assert list(tmp_path.iterdir()) == []


class MakesFirstOnly(RocksDBBackends):
    """The disk has room for one directory."""

    is_full = False

    def make(self, *of: Any) -> KeyedStateBackend:
        if self.is_full:
            raise OSError("No space left on device")
        self.is_full = True
        return super().make(*of)


def test_task_whose_second_operator_gets_no_directory_leaves_none(tmp_path: Path) -> None:
    """D3: the state of the first operator is closed, though the task has no operators yet that it could close."""
    chain = OperatorChain(VertexProgram((), ()), {})
    backends = MakesFirstOnly(WorkerDirectories(str(tmp_path), "job"), RocksDBSettings())

    def contexts() -> Iterator[Any]:
        for name in ("first", "second"):
            keyed_state = backends.make(EXECUTION, name, name, 128, EVERY_GROUP)
            assert len(list(tmp_path.iterdir())) == 1
            yield SimpleNamespace(keyed=keyed_state)

    with pytest.raises(OSError, match="No space left"):
        chain.setup(contexts())
    assert list(tmp_path.iterdir()) == []
