"""The gateway over HTTP: paths of each version, bodies, errors, and who may ask."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from tests.server.gateway.rig import NOBODY, Client, scripted, serving

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.cli.gateway.engine import gateway_settings
from penstock.server.gateway.routes import TABLE, VERSIONS
from penstock.server.rest.application import parse_host
from penstock.sql.data.errors import ValidationError

REST = "org.apache.flink.runtime.rest.handler.RestHandlerException"
API = "org.apache.flink.table.gateway.api.utils.SqlGatewayException"


def path_of(route: str, session: str = NOBODY, operation: str = NOBODY) -> str:
    names = {":session_handle": session, ":operation_handle": operation, ":token": "0", ":identifier": "t"}
    return "/".join(names.get(part, part) for part in route.split("/"))


def lines_of(text: str) -> list[str]:
    """The causes of an error, entry by entry."""
    return [line for entry in json.loads(text)["errors"] for line in entry.split("\n") if not line.startswith("\t")]


def test_each_path_is_there_in_its_versions_alone() -> None:
    sessions, _ = scripted()
    with serving(sessions) as client:
        for method, route, _, _, _, versions in TABLE:
            for version in ("", *VERSIONS, "v5", "v0"):
                path = f"{f'/{version}' if version else ''}{path_of(route)}"
                code, text = client.ask(method, path, {} if method == "POST" else None)
                is_there = version in ("", *versions)
                assert (code != 404) == is_there, (method, path, code)
                if not is_there:
                    assert text == json.dumps({"errors": [f"Not found: {path}"]}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/v4/info"), ("POST", "/v4/info"), ("GET", "/v4/sessions"), ("GET", "/")]
)
def test_another_method_is_not_found(method: str, path: str) -> None:
    with serving(scripted()[0]) as client:
        assert client.ask(method, path) == (404, f'{{"errors":["Not found: {path}"]}}')


def test_what_clients_ask_first() -> None:
    with serving(scripted()[0]) as client:
        assert client.json("GET", "/v1/api_versions") == {"versions": ["V1", "V2", "V3", "V4"]}
        assert client.json("GET", "/info") == {"productName": "Apache Flink", "version": "2.3.0"}


def test_a_statement_from_the_session_to_the_last_page() -> None:
    sessions, engines = scripted()
    with serving(sessions) as client:
        session = client.open("v1", **{"a.b": "c"})
        assert client.json("GET", session) == {"properties": {"a.b": "c"}}
        operation = client.submit(session, "rows 2", executionTimeout=0, executionConfig=None)
        first, *others = client.pages(operation)
        assert first["isQueryResult"] is True
        assert first["jobID"] == "ab"
        assert first["resultKind"] == "SUCCESS_WITH_CONTENT"
        assert first["results"]["columns"] == [1]
        assert first["results"]["rowFormat"] == "JSON"
        assert first["nextResultUri"] == f"{operation}/result/1?rowFormat=JSON"
        last = others[-1]
        assert last["resultType"] == "EOS"
        assert "nextResultUri" not in last
        data = [row for page in (first, *others) for row in page["results"]["data"]]
        assert data == [{"kind": "INSERT", "fields": [0]}, {"kind": "INSERT", "fields": [1]}]
        assert client.json("GET", f"{operation}/status") == {"status": "FINISHED"}
        assert client.json("DELETE", f"{operation}/close") == {"status": "CLOSED"}
        assert client.json("DELETE", f"{operation}/close") == {"status": "CLOSED"}
        assert client.json("POST", f"{session}/heartbeat") == {}
        assert client.json("DELETE", session) == {"status": "CLOSED"}
        assert engines[0].closed == ["rows 2"]


def test_the_format_may_change_from_page_to_page() -> None:
    with serving(scripted()[0]) as client:
        session = client.open()
        operation = client.submit(session, "ok")
        for row_format, fields in (("JSON", ["OK"]), ("PLAIN_TEXT", ["OK"]), ("JSON", ["OK"])):
            while (page := client.json("GET", f"{operation}/result/0?rowFormat={row_format}"))[
                "resultType"
            ] != "PAYLOAD":
                pass
            assert page["resultKind"] == "SUCCESS"
            assert page["isQueryResult"] is False
            assert "jobID" not in page
            assert page["results"]["rowFormat"] == row_format
            assert page["results"]["data"] == [{"kind": "INSERT", "fields": fields}]
        path = operation.removeprefix("/v4")
        assert client.json("GET", f"{path}/result/0")["nextResultUri"] == f"{operation}/result/1?rowFormat=JSON"


@pytest.mark.parametrize("body", [None, {}, "", {"sessionName": None}, {"bogus": 1}, {"sessionName": 5}])
def test_a_session_needs_no_body(body: Any) -> None:
    with serving(scripted()[0]) as client:
        assert re.fullmatch(r'{"sessionHandle":"[0-9a-f-]{36}"}', client.ask("POST", "/v4/sessions", body)[1])


def test_properties_become_text() -> None:
    sessions, engines = scripted()
    with serving(sessions) as client:
        client.json("POST", "/v4/sessions", {"properties": {"a": 5, "b": True, "c": "x"}})
    assert engines[0].given == {"a": "5", "b": "true", "c": "x"}


@pytest.mark.parametrize("body", ["{", "[]", "x", '{"properties": {"a": null}}', '{"properties": []}', "\x00", '"'])
def test_a_broken_body_is_400(body: str) -> None:
    with serving(scripted()[0]) as client:
        code, text = client.ask("POST", "/v4/sessions", body)
        assert code == 400
        assert lines_of(text)[0] == f"{REST}: Request did not match expected format OpenSessionRequestBody."


@pytest.mark.parametrize(
    ("method", "path", "name", "value"),
    [
        ("GET", "/v4/sessions/zzz", "session_handle", "zzz"),
        ("POST", "/v4/sessions/zzz/statements", "session_handle", "zzz"),
        ("GET", f"/v4/sessions/{NOBODY}/operations/y/status", "operation_handle", "y"),
        ("GET", f"/v4/sessions/{NOBODY}/operations/{NOBODY}/result/x", "token", "x"),
        ("GET", f"/v4/sessions/{NOBODY}/operations/{NOBODY}/result/99999999999999999999", "token", "9" * 20),
    ],
)
def test_a_parameter_of_another_form_is_400(method: str, path: str, name: str, value: str) -> None:
    with serving(scripted()[0]) as client:
        code, text = client.ask(method, path, {} if method == "POST" else None)
        assert code == 400
        reason = f'Cannot resolve path parameter ({name}) from value "{value}".'
        assert lines_of(text)[0] == f"{REST}: Bad request, could not parse parameters: {reason}"


def test_an_unknown_format_is_400() -> None:
    with serving(scripted()[0]) as client:
        code, text = client.ask("GET", f"/v4/sessions/{NOBODY}/operations/{NOBODY}/result/0?rowFormat=XML")
        assert code == 400
        assert "Cannot resolve query parameter (rowFormat) from value" in text


def test_failures_of_calls_have_one_entry_and_those_of_statements_two() -> None:
    with serving(scripted()[0]) as client:
        session = client.open()
        unknown = f"Session '{NOBODY}' does not exist."
        missing = f"Can not find the submitted operation in the OperationManager with the {NOBODY}."
        single = {
            ("GET", f"/v4/sessions/{NOBODY}"): ("Failed to getSessionConfig.", unknown),
            ("DELETE", f"/v4/sessions/{NOBODY}"): ("Failed to closeSession.", unknown),
            ("POST", f"/v4/sessions/{NOBODY}/heartbeat"): ("Failed to getSessionConfig.", unknown),
            ("GET", f"{session}/operations/{NOBODY}/status"): ("Failed to getOperationInfo.", missing),
            ("POST", f"{session}/operations/{NOBODY}/cancel"): ("Failed to cancelOperation.", missing),
            ("DELETE", f"/v4/sessions/{NOBODY}/operations/{NOBODY}/close"): ("Failed to closeOperation.", unknown),
        }
        for (method, path), (doing, reason) in single.items():
            code, text = client.ask(method, path)
            expected = [f"{REST}: {doing}", f"Caused by: {API}: {doing}", f"Caused by: {API}: {reason}", ""]
            assert (code, lines_of(text)) == (500, expected)
        code, text = client.ask("GET", f"{session}/operations/{NOBODY}/result/0")
        assert code == 500
        assert lines_of(text) == [
            *("Internal server error.", "<Exception on server side:"),
            *(f"{API}: {API}: Failed to fetchResults.", f"Caused by: {API}: Failed to fetchResults."),
            *(f"Caused by: {API}: {missing}", "", "End of exception on server side>"),
        ]
        code, text = client.ask("POST", f"/v4/sessions/{NOBODY}/statements", {"statement": "ok"})
        assert code == 500
        assert lines_of(text)[2:4] == [f"{API}: Failed to execute statement.", f"Caused by: {API}: {unknown}"]
        assert client.failure(session, "fail") == "test.Error: a wrong statement"


@pytest.mark.parametrize("path", ["statements", "configure-session"])
def test_a_timeout_is_refused(path: str) -> None:
    with serving(scripted()[0]) as client:
        session = client.open()
        code, text = client.ask("POST", f"{session}/{path}", {"statement": "ok", "executionTimeout": 1_000})
        assert code == 500
        assert "SqlGatewayService doesn't support timeout mechanism now." in lines_of(text)[3]
        client.json("POST", f"{session}/{path}", {"statement": "ok", "executionTimeout": 0})


def test_cancel_and_configure_and_complete() -> None:
    sessions, engines = scripted()
    with serving(sessions) as client:
        session = client.open()
        operation = client.submit(session, "wait")
        assert client.json("GET", f"{operation}/result/0")["resultType"] == "NOT_READY"
        assert client.json("POST", f"{operation}/cancel", {}) == {"status": "CANCELED"}
        assert client.ask("POST", f"{operation}/cancel", {})[0] == 500
        assert client.json("POST", f"{session}/configure-session", {"statement": "SET"}) == {}
        code, text = client.ask("POST", f"{session}/configure-session", {"statement": "fail"})
        assert code == 500
        assert lines_of(text)[2] == f"{API}: Failed to configure session."
        body = {"statement": "SELECT * FRO", "position": 8}
        assert client.json("GET", f"{session}/complete-statement", body) == {"candidates": ["SELECT *"]}
        assert client.ask("GET", f"{session}/complete-statement")[0] == 400
        assert ("SET", {}) in engines[0].ran


def test_a_script_is_deployed() -> None:
    sessions, engines = scripted()
    with serving(sessions) as client:
        session = client.open()
        body = {"script": "SELECT 1;", "executionConfig": {"a": 1}}
        assert client.json("POST", f"{session}/scripts", body) == {"clusterID": "a-cluster"}
        assert client.json("POST", f"{session}/scripts", {"scriptUri": "x.sql"}) == {"clusterID": "a-cluster"}
    assert engines[0].ran == [("SELECT 1; None", {"a": "1"}), ("None x.sql", {})]


def test_what_penstock_lacks_is_an_error_and_no_success() -> None:
    with serving(scripted()[0]) as client:
        v4, v3 = client.open(), client.open("v3")
        for method, path, body in (
            ("POST", f"{v4}/scripts", {}),
            ("POST", f"{v4}/scripts", {"script": "SELECT 1;", "scriptUri": "file:///x.sql"}),
            ("POST", "/v3/workflow/embedded-scheduler/create", {}),
            ("POST", "/v3/workflow/embedded-scheduler/suspend", {}),
            ("POST", "/v3/workflow/embedded-scheduler/resume", {}),
            ("DELETE", "/v3/workflow/embedded-scheduler/delete", {}),
        ):
            assert client.ask(method, path, body)[0] == 500, path
        assert client.ask("POST", f"{v3}/materialized-tables/t/refresh", {})[0] == 400


def test_the_refresh_of_a_materialized_table_is_an_operation() -> None:
    sessions, engines = scripted()
    with serving(sessions) as client:
        session = client.open("v3")
        body = {"isPeriodic": False, "staticPartitions": {"day": "2024-01-01"}}
        submitted = client.json("POST", f"{session}/materialized-tables/c.d.t/refresh", body)
        page = client.json("GET", f"{session}/operations/{submitted['operationHandle']}/result/0")
        assert page["results"]["data"] == [{"kind": "INSERT", "fields": ["a job"]}]
    assert engines[0].ran == [("refresh c.d.t None", {"day": "2024-01-01"})]


class Scheduled:
    """Workflows that a test looks at."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def create(self, identifier: str, cron: str, options: Mapping[str, str]) -> tuple[str, str]:
        self.calls.append(("create", identifier, cron, *options))
        return f"quartz_job_{identifier}", "default_group"

    def suspend(self, name: str) -> None:
        raise ValidationError(f"Failed to suspend a non-existent quartz schedule job: default_group.{name}.")

    def resume(self, name: str) -> None:
        self.calls.append(("resume", name))

    def delete(self, name: str) -> None:
        self.calls.append(("delete", name))


