"""Vertices, subtasks, checkpoints and workers, as Flink's page reads them."""

from __future__ import annotations

import os
from dataclasses import replace

import msgspec
from tests.server.rest.rig import BEGAN_MS, COUNT, JOB, SOURCE, Handle, a_view, serving

from penstock.runtime.job.view import JobView
from penstock.runtime.protocol import TaskFigures

VERTEX = f"/jobs/{JOB}/vertices/{COUNT}"
STATES = {"CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING"}


def test_a_vertex_has_its_subtasks_and_their_distribution() -> None:
    with serving(Handle(a_view())) as client:
        vertex = client.get(VERTEX).json
        assert (vertex["id"], vertex["parallelism"], vertex["maxParallelism"]) == (COUNT, 2, 128)
        first = vertex["subtasks"][0]
        assert (first["status"], first["endpoint"], first["taskmanager-id"]) == ("RUNNING", "host:17", "worker-1-aaaa")
        assert first["start-time"] == first["start_time"] == BEGAN_MS + 100
        assert first["status-duration"]["DEPLOYING"] == 200
        assert first["status-duration"]["RUNNING"] == 60_000
        assert first["status-duration"]["SCHEDULED"] == -1
        records = vertex["aggregated"]["metrics"]["read-records"]
        assert (records["min"], records["max"], records["avg"], records["sum"]) == (10, 20, 15, 30)
        assert set(vertex["aggregated"]["status-duration"]) == STATES


def test_one_subtask_and_its_current_attempt() -> None:
    with serving(Handle(a_view())) as client:
        found = client.get(f"{VERTEX}/subtasks/1").json
        assert (found["subtask"], found["metrics"]["read-records"]) == (1, 20)
        assert client.get(f"{VERTEX}/subtasks/1/attempts/0").json == found
        assert client.get(f"{VERTEX}/subtasks/1/attempts/7").code == 404
        assert client.get(f"{VERTEX}/subtasks/2").code == 404
        assert client.get(f"{VERTEX}/subtasks/-1").code == 400
        assert client.get(f"{VERTEX}/subtasks/{'9' * 40}").code == 400


def test_times_workers_and_watermarks() -> None:
    with serving(Handle(a_view())) as client:
        times = client.get(f"{VERTEX}/subtasktimes").json["subtasks"][0]["timestamps"]
        assert (times["RUNNING"], times["FINISHED"]) == (BEGAN_MS + 300, 0)
        (worker,) = client.get(f"{VERTEX}/taskmanagers").json["taskmanagers"]
        assert (worker["taskmanager-id"], worker["status-counts"]["RUNNING"]) == ("worker-1-aaaa", 2)
        assert client.get(f"{VERTEX}/watermarks").json == [
            {"id": "0.currentInputWatermark", "value": "1000"},
            {"id": "1.currentInputWatermark", "value": "1000"},
        ]


def later(view: JobView, back_pressured_ms: int) -> JobView:
    """The same two seconds later, in which the first subtask of the count was back-pressured for so long."""
    source, count = view.vertices
    first, *others = count.subtasks
    assert first.metrics is not None
    figures = TaskFigures(
        busy_ms=32_000 - back_pressured_ms, back_pressured_ms=20_000 + back_pressured_ms, idle_ms=10_000
    )
    busier = replace(first, metrics=msgspec.structs.replace(first.metrics, figures=figures))
    now = replace(count, subtasks=(busier, *others))
    return replace(view, vertices=(source, now), now_ms=view.now_ms + 2_000)


