"""Who may ask what: hosts, origins, tokens, bodies, and what is left in the log."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import cast

import pytest
from tests.operations.rest.rig import JOB, Handle, a_view, graph_of, serving

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.drivers.running_job import RunningJob
from penstock.operations.dispatcher import DispatchedJob
from penstock.operations.rest.application import BODY_BYTES_MAX
from penstock.operations.rest.settings import RestSettings

OPERATOR = {"authorization": "Bearer operators"}
READER = {"authorization": "Bearer readers"}
CHANGING = [
    ("PATCH", f"/jobs/{JOB}"),
    ("GET", f"/jobs/{JOB}/yarn-cancel"),
    ("POST", f"/applications/{JOB}/cancel"),
    ("POST", f"/jobs/{JOB}/stop"),
    ("POST", f"/jobs/{JOB}/savepoints"),
    ("POST", f"/jobs/{JOB}/checkpoints"),
    ("PUT", f"/jobs/{JOB}/resource-requirements"),
    ("POST", "/savepoint-disposal"),
    ("DELETE", "/cluster"),
]
REVEALING = [
    "/jobmanager/config",
    "/jobmanager/environment",
    "/jobmanager/log",
    "/jobmanager/thread-dump",
    f"/jobs/{JOB}/config",
    f"/jobs/{JOB}/exceptions",
]


def test_the_server_listens_on_this_host_alone_unless_told() -> None:
    assert RestSettings.of(Configuration.from_dict({"rest.port": "0"})).bind_address == "127.0.0.1"


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.1.2.3", "driver.example"])
def test_beyond_this_host_it_needs_tls_or_somebody_who_knows(address: str, tmp_path: Path) -> None:
    values = {"rest.bind-address": address, "penstock.rest.token-dir": str(tmp_path)}
    with pytest.raises(ConfigurationError, match=r"security\.ssl\.rest\.enabled"):
        RestSettings.of(Configuration.from_dict(values))
    known = RestSettings.of(Configuration.from_dict(values | {"penstock.rest.insecure": "true"}))
    (path,) = tmp_path.iterdir()
    assert known.token == path.read_text().strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(known.token) >= 40


def test_tls_needs_both_files(tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.touch()
    values = {"security.ssl.rest.enabled": "true", "security.ssl.rest.certificate": str(certificate)}
    with pytest.raises(ConfigurationError, match=r"security\.ssl\.rest\.key"):
        RestSettings.of(Configuration.from_dict(values))


def test_a_profiler_is_refused_rather_than_left_out() -> None:
    with pytest.raises(UnsupportedError, match=r"rest\.profiling\.enabled"):
        RestSettings.of(Configuration.from_dict({"rest.profiling.enabled": "true"}))


@pytest.mark.parametrize(("method", "path"), CHANGING)
def test_what_changes_something_needs_the_operator(method: str, path: str) -> None:
    handle = Handle(a_view())
    tokens = {"penstock.rest.token": "operators", "penstock.rest.reader-token": "readers"}
    with serving(handle, configuration=tokens) as client:
        assert client.ask(method, path).code == 401
        assert client.ask(method, path, headers={"authorization": "Bearer wrong"}).code == 401
        assert client.ask(method, path, headers=READER).code == 403
        assert handle.asked == []
        assert client.ask(method, path, headers=OPERATOR).code not in (401, 403)


def test_what_reveals_something_needs_a_token_and_the_rest_only_where_there_is_a_readers() -> None:
    with serving(Handle(a_view()), configuration={"penstock.rest.token": "operators"}) as client:
        for path in REVEALING:
            assert client.get(path).code == 401, path
            assert client.get(path, OPERATOR).code == 200, path
        assert client.get("/jobs/overview").code == 200
    tokens = {"penstock.rest.token": "operators", "penstock.rest.reader-token": "readers"}
    with serving(Handle(a_view()), configuration=tokens) as client:
        for path in [*REVEALING, "/jobs/overview"]:
            assert client.get(path).code == 401, path
            assert client.get(path, READER).code == 200, path


def test_no_token_is_shown_by_the_server_itself() -> None:
    with serving(Handle(a_view()), configuration={"penstock.rest.token": "operators"}) as client:
        assert b"operators" not in client.get("/jobmanager/config", OPERATOR).body


def test_the_log_of_the_server_shows_no_jobs_secret() -> None:
    """What is logged may hold them: an error that names an address with a password, a job's options."""
    first, later = {"s3.secret-key": "swordfish"}, {"sasl.password": "open sesame"}
    with serving(Handle(a_view()), configuration=first) as client:
        own = client.context.own
        own.listen()
        try:
            log = logging.getLogger("penstock.test")
            log.warning("cannot open s3://me:swordfish@bucket, nor with %s", "open sesame")
            try:
                raise OSError("refused: swordfish")
            except OSError:
                log.exception("it failed")
        finally:
            own.forget()
        assert "open sesame" in client.get("/jobmanager/log").body.decode(), "no job has this secret yet"
        handle = Handle(a_view(job_id="e" * 32))
        job = DispatchedJob(cast("RunningJob", handle), graph_of(a_view()), Configuration.from_dict(later))
        client.context.dispatcher.add(job)
        for path in ("/jobmanager/log", "/jobmanager/logs/penstock.log"):
            text = client.get(path).body.decode()
            assert "s3://me:******@bucket, nor with ******" in text
            assert "OSError: refused: ******" in text
            assert "swordfish" not in text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8081", "localhost.evil.example", ""])
