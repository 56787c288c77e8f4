"""What has become of jobs, by their names, in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.errors import CheckpointError
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.leadership import BEGUN, JobMark
from penstock.storage.metadata import CheckpointMetadata


def store_of(directory: Path, job_id: str) -> FileCheckpointStore:
    return FileCheckpointStore(str(directory), job_id, 0)


def mark(job_id: str, status: str = "FINISHED", name: str = "words", **more: object) -> JobMark:
    return JobMark(job_id, name, status, 1, **more)  # type: ignore[arg-type]


def complete(store: FileCheckpointStore, job_id: str, name: str = "words") -> None:
    store.complete(CheckpointMetadata(1, job_id, name, 1, False, ()))


def test_there_is_one_mark_for_each_name(store_directory: Path) -> None:
    """G8: so that they do not become more with every run; names that look alike are told apart."""
    names = ["words", "words-", "wörter/2", "w" * 200, "w" * 201]
    for run in range(3):
        for number, name in enumerate(names):
            job_id = f"{run}{number}"
            store_of(store_directory, job_id).mark_job(mark(job_id, BEGUN, name))
            store_of(store_directory, job_id).mark_job(mark(job_id, "FINISHED", name))
    assert len(list((store_directory / "jobs").iterdir())) == len(names)
    store = store_of(store_directory, "x")
    assert [store.take_over(name).marks for name in names] == [
        (mark(f"2{number}", "FINISHED", name),) for number, name in enumerate(names)
    ]


def test_what_a_job_did_not_get_to_delete(store_directory: Path) -> None:
    """G8: the next mark of the name deletes it, and only that."""
    for job_id in ("a", "b"):
        complete(store_of(store_directory, job_id), job_id)
    store_of(store_directory, "a").mark_job(mark("a", discards=True))
    store_of(store_directory, "c").mark_job(mark("c", BEGUN))
    assert not (store_directory / "a").exists()
    assert (store_directory / "b" / "chk-1" / "_metadata").exists()


def test_what_jobs_of_a_name_have_left(store_directory: Path) -> None:
    """G8, G11: their checkpoints, and damaged ones unless another one of the job tells another name."""
    for job_id, name in (("a", "words"), ("b", "words"), ("c", "others")):
        complete(store_of(store_directory, job_id), job_id, name)
    for job_id in ("a", "c", "unknown"):
        path = store_directory / job_id / "chk-2" / "_metadata"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"spoilt")
    found = store_of(store_directory, "x").take_over("words").checkpoints
    assert [(f.job_id, f.checkpoint_id, f.metadata is None) for f in found] == [
        ("a", 1, False),
        ("a", 2, True),
        ("b", 1, False),
        ("unknown", 2, True),
    ]
    whole = found[0].metadata
    assert whole is not None
    assert store_of(store_directory, "x").load(str(whole.external_path)) == whole


def test_a_mark_that_is_damaged_is_told(store_directory: Path) -> None:
    """G11: it is not taken for none."""
    store_of(store_directory, "a").mark_job(mark("a"))
    (file,) = (path for path in (store_directory / "jobs").rglob("*") if path.is_file())
    file.write_bytes(b"{")
    (damage,) = store_of(store_directory, "a").take_over("words").damaged
    assert "does not record the outcome of a job" in damage


def test_in_memory_there_are_none() -> None:
    """G8: without a directory no other job master can take a job over."""
    store = FileCheckpointStore(None, "a", 0)
    store.join("words")
    store.mark_job(mark("a"))
    store.check_leads()
    with pytest.raises(CheckpointError, match=r"without execution\.checkpointing\.dir"):
        store.take_over("words")
