"""A server that answers with what Flink's REST API answered, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JOB = "17ec19e4e93567c51fae8837b87d00a9"
SECOND = "9b770369c45425dd58027ccfdfb02945"
ENDED = "9d6511f57970666f2267e9765ab5fdea"
SOURCE, SINK = "cbc357ccb763df2852fee8c4fc7d55f2", "90bea66de1c231edf33913ecd54406c1"
TRIGGER = "c4697a3da9c89201382bffe86833a8ff"
BEGUN_MS = 1_795_321_252_000


def job(jid: str, name: str, state: str, start_ms: int = BEGUN_MS) -> dict[str, Any]:
    """An entry of `/jobs/overview`."""
    return {"jid": jid, "name": name, "state": state, "start-time": start_ms, "end-time": -1, "duration": 1_000}


def vertex(vid: str, name: str, parallelism: int) -> dict[str, Any]:
    """An entry of `vertices`."""
    figures = {"read-records": 500, "write-records": 1_000}
    return {"id": vid, "name": name, "parallelism": parallelism, "status": "RUNNING", "metrics": figures}


def details(parallelism: int = 2, state: str = "RUNNING") -> dict[str, Any]:
    """`/jobs/:jobid` of the first job."""
    vertices = [vertex(SOURCE, "Source: Numbers", 2), vertex(SINK, "Counts -> Sink: Print", parallelism)]
    told = {"now": BEGUN_MS + 90_000, "duration": 90_000, "vertices": vertices}
    return {**job(JOB, "Demo job", state), **told}


def done(**operation: Any) -> dict[str, Any]:
    """A trigger that is over."""
    return {"status": {"id": "COMPLETED"}, "operation": operation}


IN_PROGRESS = {"status": {"id": "IN_PROGRESS"}, "operation": None}


class InTurn:
    """Answers that are given one after the other, the last for ever."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def next(self) -> Any:
        """The answer whose turn it is."""
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class FakeServer:
    """Answers by method and path without query."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "GET /jobs/overview": {
                "jobs": [
                    job(SECOND, "Second job", "RESTARTING", BEGUN_MS + 60_000),
                    job(JOB, "Demo job", "RUNNING"),
                    job(ENDED, "Demo job", "FINISHED", BEGUN_MS - 60_000),
                ]
            },
            f"GET /jobs/{JOB}": details(),
        }
        self.asked: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.address = ""

    def answer(self, asked: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        """The code and the answer to a request."""
        self.asked.append((asked, body))
        self.headers.append(headers)
        found = self.answers.get(asked.partition("?")[0])
        if isinstance(found, InTurn):
            found = found.next()
        if found is None:
            return 404, {"errors": [f"Not found: {asked}"]}
        return found if isinstance(found, tuple) else (200, found)


@contextmanager
def serving(fake: FakeServer) -> Iterator[FakeServer]:
    """The server at a free port of this host."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            code, found = fake.answer(f"{self.command} {self.path}", body, dict(self.headers))
            data = (found if isinstance(found, str) else json.dumps(found)).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