def test_a_name_that_leads_here_from_elsewhere_is_refused(host: str) -> None:
    with serving(Handle(a_view())) as client:
        assert client.get("/overview", {"host": host}).code == 403
        assert client.get("/nowhere", {"host": host}).code == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8081", "[::1]:8081", "proxy.example"])
def test_names_of_the_server_are_taken(host: str) -> None:
    with serving(Handle(a_view()), configuration={"penstock.rest.allowed-hosts": "proxy.example"}) as client:
        assert client.get("/overview", {"host": host}).code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"referer": "https://evil.example/page"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("allowed", [None, "*", "https://a.example"])
def test_pages_of_other_sites_change_nothing(headers: dict[str, str], allowed: str | None) -> None:
    """Every site may read answers where `*` is allowed; it may not change anything."""
    handle = Handle(a_view())
    configuration = {} if allowed is None else {"web.access-control-allow-origin": allowed}
    with serving(handle, configuration=configuration) as client:
        assert client.ask("PATCH", f"/jobs/{JOB}", headers=headers).code == 403
        assert client.get(f"/jobs/{JOB}/yarn-cancel", headers).code == 403
        assert handle.asked == []
        assert client.get("/jobs/overview", headers).code == 200


def test_the_page_of_the_server_itself_may() -> None:
    handle = Handle(a_view())
    with serving(handle) as client:
        own = {"origin": client.server.url, "sec-fetch-site": "same-origin"}
        assert client.ask("PATCH", f"/jobs/{JOB}", headers=own).code == 202
        assert handle.asked == ["cancel"]


def test_site_that_is_allowed_by_name_may() -> None:
    handle = Handle(a_view())
    with serving(handle, configuration={"web.access-control-allow-origin": "https://a.example"}) as client:
        headers = {"origin": "https://a.example", "sec-fetch-site": "cross-site"}
        assert client.ask("PATCH", f"/jobs/{JOB}", headers=headers).code == 202
        assert handle.asked == ["cancel"]


def test_no_other_page_reads_answers_unless_told() -> None:
    with serving(Handle(a_view())) as client:
        assert client.get("/overview").headers["access-control-allow-origin"] is None
    with serving(Handle(a_view()), configuration={"web.access-control-allow-origin": "https://a.example"}) as client:
        assert client.get("/overview").headers["access-control-allow-origin"] == "https://a.example"


def test_bodies_are_bounded() -> None:
    with serving(Handle(a_view())) as client:
        answer = client.ask("POST", f"/jobs/{JOB}/savepoints", b" " * (BODY_BYTES_MAX + 1))
        assert answer.code == 413


def test_what_changes_something_leaves_a_line(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("penstock")
    propagates, logger.propagate = logger.propagate, True
    try:
        with (
            caplog.at_level(logging.INFO, "penstock.audit"),
            serving(Handle(a_view()), configuration={"penstock.rest.token": "operators"}) as client,
        ):
            client.ask("PATCH", f"/jobs/{JOB}")
            client.ask("PATCH", f"/jobs/{JOB}", headers=OPERATOR)
            client.get("/jobs")
    finally:
        logger.propagate = propagates
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.audit"]
    assert lines == [
        f"PATCH /jobs/{JOB} by nobody from 127.0.0.1: 401",
        f"PATCH /jobs/{JOB} by operator from 127.0.0.1: 202",
    ]
