"""Copies of state files in a worker (G8, G11): a shortcut that is never trusted more than the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.said import said

from penstock.base.configuration import Configuration
from penstock.drivers.directories import LOCK_NAME, WorkerDirectories
from penstock.drivers.worker_storage import FilesByPath, StorageSettings
from penstock.storage.file_store import FileCheckpointStore, LocalCopies

BIG = b"state" * 100


@pytest.fixture
def store(tmp_path: Path) -> FileCheckpointStore:
    return FileCheckpointStore(str(tmp_path / "checkpoints"), "job", 10)


@pytest.fixture
def files(tmp_path: Path) -> FilesByPath:
    return FilesByPath(WorkerDirectories(str(tmp_path / "worker"), "job"))


@pytest.fixture
def copies(store: FileCheckpointStore, files: FilesByPath) -> LocalCopies:
    return LocalCopies(store, files)


def on_disk(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "worker").rglob("*") if path.is_file() and path.name != LOCK_NAME]


def test_a_task_reads_its_copy_and_not_the_store(copies: LocalCopies, tmp_path: Path) -> None:
    """G8: the store need not even be reachable."""
    file = copies.write(1, "count", BIG)
    assert file.path is not None
    Path(file.path).unlink()
    assert copies.read(file) == BIG
    assert (copies.read_locally, copies.bytes_locally, copies.read_remotely) == (1, len(BIG), 0)


def test_what_has_no_file_of_its_own_is_not_copied(copies: LocalCopies, files: FilesByPath, tmp_path: Path) -> None:
    """G8, H1: small state is in the metadata, and nobody restarts from a savepoint that left the job running."""
    copies.write(1, "small", b"tiny")
    copies.write(2, "count", BIG, str(tmp_path / "savepoint"))
    assert len(files) == 0


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(BIG[:-1] + b"?")])
def test_a_copy_that_is_not_whole_is_passed_over(copies: LocalCopies, tmp_path: Path, damage: Any) -> None:
    """G11: missing or damaged, the checkpoint's own file is read instead."""
    file = copies.write(1, "count", BIG)
    (copy,) = on_disk(tmp_path)
    damage(copy)
    assert copies.read(file) == BIG
    assert (copies.read_locally, copies.read_remotely) == (0, 1)


def test_a_full_disk_fails_no_checkpoint(store: FileCheckpointStore, caplog: pytest.LogCaptureFixture) -> None:
    """G8: what cannot be copied is read from the store, and a line says so, once."""

    class Full(dict[str, bytes]):
        def __setitem__(self, path: str, data: bytes) -> None:
            raise OSError("no space left")

    copies = LocalCopies(store, Full())
    written = [copies.write(1, "count", BIG), copies.write(2, "count", BIG * 2)]
    assert [copies.read(file) for file in written] == [BIG, BIG * 2]
    assert said(caplog) == [
        "state could not be copied to this worker's disk and will be read from the store: no space left"
    ]


def test_copies_that_no_completed_checkpoint_needs_go(copies: LocalCopies, tmp_path: Path) -> None:
    """G8: an incremental checkpoint needs files of earlier ones; what no later one refers to is removed."""
    base, gone = copies.write(1, "base", BIG), copies.write(1, "gone", BIG + b"1")
    copies.on_stored(1, [base, gone])
    copies.on_complete(1)
    added = copies.write(2, "added", BIG + b"2")
    copies.on_stored(2, [base, added])
    assert len(on_disk(tmp_path)) == 3, "checkpoint 2 may be given up"
    copies.on_complete(2)
    copies.write(3, "next", BIG + b"3")
    assert len(on_disk(tmp_path)) == 3
    assert [copies.read(file) for file in (base, added)] == [BIG, BIG + b"2"]
    assert copies.read_locally == 2
    copies.read(gone)
    assert copies.read_remotely == 1


def test_the_end_of_a_worker_leaves_nothing(copies: LocalCopies, tmp_path: Path) -> None:
    """G8: neither files nor the directory."""
    copies.write(1, "count", BIG)
    copies.close()
    assert list((tmp_path / "worker").iterdir()) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """G8: by the next worker on the machine, whatever its job. Directories of living processes stay."""
    for name in ("penstock-state-job-a", "penstock-state-other-b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / LOCK_NAME).touch()
    used = WorkerDirectories(str(tmp_path), "job").make()
    WorkerDirectories(str(tmp_path), "job")
    assert list(tmp_path.iterdir()) == [used.path]


@pytest.mark.parametrize(
    ("options", "keeps", "reads"),
    [
        ({}, False, False),
        ({"execution.state-recovery.from-local": "true"}, True, True),
        ({"execution.checkpointing.local-backup.enabled": "true"}, True, False),
        (
            {
                "execution.state-recovery.from-local": "true",
                "execution.checkpointing.local-backup.enabled": "false",
            },
            False,
            True,
        ),
    ],
)
def test_options(options: dict[str, str], keeps: bool, reads: bool) -> None:
    """G8: Flink's keys, and their defaults."""
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string(key, value)
    settings = StorageSettings.of(configuration, "job")
    assert (settings.keeps_copies, settings.reads_copies) == (keeps, reads)


def test_copies_that_are_not_to_be_read_are_not(store: FileCheckpointStore, files: FilesByPath) -> None:
    """G8: kept only, for somebody who looks into them."""
    copies = LocalCopies(store, files, reads=False)
    file = copies.write(1, "count", BIG)
    assert len(files) == 1
    copies.read(file)
    assert (copies.read_locally, copies.read_remotely) == (0, 1)
