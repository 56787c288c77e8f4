"""An HTTP endpoint of the form of OpenAI's on this machine, which fails now and then."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: the statuses of failures after which the same request may succeed
STATUSES = (429, 500, 503)


class Endpoint:
    """What the server does, and what it has been asked. `failing`: the share of requests that it fails."""

    def __init__(self, failing: float = 0.0, seed: int = 0) -> None:
        self.failing = failing
        self.url = ""
        self.latency_s = 0.0
        #: the status of every request, in place of failures by chance
        self.status: int | None = None
        #: what a response has in place of an answer
        self.content: Any = None
        self.headers: dict[str, str] = {}
        self.requests: list[dict[str, Any]] = []
        self.times_s: list[float] = []
        self.keys: set[str | None] = set()
        self.failures = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def answer(self, path: str, key: str | None, request: dict[str, Any]) -> tuple[int, Any]:
        """The status and the content of a response."""
        with self._lock:
            self.requests.append(request)
            self.times_s.append(time.monotonic())
            self.keys.add(key)
            status = self.status
            if status is None:
                status = self._random.choice(STATUSES) if self._random.random() < self.failing else 200
            self.failures += status != 200
        time.sleep(self.latency_s)
        if status != 200:
            return status, {"error": {"message": f"not now, {key}"}}
        if self.content is not None:
            return status, self.content
        return status, _embedded(request) if path.endswith("embeddings") else _answered(request)

    def asked(self) -> list[str]:
        """The texts that it was asked for, in chats."""
        return [request["messages"][-1]["content"] for request in self.requests]


def _answered(request: dict[str, Any]) -> dict[str, Any]:
    text = request["messages"][-1]["content"]
    return {"choices": [{"message": {"content": f"{text}!{number}"}} for number in range(request.get("n", 1))]}


def _embedded(request: dict[str, Any]) -> dict[str, Any]:
    texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
    items = [{"index": index, "embedding": [len(text), 0.5]} for index, text in enumerate(texts)]
    return {"data": items[::-1]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        assert isinstance(self.server, _Server)
        endpoint = self.server.endpoint
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, content = endpoint.answer(self.path, self.headers.get("Authorization"), request)
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**endpoint.headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    endpoint: Endpoint

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client may be killed at any time."""


@contextmanager
def serving(endpoint: Endpoint) -> Iterator[Endpoint]:
    """Serve it on a free port; its `url` ends in `/v1/`."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.endpoint = endpoint
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
