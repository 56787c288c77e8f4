"""Savepoints, checkpoints, stops and rescalings: begun by one request, asked after by others."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.server.rest.rig import BEGAN_MS, COUNT, JOB, SOURCE, Client, Handle, a_view, serving

from penstock.base.errors import CheckpointError
from penstock.base.job import JobStatus
from penstock.runtime.checkpoint.statistics import CheckpointStatus, RestoredRecord
from penstock.runtime.job.view import RescaleEnd, RescaleRequest
from penstock.server.rest.calls.context import KEPT_SECONDS, OPERATIONS_MAX, Operations
from penstock.server.rest.calls.routing import RestError
from penstock.storage.metadata import METADATA_NAME, CheckpointMetadata, encode_metadata

TRIGGER = "c" * 32


def settled(client: Client, path: str) -> Any:
    """The state of an operation that a thread carries out."""
    until = time.monotonic() + 60
    while (state := client.get(path).json)["status"]["id"] == "IN_PROGRESS" and time.monotonic() < until:
        pass
    return state


def test_a_savepoint_is_in_progress_and_then_has_its_path() -> None:
    handle = Handle(a_view())
    with serving(handle) as client:
        begun = client.ask("POST", f"/jobs/{JOB}/savepoints", {"target-directory": "/tmp/s", "cancel-job": False})
        assert begun.code == 202
        path = f"/jobs/{JOB}/savepoints/{begun.json['request-id']}"
        assert client.get(path).json == {"status": {"id": "IN_PROGRESS"}, "operation": None}
        handle.savepoint.set_result("file:///tmp/s/savepoint-1")
        assert client.get(path).json == {
            "status": {"id": "COMPLETED"},
            "operation": {"location": "file:///tmp/s/savepoint-1"},
        }
        assert handle.asked == [("savepoint", "/tmp/s")]


def test_its_failure_shows_when_it_is_asked_after() -> None:
    handle = Handle(a_view())
    handle.savepoint.set_exception(CheckpointError("no savepoint: the disk is full"))
    with serving(handle) as client:
        begun = client.ask("POST", f"/jobs/{JOB}/savepoints", {"triggerId": TRIGGER})
        assert begun.json == {"request-id": TRIGGER}
        cause = client.get(f"/jobs/{JOB}/savepoints/{TRIGGER}").json["operation"]["failure-cause"]
        assert cause["class"] == "penstock.base.errors.CheckpointError"
        assert "the disk is full" in cause["stack-trace"]


def test_a_savepoint_of_an_unknown_job_is_taken_and_fails() -> None:
    with serving(Handle(a_view())) as client:
        begun = client.ask("POST", f"/jobs/{'f' * 32}/savepoints", {"triggerId": TRIGGER})
        assert begun.code == 202
        state = client.get(f"/jobs/{'f' * 32}/savepoints/{TRIGGER}").json
        assert "not found" in state["operation"]["failure-cause"]["stack-trace"]


def test_the_same_trigger_id_takes_one_savepoint() -> None:
    handle = Handle(a_view())
    with serving(handle) as client:
        for _ in range(3):
            assert client.ask("POST", f"/jobs/{JOB}/savepoints", {"triggerId": TRIGGER}).code == 202
        assert handle.asked == [("savepoint", None)]


def test_stop_drains_when_told_and_cancel_takes_a_savepoint_first_when_told() -> None:
    handle = Handle(a_view())
    with serving(handle) as client:
        client.ask("POST", f"/jobs/{JOB}/stop", {"drain": True, "targetDirectory": "/tmp/s"})
        client.ask("POST", f"/jobs/{JOB}/savepoints", {"cancel-job": True})
        assert handle.asked == [("stop", True, "/tmp/s"), ("cancel with savepoint", None)]


def test_a_checkpoint_is_complete_when_the_jobs_history_says_so() -> None:
    handle = Handle(a_view())
    handle.checkpoint_id = 1
    with serving(handle) as client:
        begun = client.ask("POST", f"/jobs/{JOB}/checkpoints")
        assert settled(client, f"/jobs/{JOB}/checkpoints/{begun.json['request-id']}") == {
            "status": {"id": "COMPLETED"},
            "operation": {"checkpointId": 1},
        }
        handle.checkpoint_id = 2
        begun = client.ask("POST", f"/jobs/{JOB}/checkpoints", {"checkpointType": "CONFIGURED"})
        assert client.get(f"/jobs/{JOB}/checkpoints/{begun.json['request-id']}").json["operation"] is None


@pytest.mark.parametrize("failure", [None, "a disk is full"])
def test_the_answer_is_the_checkpoints_own_outcome_when_it_has_left_the_history(failure: str | None) -> None:
    """A job with a short interval has ten newer ones before anybody asks."""
    view = a_view()
    last = view.checkpoints.last
    assert last is not None
    statistics = view.checkpoints
    asked = replace(last, checkpoint_id=7, status=CheckpointStatus.COMPLETED)
    if failure is None:
        statistics = statistics.with_completed(asked)
    else:
        statistics = statistics.with_failed(replace(asked, status=CheckpointStatus.FAILED, failure=failure))
    for newer in range(8, 300):
        statistics = statistics.with_completed(replace(last, checkpoint_id=newer))
    statistics = replace(statistics, last_failed=None)
    handle = Handle(replace(view, in_progress=(), checkpoints=statistics))
    handle.checkpoint_id = 7
    with serving(handle) as client:
        begun = client.ask("POST", f"/jobs/{JOB}/checkpoints").json["request-id"]
        operation = settled(client, f"/jobs/{JOB}/checkpoints/{begun}")["operation"]
    if failure is None:
        assert operation == {"checkpointId": 7}
    else:
        assert "checkpoint 7 failed: a disk is full" in operation["failureCause"]["stack-trace"]


def test_the_next_checkpoint_is_the_answer_where_the_job_always_has_one_in_the_making() -> None:
    view = a_view()
    handle = Handle(view)
    handle.checkpoint_id = None
    with serving(handle) as client:
        begun = client.ask("POST", f"/jobs/{JOB}/checkpoints").json["request-id"]
        assert client.get(f"/jobs/{JOB}/checkpoints/{begun}").json["status"]["id"] == "IN_PROGRESS"
        while len(handle.asked) < 2:  # between its first two tries it notes which checkpoint is the newest
            time.sleep(0.01)
        last = view.checkpoints.last
        assert last is not None
        later = replace(last, checkpoint_id=3)
        done = replace(view.checkpoints, last=later, history=(later, *view.checkpoints.history))
        handle.shown = replace(view, in_progress=(), checkpoints=done)
        assert settled(client, f"/jobs/{JOB}/checkpoints/{begun}")["operation"] == {"checkpointId": 3}


@pytest.mark.parametrize(
    ("kind", "asked"), [("FULL", "full checkpoint"), ("INCREMENTAL", "checkpoint"), ("CONFIGURED", "checkpoint")]
)
def test_a_full_checkpoint_is_taken_when_it_is_asked_for(kind: str, asked: str) -> None:
    handle = Handle(a_view())
    with serving(handle) as client:
        begun = client.ask("POST", f"/jobs/{JOB}/checkpoints", {"checkpointType": kind})
        path = f"/jobs/{JOB}/checkpoints/{begun.json['request-id']}"
        assert settled(client, path)["operation"] == {"checkpointId": 1}
    assert handle.asked == [asked]


def test_the_next_checkpoint_is_no_answer_for_who_wants_a_full_one() -> None:
    view = a_view()
    handle = Handle(view)
    handle.checkpoint_id = None
    with serving(handle) as client:
        begun = client.ask("POST", f"/jobs/{JOB}/checkpoints", {"checkpointType": "FULL"}).json["request-id"]
        last = view.checkpoints.last
        assert last is not None
        statistics = view.checkpoints
        for newer in (3, 4):
            statistics = statistics.with_completed(replace(last, checkpoint_id=newer))
        handle.shown = replace(view, in_progress=(), checkpoints=statistics)
        assert client.get(f"/jobs/{JOB}/checkpoints/{begun}").json["status"]["id"] == "IN_PROGRESS"
        handle.checkpoint_id = 4
        assert settled(client, f"/jobs/{JOB}/checkpoints/{begun}")["operation"] == {"checkpointId": 4}


@pytest.mark.parametrize("what", ["savepoints", "stop"])
def test_a_savepoint_of_the_backends_own_format_is_refused(what: str) -> None:
    """K3: there is one format."""
    with serving(Handle(a_view())) as client:
        answer = client.ask("POST", f"/jobs/{JOB}/{what}", {"formatType": "NATIVE"})
        assert answer.code == 400
        assert "take CANONICAL" in str(answer.json)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"triggerId": "x"}', b'{"cancel-job": 1}', b"\xff\xfe", b"[" * 100_000]
)
def test_bodies_that_are_none_are_refused(body: bytes) -> None:
    handle = Handle(a_view())
    with serving(handle) as client:
        answer = client.ask("POST", f"/jobs/{JOB}/savepoints", body)
        assert (answer.code, handle.asked) == (400, [])
        assert answer.json["errors"]


def test_unknown_operations_are_not_found() -> None:
    with serving(Handle(a_view())) as client:
        for path in (f"/jobs/{JOB}/savepoints", f"/jobs/{JOB}/checkpoints", "/savepoint-disposal"):
            assert client.get(f"{path}/{TRIGGER}").code == 404
            assert client.get(f"{path}/x-y").code == 400


def test_there_are_no_cluster_data_sets() -> None:
    with serving(Handle(a_view())) as client:
        assert client.get("/datasets").json == {"dataSets": []}
        for method, path in [("DELETE", "/datasets/{}"), ("GET", "/datasets/delete/{}")]:
            assert client.ask(method, path.format(TRIGGER)).code == 404
            assert client.ask(method, path.format("x-y")).code == 400


def test_flinks_former_way_to_rescale_is_refused_as_flink_does() -> None:
    with serving(Handle(a_view())) as client:
        path = f"/jobs/{JOB}/rescaling"
        for answer in (client.ask("PATCH", f"{path}?parallelism=2"), client.get(f"{path}/{TRIGGER}")):
            assert answer.code == 503
            assert "resource-requirements" in answer.json["errors"][0]
        assert client.get(f"/jobs/{'0' * 32}/rescaling/{TRIGGER}").code == 503
        assert client.get(f"{path}/x-y").code == client.get(f"/jobs/x-y/rescaling/{TRIGGER}").code == 400


def test_results_are_kept_for_five_minutes_after_the_end() -> None:
    now = [0.0]
    operations = Operations(lambda: now[0])
    future: Future[str] = Future()
    trigger = operations.begin("savepoint", JOB, lambda: future)
    now[0] = 10 * KEPT_SECONDS
    assert operations.find("savepoint", JOB, trigger) is future
    future.set_result("there")
    assert operations.find("savepoint", JOB, trigger).result() == "there"
    now[0] += KEPT_SECONDS - 1
    assert operations.find("savepoint", JOB, trigger).result() == "there"
    now[0] += 1
    with pytest.raises(RestError, match="Operation not found"):
        operations.find("savepoint", JOB, trigger)


def test_there_is_a_bound_on_operations() -> None:
    operations = Operations()
    for _ in range(OPERATIONS_MAX):
        operations.begin("savepoint", JOB, Future)
    with pytest.raises(RestError) as refused:
        operations.begin("savepoint", JOB, Future)
    assert refused.value.code == 429


def savepoint_in(folder: Path) -> Path:
    """A folder with a savepoint of no files."""
    folder.mkdir(parents=True)
    metadata = CheckpointMetadata(7, JOB, "My Job", BEGAN_MS, True, ())
    (folder / METADATA_NAME).write_bytes(encode_metadata(metadata))
    return folder


def disposal(client: Client, folder: Path) -> str:
    """Why a folder cannot be deleted; nothing if it could be."""
    begun = client.ask("POST", "/savepoint-disposal", {"savepoint-path": str(folder)})
    assert begun.code == 200
    state = settled(client, f"/savepoint-disposal/{begun.json['request-id']}")
    cause = state["operation"].get("failure-cause")
    assert folder.exists() == (cause is not None)
    return "" if cause is None else str(cause["stack-trace"])


def test_only_savepoints_are_deleted(tmp_path: Path) -> None:
    savepoint, photos, dataset = savepoint_in(tmp_path / "savepoint-1"), tmp_path / "photos", tmp_path / "dataset"
    for folder in (photos, dataset):
        folder.mkdir()
        (folder / "file").write_text("data")
    parquet.write_table(pa.table({"a": [1]}), dataset / METADATA_NAME)
    with serving(Handle(a_view())) as client:
        assert disposal(client, savepoint) == ""
        assert "is no savepoint" in disposal(client, photos)
        assert "_metadata" in disposal(client, dataset)
        assert client.ask("POST", "/savepoint-disposal", {}).code == 400


def test_a_link_to_a_savepoint_in_use_is_refused(tmp_path: Path) -> None:
    """G6: what a link leads to is what counts, in the job's path and in the request's."""
    view = a_view()
    began, link = savepoint_in(tmp_path / "began"), tmp_path / "link"
    link.symlink_to(began, target_is_directory=True)
    held = replace(view.checkpoints, last=None, history=(), restored=RestoredRecord(7, BEGAN_MS, True, link.as_uri()))
    with serving(Handle(replace(view, checkpoints=held))) as client:
        assert "in use" in disposal(client, began)
        assert "in use" in disposal(client, link)


def test_a_checkpoint_that_a_running_job_may_go_back_to_is_not_deleted(tmp_path: Path) -> None:
    """Nor another one beside it, whose files it may share."""
    view = a_view()
    last = view.checkpoints.last
    assert last is not None
    newest, older = savepoint_in(tmp_path / "chk-7"), savepoint_in(tmp_path / "chk-3")
    held = replace(view.checkpoints, last=replace(last, path=newest.as_uri()), history=(), restored=None)
    with serving(Handle(replace(view, checkpoints=held))) as client:
        assert "in use" in disposal(client, newest)
        assert "in use" in disposal(client, older)


@pytest.mark.parametrize("is_savepoint", [False, True])
def test_what_a_running_job_began_from_is_not_deleted(tmp_path: Path, is_savepoint: bool) -> None:
    """D2: the job goes back to it until it has a checkpoint of its own."""
    view = a_view()
    began, other = savepoint_in(tmp_path / "began"), savepoint_in(tmp_path / "other")
    restored = RestoredRecord(7, BEGAN_MS, is_savepoint, began.as_uri())
    held = replace(view.checkpoints, last=None, history=(), restored=restored)
    with serving(Handle(replace(view, checkpoints=held))) as client:
        assert "in use" in disposal(client, began)
        assert ("in use" in disposal(client, other)) == (not is_savepoint)
    with serving(Handle(replace(view, checkpoints=held, status=JobStatus.CANCELED))) as client:
        assert disposal(client, began) == ""


def bounds(lower: int, upper: int) -> dict[str, Any]:
    return {"parallelism": {"lowerBound": lower, "upperBound": upper}}


def test_requirements_rescale_the_job_to_their_upper_bounds() -> None:
    handle = Handle(a_view())
    with serving(handle) as client:
        path = f"/jobs/{JOB}/resource-requirements"
        assert client.get(path).json == {SOURCE: bounds(1, 2), COUNT: bounds(1, 2)}
        assert client.ask("PUT", path, {SOURCE: bounds(1, 2), COUNT: bounds(1, 4)}).code == 200
        assert handle.asked == [("rescale", {COUNT: 4})]
        for wrong in ({COUNT: bounds(1, 4)}, {SOURCE: bounds(1, 2), COUNT: bounds(3, 2)}, {"x": bounds(1, 1)}):
            assert client.ask("PUT", path, wrong).code == 400
        assert client.ask("PUT", path, {SOURCE: bounds(1, 129), COUNT: bounds(1, 2)}).code == 400
        assert len(handle.asked) == 1


def test_changes_of_the_parallelism_are_listed() -> None:
    with serving(Handle(a_view())) as client:
        (change,) = client.get(f"/jobs/{JOB}/rescales/history").json
        assert change["vertices"][COUNT]["preRescaleParallelism"] == 1
        assert change["vertices"][COUNT]["postRescaleParallelism"] == 2
        assert client.get(f"/jobs/{JOB}/rescales/details/{change['rescaleUuid']}").json == change
        assert client.get(f"/jobs/{JOB}/rescales/details/{'0' * 32}").code == 404
        assert client.get(f"/jobs/{JOB}/rescales/overview").json["rescalesCounts"]["completed"] == 1
    with serving(Handle(a_view(mode="BATCH"))) as client:
        assert client.get(f"/jobs/{JOB}/rescales/history").code == 404


def test_a_request_for_another_parallelism_is_listed_until_it_is_followed() -> None:
    asked = RescaleRequest(BEGAN_MS + 5_000, 0, {"count": (2, 4)})
    view = a_view(rescale_requests=(asked,))
    handle = Handle(view)
    with serving(handle) as client:
        is_open, done = client.get(f"/jobs/{JOB}/rescales/history").json
        assert (is_open["terminalState"], is_open["endTimestampInMillis"]) == (None, None)
        assert (is_open["triggerCause"], done["terminalState"]) == ("UPDATE_REQUIREMENT", "COMPLETED")
        vertex = is_open["vertices"][COUNT]
        numbers = (vertex["preRescaleParallelism"], vertex["desiredParallelism"], vertex["postRescaleParallelism"])
        assert numbers == (2, 4, None)
        counts = client.get(f"/jobs/{JOB}/rescales/summary").json["rescalesCounts"]
        assert counts == {"ignored": 0, "inProgress": 1, "completed": 1, "failed": 0}
    end = RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE
    over = replace(asked, ended_ms=BEGAN_MS + 9_000, end=end, reason="it needs 4 slots")
    with serving(Handle(replace(view, rescale_requests=(over,)))) as client:
        ignored = client.get(f"/jobs/{JOB}/rescales/overview").json["latest"]["ignored"]
        assert (ignored["terminalState"], ignored["terminatedReason"]) == ("IGNORED", end.value)
        (step,) = ignored["schedulerStates"]
        assert (step["durationInMillis"], step["stringifiedException"]) == (4_000, "it needs 4 slots")
        assert client.get(f"/jobs/{JOB}/rescales/details/{ignored['rescaleUuid']}").json == ignored
    failed = replace(over, end=RescaleEnd.EXCEPTION_OCCURRED)
    with serving(Handle(replace(view, rescale_requests=(failed,)))) as client:
        assert client.get(f"/jobs/{JOB}/rescales/overview").json["rescalesCounts"]["failed"] == 1
