"""Paths that a command names, and what `penstock stop` waits for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.fake_server import JOB, FakeServer, InTurn, job

from penstock.base.configuration import Configuration
from penstock.base.durable_files import TEMPORARY_VARIABLE, check_outlives
from penstock.base.errors import ConfigurationError
from penstock.cli.client.jobs import wait_until_released, where_client_stands
from penstock.cli.client.rest_client import Address, RestClient
from penstock.codecs.serialization import Encoder
from penstock.connectors.file.sink import FileSink
from penstock.drivers.worker_storage import StorageSettings
from penstock.storage.files import absolute_url


def test_a_relative_path_is_where_the_client_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may be a session, whose programs run in directories that it deletes."""
    monkeypatch.chdir(tmp_path)
    assert where_client_stands("savepoints") == str(tmp_path / "savepoints")
    assert where_client_stands("s3://bucket/x") == "s3://bucket/x"
    assert where_client_stands("/a/b") == "/a/b"
    assert where_client_stands(None) is None


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a session's program."""
    directory = tmp_path / "program"
    directory.mkdir()
    monkeypatch.setenv(TEMPORARY_VARIABLE, str(directory))
    monkeypatch.chdir(directory)
    return directory


def test_what_must_outlive_a_sessions_program_needs_an_absolute_path(temporary: Path) -> None:
    """H1: savepoints, checkpoints and files of sinks would be deleted with the session."""
    with pytest.raises(ConfigurationError, match="'savepoints' is relative"):
        absolute_url("savepoints")
    with pytest.raises(ConfigurationError, match="'chk' is relative"):
        StorageSettings.of(Configuration.from_dict({"execution.checkpointing.dir": "chk"}), "a" * 32)
    with pytest.raises(ConfigurationError, match="'out' is relative"):
        FileSink.for_row_format("out", Encoder.simple_string_encoder())
    assert absolute_url("/kept") == "/kept"
    assert absolute_url("memory://kept") == "memory://kept"


def test_a_program_that_has_gone_elsewhere_may_use_relative_paths(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "program-of-others"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    check_outlives("out")
    assert absolute_url("out") == str(elsewhere / "out")


@pytest.fixture
def client(server: FakeServer) -> RestClient:
    return RestClient(Address(f"http://{server.address}"))


def result(done: bool) -> dict[str, object]:
    return {"status": {"id": "COMPLETED" if done else "IN_PROGRESS"}}


def clock() -> float:
    """Time that passes with each look."""
    clock.now += 0.5  # type: ignore[attr-defined]
    return float(clock.now)  # type: ignore[attr-defined]


clock.now = 0.0  # type: ignore[attr-defined]


def test_stop_waits_for_the_job_and_the_end_of_its_program(server: FakeServer, client: RestClient) -> None:
    """The next command may start the job again at the same port."""
    server.answers["GET /config"] = {"features": {"web-submit": False}}
    server.answers[f"GET /jobs/{JOB}/execution-result"] = InTurn(result(False), result(False), result(True))
    server.answers["GET /jobs/overview"] = InTurn({"jobs": [job(JOB, "x", "FINISHED")]}, None)  # then it is gone
    paused: list[float] = []
    wait_until_released(client, JOB, paused.append, clock)
    assert len(paused) == 3
    assert [asked for asked, _ in server.asked].count("GET /jobs/overview") == 2


def test_stop_does_not_wait_for_a_session_or_a_program_with_more_jobs(server: FakeServer, client: RestClient) -> None:
    server.answers[f"GET /jobs/{JOB}/execution-result"] = result(True)
    for is_session, state in ((True, "FINISHED"), (False, "RUNNING")):
        server.answers["GET /config"] = {"features": {"web-submit": is_session}}
        server.answers["GET /jobs/overview"] = {"jobs": [job(JOB, "x", state)]}
        paused: list[float] = []
        wait_until_released(client, JOB, paused.append, clock)
        assert paused == []
