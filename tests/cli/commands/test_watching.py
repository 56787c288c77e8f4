"""`top` and `logs`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from tests.cli.fake_server import BEGUN_MS, JOB, SECOND, SINK, SOURCE, FakeServer, InTurn

from penstock.cli.client.jobs import ANCHOR, LogReader, added
from penstock.cli.client.rest_client import Address, RestClient
from penstock.cli.top import VertexSample, bar, duration_text, rate_text

Penstock = Callable[..., Result]


def metric(name: str, value: float) -> dict[str, Any]:
    return {"id": name, "min": value, "max": value, "avg": value, "sum": 2 * value}


@pytest.fixture
def watched(server: FakeServer) -> FakeServer:
    last = {"id": 7, "latest_ack_timestamp": BEGUN_MS + 85_000, "end_to_end_duration": 42, "state_size": 2_048}
    counts = {"completed": 6, "failed": 1, "in_progress": 0}
    server.answers[f"GET /jobs/{JOB}/checkpoints"] = {"counts": counts, "latest": {"completed": last}}
    server.answers[f"GET /jobs/{JOB}/vertices/{SOURCE}/subtasks/metrics"] = [metric("numRecordsOutPerSecond", 25_000)]
    server.answers[f"GET /jobs/{JOB}/vertices/{SINK}/subtasks/metrics"] = [
        metric("numRecordsInPerSecond", 25_000),
        metric("busyTimeMsPerSecond", 500),
        metric("backPressuredTimeMsPerSecond", 250),
        metric("currentInputWatermark", BEGUN_MS + 88_500),
    ]
    return server


def test_top_is_a_snapshot_where_there_is_no_terminal(penstock: Penstock, watched: FakeServer) -> None:
    lines = penstock("top", "Demo").output.splitlines()
    assert lines[0].split() == ["Demo", "job", JOB, "RUNNING", "for", "1", "min", "30", "s"]
    (source,) = [line for line in lines if "Source: Numbers" in line]
    assert source.split()[2:6] == ["2", "-", "50.0", "k"]
    (sink,) = [line for line in lines if "Counts" in line]
    assert "████████▒▒▒▒····  50%" in sink
    assert "1.5 s" in sink
    assert lines[-1] == (
        "checkpoints: 6 completed, 0 in progress, 1 failed; the last is 7, 5.0 s ago: 2.0 KiB in 42 ms"
    )


def hold_input(name: str, **more: Any) -> dict[str, Any]:
    found = {"id": name, "name": name, "holds": True, "idle": False, "ended": False, "watermark": 1, "splits": []}
    return {**found, "highest-watermark": 9, "subtasks": [2], "count": 1, **more}


def test_top_names_what_holds_a_watermark_back(penstock: Penstock, watched: FakeServer) -> None:
    inputs = [hold_input("Enriched"), hold_input("Payments", holds=False, idle=True, subtasks=[], count=0)]
    held = {
        "id": SINK,
        "operator": "Counts",
        "duration": 90_000,
        "inputs": inputs,
        "origin": {"id": "o", "name": "Orders"},
    }
    splits = hold_input("Orders", splits=["orders-1", "orders-2"], count=3, watermark=None, subtasks=[])
    source = {
        "id": "o",
        "operator": "Orders",
        "duration": 5_000,
        "inputs": [splits],
        "origin": {"id": "o", "name": "Orders"},
    }
    watched.answers[f"GET /jobs/{JOB}/watermark-hold"] = {"status": "ok", "holds": [held, source]}
    lines = " ".join(penstock("top", "Demo").output.split())
    assert (
        "watermark of Counts: stands still for 1 min 30 s, waits for Enriched (subtask 3), from Orders; idle: Payments"
        in lines
    )
    assert (
        "watermark of Orders: stands still for 5.0 s, waits for splits orders-1, orders-2 and 1 more, which has no "
        "watermark yet" in lines
    )


def test_top_says_how_often_a_job_began_again(penstock: Penstock, watched: FakeServer) -> None:
    job = watched.answers[f"GET /jobs/{JOB}"]
    watched.answers[f"GET /jobs/{JOB}"] = {**job, "restarts": 162, "last-failure": job["now"] - 12_000}
    head = penstock("top", "Demo").output.splitlines()[0]
    assert head.endswith("for 1 min 30 s  162 restarts, the last failure 12.0 s ago")
    assert json.loads(penstock("top", JOB, "--json").output)["failure_age_ms"] == 12_000


def test_top_as_json_has_numbers(penstock: Penstock, watched: FakeServer) -> None:
    found = json.loads(penstock("top", JOB, "--json").output)
    source, sink = found["vertices"]
    assert (source["in_per_second"], source["out_per_second"], source["busy"]) == (None, 50_000, None)
    assert (sink["busy"], sink["back_pressured"], sink["watermark_lag_ms"]) == (0.5, 0.25, 1_500)
    assert found["checkpoints"]["last_bytes"] == 2_048


def test_top_needs_a_name_when_two_jobs_run(penstock: Penstock) -> None:
    assert "name a job: 2 are running (Demo job, Second job)" in penstock("top", code=1).output


def vertex(busy: float | None, pressed: float) -> VertexSample:
    return VertexSample("v", "v", 1, "RUNNING", None, None, busy, pressed, None, None, 0, 0)


@pytest.mark.parametrize(
    ("busy", "pressed", "shown"),
    [(0.0, 0.0, "················   0%"), (1.0, 0.9, "████████████████ 100%"), (0.25, 1.0, "████▒▒▒▒▒▒▒▒▒▒▒▒  25%")],
)
def test_a_bar_is_always_as_wide(busy: float, pressed: float, shown: str) -> None:
    assert bar(vertex(busy, pressed)).plain == shown


def test_numbers_are_short() -> None:
    assert [rate_text(rate) for rate in (None, 0.0, 1.25, 9_999, 10_000, 2.5e6)] == [
        "-",
        "0",
        "1.2",
        "9,999",
        "10.0 k",
        "2.5 M",
    ]
    assert [duration_text(ms) for ms in (5, 1_500, 65_000, 3_660_000, 90_000_000)] == [
        "5 ms",
        "1.5 s",
        "1 min 5 s",
        "1 h 1 min",
        "1 d 1 h",
    ]


def test_logs_are_of_the_driver_or_a_worker(penstock: Penstock, server: FakeServer) -> None:
    server.answers["GET /jobmanager/log"] = "one\ntwo\nthree\n"
    server.answers["GET /jobmanager/stdout"] = "printed\n"
    server.answers["GET /taskmanagers"] = {"taskmanagers": [{"id": "worker-1"}, {"id": "worker-2"}]}
    server.answers["GET /taskmanagers/worker-2/log"] = "of two\n"
    assert penstock("logs", "-n", "2").output == "two\nthree\n"
    assert penstock("logs", "Second", "--stdout").output == "printed\n"
    assert server.asked[-1][0] == f"GET /jobmanager/stdout?job={SECOND}"
    assert penstock("logs", "--worker", "worker-2").output == "of two\n"
    assert "names 2 workers" in penstock("logs", "--worker", "worker", code=1).output
    assert json.loads(penstock("logs", "-n", "1", "--json").output) == {"log": "jobmanager/log", "line": "three"}


def test_a_log_that_is_followed_gives_what_comes(server: FakeServer) -> None:
    """Also when the server drops its beginning to keep it small, or begins a new one."""
    begun, long = "a\n" * 10, f"{'b' * ANCHOR}\n"
    server.answers["GET /jobmanager/log"] = InTurn(begun + long, begun + long + "c\n", long + "c\nd\n", "anew\n")
    reader = LogReader(RestClient(Address(f"http://{server.address}")), "/jobmanager/log", lambda seconds: None)
    lines = reader.lines(1, True)
    assert [next(lines) for _ in range(4)] == ["b" * ANCHOR, "c", "d", "anew"]


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [("", "a", "a"), ("a", "a", ""), ("a\nb\n", "b\nc\n", "b\nc\n"), ("xx\nyy\n", "yy\n", "yy\n")],
)
def test_what_is_added_to_a_log(before: str, now: str, new: str) -> None:
    assert added(before, now) == new
