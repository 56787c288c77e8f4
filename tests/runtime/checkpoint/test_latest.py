"""Which checkpoint a job goes on from that is to go on from the newest of its name."""

from __future__ import annotations

from penstock.runtime.checkpoint.savepoints import choose_latest
from penstock.storage.leadership import BEGUN, JobMark, Left, LeftByJobs
from penstock.storage.metadata import CheckpointMetadata


def left(job_id: str, checkpoint_id: int, at_ms: int) -> Left:
    directory = f"/dir/{job_id}/chk-{checkpoint_id}"
    metadata = CheckpointMetadata(checkpoint_id, job_id, "words", at_ms, False, (), directory)
    return Left(directory, job_id, checkpoint_id, metadata)


def damaged(job_id: str, checkpoint_id: int) -> Left:
    return Left(f"/dir/{job_id}/chk-{checkpoint_id}", job_id, checkpoint_id, None, "the checksum does not match")


def choice(checkpoints: list[Left], *marks: JobMark) -> object:
    chosen = choose_latest(LeftByJobs(tuple(checkpoints), marks))
    if chosen.end is not None:
        return chosen.end
    return chosen.path or [metadata.external_path for metadata in chosen.checkpoints]


def test_the_newest_by_time() -> None:
    """G8: numbers begin again with each job that begins from nothing."""
    found = [left("a", 9, 100), left("b", 1, 300), left("b", 2, 400), left("c", 5, 200)]
    assert choice(found) == ["/dir/b/chk-2", "/dir/b/chk-1", "/dir/c/chk-5", "/dir/a/chk-9"]
    assert choice([]) == []


def test_a_job_that_came_to_its_end() -> None:
    """G8, G9: nothing is left to do, whatever older jobs have left, or it did not get to delete itself."""
    mark = JobMark("b", "words", "FINISHED", 500, discards=True)
    assert choice([left("a", 9, 100), left("b", 2, 400)], mark) == mark
    drained = JobMark("b", "words", "FINISHED", 500, "/savepoints/s", drained=True)
    assert choice([left("a", 9, 100)], drained) == drained


def test_a_job_that_was_stopped_with_a_savepoint() -> None:
    """H2: the savepoint is the newest; once another job that went on from it has a checkpoint, that is."""
    mark = JobMark("b", "words", "FINISHED", 500, "/savepoints/s")
    assert choice([left("a", 9, 100), left("b", 2, 400)], mark) == "/savepoints/s"
    assert choice([left("a", 9, 100), left("c", 3, 600)], mark) == ["/dir/c/chk-3"]


def test_a_job_that_was_cancelled() -> None:
    """E5: what it has deleted is not there, and what is older was not its own any more."""
    assert choice([left("a", 9, 100), left("b", 2, 400)], JobMark("b", "words", "CANCELED", 500)) == []


def test_a_job_that_has_begun_anew() -> None:
    """G8: what had been left before it belongs to another run."""
    assert choice([left("a", 9, 100)], JobMark("b", "words", BEGUN, 200)) == []
    assert choice([left("a", 9, 100), left("b", 1, 300)], JobMark("b", "words", BEGUN, 200)) == ["/dir/b/chk-1"]


def test_damage_is_told_where_it_may_be_newer() -> None:
    """G11: what is older than the newest whole one does not matter; what cannot be told does."""

    def told(*found: Left) -> list[str]:
        chosen = choose_latest(LeftByJobs(found, ()))
        return [line.split(" ")[0] for line in chosen.damaged]

    assert told(left("b", 2, 400), damaged("b", 1)) == []
    assert told(left("b", 2, 400), damaged("b", 3)) == ["/dir/b/chk-3"]
    assert told(left("b", 2, 400), left("a", 9, 100), damaged("a", 10)) == []
    assert told(left("b", 2, 400), damaged("unknown", 1)) == ["/dir/unknown/chk-1"]
    assert told(damaged("b", 1)) == ["/dir/b/chk-1"]
    assert told(left("b", 2, 400), damaged("unknown", 1), damaged("unknown", 2)) == [
        "/dir/unknown/chk-1",
        "/dir/unknown/chk-2",
    ]
