"""Drivers that stand by: one runs the job, and when its process ends, however it ends, another one goes on (E7)."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import local_environment
from tests.spec.test_driver_is_killed import COUNT, lines, started
from tests.spec.test_two_drivers import wait_for_output

from penstock.base.errors import ConfigurationError, JobExecutionError
from penstock.drivers.client.submit import FINISHED, describe_end
from penstock.drivers.leader_election import FileElection, Leader
from penstock.storage.leadership import DeposedError


@pytest.fixture
def by_file(store_directory: Path, tmp_path: Path) -> dict[str, str]:
    """The options of a job with standbys; locks are beside its checkpoints, or in a directory where these have none."""
    locks = {"high-availability.storageDir": str(tmp_path)} if "://" in str(store_directory) else {}
    return {"high-availability.type": "FILE", **locks}


@contextmanager
def standing_by(
    directory: Path, leader: subprocess.Popen[str], options: dict[str, str], mode: str = "STREAMING"
) -> Iterator[subprocess.Popen[str]]:
    """The leader is stopped meanwhile, so that its job does not end before the standby begins."""
    leader.send_signal(signal.SIGSTOP)
    with started(directory, mode=mode, options=options) as standby:
        line = wait_for_line(standby, "stands by")
        assert f"process {leader.pid} on" in line
        leader.send_signal(signal.SIGCONT)
        yield standby


def wait_for_line(process: subprocess.Popen[str], *words: str) -> str:
    """The first line of its log that has some of the words."""
    assert process.stderr is not None
    for line in process.stderr:
        if any(some in line for some in words):
            return line
    raise AssertionError(f"the program never said {words!r}")


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_a_standby_takes_over_when_the_leader_is_killed(
    store_directory: Path, by_file: dict[str, str], mode: str
) -> None:
    """E7, G8, G9: nobody tells it; it goes on from the last checkpoint, and each record is committed once."""
    with started(store_directory, rate=500, mode=mode, options=by_file) as leader:
        wait_for_line(leader, "running")
        with standing_by(store_directory, leader, by_file, mode) as standby:
            wait_for_output(store_directory, leader)
            assert standby.poll() is None
            leader.send_signal(signal.SIGKILL)
            out, err = standby.communicate()
            assert out == "executed\n", err
            assert "/chk-" in err
    assert lines(store_directory) == list(range(COUNT))


def test_a_standby_ends_with_its_leader(store_directory: Path, by_file: dict[str, str]) -> None:
    """E7: a job that has finished is done, for all its drivers."""
    with started(store_directory, rate=1_000, options=by_file) as leader:
        wait_for_line(leader, "running")
        with standing_by(store_directory, leader, by_file) as standby:
            assert leader.communicate()[0] == "executed\n"
            out, err = standby.communicate()
            assert out == "executed\n", err
            assert "there is nothing left to do" in err
    assert lines(store_directory) == list(range(COUNT))


def test_a_standby_does_not_begin_again_what_was_cancelled(store_directory: Path, by_file: dict[str, str]) -> None:
    """E5, E7: nor what has failed for good, because its checkpoints are gone then."""
    with started(store_directory, "cancel", rate=500, options=by_file) as leader:
        wait_for_output(store_directory, leader)
        with standing_by(store_directory, leader, by_file) as standby:
            leader.send_signal(signal.SIGTERM)
            out, err = standby.communicate()
    assert out == ""
    assert f"while this driver stood by for process {leader.pid} on" in err
    assert "it was cancelled" in err


def test_who_leads_is_elected_again_and_again(tmp_path: Path) -> None:
    """E7: an election ends with its job, so a program may run several of one name."""
    said: list[str] = []
    for _ in range(3):
        election = FileElection(tmp_path / "leader.lock")
        assert election.wait(said.append) is None
        election.end("FINISHED")
    assert said == []


def test_a_standby_hears_how_the_leader_ended(tmp_path: Path) -> None:
    """E7: if it came to its end; not if its process did."""
    leader, standby = FileElection(tmp_path / "leader.lock"), FileElection(tmp_path / "leader.lock")
    leader.wait(lambda line: None)
    heard: list[Leader | None] = []

    def end_the_leader(line: str) -> None:
        assert line.startswith("stands by: process ")
        leader.end("it failed")

    heard.append(standby.wait(end_the_leader))
    standby.end(None)
    assert [one.end for one in heard if one is not None] == ["it failed"]


def test_a_job_that_was_suspended_has_not_come_to_its_end() -> None:
    """E7: so its standbys stand by no longer, and one of them goes on with it."""
    assert describe_end(None) == FINISHED
    assert describe_end(JobExecutionError("counts", "it was cancelled")) == "job 'counts' failed: it was cancelled"
    assert describe_end(DeposedError("counts", "another driver has taken the job over")) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"high-availability\.type is FILE: set execution\.checkpointing\.dir too"),
        ({"execution__checkpointing__dir": "memory://somewhere"}, r"has no locks: set high-availability\.storageDir"),
    ],
)
def test_standbys_need_a_directory_with_locks(options: dict[str, Any], words: str) -> None:
    """E7: said before anything runs."""
    env = local_environment(high_availability__type="FILE", **options)
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match=words):
        env.execute()


def test_a_batch_has_no_standby(tmp_path: Path) -> None:
    """E7, I1: it leaves nothing that another driver could begin from."""
    env = local_environment(
        high_availability__type="FILE",
        execution__checkpointing__dir=str(tmp_path),
        execution__runtime_mode="BATCH",
    )
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match="is a batch, which leaves no checkpoint to a standby"):
        env.execute()
