"""Commits that fail, and drivers that die as they commit: a batch is all or nothing, epochs go on from a checkpoint."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.test_micro_batch import MICRO, environment, lines_below

from penstock.base.errors import JobExecutionError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Encoder
from penstock.connectors.file import committer, filesystem, sink
from penstock.connectors.file import part_files as hidden_files
from penstock.connectors.file.committer import CommitError, FileCommittable
from penstock.connectors.file.filesystem import create, create_held
from penstock.connectors.file.sink import FileCommitLog
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink

BATCH = RuntimeExecutionMode.BATCH
RECORDS = 1_000
EXPECTED = sorted(map(str, range(RECORDS)))


def write(out: Path, *more: Path, mode: Any = BATCH, **options: Any) -> None:
    """Numbers into four files of each directory, in one batch; what was there before stays."""
    env = environment(4, mode, **options)
    numbers = env.from_collection(list(range(RECORDS))).rebalance().map(str)
    for path in (out, *more):
        sink = FileSink.for_row_format(str(path), Encoder.simple_string_encoder())
        numbers.sink_to(sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build())
    env.execute("writes numbers")


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], bool]) -> list[str]:
    """Lets the steps of commits fail that show a file, whose number is said, counted from 0; their targets."""
    show, targets = hidden_files.show, list[str]()

    def maybe(source: str, target: str) -> None:
        targets.append(target)
        if fails(len(targets) - 1):
            raise OSError(errno.EIO, "as told")
        show(source, target)

    monkeypatch.setattr(committer, "show", maybe)
    return targets


def files_below(path: Path) -> list[str]:
    return [str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and ".penstock" in file.parts]


@pytest.mark.parametrize("mode", [BATCH, MICRO])
def test_a_commit_is_tried_again(mode: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G9: one error of the file system does not fail the job."""
    failing(monkeypatch, lambda number: number == 2)
    write(tmp_path, mode=mode)
    assert lines_below(tmp_path) == EXPECTED
    assert not files_below(tmp_path)


def test_an_epoch_whose_commit_fails_at_first_does_not_miss_what_a_reader_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9: whether the committer tries again, or the job delivers again; in the sink that failed, or the other one."""
    one, other, taken = tmp_path / "one", tmp_path / "other", tmp_path / "taken"
    taken.mkdir()
    rename, count = filesystem.rename, 0

    def maybe(source: str, target: str) -> None:
        nonlocal count
        count += 1
        if 6 < count <= 13:
            for path in [*one.glob("part-*"), *other.glob("part-*")]:
                path.rename(taken / f"{path.parent.name}-{path.name}")
            raise OSError(errno.EIO, "as told")
        rename(source, target)

    monkeypatch.setattr(committer, "show", maybe)
    write(
        one, other, mode=MICRO, **{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}
    )
    assert count > 13
    lines = {name: [path.read_text() for path in taken.glob(f"{name}-*")] for name in ("one", "other")}
    for out in (one, other):
        assert sorted([*lines_below(out), *"".join(lines[out.name]).split()]) == EXPECTED


def test_micro_batches_remove_what_died(tmp_path: Path) -> None:
    """G9: the file that another job's process had not closed when it ended, and not one that lives."""
    died, lives = (f"{tmp_path}/.penstock/{job}/.part-0-0-{job}.open.0-0-0" for job in ("dead", "alive"))
    create(died).close()
    held = create_held(lives)
    write(tmp_path, mode=MICRO)
    assert files_below(tmp_path) == [str(Path(lives).relative_to(tmp_path))]
    held.close()
    assert lines_below(tmp_path) == EXPECTED


def test_a_batch_that_cannot_commit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G9: neither in the sink that had committed all, nor in the one that had committed half; the next run is whole."""
    one, other = tmp_path / "one", tmp_path / "other"
    failing(monkeypatch, lambda number: number >= 6)
    with pytest.raises(JobExecutionError, match=r"could not be committed: OSError.*was rolled back"):
        write(one, other)
    assert lines_below(tmp_path) == []
    assert not files_below(tmp_path)
    monkeypatch.undo()
    write(one, other)
    assert (lines_below(one), lines_below(other)) == (EXPECTED, EXPECTED)
    write(one, other)
    assert lines_below(one) == sorted(EXPECTED * 2), "a batch that has succeeded is there to stay"


def test_a_batch_that_cannot_say_that_it_has_committed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9: the list of what it commits is gone, and nobody knows whether for good: all is taken back."""
    synced = filesystem.sync_names

    def fails_once(paths: Any) -> None:
        paths = list(paths)
        if not any(path.endswith(".commit") for path in paths):
            synced(paths)
            return
        monkeypatch.setattr(sink, "sync_names", synced)
        raise OSError(errno.EIO, "as told")

    monkeypatch.setattr(sink, "sync_names", fails_once)
    with pytest.raises(JobExecutionError, match=r"could not be committed: OSError.*was rolled back"):
        write(tmp_path)
    assert lines_below(tmp_path) == []
    assert not files_below(tmp_path)
    write(tmp_path)
    assert lines_below(tmp_path) == EXPECTED


