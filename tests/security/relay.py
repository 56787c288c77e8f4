"""A relay between a client and a server: records what the client says, adds to it, or cuts the line."""

import contextlib
import selectors
import socket
import threading
from typing import TypeAlias

from tests.security.live_job import HOST, wait_until

#: A server: host and port, or the path of a Unix socket.
Target: TypeAlias = tuple[str, int] | str


def connection_to(target: Target) -> socket.socket:
    """A connection, by whatever leads there."""
    if not isinstance(target, str):
        return socket.create_connection(target)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(target)
    return connection


class Relay:
    """Passes on the bytes of the first connection to its address, both ways, on a thread of its own.

    Args:
        target: the server.
        path: where to listen as a Unix socket; without it, a tcp port is chosen.
    """

    def __init__(self, target: Target, path: str | None = None) -> None:
        self.recorded: list[bytes] = []  # what the client sent, piece by piece
        if path is None:
            self._listener = socket.create_server((HOST, 0))
            self.address = f"tcp://{HOST}:{self._listener.getsockname()[1]}"
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(path)
            self._listener.listen()
            self.address = f"ipc://{path}"
        self._target = target
        self._server: socket.socket | None = None
        self._ended = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="relay")
        self._thread.start()

    def inject(self, data: bytes) -> bool:
        """Send bytes to the server as if they came from the client; whether it took all of them."""
        assert self._server is not None
        try:
            self._server.sendall(data)
        except OSError:
            return False
        return True

    def wait_cut(self) -> None:
        """Wait until one side has closed its connection."""
        wait_until(self._ended.is_set, "the server to cut the connection")

    def close(self) -> None:
        self._stop = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        self._listener.close()  # so that the client cannot come back
        with client, connection_to(self._target) as self._server:
            self._pass_on(client, self._server)
        self._ended.set()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while not self._stop:
                for key, _ in selector.select(0.02):
                    assert isinstance(key.fileobj, socket.socket)
                    try:
                        data = key.fileobj.recv(1 << 16)
                        key.data.sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
                    if key.fileobj is client:
                        self.recorded.append(data)