def test_back_pressure_is_that_of_the_last_seconds() -> None:
    handle = Handle(a_view(job_id="e" * 32))
    path = f"/jobs/{'e' * 32}/vertices/{COUNT}/backpressure"
    with serving(handle) as client:
        first = client.get(path).json
        assert (first["status"], first["backpressure-level"]) == ("ok", "low")
        assert first["subtasks"][0]["ratio"] == 20_000 / 60_000
        assert handle.shown is not None
        handle.shown = later(handle.shown, 1_500)
        while (now := client.get(path).json)["end-timestamp"] == first["end-timestamp"]:
            pass  # until the dispatcher asks for the next view
        assert now["backpressure-level"] == "high"
        assert now["subtasks"][0]["ratio"] == 1_500 / 2_000
        assert now["subtasks"][1]["ratio"] == 0
        unknown = client.get(f"/jobs/{JOB}/vertices/{COUNT}/backpressure").json
        assert (unknown["status"], unknown["subtasks"]) == ("deprecated", [])


def test_checkpoints_with_their_parts() -> None:
    with serving(Handle(a_view())) as client:
        known = client.get(f"/jobs/{JOB}/checkpoints").json
        assert known["counts"] == {"restored": 0, "total": 2, "in_progress": 1, "completed": 1, "failed": 0}
        assert [one["status"] for one in known["history"]] == ["IN_PROGRESS", "COMPLETED"]
        assert known["latest"]["completed"]["external_path"] == "file:///checkpoints/chk-1"
        assert known["latest"]["failed"] is None
        assert known["summary"]["end_to_end_duration"]["p99"] == 501.0
        details = client.get(f"/jobs/{JOB}/checkpoints/details/1").json
        assert details["tasks"][COUNT]["num_acknowledged_subtasks"] == 2
        assert details["tasks"][SOURCE]["checkpointed_size"] == 200
        parts = client.get(f"/jobs/{JOB}/checkpoints/details/1/subtasks/{COUNT}").json
        assert [one["checkpoint"] for one in parts["subtasks"]] == [{"sync": 5, "async": 20}] * 2
        assert parts["summary"]["checkpoint_duration"]["async"]["max"] == 20
        waiting = client.get(f"/jobs/{JOB}/checkpoints/details/2/subtasks/{COUNT}").json
        assert {one["status"] for one in waiting["subtasks"]} == {"pending_or_failed"}
        assert client.get(f"/jobs/{JOB}/checkpoints/details/3").code == 404


def test_checkpoints_that_ended_with_an_attempt_count_as_failed() -> None:
    """As in Flink: all that were triggered are in one of the counts."""
    view = a_view()
    known = replace(view.checkpoints, triggered=7, failed=2, given_up=3)
    with serving(Handle(replace(view, checkpoints=known))) as client:
        counts = client.get(f"/jobs/{JOB}/checkpoints").json["counts"]
        assert counts == {"restored": 0, "total": 7, "in_progress": 1, "completed": 1, "failed": 5}


def test_persisted_data_is_what_is_stored_of_records_in_flight() -> None:
    """An aligned checkpoint holds records back, and stores none."""
    view = a_view()
    (done,) = view.checkpoints.history
    parts = [replace(part, held_back_bytes=500, persisted_bytes=7 * part.subtask) for part in done.parts]
    done = replace(done, held_back_bytes=2_000, parts=tuple(parts))
    shown = replace(view, checkpoints=replace(view.checkpoints, last=done, history=(done,)))
    with serving(Handle(shown)) as client:
        found = client.get(f"/jobs/{JOB}/checkpoints").json
        assert found["latest"]["completed"]["persisted_data"] == 14
        assert found["summary"]["persisted_data"]["max"] == 14
        assert client.get(f"/jobs/{JOB}/checkpoints/details/1").json["tasks"][SOURCE]["persisted_data"] == 7
        of_vertex = client.get(f"/jobs/{JOB}/checkpoints/details/1/subtasks/{SOURCE}").json
        assert [one["alignment"]["persisted"] for one in of_vertex["subtasks"]] == [0, 7]
        assert of_vertex["summary"]["alignment"]["persisted"]["max"] == 7