def test_the_embedded_scheduler_has_flinks_paths_and_errors() -> None:
    sessions, _ = scripted()
    sessions.workflows = scheduled = Scheduled()
    base = "/v3/workflow/embedded-scheduler"
    with serving(sessions) as client:
        body = {"materializedTableIdentifier": "`c`.`d`.`t`", "cronExpression": "0 0 0 * * ? *", "initConfig": {"a": 1}}
        name = {"workflowName": "quartz_job_`c`.`d`.`t`", "workflowGroup": "default_group"}
        assert client.json("POST", f"{base}/create", body) == name
        assert client.json("POST", f"{base}/resume", {**name, "dynamicOptions": {"a": "b"}}) == {}
        assert client.json("DELETE", f"{base}/delete", name) == {}
        for path, sent, message in (
            ("suspend", {"workflowName": "nosuch"}, "Failed to suspend a non-existent quartz schedule job"),
            ("suspend", {}, "Name cannot be null."),
            ("create", {}, "cronExpression cannot be null"),
        ):
            code, text = client.ask("POST", f"{base}/{path}", sent)
            assert code == 500
            assert message in text
            assert "Caused by: org.apache.flink.table.gateway.workflow.scheduler.SchedulerException" in text
    assert scheduled.calls == [
        ("create", "`c`.`d`.`t`", "0 0 0 * * ? *", "a"),
        ("resume", name["workflowName"]),
        ("delete", name["workflowName"]),
    ]


