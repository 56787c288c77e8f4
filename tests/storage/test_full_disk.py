"""A disk that is full: checkpoints that fail leave nothing, errors name the file, and the job loses nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.base import durable_files
from penstock.base.durable_files import create_file, errors_name, write_bytes, write_for_now
from penstock.connectors.file.part_files import discard_part
from penstock.storage.file_store import FileCheckpointStore


class FullFile:
    """A file of which only the first bytes fit on the disk."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __enter__(self) -> FullFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        self._file.write(bytes(data)[:3])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def opened(*args: Any, **more: Any) -> FullFile:
    return FullFile(open(*args, **more))


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_files, "open", opened, raising=False)


@pytest.mark.parametrize("write", [write_bytes, write_for_now, create_file])
def test_a_file_that_does_not_fit_is_named_and_leaves_nothing(write: Any, full: None, tmp_path: Path) -> None:
    """G11."""
    path = str(tmp_path / "state")
    with pytest.raises(OSError, match="No space left on device") as refused:
        write(path, b"too much")
    assert refused.value.errno == errno.ENOSPC
    assert refused.value.filename == path
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_others_stays_when_no_descriptor_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error before the file is open says nothing about whose it is."""

    def refuse(*args: Any, **more: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    (tmp_path / "claim").write_text("theirs")
    monkeypatch.setattr(durable_files, "open", refuse, raising=False)
    with pytest.raises(OSError, match="Too many open files"):
        create_file(str(tmp_path / "claim"), b"mine")
    assert (tmp_path / "claim").read_text() == "theirs"


def test_a_state_file_that_does_not_fit_leaves_no_part(full: None, tmp_path: Path) -> None:
    """G11."""
    store = FileCheckpointStore(str(tmp_path), "job", 0)
    with pytest.raises(OSError, match=r"No space left on device.*chk-1"):
        store.write(1, "state", b"too much")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_part_of_a_sink_that_does_not_fit_is_removed(tmp_path: Path) -> None:
    """G10: its buffer cannot be written when it is closed, and the file goes all the same."""
    path = tmp_path / ".part-1.open"
    path.write_bytes(b"beginning")
    stream = open("/dev/full", "wb")  # noqa: SIM115 - the call closes it
    stream.write(b"in its buffer")
    discard_part(stream, str(path))
    assert stream.closed
    assert not path.exists()


def test_an_error_of_a_sinks_file_names_it(tmp_path: Path) -> None:
    """The log of a job says on which disk no space is left."""
    with (
        pytest.raises(OSError, match=r"No space left on device: '/out/\.part-1'") as refused,
        errors_name("/out/.part-1"),
        open("/dev/full", "wb", buffering=0) as file,
    ):
        file.write(b"x")
    assert refused.value.errno == errno.ENOSPC
    with pytest.raises(FileNotFoundError, match="another"), errors_name("/out/.part-1"):
        open(tmp_path / "another")  # noqa: SIM115 - it fails


#: Fills the disk once the job has checkpoints, lets some fail, frees it, and compares the sums at the end.
PROGRAM = """
import errno, os, sys, time
from pathlib import Path
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
disk, kind, backend = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
options = {"execution.target": "local", "execution.checkpointing.interval": "20 ms", "state.backend.type": backend,
    "execution.checkpointing.dir": str(disk / "chk" if kind == "checkpoints" else disk.parent / "chk"),
    "execution.checkpointing.data-inline-threshold": "0",
    "execution.checkpointing.tolerable-failed-checkpoints": "1000000", "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000", "restart-strategy.fixed-delay.delay": "50 ms"}
if kind == "rocksdb":
    (disk / "rocks").mkdir()
    options["state.backend.rocksdb.localdir"] = str(disk / "rocks")
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
COUNT, gate, out = 5_000, disk.parent / "go on", disk.parent / "out"
def gated(n):
    import time
    while n == COUNT - 1 and not gate.exists():
        time.sleep(0.01)
    return n
def written(pair):
    with open(out, "a") as file:
        file.write(f"{pair[0]} {pair[1]}\\n")
    return False
source = DataGeneratorSource(lambda n: n, COUNT, rate_per_second=2_000)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "n").uid("n").map(gated)
sums = numbers.map(lambda n: (n % 100, n, os.urandom(200))).key_by(lambda p: p[0])
sums.reduce(lambda a, b: (a[0], a[1] + b[1], b[2])).uid("sums").filter(written).print()
job = env.execute_async("full")
def wait_until(holds):
    until = time.monotonic() + 90
    while not holds(view := job.get_view().result()):
        assert time.monotonic() < until, view
        time.sleep(0.02)
    return view
wait_until(lambda view: view.checkpoints.completed >= 2)
filler = disk / "filler"
with open(filler, "wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError as error:
        assert error.errno == errno.ENOSPC
view = wait_until(lambda view: view.checkpoints.failed >= 2 or view.failures)
print(view.checkpoints.last_failed and view.checkpoints.last_failed.failure, [one.text for one in view.failures])
filler.unlink()
gate.touch()
job.get_job_execution_result().result(90)
found = {}
for key, total in (line.split() for line in out.read_text().splitlines()):
    found[int(key)] = max(found.get(int(key), 0), int(total))
expected = {key: sum(range(key, COUNT, 100)) for key in range(100)}
assert found == expected, [(key, found.get(key), expected[key]) for key in expected if found.get(key) != expected[key]]
left = [str(path) for path in disk.rglob("*") if path.is_file() and "jobs" not in path.parts]
assert not left, left
print("nothing left, nothing lost")
"""


def may_mount() -> bool:
    """Whether this user may mount a file system of their own, which containers often forbid."""
    try:
        tried = subprocess.run(["unshare", "-rm", "true"], capture_output=True, timeout=30, check=False)
    except OSError:
        return False
    return tried.returncode == 0


@pytest.mark.skipif(not may_mount(), reason="this user may not mount a file system (unshare -rm)")
@pytest.mark.parametrize(
    ("kind", "backend"), [("checkpoints", "hashmap"), ("checkpoints", "rocksdb"), ("rocksdb", "rocksdb")]
)
def test_a_job_on_a_full_disk_goes_on_when_there_is_space(kind: str, backend: str, tmp_path: Path) -> None:
    """G11: a file system of 4 MiB of its own, for checkpoints or for RocksDB's files."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = 'mount -t tmpfs -o size=4m tmpfs "$1" && exec "$0" -c "$2" "$1" "$3" "$4"'
    command = ["unshare", "-rm", "sh", "-c", mounted, sys.executable, str(disk), PROGRAM, kind, backend]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.stdout.endswith("nothing left, nothing lost\n"), ended.stdout[-500:] + ended.stderr[-4000:]
    assert "No space left on device" in ended.stdout
    assert str(disk) in ended.stdout, "the error names the file"
