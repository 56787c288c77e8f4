"""A small HTTP server of our own, which records requests and answers as a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.ports import free_port


@dataclass(frozen=True)
class Received:
    """A request: its method, its target, its headers by their names in lower case, and its body."""

    method: str
    target: str
    headers: dict[str, str] = field(repr=False)
    body: bytes


#: an answer: a status, a body, and more headers
Reply = tuple[int, bytes, dict[str, str]]
Answerer = Callable[[Received], Reply]


def accept_all(_: Received) -> Reply:
    return 200, b"", {}


class HttpServer:
    """Listens on a port of loopback; `kill` ends its connections without an answer, `start` listens there again."""

    def __init__(self, answer: Answerer = accept_all) -> None:
        self.answer = answer
        self.requests: list[Received] = []
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.start()

    def start(self) -> None:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with owner._lock:
                    owner._open.add(self.connection)

            def handle_one_request(self) -> None:
                with suppress(ConnectionError, ValueError):
                    super().handle_one_request()
                    return
                self.close_connection = True

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                received = Received(self.command, self.path, headers, body)
                status, reply, more = owner.answer(received)
                with owner._lock:
                    if self.connection not in owner._open:
                        raise ConnectionError("killed")
                    owner.requests.append(received)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(reply)), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply)

            do_GET = do_POST = do_PUT = do_DELETE = handle_any

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def kill(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def http_server(answer: Answerer = accept_all) -> Iterator[HttpServer]:
    server = HttpServer(answer)
    try:
        yield server
    finally:
        server.kill()