OPERATOR, READER = {"authorization": "Bearer operators"}, {"authorization": "Bearer readers"}
CREDENTIALS: dict[str, dict[str, str]] = {
    "nobody": {},
    "empty": {"authorization": ""},
    "empty token": {"authorization": "Bearer "},
    "wrong": {"authorization": "Bearer wrong"},
    "another scheme": {"authorization": "Basic b3BlcmF0b3JzOm9wZXJhdG9ycw=="},
    "reader": READER,
    "operator": OPERATOR,
}


@pytest.mark.parametrize("with_reader", [False, True])
def test_each_route_lets_in_those_whom_its_access_names(with_reader: bool) -> None:
    """All routes of all versions x all forms of credentials."""
    tokens = {"penstock.rest.token": "operators"} | ({"penstock.rest.reader-token": "readers"} if with_reader else {})
    wrong = []
    with serving(scripted()[0], **tokens) as client:
        for method, route, _, access, _, versions in TABLE:
            for name, headers in CREDENTIALS.items():
                due = 0
                if access == "open":
                    due = 401 if with_reader and name not in ("reader", "operator") else 0
                elif name != "operator":
                    due = 401
                    if with_reader and name == "reader":
                        due = 403 if access == "changes" else 0
                for prefix in ("", *(f"/{version}" for version in versions)):
                    code, _ = client.ask(method, prefix + path_of(route), {} if method == "POST" else None, headers)
                    if code in (401, 403) if not due else code != due:
                        wrong.append(f"{name}: {method} {prefix}{route} ({access}): {code}, not {due or 'let in'}")
    assert not wrong, "\n".join(wrong)


