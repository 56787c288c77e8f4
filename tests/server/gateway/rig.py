"""An engine that does what a test says, a gateway over it, and a client that says what came back."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.base.configuration import Configuration
from penstock.cli.gateway.engine import Gateway, gateway_settings
from penstock.server.dispatcher import Dispatcher
from penstock.server.gateway.routes import gateway_application
from penstock.server.gateway.sessions import GatewayError, Result, RowFormat, Sessions, SessionSettings, TableRefresh
from penstock.server.rest.calls.context import RestContext
from penstock.server.rest.server import RestServer

NOBODY = "00000000-0000-0000-0000-000000000000"
LOCAL = {"execution.target": "local", "sql-gateway.endpoint.rest.port": "0"}


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class ScriptedEngine:
    """Runs `rows N`, `open N` (a query that goes on after N rows), `wait`, `ok` and `fail`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.given = dict(options)
        self.ran: list[tuple[str, dict[str, str]]] = []
        self.closed: list[str] = []
        self.is_released = threading.Event()
        self.is_ended = False
        self.threads: set[str] = set()

    def run(self, statement: str, options: Mapping[str, str], is_cancelled: Callable[[], bool]) -> Result:
        self.ran.append((statement, dict(options)))
        self.threads.add(str(threading.get_ident()))
        word, _, rest = statement.partition(" ")
        if word == "fail":
            raise ValueError("a wrong statement")
        if word == "wait":
            while not is_cancelled() and not self.is_released.wait(0.01):
                pass
        if word not in ("rows", "open", "broken"):
            return Result("[1]", _render, iter([("+I", ("OK",))]), has_content=word != "ok")
        rows = self._rows(word, int(rest), ended := threading.Event())
        return Result("[1]", _render, rows, True, job_id="ab", close=lambda: self._close(statement, ended))

    @staticmethod
    def _rows(word: str, count: int, ended: threading.Event) -> Iterator[tuple[str, Sequence[Any]]]:
        for number in range(count):
            yield "+I", (number,)
        if word == "broken":
            raise ValueError("a wrong row")
        if word == "open":
            ended.wait()

    def _close(self, statement: str, ended: threading.Event) -> None:
        self.closed.append(statement)
        ended.set()

    def refresh(self, request: TableRefresh) -> Result:
        self.ran.append((f"refresh {request.identifier} {request.schedule_time}", dict(request.partition)))
        return Result("[1]", _render, iter([("+I", ("a job",))]))

    def configure(self, statement: str) -> None:
        if statement == "fail":
            raise ValueError("a wrong statement")
        self.ran.append((statement, {}))

    def options(self) -> Mapping[str, str]:
        return self.given

    def complete(self, statement: str, position: int) -> Sequence[str]:
        return [statement[:position]]

    def deploy(self, script: str | None, uri: str | None, options: Mapping[str, str]) -> str:
        self.ran.append((f"{script} {uri}", dict(options)))
        return "a-cluster"

    def describe(self, error: BaseException) -> GatewayError:
        return error if isinstance(error, GatewayError) else GatewayError(("test.Error", str(error)))

    def close(self) -> None:
        self.is_ended = True


def _render(row_format: RowFormat, values: Sequence[Any]) -> str:
    return ",".join(json.dumps(value if row_format is RowFormat.JSON else str(value)) for value in values)


def scripted(now: Callable[[], float] | None = None, **settings: Any) -> tuple[Sessions, list[ScriptedEngine]]:
    """Sessions over such engines, and the engines."""
    engines: list[ScriptedEngine] = []

    def make(options: Mapping[str, str]) -> ScriptedEngine:
        engines.append(ScriptedEngine(options))
        return engines[-1]

    return Sessions(make, SessionSettings(**settings), now or Clock()), engines


class Client:
    """Calls a gateway. `codes` are the answers so far."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.headers = dict(headers or {})

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Send a request. A body that is text is sent as it is."""
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        given = {"content-type": "application/json", **self.headers, **(headers or {})}
        request = urllib.request.Request(self.url + path, data, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def json(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that succeeds."""
        code, text = self.ask(method, path, body)
        assert code == 200, text
        return json.loads(text)

    def open(self, version: str = "v4", **properties: str) -> str:
        """Open a session, and return its path."""
        opened = self.json("POST", f"/{version}/sessions", {"sessionName": "test", "properties": properties})
        return f"/{version}/sessions/{opened['sessionHandle']}"

    def submit(self, session: str, statement: str, **more: Any) -> str:
        """Submit a statement, and return the path of its operation."""
        handle = self.json("POST", f"{session}/statements", {"statement": statement, **more})["operationHandle"]
        return f"{session}/operations/{handle}"

    def pages(self, operation: str, row_format: str = "JSON") -> Iterator[dict[str, Any]]:
        """All pages of a result, until its end."""
        path: str | None = f"{operation}/result/0?rowFormat={row_format}"
        while path is not None:
            page = self.json("GET", path)
            path = page.get("nextResultUri")
            if page["resultType"] != "NOT_READY":
                yield page

    def rows(self, session: str, statement: str, row_format: str = "JSON", **more: Any) -> list[list[Any]]:
        """The rows of a statement that succeeds."""
        pages = self.pages(self.submit(session, statement, **more), row_format)
        return [row["fields"] for page in pages for row in page["results"]["data"]]

    def failure(self, session: str, statement: str) -> str:
        """The last cause of a statement that fails."""
        path = f"{self.submit(session, statement)}/result/"
        token = 0
        while True:
            code, text = self.ask("GET", f"{path}{token}")
            if code != 200:
                return last_cause(text)
            page = json.loads(text)
            assert page["resultType"] != "EOS", "it succeeds"
            token += page["resultType"] == "PAYLOAD"


def last_cause(text: str) -> str:
    """What clients show of an error."""
    return re.sub(r"\n\tat .*", "", json.loads(text)["errors"][-1].rpartition("Caused by: ")[2], flags=re.DOTALL)


@contextmanager
def serving(sessions: Sessions, **options: str) -> Iterator[Client]:
    """A server over sessions."""
    configuration = Configuration.from_dict({"sql-gateway.endpoint.rest.port": "0", **options})
    context = RestContext(Dispatcher(), configuration)
    server = RestServer(context, gateway_settings(configuration), gateway_application(sessions), "SQL gateway")
    server.start()
    try:
        yield Client(server.url)
    finally:
        server.stop()
        sessions.end_all()


@contextmanager
def gateway(**options: str) -> Iterator[Client]:
    """A gateway that runs SQL in this process."""
    with Gateway(Configuration.from_dict({**LOCAL, **options}), Dispatcher()) as running:
        yield Client(running.server.url)
