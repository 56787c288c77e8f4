"""`HttpClient`: HTTP/1.1 requests to one URL on an event loop, over connections that are kept open between requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
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
    """Sends requests to one URL.

    Args:
        url: `http://…` or `https://…`, without a password.
        headers: the headers of each request.
        timeout_ms: how long a request takes at most, from its connection to the end of its response.

    Raises:
        ValueError: for another kind of URL.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout_ms: int) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise WrongValueError(f"an endpoint is a URL such as https://host/v1/chat/completions, not {url!r}")
        self._host = parts.hostname
        self._port = parts.port or _PORTS[parts.scheme]
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers = [("Host", parts.netloc.rpartition("@")[2]), *headers.items()]
        self._timeout_ms = timeout_ms
        self._idle: list[_Connection] = []
        self._is_closed = False

    async def post(self, body: bytes) -> Response:
        """Send a body, and return the response.

        Raises:
            OSError: if the server cannot be reached or ends the connection.
            CallTimeoutError: if the response takes too long.
        """
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._post(body)
        except TimeoutError as error:
            raise CallTimeoutError(f"{self._host}:{self._port} took longer than {self._timeout_ms} ms") from error

    async def _post(self, body: bytes) -> Response:
        while self._idle:
            connection = self._idle.pop()
            try:
                return await self._exchange(connection, body)
            except (OSError, h11.RemoteProtocolError):
                # The server may have closed a connection that was idle. Another one tells whether it can be reached.
                if connection.has_answered:
                    raise
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        try:
            return await self._exchange(_Connection(reader, writer), body)
        except h11.RemoteProtocolError as error:
            raise ConnectionError(f"{self._host}:{self._port} broke the protocol: {error}") from error

    async def _exchange(self, connection: _Connection, body: bytes) -> Response:
        connection.has_answered = False
        is_reusable = False
        try:
            state = connection.state
            headers = [*self._headers, ("Content-Length", str(len(body)))]
            request = h11.Request(method="POST", target=self._target, headers=headers)
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
