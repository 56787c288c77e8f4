"""Log-in by cookie, for browsers that cannot send a token: who gets one, what it is good for, and what it is not."""

from __future__ import annotations

import http.client
import logging
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.server.rest.rig import JOB, Client, Handle, a_view, serving

from penstock.server.rest.calls.context import LOGIN_SECONDS, LOGINS_MAX, Logins

TOKENS = {"penstock.rest.token": "operators", "penstock.rest.reader-token": "readers"}


def ask(client: Client, method: str, path: str, body: str = "", headers: Mapping[str, str] = {}) -> Any:
    """The answer itself, without following it elsewhere."""
    connection = http.client.HTTPConnection("127.0.0.1", client.server.context.port, timeout=60)
    try:
        form = {"content-type": "application/x-www-form-urlencoded"} if body else {}
        connection.request(method, path, body or None, {**form, **headers})
        answer = connection.getresponse()
        answer.text = answer.read().decode()  # type: ignore[attr-defined]
        return answer
    finally:
        connection.close()


def log_in(client: Client, token: str, headers: Mapping[str, str] = {}) -> Any:
    return ask(client, "POST", "/login", urlencode({"token": token}), headers)


def cookie(answer: Any) -> dict[str, str]:
    """The header with the cookie that an answer has set."""
    (morsel,) = SimpleCookie(answer.headers["set-cookie"]).values()
    return {"cookie": f"{morsel.key}={morsel.value}"}


def own(client: Client) -> dict[str, str]:
    """What a browser says of a request by a page of the server itself."""
    return {"origin": client.server.url, "sec-fetch-site": "same-origin"}


def test_the_form_needs_no_token_and_loads_nothing() -> None:
    with serving(Handle(a_view()), configuration=TOKENS) as client:
        for path in ("/login", "/v1/login"):
            answer = ask(client, "GET", path)
            assert answer.status == 200
            assert answer.headers["content-type"].startswith("text/html")
            assert '<form method="post"' in answer.text
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "form-action 'self'" in policy
            assert "frame-ancestors 'none'" in policy


def test_a_token_gives_a_cookie_that_no_script_and_no_other_site_uses() -> None:
    with serving(Handle(a_view()), configuration=TOKENS) as client:
        answer = log_in(client, "operators", own(client))
        assert (answer.status, answer.headers["location"]) == (303, "./")
        (morsel,) = SimpleCookie(answer.headers["set-cookie"]).values()
        assert morsel["httponly"]
        assert morsel["samesite"].lower() == "strict"
        assert morsel["path"] == "/"
        assert int(morsel["max-age"]) == LOGIN_SECONDS == 12 * 3600
        assert str(client.server.context.port) in morsel.key, "cookies do not tell ports apart"
        assert len(morsel.value) >= 40
        assert "operators" not in morsel.value


@pytest.mark.parametrize("body", ["token=wrong", "token=", "token=+", "", "other=operators", "token=operator"])
def test_a_wrong_token_gives_none(body: str) -> None:
    with serving(Handle(a_view()), configuration=TOKENS) as client:
        answer = ask(client, "POST", "/login", body)
        assert answer.status == 401
        assert answer.headers["set-cookie"] is None
        assert '<form method="post"' in answer.text


def test_the_cookie_is_good_for_what_its_token_is_good_for() -> None:
    handle = Handle(a_view())
    with serving(handle, configuration=TOKENS) as client:
        reader, operator = (cookie(log_in(client, token)) for token in ("readers", "operators"))
        for known in (reader, operator):
            assert client.get("/overview", known).code == 200
            assert client.get("/jobmanager/config", known).code == 200
        assert client.ask("PATCH", f"/jobs/{JOB}", headers={**reader, **own(client)}).code == 403
        assert handle.asked == []
        assert client.ask("PATCH", f"/jobs/{JOB}", headers={**operator, **own(client)}).code == 202
        assert client.get(f"/jobs/{JOB}/yarn-cancel", {**operator, "referer": client.server.url + "/"}).code == 202
        assert handle.asked == ["cancel", "cancel"]
        made_up = {"cookie": operator["cookie"][:-1] + "-"}
        assert client.get("/overview", made_up).code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-site"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"referer": "http://127.0.0.1:1/page"},
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_a_cookie_changes_something_only_for_a_page_of_the_server(headers: dict[str, str]) -> None:
    """S: another port of this host is the same site, so its pages send the cookie, too."""
    handle = Handle(a_view())
    with serving(handle, configuration=TOKENS) as client:
        known = cookie(log_in(client, "operators"))
        assert client.ask("PATCH", f"/jobs/{JOB}", headers={**known, **headers}).code == 403
        assert client.get(f"/jobs/{JOB}/yarn-cancel", {**known, **headers}).code == 403
        assert handle.asked == []
        assert client.get("/jobs/overview", {**known, **headers}).code == 200


