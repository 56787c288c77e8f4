"""Event time goes on from one run to the next, but for readers whose time was over (C2, I1)."""

from __future__ import annotations

from tests.runtime.job.master_rig import two_vertices

from penstock.runtime.checkpoint.statistics import restored_watermarks
from penstock.runtime.epochs.coordinator import Dealt, EpochAnswer, EpochCoordinator
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.storage.metadata import CheckpointMetadata, OperatorState

MAX, MIN = MAX_WATERMARK, MIN_TIMESTAMP


def checkpoint(*source: tuple[int, int]) -> CheckpointMetadata:
    operators = tuple(
        OperatorState(f"id-{name}", None, name, len(source), 128, {}, watermarks=dict(enumerate(marks)))
        for name, marks in (("source", source), ("sink", ((70, 70),) * len(source)))
    )
    return CheckpointMetadata(3, "job-0", "job", 1, False, operators)


def test_a_run_goes_on_where_event_time_stood() -> None:
    found = restored_watermarks(checkpoint((MIN, 70), (MIN, 90)), two_vertices())
    assert found == {
        (0, 0): {-1: MIN, 0: 70},
        (0, 1): {-1: MIN, 0: 90},
        (1, 0): {-1: 70, 0: 70},
        (1, 1): {-1: 70, 0: 70},
    }


def test_a_reader_that_had_ended_has_no_time_yet() -> None:
    """C2: it may be dealt splits in this run, of which no record is late for its own sake."""
    found = restored_watermarks(checkpoint((MIN, 70), (MIN, MAX)), two_vertices())
    assert found[0, 1] == {-1: MIN, 0: MIN}
    assert found[1, 1] == {-1: 70, 0: 70}, "those after it stay where they were"


def test_at_another_parallelism_the_slowest_tells() -> None:
    found = restored_watermarks(checkpoint((MIN, 70), (MIN, MAX), (MIN, 90)), two_vertices())
    assert found[0, 0] == found[0, 1] == {-1: MIN, 0: 70}
    over = restored_watermarks(checkpoint((MIN, MAX), (MIN, MAX), (MIN, MAX)), two_vertices())
    assert over[0, 0] == {-1: MIN, 0: MIN}


def answer(watermark: int, ended: bool = False, read: int = 0) -> EpochAnswer:
    return EpochAnswer({}, {0: watermark, -1: MIN}, ended, read, b"token", frozenset())


def test_after_a_failure_a_reader_that_had_ended_may_read_on() -> None:
    """C2, I1: its enumerator may deal it splits again; the sources have ended when it has, not before."""
    coordinator = EpochCoordinator(two_vertices(), "job-0", None)
    coordinator.works({"id-source": Dealt(((b"a",), ()), (False, True))})
    sinks = {(1, subtask): answer(70) for subtask in range(2)}
    coordinator.complete(checkpoint(), {(0, 0): answer(70, read=5), (0, 1): answer(MAX, ended=True), **sinks})
    coordinator.works({"id-source": Dealt(((), ()), (False, True))})
    coordinator.roll_back()
    works = coordinator.works({"id-source": Dealt(((), (b"b",)), (True, True))})
    assert [works[0, subtask].watermarks[0] for subtask in range(2)] == [70, MIN]
    answers = {(0, 0): answer(MAX, ended=True), (0, 1): answer(80, read=5), **sinks}
    coordinator.complete(checkpoint(), answers)
    assert not coordinator.has_ended
    coordinator.complete(checkpoint(), {**answers, (0, 1): answer(MAX, ended=True, read=1)})
    assert coordinator.has_ended


def test_after_a_failure_the_enumerator_tells_of_the_end_again() -> None:
    """I1: it begins again from what was kept of it, so it may still have a split for a reader that it had told."""
    coordinator = EpochCoordinator(two_vertices(), "job-0", None)
    coordinator.works({"id-source": Dealt(((b"a",), ()), (False, True))})
    sinks = {(1, subtask): answer(70) for subtask in range(2)}
    coordinator.complete(checkpoint(), {(0, 0): answer(70, read=5), (0, 1): answer(MAX, ended=True), **sinks})
    coordinator.works({"id-source": Dealt(((b"b",), ()), (True, True))})
    coordinator.roll_back()
    coordinator.works({"id-source": Dealt(((), ()), (True, False))})
    answers = {(0, 0): answer(MAX, ended=True), (0, 1): answer(MIN), **sinks}
    coordinator.complete(checkpoint(), answers)
    assert not coordinator.has_ended, "the other reader waits for the split"
    coordinator.complete(checkpoint(), {**answers, (0, 1): answer(MAX, ended=True, read=5)})
    assert coordinator.has_ended