def test_only_what_tells_nothing_is_open() -> None:
    assert {route for _, route, _, access, _, _ in TABLE if access == "open"} == {"/info", "/api_versions"}


def test_other_hosts_names_and_other_sites_are_refused() -> None:
    with serving(scripted()[0]) as client:
        session = client.open()
        for headers, code in (
            ({"host": "evil.example"}, 403),
            ({"origin": "https://evil.example"}, 403),
            ({"referer": "https://evil.example/page"}, 403),
            ({"sec-fetch-site": "cross-site"}, 403),
            ({}, 200),
        ):
            assert client.ask("POST", f"{session}/statements", {"statement": "ok"}, headers)[0] == code, headers
        assert client.ask("GET", "/v4/nothing", None, {"host": "evil.example"})[0] == 403


def test_the_gateway_is_for_this_host_unless_it_has_tls_or_somebody_knows(tmp_path: Any) -> None:
    """As the REST API, whose tokens it has, with addresses of its own."""
    assert gateway_settings(Configuration()).bind_address == "127.0.0.1"
    assert gateway_settings(Configuration()).ports == "8083"
    assert gateway_settings(Configuration()).token is None
    beyond = {"sql-gateway.endpoint.rest.bind-address": "0.0.0.0", "penstock.rest.token-dir": str(tmp_path)}
    with pytest.raises(ConfigurationError, match=r"sql-gateway\.endpoint\.rest\.bind-address: 0\.0\.0\.0 is reached"):
        gateway_settings(Configuration.from_dict(beyond))
    known = gateway_settings(Configuration.from_dict(beyond | {"penstock.rest.insecure": "true"}))
    assert known.token is not None
    assert len(known.token) >= 40