def test_a_site_that_may_change_things_by_a_token_may_not_by_a_cookie_that_it_lacks() -> None:
    with serving(
        Handle(a_view()), configuration={**TOKENS, "web.access-control-allow-origin": "https://a.example"}
    ) as client:
        answer = client.get("/overview", cookie(log_in(client, "operators")))
        assert answer.headers["access-control-allow-credentials"] is None


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_no_other_site_logs_a_browser_in(origin: str) -> None:
    with serving(Handle(a_view()), configuration=TOKENS) as client:
        answer = log_in(client, "operators", {"origin": origin})
        assert answer.status == 403
        assert answer.headers["set-cookie"] is None


def test_a_header_with_a_token_counts_before_the_cookie() -> None:
    with serving(Handle(a_view()), configuration=TOKENS) as client:
        known = cookie(log_in(client, "operators"))
        assert client.get("/overview", {**known, "authorization": "Bearer wrong"}).code == 401
        of_a_proxy = {**known, "authorization": "Basic b3BlcmF0b3JzOm9wZXJhdG9ycw=="}
        assert client.get("/overview", of_a_proxy).code == 200


def test_log_out_ends_it() -> None:
    with serving(Handle(a_view()), configuration=TOKENS) as client:
        known = cookie(log_in(client, "operators"))
        assert 'action="logout"' in ask(client, "GET", "/login", headers=known).text
        assert ask(client, "POST", "/logout", headers={**known, "origin": "https://evil.example"}).status == 403
        assert client.get("/overview", known).code == 200
        answer = ask(client, "POST", "/logout", headers={**known, **own(client)})
        assert (answer.status, answer.headers["location"]) == (303, "login")
        assert "max-age=0" in answer.headers["set-cookie"].lower()
        assert client.get("/overview", known).code == 401


def test_a_server_without_tokens_asks_for_none() -> None:
    with serving(Handle(a_view())) as client:
        assert "no token" in ask(client, "GET", "/login").text
        answer = log_in(client, "any")
        assert (answer.status, answer.headers["set-cookie"]) == (303, None)


def test_a_cookie_ends_after_its_time_and_old_ones_give_way() -> None:
    now = [0.0]
    logins = Logins(lambda: now[0])
    first = logins.begin("operator")
    now[0] = LOGIN_SECONDS - 1
    assert logins.get_role(first) == "operator"
    now[0] = LOGIN_SECONDS
    assert logins.get_role(first) == "nobody"
    known = [logins.begin("reader") for _ in range(LOGINS_MAX + 1)]
    assert [logins.get_role(one) for one in known[:2]] == ["nobody", "reader"]


def test_log_ins_leave_a_line_without_the_token(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("penstock")
    propagates, logger.propagate = logger.propagate, True
    try:
        with caplog.at_level(logging.INFO, "penstock.audit"), serving(configuration=TOKENS) as client:
            log_in(client, "swordfish")
            log_in(client, "readers")
            ask(client, "GET", "/login")
    finally:
        logger.propagate = propagates
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.audit"]
    assert lines == ["POST /login by nobody from 127.0.0.1: 401", "POST /login by reader from 127.0.0.1: 303"]


def test_https_alone_carries_a_cookie_that_was_set_by_https() -> None:
    from penstock.server.rest.calls.context import cookie_header

    assert "secure" in cookie_header("name", "value", 5, is_encrypted=True).lower()
    assert "secure" not in cookie_header("name", "value", 5, is_encrypted=False).lower()
