"""What a job has been through: each status with its times, restarts and the last failure."""

from __future__ import annotations

from dataclasses import replace

from tests.server.rest.rig import BEGAN_MS, JOB, Handle, a_view, serving

from penstock.base.job import JobStatus
from penstock.runtime.job.view import MOVES_MAX, JobHistory

_S = JobStatus


def test_each_status_is_listed_with_its_times_however_often_the_job_came_to_it() -> None:
    history = JobHistory()
    for at_ms, status in enumerate([_S.CREATED, _S.RUNNING, _S.RESTARTING, _S.CREATED, _S.RUNNING]):
        history.moved(status, BEGAN_MS + at_ms)
    with serving(Handle(a_view(moves=history.moves))) as client:
        answer = client.get(f"/jobs/{JOB}/status-history").json
    assert [(one["status"], one["start-time"] - BEGAN_MS, one["end-time"]) for one in answer["periods"]] == [
        ("INITIALIZING", 0, BEGAN_MS),
        ("CREATED", 0, BEGAN_MS + 1),
        ("RUNNING", 1, BEGAN_MS + 2),
        ("RESTARTING", 2, BEGAN_MS + 3),
        ("CREATED", 3, BEGAN_MS + 4),
        ("RUNNING", 4, -1),
    ]
    assert (answer["now"], answer["truncated"]) == (BEGAN_MS + 60_300, False)


def test_a_job_that_has_ended_is_in_no_status_any_longer() -> None:
    moves = ((_S.RUNNING, BEGAN_MS), (_S.FINISHED, BEGAN_MS + 9))
    view = a_view(status=_S.FINISHED, moves=moves)
    view = replace(view, since_ms={**view.since_ms, _S.FINISHED: BEGAN_MS + 9})
    with serving(Handle(view)) as client:
        last = client.get(f"/jobs/{JOB}/status-history").json["periods"][-1]
    assert last == {"status": "FINISHED", "start-time": BEGAN_MS + 9, "end-time": BEGAN_MS + 9}


def test_only_the_last_statuses_are_kept() -> None:
    history = JobHistory()
    for at_ms in range(MOVES_MAX):
        history.moved(_S.RUNNING if at_ms % 2 else _S.RESTARTING, BEGAN_MS + at_ms)
    assert len(history.moves) == MOVES_MAX
    with serving(Handle(a_view(moves=history.moves))) as client:
        answer = client.get(f"/jobs/{JOB}/status-history").json
    assert (len(answer["periods"]), answer["truncated"]) == (MOVES_MAX, True)


def test_a_worker_names_its_job() -> None:
    with serving(Handle(a_view())) as client:
        (worker,) = client.get("/taskmanagers").json["taskmanagers"]
        assert (worker["job-id"], worker["job-name"]) == (JOB, "words")
        assert client.get(f"/taskmanagers/{worker['id']}").json["job-name"] == "words"


def test_lists_and_details_count_restarts_and_date_the_last_failure() -> None:
    with serving(Handle(a_view(restarts=162))) as client:
        (listed,) = client.get("/jobs/overview").json["jobs"]
        for job in (listed, client.get(f"/jobs/{JOB}").json):
            assert (job["restarts"], job["last-failure"]) == (162, BEGAN_MS + 2_000)
    with serving(Handle(a_view(restarts=0, failures=()))) as client:
        assert client.get(f"/jobs/{JOB}").json["last-failure"] == -1
