"""What survives a session (E7): its programs go on in the next session of the cluster id."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.cli.session.sessions import session_in, until

from penstock.cli.client.rest_client import sessions
from penstock.cli.session.uploads import Definitions


@pytest.mark.slow
def test_a_terminated_session_leaves_its_jobs_to_the_next(tmp_path: Path) -> None:
    """E7: SIGTERM ends its processes at once, cancels no job, and leaves no address behind."""
    options = {
        "execution.target": "local",
        "high-availability.type": "FILE",
        "high-availability.storageDir": str(tmp_path / "ha"),
        "high-availability.cluster-id": "tests",
    }
    definitions = Definitions(str(tmp_path / "ha" / "tests"))
    with session_in(tmp_path, options) as first:
        goes_on = first.run("goes on")
        until(lambda: first.checkpoints(goes_on) > 1)
        (program,) = first.client.get("/programs")["programs"]
        os.kill(first.known.process, signal.SIGTERM)
        until(lambda: not is_alive(first.known.process))
        assert not is_alive(program["process"])
        assert sessions() == []
        assert [definition.program_id for definition, _ in definitions.all()] == [program["id"]]
    with session_in(tmp_path, options) as second:
        (job,) = until(lambda: second.client.get("/jobs/overview")["jobs"])
        assert job["name"] == "goes on"
        assert until(lambda: second.client.get(f"/jobs/{job['jid']}/checkpoints")["latest"]["restored"])["id"] > 1
    assert definitions.all() == []


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_a_killed_sessions_jobs_go_on_in_the_next(tmp_path: Path) -> None:
    """E7: from their last checkpoints; what has finished or was cancelled does not come back."""
    options = {
        "execution.target": "local",
        "high-availability.type": "FILE",
        "high-availability.storageDir": str(tmp_path / "ha"),
        "high-availability.cluster-id": "tests",
    }
    with session_in(tmp_path, options) as first:
        goes_on = first.run("goes on")
        cancelled = first.run("cancelled")
        ended = first.submit("ended", "ends")
        assert ended.follow(lambda text: None) == 0
        first.client.request("PATCH", f"/jobs/{cancelled}?mode=cancel")
        until(lambda: all(one["status"] != "RUNNING" for one in first.client.get("/programs")["programs"][1:]))
        until(lambda: first.checkpoints(goes_on) > 1)
        (process,) = [one["process"] for one in first.client.get("/programs")["programs"] if one["jobs"] == [goes_on]]
        os.kill(first.known.process, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{process}/cmdline").exists() or not Path(f"/proc/{process}/cmdline").read_text())
    with session_in(tmp_path, options) as second:
        (job,) = until(lambda: second.client.get("/jobs/overview")["jobs"])
        assert job["name"] == "goes on"
        restored = until(lambda: second.client.get(f"/jobs/{job['jid']}/checkpoints")["latest"]["restored"])
        assert restored["id"] > 1
        assert second.client.get("/programs")["programs"][0]["status"] == "RUNNING"
    assert Definitions(str(tmp_path / "ha" / "tests")).all() == [], "a session that was stopped leaves none"
