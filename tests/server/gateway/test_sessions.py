"""Sessions, operations and pages, without sockets and SQL."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.server.gateway.rig import NOBODY, Clock, scripted

from penstock.base.errors import WrongValueError
from penstock.server.gateway.sessions import GatewayError, GatewaySession, Operation, Page, Status, parse_handle


def fetch_ready(operation: Operation, token: int = 0) -> Page:
    """The page of a token, once the statement has run."""
    while True:
        page = operation.fetch(token)
        if page.kind != "NOT_READY":
            return page


def numbers(page: Page) -> list[Any]:
    return [values[0] for _, values in page.rows]


def submitted(session: GatewaySession, statement: str) -> Operation:
    return session.operation(session.submit(statement, {}))


def read_all(operation: Operation) -> list[Any]:
    found: list[Any] = []
    token = 0
    while (page := fetch_ready(operation, token)).kind != "EOS":
        found += numbers(page)
        token += 1
    return found


def test_rows_come_in_pages_of_at_most_5000() -> None:
    sessions, _ = scripted()
    session = sessions.open("one", {})
    operation = submitted(session, "rows 12001")
    sizes, token = [], 0
    while (page := fetch_ready(operation, token)).kind != "EOS":
        sizes.append(len(page.rows))
        assert page.next_token == token + 1
        token += 1
    assert sum(sizes) == 12_001
    assert max(sizes) <= 5_000
    assert page.next_token is None


def test_the_last_page_comes_again_until_the_next_was_asked_for() -> None:
    sessions, _ = scripted()
    operation = submitted(sessions.open(None, {}), "ok")
    first = fetch_ready(operation)
    assert fetch_ready(operation) == first
    assert fetch_ready(operation, 1).kind == "EOS"
    again = fetch_ready(operation, 0)
    assert again.kind == "PAYLOAD"
    assert list(again.rows) == []
    assert fetch_ready(operation, 1).kind == "EOS"


@pytest.mark.parametrize(
    ("tokens", "token", "message"),
    [
        ([], 1, "Expecting token to be 0, but found 1."),
        ([], -1, "Expecting token to be 0, but found -1."),
        ([0], 2, "Expecting token to be 1 or 0, but found 2."),
        ([0, 1], 3, "Expecting token to be 1 or 0, but found 3."),
    ],
)
def test_a_token_out_of_turn_is_an_error(tokens: list[int], token: int, message: str) -> None:
    sessions, _ = scripted()
    operation = submitted(sessions.open(None, {}), "ok")
    for each in tokens:
        fetch_ready(operation, each)
    operation.wait()
    with pytest.raises(GatewayError, match=message):
        operation.fetch(token)


def test_a_query_is_finished_while_its_job_runs_and_close_ends_the_job() -> None:
    sessions, engines = scripted()
    session = sessions.open(None, {})
    operation = submitted(session, "open 3")
    operation.wait()
    assert operation.status is Status.FINISHED
    found: list[Any] = []
    token = 0
    while len(found) < 3:
        found += numbers(fetch_ready(operation, token))
        token += 1
    assert fetch_ready(operation, token).rows == [], "pages without rows are usual"
    with pytest.raises(GatewayError, match="from FINISHED to CANCELED"):
        operation.cancel()
    session.close_operation(operation.handle)
    assert engines[0].closed == ["open 3"]
    with pytest.raises(GatewayError, match="Can not find the submitted operation"):
        session.operation(operation.handle)
    session.close_operation(operation.handle)
    session.close_operation(NOBODY)


@pytest.mark.parametrize("statement", ["rows 0", "broken 0"])
def test_the_first_page_of_a_query_is_neither_its_end_nor_its_failure(statement: str) -> None:
    sessions, _ = scripted()
    operation = submitted(sessions.open(None, {}), statement)
    operation.wait()
    pages = operation._pages
    assert pages is not None
    with pages._changed:
        pages._changed.wait_for(lambda: pages._is_complete, 60)
    first = operation.fetch(0)
    assert (first.kind, numbers(first)) == ("PAYLOAD", [])
    if statement == "rows 0":
        assert operation.fetch(1).kind == "EOS"
    else:
        with pytest.raises(GatewayError, match="a wrong row"):
            operation.fetch(1)


def test_reading_ahead_has_a_bound() -> None:
    """A client that does not fetch does not fill the memory: the reader waits while 5,000 rows are unread."""
    sessions, engines = scripted()
    session = sessions.open(None, {})
    operation = submitted(session, "rows 100000")
    operation.wait()
    assert numbers(fetch_ready(operation, 0)) == list(range(len(numbers(fetch_ready(operation, 0)))))
    pages = operation._pages
    assert pages is not None
    assert len(pages._unread) <= 5_000
    session.close_operation(operation.handle)
    assert engines[0].closed == ["rows 100000"]


def test_a_failure_stays_on_the_operation() -> None:
    sessions, _ = scripted()
    operation = submitted(sessions.open(None, {}), "fail")
    for _ in range(2):
        with pytest.raises(GatewayError) as failed:
            fetch_ready(operation)
        assert [message.partition("\n")[0] for _, message in failed.value.causes] == [
            f"Failed to execute the operation {operation.handle}.",
            "a wrong statement",
        ]
        assert "The statement is: fail" in str(failed.value)
    assert operation.status is Status.ERROR
    with pytest.raises(GatewayError, match="from ERROR to CANCELED"):
        operation.cancel()


def test_a_failure_that_is_no_mistake_of_the_user_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sessions, _ = scripted()
    operation = submitted(sessions.open(None, {}), "fail")
    with pytest.raises(GatewayError):
        operation.wait()
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert operation.handle in record.getMessage()
    assert record.exc_info is not None


def test_a_failing_query_gives_its_rows_first() -> None:
    sessions, _ = scripted()
    operation = submitted(sessions.open(None, {}), "broken 2")
    found: list[Any] = []
    token = 0
    while len(found) < 2:
        found += numbers(fetch_ready(operation, token))
        token += 1
    assert found == [0, 1]
    with pytest.raises(GatewayError, match="a wrong row"):
        fetch_ready(operation, token)
    assert operation.status is Status.FINISHED


def test_the_statements_of_a_session_run_in_order_in_one_thread() -> None:
    sessions, engines = scripted()
    session = sessions.open(None, {})
    waiting = submitted(session, "wait")
    later = [submitted(session, f"ok {number}") for number in range(20)]
    assert {operation.status for operation in later} == {Status.PENDING}
    assert later[0].fetch(0).kind == "NOT_READY"
    engines[0].is_released.set()
    for operation in (waiting, *later):
        operation.wait()
    assert [statement for statement, _ in engines[0].ran] == ["wait", *(f"ok {number}" for number in range(20))]
    assert len(engines[0].threads) == 1


def test_cancel_frees_the_session() -> None:
    sessions, engines = scripted()
    session = sessions.open(None, {})
    waiting, pending = submitted(session, "wait"), submitted(session, "rows 3")
    pending.cancel()
    waiting.cancel()
    assert waiting.status is pending.status is Status.CANCELED
    submitted(session, "ok").wait()
    assert [statement for statement, _ in engines[0].ran] in (["wait", "ok"], ["ok"])
    with pytest.raises(GatewayError, match=r"Can not fetch results from the .* in CANCELED status"):
        waiting.fetch(0)
    with pytest.raises(GatewayError, match="from CANCELED to CANCELED"):
        waiting.cancel()


def test_a_query_that_is_cancelled_before_it_started_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions, engines = scripted()
    session = sessions.open(None, {})
    began, go_on = threading.Event(), threading.Event()
    original = engines[0].run

    def slow(*arguments: Any) -> Any:
        result = original(*arguments)
        began.set()
        go_on.wait()
        return result

    monkeypatch.setattr(engines[0], "run", slow)
    operation = submitted(session, "open 1")
    began.wait()
    operation.cancel()
    go_on.set()
    submitted(session, "ok").wait()
    assert engines[0].closed == ["open 1"]


def test_options_of_a_statement_are_passed_on() -> None:
    sessions, engines = scripted()
    session = sessions.open("name", {"a": "b"})
    session.operation(session.submit("ok", {"pipeline.name": "x"})).wait()
    assert engines[0].given == {"a": "b"}
    assert engines[0].ran == [("ok", {"pipeline.name": "x"})]


def test_calls_wait_for_the_statements_before_them() -> None:
    sessions, engines = scripted()
    session = sessions.open(None, {})
    session.submit("ok 1", {})
    session.call(lambda: session.engine.configure("ok 2"))
    assert [statement for statement, _ in engines[0].ran] == ["ok 1", "ok 2"]
    with pytest.raises(GatewayError, match="a wrong statement"):
        session.call(lambda: session.engine.configure("fail"))


def test_the_end_of_a_session_ends_its_operations() -> None:
    sessions, engines = scripted()
    session = sessions.open(None, {})
    query, waiting = submitted(session, "open 1"), submitted(session, "wait")
    query.wait()
    sessions.close(session.handle)
    assert engines[0].closed == ["open 1"]
    waiting.wait()
    assert session._thread is not None
    session._thread.join(60)
    assert engines[0].is_ended
    with pytest.raises(GatewayError, match=f"Session '{session.handle}' does not exist"):
        sessions.find(session.handle)
    with pytest.raises(GatewayError, match="does not exist"):
        sessions.close(session.handle)
    with pytest.raises(GatewayError, match="does not exist"):
        session.submit("ok", {})


def test_idle_sessions_end() -> None:
    clock = Clock()
    sessions, engines = scripted(clock, idle_seconds=600.0)
    idle, used = sessions.open(None, {}), sessions.open(None, {})
    clock.seconds = 599.0
    sessions.find(used.handle)
    clock.seconds = 601.0
    sessions.end_idle()
    assert sessions.find(used.handle) is used
    with pytest.raises(GatewayError):
        sessions.find(idle.handle)
    assert [engine.is_ended for engine in engines] == [True, False]
    sessions.end_all()
    assert len(sessions) == 0


def test_sessions_may_be_idle_for_ever() -> None:
    clock = Clock()
    sessions, _ = scripted(clock, idle_seconds=0.0)
    session = sessions.open(None, {})
    clock.seconds = 1e9
    sessions.end_idle()
    assert sessions.find(session.handle) is session


def test_there_is_a_bound_for_sessions() -> None:
    sessions, _ = scripted(sessions_max=2)
    first, _ = sessions.open(None, {}), sessions.open(None, {})
    with pytest.raises(GatewayError, match=r"exceeds the max count: 2.*sql-gateway.session.max-num"):
        sessions.open(None, {})
    sessions.close(first.handle)
    sessions.open(None, {})
    sessions.end_all()


def test_100_sessions_at_once() -> None:
    sessions, engines = scripted()
    opened = [sessions.open(None, {}) for _ in range(100)]
    operations = [submitted(session, f"rows {number}") for number, session in enumerate(opened)]
    assert [len(read_all(operation)) for operation in operations] == list(range(100))
    assert len({thread for engine in engines for thread in engine.threads}) == 100
    sessions.end_all()


@pytest.mark.parametrize("text", ["zzz", "", "1", "0" * 32, f"{NOBODY}0", f"{{{NOBODY}}}", "-".join("12345")])
def test_a_handle_is_a_uuid(text: str) -> None:
    assert parse_handle(NOBODY.replace("0", "A"), "session_handle") == NOBODY.replace("0", "a")
    with pytest.raises(WrongValueError, match="Cannot resolve path parameter \\(session_handle\\)"):
        parse_handle(text, "session_handle")


def test_a_secret_in_a_statement_is_in_no_error() -> None:
    sessions, _ = scripted()
    operation = submitted(sessions.open(None, {}), "fail 'password' = 'swordfish1'")
    with pytest.raises(GatewayError) as failed:
        fetch_ready(operation)
    assert "swordfish1" not in str(failed.value)
