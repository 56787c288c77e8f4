"""Lists and pages of jobs, as Flink's clients read them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.server.rest.rig import BEGAN_MS, COUNT, JOB, SOURCE, Handle, a_view, serving

from penstock.base.errors import JobExecutionError
from penstock.base.job import JobExecutionResult, JobID, JobStatus


def test_a_job_is_in_all_lists() -> None:
    with serving(Handle(a_view())) as client:
        assert client.get("/jobs").json == {"jobs": [{"id": JOB, "status": "RUNNING"}]}
        (job,) = client.get("/jobs/overview").json["jobs"]
        assert (job["jid"], job["name"], job["state"]) == (JOB, "words", "RUNNING")
        assert (job["jobType"], job["schedulerType"]) == ("STREAMING", "Default")
        assert (job["start-time"], job["end-time"], job["duration"]) == (BEGAN_MS, -1, 60_300)
        assert job["tasks"]["running"] == job["tasks"]["total"] == 4
        (application,) = client.get("/applications/overview").json["applications"]
        assert (application["id"], application["jobs"]) == (JOB, {"RUNNING": 1})
        overview = client.get("/overview").json
        assert (overview["taskmanagers"], overview["slots-available"], overview["jobs-running"]) == (1, 0, 1)


def test_a_job_has_vertices_and_a_plan_whose_edges_name_nodes() -> None:
    with serving(Handle(a_view())) as client:
        job = client.get(f"/jobs/{JOB}").json
        source, count = job["vertices"]
        assert (source["id"], count["id"], count["parallelism"]) == (SOURCE, COUNT, 2)
        assert count["metrics"]["read-records"] == 30
        assert count["metrics"]["accumulated-busy-time"] == 60_000
        assert count["metrics"]["read-records-complete"]
        nodes = {node["id"]: node for node in job["plan"]["nodes"]}
        assert nodes[COUNT]["inputs"] == [
            {"num": 0, "id": SOURCE, "ship_strategy": "HASH", "exchange": "pipelined_bounded"}
        ]
        assert job["timestamps"]["RUNNING"] == BEGAN_MS + 50
        assert job["status-counts"]["RUNNING"] == 2


def test_tasks_of_the_engine_are_where_their_job_is() -> None:
    view = a_view(mode="BATCH", status=JobStatus.FINISHED, workers=())
    view = replace(view, since_ms={**view.since_ms, JobStatus.FINISHED: BEGAN_MS + 9_000})
    bare = tuple(
        replace(vertex, subtasks=tuple(replace(s, state=None, worker_id=None) for s in vertex.subtasks))
        for vertex in view.vertices
    )
    with serving(Handle(replace(view, vertices=bare))) as client:
        job = client.get(f"/jobs/{JOB}").json
        assert (job["job-type"], job["plan"]["type"], job["end-time"]) == ("BATCH", "BATCH", BEGAN_MS + 9_000)
        assert {vertex["status"] for vertex in job["vertices"]} == {"FINISHED"}
        by_worker = client.get(f"/jobs/{JOB}/vertices/{COUNT}/taskmanagers").json["taskmanagers"]
        assert [one["taskmanager-id"] for one in by_worker] == ["(unassigned)"]
        assert [one["id"] for one in client.get("/taskmanagers").json["taskmanagers"]] == ["driver"]


def test_a_job_that_was_never_seen_is_told_from_its_graph() -> None:
    handle = Handle(None)
    handle.now = JobStatus.FAILED
    handle.outcome.set_exception(JobExecutionError("words", "it has no workers"))
    with serving(handle) as client:
        job = client.get(f"/jobs/{JOB}").json
        assert (job["state"], [vertex["status"] for vertex in job["vertices"]]) == ("FAILED", ["FAILED", "FAILED"])


@pytest.mark.parametrize(("path", "code"), [("f" * 32, 404), ("x-y", 400), ("overview/nothing", 404)])
def test_wrong_jobs_are_refused_in_flinks_form(path: str, code: int) -> None:
    with serving(Handle(a_view())) as client:
        answer = client.get(f"/jobs/{path}")
        assert answer.code == code
        assert [type(message) for message in answer.json["errors"]] == [str]
        assert answer.headers["content-type"] == "application/json; charset=UTF-8"


def test_the_log_of_a_job_is_where_its_url_says() -> None:
    with serving(Handle(a_view())) as client:
        for path in (f"/jobs/{JOB}/jobmanager/log-url", f"/jobs/{JOB}/taskmanagers/worker-1-aaaa/log-url"):
            assert client.get(path).code == 200
        assert client.get(f"/jobs/{JOB}/jobmanager/log-url").json["url"] == f"/jobmanager/log?job={JOB}"
        other = "f" * 32
        for path in (f"/jobs/{other}/jobmanager/log-url", "/jobs/no-id/taskmanagers/x/log-url"):
            assert client.get(path).code == 200, "as in Flink, which gives one for any id"
        assert client.get(f"/jobmanager/log?job={other}").code == 404
        assert client.get("/jars").code == 404, "only sessions take programs"


def test_all_is_there_below_v1_too_and_a_wrong_method_is_not_found() -> None:
    with serving(Handle(a_view())) as client:
        for path in ("/overview", "/config", f"/jobs/{JOB}", f"/jobs/{JOB}/plan", f"/jobs/{JOB}/checkpoints"):
            assert client.get(path).json == client.get(f"/v1{path}").json
        wrong = client.ask("POST", "/overview")
        assert (wrong.code, wrong.json) == (404, {"errors": ["Not found: /overview"]})


def test_the_result_is_there_when_the_job_has_ended() -> None:
    handle = Handle(a_view())
    with serving(handle) as client:
        assert client.get(f"/jobs/{JOB}/execution-result").json == {"status": {"id": "IN_PROGRESS"}}
        handle.shown = a_view(status=JobStatus.FINISHED)
        handle.now = JobStatus.FINISHED
        handle.outcome.set_result(JobExecutionResult(JobID(JOB), 5, {"words": 7}))
        ended = client.get(f"/jobs/{JOB}/execution-result").json
        assert ended["status"] == {"id": "COMPLETED"}
        result = ended["job-execution-result"]
        assert (result["application-status"], result["accumulator-results"]) == ("SUCCEEDED", {"words": "7"})


def test_secrets_are_masked_wherever_options_are_shown() -> None:
    """No page and no answer shows a password."""
    secret = {"s3.secret-key": "hunter2", "fs.azure.account.key.mine": "hunter2", "pipeline.name": "words"}
    with serving(Handle(a_view()), configuration=secret) as client:
        for path in (
            f"/jobs/{JOB}/config",
            f"/jobs/{JOB}/jobmanager/config",
            f"/applications/{JOB}/jobmanager/config",
            "/jobmanager/config",
        ):
            answer = client.get(path)
            assert answer.code == 200
            assert b"hunter2" not in answer.body
            assert b"******" in answer.body


def test_failures_have_their_class_and_labels_choose_among_them() -> None:
    with serving(Handle(a_view())) as client:
        history = client.get(f"/jobs/{JOB}/exceptions").json["exceptionHistory"]
        (entry,) = history["entries"]
        assert (entry["exceptionName"], entry["taskName"], entry["endpoint"]) == (
            "ValueError",
            "count (1/2)",
            "host:17",
        )
        assert entry["concurrentExceptions"] == []
        assert client.get(f"/jobs/{JOB}/exceptions?maxExceptions=0").json["exceptionHistory"]["truncated"]
        assert (
            client.get(f"/jobs/{JOB}/exceptions?failureLabelFilter=type:user").json["exceptionHistory"]["entries"] == []
        )
        assert client.get(f"/jobs/{JOB}/exceptions?maxExceptions=-1").code == 400
