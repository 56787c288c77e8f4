"""Who may ask what: hosts, origins, tokens, bodies, and what is left in the log."""

from __future__ import annotations

import logging
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import pytest
from tests.server.rest.rig import JOB, SOURCE, Handle, a_view, build_graph, serving

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.options import REGISTRY
from penstock.cli.client.rest_client import resolve_address
from penstock.drivers.running_job import RunningJob
from penstock.server.dispatcher import DispatchedJob
from penstock.server.rest import application
from penstock.server.rest.application import BODY_BYTES_MAX, PAGE_POLICY, ROUTES, starlette_path
from penstock.server.rest.calls.context import RestSettings
from penstock.server.rest.calls.routing import Empty

OPERATOR = {"authorization": "Bearer operators"}
READER = {"authorization": "Bearer readers"}
ALL_ROUTES = [(route.access, route.method, route.path) for route in ROUTES]
CREDENTIALS: dict[str, dict[str, str]] = {
    "nobody": {},
    "empty": {"authorization": ""},
    "no token": {"authorization": "Bearer"},
    "empty token": {"authorization": "Bearer "},
    "blank token": {"authorization": "Bearer    "},
    "another scheme": {"authorization": "Basic b3BlcmF0b3JzOm9wZXJhdG9ycw=="},
    "only the token": {"authorization": "operators"},
    "wrong": {"authorization": "Bearer wrong"},
    "part": {"authorization": "Bearer operator"},
    "longer": {"authorization": "Bearer operatorss"},
    "both": {"authorization": "Bearer readers operators"},
    "reader": READER,
    "operator": OPERATOR,
}
#: The code by kind of route with an operator's token alone, and with a reader's, too; 0 lets the request in.
ALONE = {"open": lambda role: 0, "reveals": lambda role: 0 if role == "operator" else 401}
ALONE["changes"] = ALONE["reveals"]
ALONE["login"] = lambda role: 0
BOTH = {
    "login": lambda role: 0,
    "open": lambda role: 0 if role in ("reader", "operator") else 401,
    "reveals": lambda role: 0 if role in ("reader", "operator") else 401,
    "changes": lambda role: {"operator": 0, "reader": 403}.get(role, 401),
}
_PLACES = {
    "jobid": JOB,
    "applicationid": JOB,
    "vertexid": SOURCE,
    "programid": JOB,
    "triggerid": JOB,
    "rescaleuuid": JOB,
}


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


def build_path(route: str) -> str:
    """A path of a route, with parameters of the right form."""
    parts = [_PLACES.get(part[1:], "0") if part.startswith(":") else part for part in route.split("/")]
    return "/".join(parts)


@pytest.mark.parametrize("with_reader", [False, True])
@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_each_route_lets_in_those_whom_its_access_names(
    with_reader: bool, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All routes of the router x all forms of credentials. A request that is let in reaches a handler that says so."""
    monkeypatch.setattr(application, "ROUTES", [replace(route, handler=lambda _: Empty()) for route in ROUTES])
    tokens = {"penstock.rest.token": "operators"} | ({"penstock.rest.reader-token": "readers"} if with_reader else {})
    expected = BOTH if with_reader else ALONE
    wrong = []
    handle = Handle(a_view())
    with serving(handle, configuration=tokens) as client:
        router = cast("Any", application.application(client.context, client.server.settings).routes)
        served = {(method, route.path) for route in router for method in route.methods - {"HEAD"}}
        for access, method, path in [*ALL_ROUTES, ("open", "GET", "/openapi.json")]:
            served -= {(method, starlette_path(p + path)) for p in ("", "/v1")}
            for name, headers in CREDENTIALS.items():
                code = client.ask(method, prefix + build_path(path), headers=headers).code
                due = expected[access](name)
                if code in (401, 403) if not due else code != due:
                    wrong.append(f"{name}: {method} {path} ({access}): {code}, not {due or 'let in'}")
    assert not wrong, "\n".join(wrong)
    assert sorted(served) == [("GET", "/"), ("GET", "/assets/{name:str}")], "files of the page, which hold no data"


def test_what_may_hold_the_text_of_an_exception_or_a_value_needs_a_token() -> None:
    """S11: a failure quotes a record or an address with a password."""
    open_answers = {route.path: route.answers for route in ROUTES if route.access == "open"}
    telling = {
        "failure-cause",
        "failureCause",
        "stack-trace",
        "failure_message",
        "stringifiedException",
        "user-accumulators",
    }
    telling |= {"accumulator-results", "user-task-accumulators", "exceptionHistory", "value of a user"}
    assert {path: found for path, kind in open_answers.items() if (found := collect_fields(kind) & telling)} == {}


def collect_fields(kind: Any, seen: set[Any] | None = None) -> set[str]:
    """The names of all fields of an answer, at any depth."""
    seen = set() if seen is None else seen
    found: set[str] = set()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in seen:
        seen.add(kind)
        for field in msgspec.structs.fields(kind):
            found |= {field.encode_name} | collect_fields(field.type, seen)
    for part in get_args(kind):
        found |= collect_fields(part, seen)
    return found


@pytest.mark.parametrize("key", ["penstock.rest.token", "penstock.rest.reader-token", "security.ssl.rest.key-password"])
@pytest.mark.parametrize("blank", ["", " ", "\t", "\u00a0 "])
def test_a_blank_secret_is_refused(key: str, blank: str) -> None:
    """K3: it would open everything to whoever sends an empty token."""
    with pytest.raises(ConfigurationError, match=key):
        Configuration.from_dict({key: blank}).read(REGISTRY[key])


@pytest.mark.parametrize("blank", ["", "  "])
def test_no_server_and_no_client_takes_a_blank_token(blank: str) -> None:
    """The same on both sides."""
    with pytest.raises(ConfigurationError, match=r"penstock\.rest\.token"):
        RestSettings.of(Configuration.from_dict({"rest.port": "0", "penstock.rest.token": blank}))
    with pytest.raises(ConfigurationError, match=r"penstock\.rest\.token"):
        resolve_address(None, {"penstock.rest.token": blank})


@pytest.mark.parametrize("token", ["tab\tin it", "line\nbreak", " begins", "ends ", "sch\u00f6n"])
def test_a_token_that_no_header_carries_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigurationError, match="visible ASCII") as refused:
        RestSettings.of(Configuration.from_dict({"rest.port": "0", "penstock.rest.token": token}))
    assert token not in str(refused.value)
    assert refused.value.__context__ is None


def test_the_readers_token_is_another_one() -> None:
    tokens = {"rest.port": "0", "penstock.rest.token": "same", "penstock.rest.reader-token": "same"}
    with pytest.raises(ConfigurationError, match="readers could change everything"):
        RestSettings.of(Configuration.from_dict(tokens))


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
        job = DispatchedJob(cast("RunningJob", handle), build_graph(a_view()), Configuration.from_dict(later))
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


def test_every_answer_says_what_a_browser_may_load() -> None:
    """S9: data loads nothing, and nobody frames it; the page loads its own files."""
    with serving(Handle(a_view())) as client:
        for path in ("/overview", "/nowhere", f"/jobs/{JOB}", "/jobs/x"):
            policy = client.get(path).headers["content-security-policy"]
            assert policy.startswith("default-src 'none'")
            assert "frame-ancestors 'none'" in policy
    page = (Path(__file__).parents[3] / "web" / "vite.config.ts").read_text()
    in_the_page = page.split('"default-src')[1].split('"')[0]
    assert PAGE_POLICY.startswith(f"default-src{in_the_page}; ")