@pytest.mark.parametrize("renames", [0, 2, 6, 8])
def test_a_batch_whose_driver_is_killed_as_it_commits_counts_once(renames: int, tmp_path: Path) -> None:
    """G9: the next run takes back what the dead one had made visible, in both of its sinks."""
    one, other = tmp_path / "one", tmp_path / "other"
    program = f"""
import os, signal
from pathlib import Path
from penstock.connectors.file import committer, sink
from tests.datastream.test_commits_that_fail import write
show, done = committer.show, []
def until_killed(source, target):
    if len(done) == {renames}:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(target)
    show(source, target)
committer.show = until_killed
if {renames} == 8:
    sink.size_or_none = lambda path: os.kill(os.getpid(), signal.SIGKILL)
write(Path({str(one)!r}), Path({str(other)!r}))
"""
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.rglob("part-*"))) == renames
    write(one, other)
    assert (lines_below(one), lines_below(other)) == (EXPECTED, EXPECTED)
    assert not files_below(tmp_path)


def log_of(base: str, run: str, *names: str) -> FileCommitLog:
    """A run that is about to commit, with its files hidden."""
    staging = f"{base}/.penstock/{run}"
    log = FileCommitLog(base, staging, "job")
    log.begin()
    parts = [FileCommittable(f"{staging}/.{name}.closed.0-0-0", f"{base}/{name}", 0) for name in names]
    for part in parts:
        create(part.hidden_path).close()
    log.write(parts)
    return log


def test_a_run_that_is_alive_is_left_alone(tmp_path: Path) -> None:
    """G9: two runs of one job at a time, each with files of its own."""
    log = log_of(str(tmp_path), "run", "part-0")
    log_of(str(tmp_path), "other", "part-1").end()
    log.close_commit()
    assert (tmp_path / ".penstock" / "run" / ".part-0.closed.0-0-0").exists()


def test_nothing_is_left_of_a_run_that_died_before_it_listed_its_files(tmp_path: Path) -> None:
    """G9: a closed part that no list names is hidden, and is removed by the next run."""
    log = FileCommitLog(str(tmp_path), str(tmp_path / ".penstock" / "run"), "job")
    log.begin()
    create(str(tmp_path / ".penstock" / "run" / ".part-0.closed.0-0-0")).close()
    assert log._held is not None
    log._held.close()  # as the operating system does for a process that dies
    other = FileCommitLog(str(tmp_path), str(tmp_path / ".penstock" / "other"), "job")
    assert other.begin() == []
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [other._path.rpartition("/")[2] + ".run"]
    other.end()
    assert not files_below(tmp_path)


def test_where_nobody_can_tell_who_is_alive_a_run_that_was_taken_back_fails() -> None:
    """G9: rather than lose its rows without a word."""
    log = log_of("memory://alive", "run", "part-0")
    log_of("memory://alive", "other", "part-1")
    with pytest.raises(CommitError, match="another run of job 'job' has rolled back"):
        log.close_commit()


def test_a_list_of_other_files_is_refused(tmp_path: Path) -> None:
    """G9: nothing but part files is ever taken back."""
    log = FileCommitLog(str(tmp_path), str(tmp_path / ".penstock" / "run"), "job")
    log.begin()
    (tmp_path / "precious").touch()
    log.write([FileCommittable(str(tmp_path / "x"), str(tmp_path / "precious"), 0)])
    with pytest.raises(CommitError, match="is not a list of part files"):
        log.take_back()
    assert (tmp_path / "precious").exists()


def test_an_epoch_that_cannot_commit_leaves_both_checkpoints(
    store_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9, I1: the one before is let go of when the output of the new one is visible; a job goes on from the new one."""
    options = {
        "execution.checkpointing.dir": str(store_directory / "checkpoints"),
        "execution.micro-batch.max-records": 100,
    }

    def epochs(**more: Any) -> None:
        env = environment(1, MICRO, **options, **more)
        source: Any = DataGeneratorSource(str, RECORDS)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        numbers.sink_to(
            FileSink.for_row_format(str(store_directory / "out"), Encoder.simple_string_encoder()).build()
        ).uid("f")
        env.execute()

    failing(monkeypatch, lambda number: number >= 3)
    with pytest.raises(JobExecutionError, match="as told"):
        epochs()
    monkeypatch.undo()
    assert len(lines_below(store_directory / "out")) == 300
    kept = sorted((store_directory / "checkpoints").glob("*/chk-*/_metadata"))
    assert [path.parent.name for path in kept] == ["chk-3", "chk-4"]
    epochs(**{"execution.state-recovery.path": str(kept[-1].parent)})
    assert lines_below(store_directory / "out") == EXPECTED
    assert not files_below(store_directory / "out")
