"""A server of S3 that is often too busy: `python -m tests.servers.unreliable_s3 PORT EVERY`.

Of every so many requests one is refused with `503 Slow Down`, the next one of these gets no answer because its
connection breaks, and of the third one only the answer is lost: what it asked for has been done.
"""

from __future__ import annotations

import itertools
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

#: Where it says how many requests it has refused, and how often it has broken a connection before and after its work.
COUNTS_PATH: Final = "/unreliable/counts"
KINDS: Final = ("refused", "broken", "unanswered")
SLOW_DOWN: Final = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Unreliable:
    """In front of another application; `every` is the number of requests of which one goes wrong."""

    def __init__(self, application: Application, every: int) -> None:
        self._application = application
        self._every = every
        self._requests = itertools.count(1)
        self._kinds = itertools.cycle(KINDS)
        self._counts = dict.fromkeys(KINDS, 0)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == COUNTS_PATH:
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [" ".join(str(self._counts[kind]) for kind in KINDS).encode()]
        match self._next():
            case "refused":
                _read_all(environ)
                start_response("503 Slow Down", [("Content-Type", "application/xml")])
                return [SLOW_DOWN]
            case "broken":
                _break(environ["werkzeug.socket"])
                return []
            case "unanswered":
                for _ in self._application(environ, lambda *_: None):
                    pass
                _break(environ["werkzeug.socket"])
                return []
        return self._application(environ, start_response)

    def _next(self) -> str | None:
        with self._lock:
            if next(self._requests) % self._every:
                return None
            kind = next(self._kinds)
            self._counts[kind] += 1
            return kind


def _read_all(environ: dict[str, Any]) -> None:
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))


def _break(connection: socket.socket) -> None:
    """Let the client read "connection reset"."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    served = Unreliable(DomainDispatcherApplication(create_backend_app), int(sys.argv[2]))
    run_simple("127.0.0.1", int(sys.argv[1]), served, threaded=True, request_handler=MotoRequestHandler)
