"""Commands on jobs, line by line as Flink's client prints them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from click.testing import Result
from tests.cli.fake_server import (
    BEGUN_MS,
    ENDED,
    IN_PROGRESS,
    JOB,
    SECOND,
    SINK,
    SOURCE,
    TRIGGER,
    FakeServer,
    InTurn,
    details,
    done,
    job,
)

Penstock = Callable[..., Result]


def begun(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).strftime("%d.%m.%Y %H:%M:%S")


RUNNING = [
    "------------------ Running/Restarting Jobs -------------------",
    f"{begun(BEGUN_MS)} : {JOB} : Demo job (RUNNING)",
    f"{begun(BEGUN_MS + 60_000)} : {SECOND} : Second job (RESTARTING)",
    "--------------------------------------------------------------",
]
TERMINATED = [
    "---------------------- Terminated Jobs -----------------------",
    f"{begun(BEGUN_MS - 60_000)} : {ENDED} : Demo job (FINISHED)",
    "--------------------------------------------------------------",
]
WAITING = "Waiting for response..."


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], [*RUNNING, "No scheduled jobs."]),
        (["-r"], RUNNING),
        (["-s"], ["No scheduled jobs."]),
        (["-a"], [*RUNNING, "No scheduled jobs.", *TERMINATED]),
    ],
)
def test_list_prints_flinks_lines(penstock: Penstock, options: list[str], lines: list[str]) -> None:
    assert penstock("list", *options).output.splitlines() == [WAITING, *lines]


def test_list_of_nothing(penstock: Penstock, server: FakeServer) -> None:
    server.answers["GET /jobs/overview"] = {"jobs": []}
    assert penstock("list", "-a").output.splitlines() == [WAITING, "No running jobs.", "No scheduled jobs."]
    assert json.loads(penstock("list", "--json").output) == []


def test_list_as_json_is_the_servers_answer(penstock: Penstock) -> None:
    assert [one["jid"] for one in json.loads(penstock("list", "-a", "--json").output)] == [JOB, SECOND, ENDED]


@pytest.mark.parametrize("named", [JOB, JOB.upper(), "Demo job", "Demo", JOB[:4]])
def test_a_job_is_named_by_its_id_or_name_or_their_beginning(
    penstock: Penstock, server: FakeServer, named: str
) -> None:
    """One that runs goes before one of the same name that has ended."""
    server.answers[f"PATCH /jobs/{JOB}"] = (202, {})
    output = penstock("cancel", named).output
    assert output.splitlines() == [f"Cancelling job {JOB}.", f"Cancelled job {JOB}."]
    assert server.asked[-1] == (f"PATCH /jobs/{JOB}?mode=cancel", None)


def test_a_name_of_several_jobs_or_of_none_is_refused(penstock: Penstock, server: FakeServer) -> None:
    server.answers["GET /jobs/overview"] = {"jobs": [job(JOB, "Demo 1", "RUNNING"), job(SECOND, "Demo 2", "RUNNING")]}
    result = penstock("cancel", "Demo", code=1)
    assert result.output == (
        f"error: 'Demo' names 2 jobs: {JOB} (Demo 1), {SECOND} (Demo 2). Give more of the id or name\n"
    )
    assert "no job has the id or name 'None such'" in penstock("cancel", "None such", code=1).output


def test_a_job_of_sql_is_shown_and_named_without_the_paths_of_its_tables(
    penstock: Penstock, server: FakeServer
) -> None:
    name = "insert-into_default_catalog.default_database.orders,lake.sales.late"
    server.answers["GET /jobs/overview"] = {"jobs": [job(JOB, name, "RUNNING")]}
    assert f"{JOB} : insert-into_orders,late (RUNNING)" in penstock("list").output
    assert json.loads(penstock("list", "--json").output)[0]["name"] == name
    server.answers[f"PATCH /jobs/{JOB}"] = (202, {})
    for named in ("insert-into_orders", "insert-into_default_catalog"):
        assert f"Cancelled job {JOB}." in penstock("cancel", named).output


def test_stop_waits_for_the_savepoint(penstock: Penstock, server: FakeServer) -> None:
    server.answers[f"POST /jobs/{JOB}/stop"] = (202, {"request-id": TRIGGER})
    server.answers[f"GET /jobs/{JOB}/savepoints/{TRIGGER}"] = InTurn(IN_PROGRESS, done(location="file:/sp/savepoint-1"))
    lines = penstock("stop", JOB, "-p", "/sp").output.splitlines()
    assert lines == [
        f'Suspending job "{JOB}" with a CANONICAL savepoint.',
        f"Triggering stop-with-savepoint for job {JOB}.",
        WAITING,
        "Savepoint completed. Path: file:/sp/savepoint-1",
    ]
    body = {"targetDirectory": "/sp", "drain": False, "formatType": "CANONICAL"}
    assert server.asked[0] == (f"POST /jobs/{JOB}/stop", body)


def test_stop_drains_and_detaches(penstock: Penstock, server: FakeServer) -> None:
    server.answers[f"POST /jobs/{JOB}/stop"] = (202, {"request-id": TRIGGER})
    lines = penstock("stop", "--drain", "-detached", "--type", "native", JOB).output.splitlines()
    assert lines[0] == f'Draining job "{JOB}" with a NATIVE savepoint.'
    assert lines[-1] == f"Successfully trigger stop-with-savepoint in detached mode, triggerId: {TRIGGER}"
    assert server.asked == [
        (f"POST /jobs/{JOB}/stop", {"targetDirectory": None, "drain": True, "formatType": "NATIVE"})
    ]


def test_a_savepoint_that_fails_says_why_and_ends_with_1(penstock: Penstock, server: FakeServer) -> None:
    server.answers[f"POST /jobs/{JOB}/savepoints"] = (202, {"request-id": TRIGGER})
    cause = {
        "class": "CheckpointError",
        "stack-trace": "Traceback (most recent call last):\n  x\nCheckpointError: full",
    }
    server.answers[f"GET /jobs/{JOB}/savepoints/{TRIGGER}"] = done(**{"failure-cause": cause})
    assert penstock("savepoint", JOB, code=1).output.splitlines()[-1] == "error: CheckpointError: full"


def test_savepoint_is_taken_or_disposed_of(penstock: Penstock, server: FakeServer) -> None:
    server.answers[f"POST /jobs/{JOB}/savepoints"] = (202, {"request-id": TRIGGER})
    server.answers[f"GET /jobs/{JOB}/savepoints/{TRIGGER}"] = done(location="file:/sp/savepoint-1")
    assert penstock("savepoint", JOB, "/sp").output.splitlines() == [
        f"Triggering savepoint for job {JOB}.",
        WAITING,
        "Savepoint completed. Path: file:/sp/savepoint-1",
        "You can resume your program from this savepoint with the run command.",
    ]
    assert server.asked[0][1] == {"target-directory": "/sp", "cancel-job": False, "formatType": "CANONICAL"}
    server.answers["POST /savepoint-disposal"] = {"request-id": TRIGGER}
    server.answers[f"GET /savepoint-disposal/{TRIGGER}"] = done()
    assert penstock("savepoint", "-d", "file:/sp/savepoint-1").output.splitlines() == [
        "Disposing savepoint 'file:/sp/savepoint-1'.",
        WAITING,
        "Savepoint 'file:/sp/savepoint-1' disposed.",
    ]
    assert "Name a job, or a savepoint" in penstock("savepoint", code=2).output


def test_cancel_with_savepoint_takes_flinks_two_forms(penstock: Penstock, server: FakeServer) -> None:
    server.answers[f"POST /jobs/{JOB}/savepoints"] = (202, {"request-id": TRIGGER})
    server.answers[f"GET /jobs/{JOB}/savepoints/{TRIGGER}"] = done(location="file:/sp/1")
    for arguments, directory in ((["-s", "/sp", JOB], "/sp"), (["-s", JOB], None)):
        server.asked.clear()
        lines = penstock("cancel", *arguments).output.splitlines()
        assert lines[-1] == f"Cancelled job {JOB}. Savepoint stored in file:/sp/1."
        assert server.asked[0][1] == {"target-directory": directory, "cancel-job": True}


def test_checkpoint_prints_its_number(penstock: Penstock, server: FakeServer) -> None:
    server.answers[f"POST /jobs/{JOB}/checkpoints"] = (202, {"request-id": TRIGGER})
    server.answers[f"GET /jobs/{JOB}/checkpoints/{TRIGGER}"] = done(checkpointId=11)
    assert f"Checkpoint 11 for job {JOB} completed." in penstock("checkpoint", "-full", JOB).output
    assert server.asked[0] == (f"POST /jobs/{JOB}/checkpoints", {"checkpointType": "FULL"})
    assert json.loads(penstock("checkpoint", JOB, "--json").output) == {"job": JOB, "checkpoint": 11}


def test_rescale_names_vertices_by_parts_and_waits(penstock: Penstock, server: FakeServer) -> None:
    server.answers[f"GET /jobs/{JOB}"] = InTurn(details(), details(2, "RESTARTING"), details(4))
    server.answers[f"PUT /jobs/{JOB}/resource-requirements"] = {}
    lines = penstock("rescale", JOB, "Counts=4").output.splitlines()
    assert lines[-2:] == ["Source: Numbers: 2", "Counts -> Sink: Print: 4"]
    (put,) = [body for asked, body in server.asked if asked.startswith("PUT")]
    assert put == {
        SOURCE: {"parallelism": {"lowerBound": 1, "upperBound": 2}},
        SINK: {"parallelism": {"lowerBound": 1, "upperBound": 4}},
    }


def test_rescale_ends_when_the_job_goes_on_as_it_was(penstock: Penstock, server: FakeServer) -> None:
    """An earlier request that came to nothing says nothing of this one."""

    def ignored(number: int, why: str | None) -> dict[str, Any]:
        step = {"state": "Executing", "stringifiedException": why}
        reason = "NO_RESOURCES_OR_PARALLELISMS_CHANGE"
        made = {"rescaleUuid": str(number) * 32, "triggerCause": "UPDATE_REQUIREMENT", "schedulerStates": [step]}
        return {**made, "terminalState": "IGNORED", "terminatedReason": reason}

    is_open = {**ignored(2, None), "terminalState": None}
    server.answers[f"GET /jobs/{JOB}"] = details()
    server.answers[f"PUT /jobs/{JOB}/resource-requirements"] = {}
    before = ignored(1, "an earlier one")
    for why, told in (("it needs 4 slots", "it needs 4 slots"), (None, "NO_RESOURCES_OR_PARALLELISMS_CHANGE")):
        turns = InTurn([before], [is_open, before], [ignored(2, why), before])
        server.answers[f"GET /jobs/{JOB}/rescales/history"] = turns
        assert f"was not rescaled: {told}" in penstock("rescale", JOB, "Counts=4", code=1).output
    done_with_fewer = {**ignored(2, None), "terminalState": "COMPLETED"}
    server.answers[f"GET /jobs/{JOB}"] = InTurn(details(), details(2), details(2), details(3))
    server.answers[f"GET /jobs/{JOB}/rescales/history"] = InTurn([before], [before], [done_with_fewer, before])
    assert penstock("rescale", JOB, "Counts=4").output.splitlines()[-1] == "Counts -> Sink: Print: 3"


@pytest.mark.parametrize(
    ("wanted", "told"),
    [("Nothing=2", "names 0 vertices"), ("r=2", "names 2 vertices"), ("Counts", "VERTEX=N"), ("Counts=0", "VERTEX=N")],
)
def test_rescale_refuses_what_is_not_clear(penstock: Penstock, wanted: str, told: str) -> None:
    assert told in penstock("rescale", JOB, wanted, code=1).output


def test_a_server_that_refuses_says_which_token_it_wants(penstock: Penstock, server: FakeServer) -> None:
    server.answers[f"PATCH /jobs/{JOB}"] = (401, {"errors": ["This needs the operator's token."]})
    assert "PENSTOCK_REST_TOKEN" in penstock("cancel", JOB, code=1).output


def test_the_token_and_the_address_come_from_the_surroundings(
    penstock: Penstock, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock("list", "-D", "penstock.rest.token=abc")
    assert server.headers[-1]["Authorization"] == "Bearer abc"
    monkeypatch.setenv("PENSTOCK_REST_TOKEN", "of the environment")
    penstock("list")
    assert server.headers[-1]["Authorization"] == "Bearer of the environment"


def test_no_server_is_said_in_one_line(penstock: Penstock, server: FakeServer) -> None:
    server.address = "127.0.0.1:1"
    output = penstock("list", code=1).output.splitlines()
    assert output[0] == WAITING
    assert output[1].startswith("error: nothing answers at http://127.0.0.1:1")
    assert len(output) == 2