def test_the_address_of_the_rest_api_is_not_that_of_the_gateway() -> None:
    options = {"rest.bind-address": "10.1.2.3", "rest.port": "1", "rest.bind-port": "2-3", "rest.address": "other"}
    own = {"sql-gateway.endpoint.rest.bind-port": "9000-9003", "sql-gateway.endpoint.rest.address": "gate.example"}
    settings = gateway_settings(Configuration.from_dict(options | own))
    assert (settings.bind_address, settings.ports, settings.address) == ("127.0.0.1", "9000-9003", "gate.example")
    assert parse_host("gate.example:9000") in settings.hosts


def test_a_row_is_not_changed_by_what_hides_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a query has read is data, even if it looks like a credential."""
    sessions, engines = scripted()
    with serving(sessions) as client:
        session = client.open()
        row = "postgresql://me:swordfish1@db password='swordfish1'"
        run = engines[0].run

        def with_row(*arguments: Any) -> Any:
            result = run(*arguments)
            return type(result)("[]", result.render, iter([("+I", (row,))]))

        monkeypatch.setattr(engines[0], "run", with_row)
        assert client.rows(session, "ok") == [[row]]


def test_many_clients_wait_at_once() -> None:
    """100 sessions whose queries have no rows yet: none keeps the others waiting."""
    sessions, _ = scripted()
    with serving(sessions) as client:
        opened = [client.open() for _ in range(100)]
        operations = [client.submit(session, "open 0") for session in opened]
        statuses = {client.json("GET", f"{operation}/status")["status"] for operation in operations}
        assert statuses <= {"PENDING", "RUNNING", "FINISHED"}
        assert client.rows(client.open(), "rows 2") == [[0], [1]]
        assert isinstance(client, Client)