def test_where_a_subtask_runs_is_told_with_and_without_its_process() -> None:
    """Dashboards of Flink before 1.20 read `host`."""
    with serving(Handle(a_view())) as client:
        path = f"/jobs/{JOB}/vertices/{COUNT}"
        places = [
            client.get(path).json["subtasks"][0],
            client.get(f"{path}/subtasks/0").json,
            client.get(f"{path}/subtasks/0/attempts/0").json,
            client.get(f"{path}/subtasks/accumulators").json["subtasks"][0],
            client.get(f"{path}/subtasktimes").json["subtasks"][0],
            client.get(f"{path}/taskmanagers").json["taskmanagers"][0],
        ]
        assert {(one["host"], one["endpoint"]) for one in places} == {("host", "host:17")}


def test_without_an_interval_checkpoints_have_flinks_longest() -> None:
    with serving(Handle(a_view()), configuration={"execution.checkpointing.dir": "/tmp/c"}) as client:
        config = client.get(f"/jobs/{JOB}/checkpoints/config").json
        assert (config["interval"], config["checkpoint_storage"]) == (2**63 - 1, "FileSystemCheckpointStorage")


def test_a_worker_has_a_slot_and_the_memory_of_its_process() -> None:
    with serving(Handle(a_view())) as client:
        (listed,) = client.get("/taskmanagers").json["taskmanagers"]
        worker = client.get(f"/taskmanagers/{listed['id']}").json
        assert (worker["slotsNumber"], worker["freeSlots"], worker["assignedTasks"]) == (1, 0, 4)
        assert worker["metrics"]["heapUsed"] == 1 << 20
        assert worker["allocatedSlots"][0]["jobId"] == JOB
        assert client.get("/taskmanagers/nobody").code == 404
        assert client.get(f"/taskmanagers/{listed['id']}/log").code == 404


def test_a_worker_says_where_spark_shows_it_if_spark_does() -> None:
    handle = Handle(a_view())
    with serving(handle) as client:
        assert "spark-ui" not in client.get("/taskmanagers/worker-1-aaaa").json
        handle.engine_pages[None] = "http://driver:4040"
        (listed,) = client.get("/taskmanagers").json["taskmanagers"]
        assert listed["spark-ui"] == client.get("/taskmanagers/worker-1-aaaa").json["spark-ui"] == "http://driver:4040"
        handle.engine_pages["worker-1-aaaa"] = "http://driver:4040/jobs/job/?id=3"
        (listed,) = client.get("/taskmanagers").json["taskmanagers"]
        assert listed["spark-ui"] == "http://driver:4040"
        assert client.get("/taskmanagers/worker-1-aaaa").json["spark-ui"] == "http://driver:4040/jobs/job/?id=3"


def test_a_local_worker_is_named_by_its_job_and_is_this_process() -> None:
    view = a_view()
    (worker,) = view.workers
    local = replace(worker, worker_id="worker-1", process_id=os.getpid())
    with serving(Handle(replace(view, workers=(local,)))) as client:
        (listed,) = client.get("/taskmanagers").json["taskmanagers"]
        assert listed["id"] == f"worker-1-{JOB[:8]}"
        dump = client.get(f"/taskmanagers/{listed['id']}/thread-dump").json["threadInfos"]
        assert "penstock-rest" in {one["threadName"] for one in dump}
        assert client.get(f"/taskmanagers/{listed['id']}/logs").json["logs"][0]["name"] == "penstock.log"


def test_what_is_made_of_a_view_is_made_once() -> None:
    handle = Handle(a_view(500))
    with serving(handle) as client:
        path = f"/jobs/{JOB}/vertices/{COUNT}"
        first = client.get(path)
        assert len(first.json["subtasks"]) == 500
        assert client.get(path).body == first.body
        assert handle.shown is not None
        made = client.context.cache.get(handle.shown, f"vertex {COUNT}", lambda: b"anew")
        assert made == first.body
        assert client.context.cache.get(replace(handle.shown), f"vertex {COUNT}", lambda: b"anew") == b"anew"
