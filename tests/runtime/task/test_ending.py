"""How a task comes to its end, and which checkpoint it waits for (F3, H1, H2)."""

from __future__ import annotations

import pytest

from penstock.runtime.records import CheckpointBarrier
from penstock.runtime.task.checkpoints import Ending, EndOfTask, HeldBarrier

LAST = CheckpointBarrier(7, 0, "memory://savepoint", ends_job=True)


def ended(has_checkpoints: bool, how: EndOfTask = EndOfTask.FINISHED) -> Ending:
    ending = Ending(has_checkpoints)
    assert ending.on_end_of_data(how) is None
    return ending


def test_without_checkpoints_nothing_is_waited_for() -> None:
    """F3: nor for a savepoint that does not end the job, because tasks do not hear of its completion."""
    ending = ended(has_checkpoints=False)
    ending.on_part_taken(CheckpointBarrier(3, 0, "memory://beside"))
    assert ending.last_checkpoint_id is None
    assert ending.may_close


def test_the_first_checkpoint_after_the_end_of_the_data_commits_it() -> None:
    """F3, F6: one that was taken before the end does not."""
    ending = Ending(has_checkpoints=True)
    ending.on_part_taken(CheckpointBarrier(3, 0))
    ending.on_end_of_data(EndOfTask.FINISHED)
    ending.on_complete(3)
    assert not ending.may_close
    ending.on_part_taken(CheckpointBarrier(4, 0))
    ending.on_part_taken(CheckpointBarrier(5, 0))
    assert ending.last_checkpoint_id == 4
    ending.on_complete(3)
    assert not ending.may_close
    ending.on_complete(4)
    assert ending.may_close


def test_a_later_checkpoint_commits_the_end_as_well() -> None:
    """F3: the first one may never complete."""
    ending = ended(has_checkpoints=True)
    ending.on_part_taken(CheckpointBarrier(4, 0))
    assert ending.is_last(5)
    ending.on_complete(5)
    assert ending.may_close


def test_the_savepoint_that_ends_the_job_takes_the_place_of_the_first_checkpoint() -> None:
    """H2: what the job ends with is the savepoint."""
    ending = ended(has_checkpoints=True)
    ending.on_part_taken(CheckpointBarrier(4, 0))
    ending.on_part_taken(LAST)
    ending.on_complete(4)
    assert not ending.may_close
    ending.on_complete(LAST.checkpoint_id)
    assert ending.may_close


@pytest.mark.parametrize("how", list(EndOfTask))
def test_a_stopped_source_waits_for_the_savepoint_with_checkpoints_off_too(how: EndOfTask) -> None:
    """H2: its completion is what commits."""
    ending = Ending(has_checkpoints=False)
    ending.on_stop(7)
    ending.on_end_of_data(how)
    assert ending.has_finished is (how is EndOfTask.FINISHED)
    assert not ending.may_close
    ending.on_complete(7)
    assert ending.may_close


def test_a_barrier_held_while_draining_is_let_go_at_the_end_of_the_data() -> None:
    """F3: once, and not if its checkpoint was given up meanwhile."""
    held = HeldBarrier(LAST, 5, 100)
    ending = Ending(has_checkpoints=True)
    ending.hold(held)
    ending.on_aborted(6)
    assert ending.held is held
    assert ending.on_end_of_data(EndOfTask.FINISHED) is held
    assert ending.held is None
    other = Ending(has_checkpoints=True)
    other.hold(held)
    other.on_aborted(LAST.checkpoint_id)
    assert other.on_end_of_data(EndOfTask.FINISHED) is None


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(AssertionError, match="ends no job"):
        Ending(has_checkpoints=True).hold(HeldBarrier(CheckpointBarrier(3, 0), 0, 0))
    ending = ended(has_checkpoints=True)
    with pytest.raises(AssertionError, match="ends once"):
        ending.on_end_of_data(EndOfTask.SUSPENDED)
    with pytest.raises(AssertionError, match="before its data has ended"):
        ending.on_stop(7)
    with pytest.raises(AssertionError, match="behind the end of the data"):
        ending.hold(HeldBarrier(LAST, 0, 0))
