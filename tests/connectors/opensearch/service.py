"""A small service of bulk requests for tests: it keeps documents with versions, and fails as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Action = tuple[str, dict[str, Any], Any]


class FakeService:
    """Documents by index and id.

    Attributes:
        refuse: returns the status and the error of an action; None if the service takes it.
        answer: returns the status and the body of a whole request; None if the service takes its actions.
        requests: the headers of the requests, and how many actions each had.
    """

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, str]] = {}
        self.versions: dict[tuple[str, str], int] = {}
        self.refuse: Callable[[Action], tuple[int, str] | None] = lambda action: None
        self.answer: Callable[[list[Action]], tuple[int, bytes] | None] = lambda actions: None
        self.requests: list[tuple[dict[str, str], int]] = []
        self.url = ""
        self._lock = threading.Lock()

    def handle(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        assert path.startswith(("/_bulk?", "/search/_bulk?")), path
        actions = list(_read_actions(body))
        with self._lock:
            self.requests.append((headers, len(actions)))
            whole = self.answer(actions)
            if whole is not None:
                return whole
            items = [self._do(action) for action in actions]
        return 200, json.dumps(
            {"errors": any("error" in next(iter(i.values())) for i in items), "items": items}
        ).encode()

    def _do(self, action: Action) -> dict[str, Any]:
        name, about, document = action
        refused = self.refuse(action)
        if refused is not None:
            status, text = refused
            return {name: {"status": status, "error": {"type": "some_exception", "reason": text}}}
        of_index = self.documents.setdefault(about["_index"], {})
        id = about.get("_id", f"made-{len(of_index)}")
        version = about.get("version")
        if version is not None:
            if version < self.versions.get((about["_index"], id), -1):
                return {name: {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "old"}}}
            self.versions[about["_index"], id] = version
        if name == "delete":
            return {name: {"status": 404 if of_index.pop(id, None) is None else 200}}
        of_index[id] = document
        return {name: {"status": 201}}


def _read_actions(body: bytes) -> Iterator[Action]:
    lines = iter(body.splitlines())
    for line in lines:
        ((name, about),) = json.loads(line).items()
        yield name, about, None if name == "delete" else next(lines).decode()


@contextmanager
def fake_service() -> Iterator[FakeService]:
    service = FakeService()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = service.handle(self.path, dict(self.headers), body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
