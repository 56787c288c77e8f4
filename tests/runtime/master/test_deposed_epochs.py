"""A master of epochs that was deposed stops, and leaves the job, its files and its sinks to the other one (E7)."""

from __future__ import annotations

import pytest
from tests.runtime.master.test_epochs import Play

from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.master import steps
from penstock.runtime.protocol import StopMode
from penstock.storage.leadership import DeposedError


def deposed() -> DeposedError:
    return DeposedError("words", "another driver leads")


def is_suspended(play: Play) -> bool:
    """And it has not ended its sinks: the successor may have to commit what they have prepared."""
    said = str(play.master.failure) == "job 'words' was suspended: another driver leads"
    return play.master.status.name == "SUSPENDED" and said and "EndSinks" not in play.names


@pytest.mark.parametrize(
    ("step", "number", "last"),
    [
        ("Complete", 2, "complete 2 fails"),
        ("DeleteGarbage", 1, "keep [1] below 2 fails"),
        ("MarkJob", 1, "mark BEGUN fails"),
        ("MarkJob", 2, "mark FINISHED fails"),
        ("CheckLeads", 1, "keep [] below all"),
    ],
)
def test_whatever_step_tells_it_is_the_last(step: str, number: int, last: str) -> None:
    """E7, I1: nothing is run, delivered, marked or deleted after that."""
    play = Play().fail(step, number, deposed())
    assert play.run()[-1] == last
    assert is_suspended(play)


def test_a_failed_epoch_does_not_run_again() -> None:
    """E7, G8: nor is a damaged checkpoint seen in what is another's."""
    play = Play().fail("RunEpoch", 2).fail("ReadThrough", 1, deposed())
    assert play.run()[-2:] == ["run 2 fails", "read 1 fails"]
    assert is_suspended(play)


def test_what_may_have_become_visible_is_left_to_the_other_one() -> None:
    """E7, G8: it has found it, or it does not count."""
    play = Play(epochs=1).fail("Complete").fail("Revoke", 1, deposed())
    assert play.run()[-1] == "revoke 1 fails"
    assert is_suspended(play)


def test_who_asked_for_a_savepoint_hears_of_it() -> None:
    """E7, H1."""
    play = Play(epochs=2).fail("Complete", 2, deposed())
    play.requests.append(steps.Request(1, TakeSavepoint("/sp", StopMode.SUSPEND)))
    play.run()
    assert play.answers == [(None, "no savepoint: job 'words' was suspended: another driver leads")]
    assert is_suspended(play)


def test_who_asked_for_a_savepoint_that_is_complete_hears_of_that() -> None:
    """E7, H2: the job had ended with it, and the other driver finds that."""
    play = Play(epochs=2).fail("MarkJob", 2, deposed())
    play.requests.append(steps.Request(1, TakeSavepoint("/sp", StopMode.SUSPEND)))
    play.run()
    ((path, error),) = play.answers
    assert error is None
    assert path == "/sp/savepoint-job-1-000002"
    assert is_suspended(play)


def test_a_job_that_is_cancelled_looks_before_it_ends_its_sinks() -> None:
    """E7, G9: it may have been stopped for an hour just before."""
    play = Play().fail("RunEpoch", 2, steps.Cancelled()).fail("CheckLeads", 1, deposed())
    play.run()
    assert is_suspended(play)


def test_sinks_keep_their_leftovers_when_nobody_can_tell_who_leads() -> None:
    """E7, G9: the job has come to its own end all the same."""
    play = Play().fail("CheckLeads")
    play.run()
    assert play.master.status.name == "FINISHED"
    assert "EndSinks" not in play.names
    assert play.logs[-1].startswith("leftovers of sinks stay, because a later job may need them: OSError")
