"""`HttpClient`: HTTP/1.1 requests to one server on an event loop, over connections that are kept open between requests.

h11 writes the heads of requests and reads responses. Heads that recur are kept, and a response of the usual form (a
whole head with one Content-Length) is read without h11, which takes half of the time of a small request.

Servers of `https://` URLs are verified. As usual for OpenSSL, the environment variable SSL_CERT_FILE names a file of
further certificates.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import h11

from penstock.base.errors import CallTimeoutError, WrongValueError

_READ_BYTES: Final = 1 << 16
_PORTS: Final = {"http": 80, "https": 443}
#: how many heads of requests are kept
_HEADS_MAX: Final = 100
#: what a head of the usual form consists of
_USUAL_STATUS: Final = re.compile(rb"HTTP/1\.1 ([1-5]\d\d)(?: [\x20-\x7e]*)?\r\n")
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_FIRST_FINAL: Final = 200
_WITHOUT_BODY: Final = (204, 304)
_FRAMING: Final = ("content-length", "transfer-encoding", "connection", "upgrade")
_DIGITS_MAX: Final = 15


class Response(NamedTuple):
    """A response: its status, its headers by their names in lower case, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Connection:
    """An open connection, and whether the server has begun to answer the last request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
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
        self._heads: dict[Any, bytes] = {}
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
        head = self._build_head(method, target, headers)
        message = b"%bContent-Length: %d\r\n\r\n" % (head, len(body))
        while self._idle:
            connection = self._idle.pop()
            try:
                return await self._exchange(connection, method, message, body)
            except (OSError, h11.RemoteProtocolError) as error:
                # The server may have closed a connection that was idle. Another one tells whether it can be reached.
                if connection.has_answered:
                    raise ConnectionError(f"{self._host}:{self._port} broke off its response: {error}") from error
        connection = await self._connect()
        try:
            return await self._exchange(connection, method, message, body)
        except h11.RemoteProtocolError as error:
            raise ConnectionError(f"{self._host}:{self._port} broke the protocol: {error}") from error

    def _build_head(self, method: str, target: str, headers: Sequence[tuple[str, str]]) -> bytes:
        """Return the head of a request, without the length of its body and the empty line at its end."""
        key = method, target, tuple(headers)
        head = self._heads.get(key)
        if head is None:
            for name, _ in (*self._headers, *headers):
                if name.lower() in ("content-length", "transfer-encoding"):
                    raise WrongValueError(f"leave out the header {name}: the length of the body is sent with it")
            request = h11.Request(method=method, target=target, headers=[*self._headers, *headers])
            head = (h11.Connection(h11.CLIENT).send(request) or b"").removesuffix(b"\r\n")
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            self._heads[key] = head
        return head

    async def _connect(self) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                return _Connection(*await asyncio.open_connection(self._host, self._port, ssl=self._tls))
        except TimeoutError as error:
            text = f"{self._host}:{self._port} took longer than {self._connect_timeout_ms} ms to connect"
            raise CallTimeoutError(text) from error

    async def _exchange(self, connection: _Connection, method: str, head: bytes, body: bytes) -> Response:
        connection.has_answered = False
        is_reusable = False
        try:
            connection.writer.writelines((head, body))
            await connection.writer.drain()
            content = await connection.reader.read(_READ_BYTES)
            connection.has_answered = bool(content)
            usual = None if method == "HEAD" else _read_usual_head(content)
            if usual is None:
                response, is_reusable = await self._receive(connection, method, content)
            else:
                response, start, length = usual
                received = content[start:]
                if len(received) < length:
                    received += await connection.reader.readexactly(length - len(received))
                response = response._replace(body=received[:length])
                is_reusable = len(received) == length
            is_reusable = is_reusable and not self._is_closed
            if is_reusable:
                self._idle.append(connection)
            return response
        except asyncio.IncompleteReadError as error:
            raise ConnectionError(f"{self._host}:{self._port} broke off its response: {error}") from error
        finally:
            if not is_reusable:
                connection.close()

    async def _receive(self, connection: _Connection, method: str, content: bytes) -> tuple[Response, bool]:
        """Return a response of any form, which begins so, and whether the connection can be used again."""
        state = h11.Connection(h11.CLIENT)
        state.send(h11.Request(method=method, target="/", headers=[("Host", "server")]))
        state.send(h11.EndOfMessage())
        state.receive_data(content)
        status, headers, body = 0, {}, bytearray()
        while True:
            event = state.next_event()
            if event is h11.NEED_DATA:
                content = await connection.reader.read(_READ_BYTES)
                connection.has_answered = connection.has_answered or bool(content)
                state.receive_data(content)
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                is_reusable = state.our_state is h11.DONE and state.their_state is h11.DONE
                return Response(status, headers, bytes(body)), is_reusable and not state.trailing_data[0]
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionError(f"{self._host}:{self._port} closed the connection before it answered")

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()


def _read_usual_head(content: bytes) -> tuple[Response, int, int] | None:
    """Return a response without its body, and where the body begins and how long it is; None for another form.

    Everything about which h11 may think otherwise is another form.
    """
    end = content.find(b"\r\n\r\n")
    match = _USUAL_STATUS.match(content)
    if end < 0 or match is None:
        return None
    status = int(match[1])
    if status < _FIRST_FINAL or status in _WITHOUT_BODY:
        return None
    headers: dict[str, str] = {}
    for line in content[match.end() : end].split(b"\r\n"):
        field, colon, value = line.partition(b":")
        if not colon or _TOKEN.fullmatch(field) is None or _CONTROL.search(value):
            return None
        name = field.decode("ascii").lower()
        if name in _FRAMING and (name != "content-length" or name in headers):
            return None
        headers[name] = value.strip(b" \t").decode("latin-1")
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdecimal()) or len(length) > _DIGITS_MAX:
        return None
    return Response(status, headers, b""), end + 4, int(length)
