"""`HttpClient`: HTTP/1.1 requests to one server on an event loop, over connections that are kept open between requests.

Servers of `https://` URLs are verified. As usual for OpenSSL, the environment variable SSL_CERT_FILE names a file of
further certificates.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import h11

from penstock.base.errors import CallTimeoutError, WrongValueError

_READ_BYTES: Final = 1 << 16
_PORTS: Final = {"http": 80, "https": 443}


class Response(NamedTuple):
    """A response: its status, its headers by their names in lower case, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Connection:
    """An open connection, and how far its requests and responses have come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.state = h11.Connection(h11.CLIENT)
        self.has_answered = False

    def close(self) -> None:
        self.writer.close()


class HttpClient:
    """Sends requests to one server.

    Args:
        url: `http://…` or `https://…`, without a password.
        headers: the headers of each request.
        timeout_ms: how long a request takes at most, from its connection to the end of its response.
        connect_timeout_ms: how long it takes at most to connect; by default as long as a request.
        tls: how `https://` is spoken; by default with the system's certificates.

    Raises:
        ValueError: for another kind of URL.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        timeout_ms: int,
        connect_timeout_ms: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise WrongValueError(f"an endpoint is a URL such as https://host/v1/chat/completions, not {url!r}")
        self._host = parts.hostname
        self._port = parts.port or _PORTS[parts.scheme]
        self._path, self._query = parts.path, f"?{parts.query}" if parts.query else ""
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._headers = [("Host", parts.netloc.rpartition("@")[2]), *headers.items()]
        self._timeout_ms = timeout_ms
        self._connect_timeout_ms = timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        self._idle: list[_Connection] = []
        self._is_closed = False

    async def post(self, body: bytes) -> Response:
        """Send a body to the URL, and return the response. Raises as `request` does."""
        return await self._within_time("POST", (self._path or "/") + self._query, body)

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()
    ) -> Response:
        """Send a request to a path below the URL, with more headers, and return the response.

        Raises:
            OSError: if the server cannot be reached or ends the connection.
            CallTimeoutError: if the response takes too long.
        """
        return await self._within_time(method, self._path.rstrip("/") + path, body, headers)

    async def _within_time(
        self, method: str, target: str, body: bytes, headers: Sequence[tuple[str, str]] = ()
    ) -> Response:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._request(method, target, body, headers)
        except TimeoutError as error:
            if isinstance(error, CallTimeoutError):
                raise
            raise CallTimeoutError(f"{self._host}:{self._port} took longer than {self._timeout_ms} ms") from error

    async def _request(self, method: str, target: str, body: bytes, headers: Sequence[tuple[str, str]]) -> Response:
        fields = [*self._headers, *headers, ("Content-Length", str(len(body)))]
        request = h11.Request(method=method, target=target, headers=fields)
        while self._idle:
            connection = self._idle.pop()
            try:
                return await self._exchange(connection, request, body)
            except (OSError, h11.RemoteProtocolError) as error:
                # The server may have closed a connection that was idle. Another one tells whether it can be reached.
                if connection.has_answered:
                    raise ConnectionError(f"{self._host}:{self._port} broke off its response: {error}") from error
        connection = await self._connect()
        try:
            return await self._exchange(connection, request, body)
        except h11.RemoteProtocolError as error:
            raise ConnectionError(f"{self._host}:{self._port} broke the protocol: {error}") from error

    async def _connect(self) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                return _Connection(*await asyncio.open_connection(self._host, self._port, ssl=self._tls))
        except TimeoutError as error:
            text = f"{self._host}:{self._port} took longer than {self._connect_timeout_ms} ms to connect"
            raise CallTimeoutError(text) from error

    async def _exchange(self, connection: _Connection, request: h11.Request, body: bytes) -> Response:
        connection.has_answered = False
        is_reusable = False
        try:
            state = connection.state
            parts = (request, h11.Data(data=body), h11.EndOfMessage())
            connection.writer.write(b"".join(state.send(part) or b"" for part in parts))
            await connection.writer.drain()
            response = await self._receive(connection)
            if state.our_state is h11.DONE and state.their_state is h11.DONE and not self._is_closed:
                state.start_next_cycle()
                self._idle.append(connection)
                is_reusable = True
            return response
        finally:
            if not is_reusable:
                connection.close()

    async def _receive(self, connection: _Connection) -> Response:
        status, headers, body = 0, {}, bytearray()
        while True:
            event = connection.state.next_event()
            if event is h11.NEED_DATA:
                content = await connection.reader.read(_READ_BYTES)
                connection.has_answered = connection.has_answered or bool(content)
                connection.state.receive_data(content)
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return Response(status, headers, bytes(body))
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionError(f"{self._host}:{self._port} closed the connection before it answered")

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()
