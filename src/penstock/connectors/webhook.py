"""`WebhookSource`: a small HTTP server in the reader, to which other systems send messages by POST.

**Guarantee.** A message cannot be read again, so the answer to its sender carries the guarantee. With
`acknowledge="checkpoint"` the answer 200 comes when a checkpoint that has the message is complete. Until then a failure
closes the connection or answers 503; the sender, who has no 200, sends the message again: at least once. With
`acknowledge="receipt"` the answer 202 comes at once, and a failure loses unprocessed messages: at most once. The
job says so when it starts.

**Messages.** A request in mode `single` has one message, in mode `lines` one a line, in mode `batch` a JSON array of
them. They are decoded before they are accepted: a request with a malformed message is answered 400, with the reason,
and none of its messages is accepted. A request above the maximum size is answered 413.

**Back-pressure.** When too many messages wait, requests are answered 503 with Retry-After. A sender who waits for a
checkpoint keeps its connection, and a server has at most 256 (`http_server`): send several messages in a request.

**Security.** As for the REST API: the server listens on loopback unless it has a token, and other addresses need TLS.
Requests that name another host, or come from a page of a browser, are refused.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import uvicorn

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, FormatError, OperationError
from penstock.base.secrets import hide, remember
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import DeserializationSchema, Deserialized
from penstock.connectors.base import MALFORMED_COUNTER
from penstock.connectors.http_server import BACKLOG, BoundedSocket, build_config, connections_max
from penstock.connectors.split_reader import SplitQueue
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
_START_S: Final = 30.0
_STOP_S: Final = 10.0
_PORT_MAX: Final = 65_535
_KEEP_ALIVE_S: Final = 30
_RETRY_AFTER: Final = (b"retry-after", b"1")

Decode = Callable[[Sequence[bytes]], Deserialized]


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where and how a webhook listens.

    Attributes:
        ports: a port, or several such as `8090-8093,8100`; each subtask takes the first free one.
        path: the path of requests.
        bind_address: the address to listen on.
        mode: `single`, `lines` or `batch`: how many messages a request has.
        acknowledge: `checkpoint` or `receipt`: when a sender is answered.
        token: what senders send as `Authorization: Bearer …`; None without one.
        certificate: the server's certificate, in PEM; None without TLS.
        key: its private key.
        key_password: the password of the key.
        is_insecure: whether another address than loopback may do without TLS.
        max_body_bytes: the maximum size of a request.
        max_buffered: the number of waiting messages above which senders have to come back.
        response_timeout_ms: how long a sender waits for a checkpoint before it is answered 503.

    Raises:
        ConfigurationError: for settings that contradict each other, or are not safe.

    Examples:
        >>> from penstock.datastream.connectors.http import WebhookSettings
        >>> WebhookSettings("8090-8091", path="/orders").port_numbers
        [8090, 8091]
    """

    ports: str
    path: str = "/"
    bind_address: str = "127.0.0.1"
    mode: str = "single"
    acknowledge: str = "checkpoint"
    token: str | None = field(default=None, repr=False)
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    is_insecure: bool = False
    max_body_bytes: int = 1 << 20
    max_buffered: int = 10_000
    response_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        remember({"token": self.token or "", "key-password": self.key_password or ""})
        if self.mode not in ("single", "lines", "batch"):
            raise ConfigurationError(f"the mode of a webhook is 'single', 'lines' or 'batch', not {self.mode!r}")
        if self.acknowledge not in ("checkpoint", "receipt"):
            raise ConfigurationError(f"a webhook acknowledges at 'checkpoint' or 'receipt', not {self.acknowledge!r}")
        if not self.path.startswith("/"):
            raise ConfigurationError(f"the path of a webhook begins with /, unlike {self.path!r}")
        if self.token is not None and not self.token.strip():
            raise ConfigurationError("the token of a webhook is empty, and everybody would have it")
        if (self.certificate is None) != (self.key is None):
            raise ConfigurationError("TLS of a webhook needs both the certificate and its key")
        for name in ("max_body_bytes", "max_buffered", "response_timeout_ms"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} of a webhook is {getattr(self, name)}; it must be positive")
        if not _is_loopback(self.bind_address):
            if self.token is None:
                raise ConfigurationError(
                    f"a webhook at {self.bind_address} is reached from other hosts, so it needs a token"
                )
            if self.certificate is None and not self.is_insecure:
                raise ConfigurationError(
                    f"a webhook at {self.bind_address} is reached from other hosts, so it needs a certificate; set "
                    "insecure if all who see its traffic may send messages"
                )
        if not self.port_numbers:
            raise ConfigurationError("a webhook needs a port")

    @property
    def port_numbers(self) -> list[int]:
        """The ports."""
        numbers: list[int] = []
        try:
            for part in self.ports.split(","):
                low, _, high = part.strip().partition("-")
                numbers += range(int(low), int(high or low) + 1)
        except ValueError:
            numbers = []
        if not all(0 < number <= _PORT_MAX for number in numbers):
            numbers = []
        if not numbers:
            raise ConfigurationError(f"the ports of a webhook are such as 8090 or 8090-8093, not {self.ports!r}")
        return numbers


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False


@dataclass(frozen=True, slots=True)
class WebhookSplit:
    """An empty split: messages cannot be read again."""


class WebhookSource(connector.Source[T, WebhookSplit]):
    """Reads messages that are sent by POST. Unbounded; runs in STREAMING.

    Args:
        settings: where and how it listens.
        deserializer: turns messages into records. Malformed messages are answered 400, unless the schema skips them.

    Examples:
        >>> from penstock.common.serialization import SimpleStringSchema
        >>> from penstock.datastream.connectors.http import WebhookSettings, WebhookSource
        >>> source = WebhookSource(WebhookSettings("8090", path="/orders", token="a secret"), SimpleStringSchema())
        >>> source.max_parallelism(), source.replayable
        (1, True)
    """

    def __init__(self, settings: WebhookSettings, deserializer: DeserializationSchema[T]) -> None:
        self.settings = settings
        self.decode: Decode = deserializer.deserialize_batch
        self.skips_bad = deserializer.on_error == "skip"
        #: senders repeat unacknowledged messages, but not messages that were acknowledged at receipt
        self.replayable = settings.acknowledge == "checkpoint"

    @property
    def boundedness(self) -> connector.Boundedness:
        """Unbounded."""
        return connector.Boundedness.CONTINUOUS_UNBOUNDED

    def max_parallelism(self) -> int | None:
        """Return the number of ports."""
        return len(self.settings.port_numbers)

    def configure(self, configuration: Configuration) -> None:
        """Refuse a job without checkpoints: its senders would wait in vain."""
        if self.settings.acknowledge == "checkpoint" and configuration.read(options.CHECKPOINTING_INTERVAL_MS) is None:
            raise ConfigurationError(
                "a webhook answers its senders when a checkpoint has their messages, and this job has none: set "
                f"{options.CHECKPOINTING_INTERVAL_MS.key()}, or acknowledge at 'receipt', which may lose messages"
            )

    def check_execution_mode(self, mode: str, is_local: bool) -> None:
        """Refuse MICRO_BATCH: its readers live for one epoch only."""
        if mode == "MICRO_BATCH":
            raise ConfigurationError(
                "a webhook does not run in MICRO_BATCH: its server would stop after each epoch. Set "
                "execution.runtime-mode to STREAMING"
            )

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[WebhookSplit], restored: Any | None
    ) -> connector.SplitEnumerator[WebhookSplit]:
        """See `Source`."""
        return SplitQueue(context, [], restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[T, WebhookSplit]:
        """See `Source`."""
        return _WebhookReader(self, context)


class _Delivery:
    """The messages of a request, and its sender, who waits for an answer."""

    __slots__ = ("answered", "checkpoint_id", "content", "position", "received_ms", "skipped")

    def __init__(self, content: Deserialized, answered: asyncio.Future[bool], received_ms: int, skipped: int) -> None:
        self.content = content
        self.answered = answered
        self.received_ms = received_ms
        self.skipped = skipped
        #: how many of its records were emitted
        self.position = 0
        #: the first checkpoint that has all of them
        self.checkpoint_id: int | None = None

    def __len__(self) -> int:
        return len(self.content.values)

    def answer(self, is_accepted: bool) -> None:
        """Answer the sender, from any thread."""

        def set_result() -> None:
            if not self.answered.done():
                self.answered.set_result(is_accepted)

        with suppress(RuntimeError):  # the loop has ended, and with it the connection
            self.answered.get_loop().call_soon_threadsafe(set_result)


class _WebhookReader(connector.SourceReader[Any, WebhookSplit]):
    """Emits what its server accepts, in the order of acceptance."""

    def __init__(self, source: WebhookSource[Any], context: connector.SourceReaderContext) -> None:
        self._context = context
        self._is_at_receipt = source.settings.acknowledge == "receipt"
        self._lock = threading.Lock()
        self._waiting: deque[_Delivery] = deque()
        self._waiting_records = 0
        self._max_buffered = source.settings.max_buffered
        #: emitted, but not in a completed checkpoint yet
        self._emitted: list[_Delivery] = []
        self._server = _Server(source, self)

    def start(self) -> None:
        """Start the server."""
        self._server.start()
        self._context.gauge("pendingRecords", lambda: self._waiting_records)

    # --- called by the server's loop ----------------------------------------------------------------------------------

    def accept(self, content: Deserialized) -> _Delivery | None:
        """Take messages; return None if too many wait."""
        delivery = _Delivery(
            content, asyncio.get_running_loop().create_future(), self._context.now_ms(), len(content.bad)
        )
        with self._lock:
            if self._waiting_records and self._waiting_records + len(delivery) > self._max_buffered:
                return None
            self._waiting.append(delivery)
            self._waiting_records += len(delivery)
        if self._is_at_receipt:
            delivery.answer(True)
        return delivery

    def withdraw(self, delivery: _Delivery) -> None:
        """Drop messages whose sender no longer waits, unless some of them were emitted."""
        with self._lock, suppress(ValueError):
            if delivery.position == 0:
                self._waiting.remove(delivery)
                self._waiting_records -= len(delivery)

    # --- called by the task -------------------------------------------------------------------------------------------

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        """See `SourceReader`."""
        self._server.check()
        parts: list[tuple[_Delivery, int, int]] = []
        with self._lock:
            left = max_records
            while self._waiting and left:
                delivery = self._waiting[0]
                start = delivery.position
                stop = min(len(delivery), start + left)
                delivery.position = stop
                left -= stop - start
                parts.append((delivery, start, stop))
                if stop == len(delivery):
                    self._emitted.append(self._waiting.popleft())
            self._waiting_records -= max_records - left
        for delivery, start, _ in parts:
            if start == 0 and delivery.skipped:
                self._context.count(MALFORMED_COUNTER, delivery.skipped)
        parts = [part for part in parts if part[1] < part[2]]
        return _build_batch(parts) if parts else connector.InputStatus.NOTHING_AVAILABLE

    def snapshot_state(self, checkpoint_id: int) -> list[WebhookSplit]:
        """Note which messages the checkpoint has; nothing is stored."""
        for delivery in self._emitted:
            if delivery.checkpoint_id is None:
                delivery.checkpoint_id = checkpoint_id
        if self._is_at_receipt:
            self._emitted.clear()
        return []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Answer the senders whose messages the checkpoint has."""
        left = []
        for delivery in self._emitted:
            if delivery.checkpoint_id is not None and delivery.checkpoint_id <= checkpoint_id:
                delivery.answer(True)
            else:
                left.append(delivery)
        self._emitted = left

    def add_splits(self, splits: Sequence[WebhookSplit]) -> None:
        """Do nothing: this source has no splits."""

    def no_more_splits(self) -> None:
        """Do nothing: this source has no splits."""

    def close(self) -> None:
        """Answer the senders that wait 503, and stop the server."""
        with self._lock:
            waiting, self._waiting = list(self._waiting), deque()
        for delivery in [*waiting, *self._emitted]:
            delivery.answer(False)
        self._server.stop()


def _build_batch(parts: Sequence[tuple[_Delivery, int, int]]) -> Batch:
    timestamps = [delivery.received_ms for delivery, start, stop in parts for _ in range(start, stop)]
    kinds = None
    if any(delivery.content.kinds is not None for delivery, _, _ in parts):
        kinds = b"".join(
            bytes(stop - start) if delivery.content.kinds is None else delivery.content.kinds[start:stop]
            for delivery, start, stop in parts
        )
    if isinstance(parts[0][0].content.values, ColumnData):
        batches = [delivery.content.columns.slice(start, stop - start) for delivery, start, stop in parts]
        if len(batches) > 1:
            batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return ColumnBatch(batches[0], None, kinds)
    values: list[Any] = []
    for delivery, start, stop in parts:
        content = delivery.content.values
        values += content[start:stop] if isinstance(content, list) else content.rows()[start:stop]
    return Batch(values, timestamps, kinds)


class _Refusal(Exception):
    """A request is answered with this status and reason."""

    def __init__(self, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


class _Server:
    """The HTTP server of a reader, as an ASGI application in uvicorn, in a thread."""

    def __init__(self, source: WebhookSource[Any], reader: _WebhookReader) -> None:
        self._settings = source.settings
        self._decode, self._skips_bad = source.decode, source.skips_bad
        self._reader = reader
        self._socket: BoundedSocket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._is_stopping = False

    # --- the task's thread ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen at the first free port. Raises `OperationError` if none is free."""
        settings = self._settings
        self._socket = self._bind()
        config = build_config(
            self.handle,
            self._socket,
            _KEEP_ALIVE_S,
            settings.certificate,
            settings.key,
            settings.key_password,
            interface="asgi3",
            proxy_headers=False,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            self._socket.close()
            raise ConfigurationError(f"the certificate or the key of a webhook cannot be read: {error}") from error
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="penstock-webhook", daemon=True)
        self._thread.start()
        pause = threading.Event()
        for _ in range(int(_START_S * 100)):
            if self._server.started or not self._thread.is_alive():
                break
            pause.wait(0.01)
        self.check()
        _LOG.info("a webhook listens at port %s", self._socket.getsockname()[1])

    def _bind(self) -> BoundedSocket:
        refused: OSError | None = None
        family = socket.AF_INET6 if ":" in self._settings.bind_address else socket.AF_INET
        for port in self._settings.port_numbers:
            listener = BoundedSocket(family, socket.SOCK_STREAM, connections_max())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((self._settings.bind_address, port))
                listener.listen(BACKLOG)  # two sockets may be bound to a port, but only one listens
            except OSError as error:
                refused = error
                listener.close()
            else:
                return listener
        raise OperationError(
            f"none of the ports {self._settings.ports} at {self._settings.bind_address} is free for a webhook: "
            f"{refused}"
        )

    def check(self) -> None:
        """Raise `OperationError` if the server has ended by itself."""
        if self._thread is not None and not self._thread.is_alive() and not self._is_stopping:
            raise OperationError(f"the server of a webhook has ended: {self._failure}")

    def stop(self) -> None:
        """Stop listening, after the answers that are due."""
        self._is_stopping = True
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_STOP_S)
        if self._socket is not None:
            self._socket.close()

    # --- the server's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        assert self._server is not None
        try:
            self._server.run(sockets=[self._socket])  # type: ignore[list-item]
        except BaseException as error:  # noqa: BLE001 - the task raises it
            self._failure = error

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] != "http":
            return
        headers: tuple[tuple[bytes, bytes], ...] = ()
        try:
            self._check(scope)
            status, reason = await self._take(self._read(await self._receive(scope, receive)), receive)
        except _Refusal as refusal:
            status, reason, headers = refusal.status, refusal.reason, refusal.headers
        except Exception:  # noqa: BLE001 - the sender gets an answer, and the log the traceback
            _LOG.exception("a request to a webhook failed")
            status, reason = 500, "the log of the job has the reason"
        body = msgspec.json.encode({"message": hide(reason)}) if reason else b""
        fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})

    def _check(self, scope: Any) -> None:
        """Raise `_Refusal` for a request that must not send messages."""
        given = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if scope["path"] != self._settings.path:
            raise _Refusal(404, "nothing is sent to this path")
        if scope["method"] != "POST":
            raise _Refusal(405, "messages are sent by POST", (b"allow", b"POST"))
        token = self._settings.token
        if token is not None:
            kind, _, value = given.get(b"authorization", "").partition(" ")
            is_right = hmac.compare_digest(value.strip().encode(), token.encode())
            if kind.lower() != "bearer" or not is_right:
                raise _Refusal(
                    401, "this needs a token: Authorization: Bearer <token>", (b"www-authenticate", b"Bearer")
                )
            return
        # Without a token, pages of other sites that a browser on this host shows must not send messages.
        if b"origin" in given or given.get(b"sec-fetch-site", "none") != "none":
            raise _Refusal(403, "pages of browsers may not send messages without a token")
        host = given.get(b"host", "").rpartition(":")[0] if given.get(b"host", "")[-1:] != "]" else given[b"host"]
        host = host or given.get(b"host", "")
        if not _is_loopback(host.strip("[]")):
            raise _Refusal(403, f"{host[:100]!r} is no name of this server")

    async def _receive(self, scope: Any, receive: Any) -> bytes:
        """Return the body. Raises `_Refusal` if it is too large, or does not arrive."""
        largest = self._settings.max_body_bytes
        too_large = _Refusal(413, f"a request may have {largest} bytes", (b"connection", b"close"))
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > largest:
            raise too_large
        body = bytearray()
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise _Refusal(400, "the sender is gone")
            body += event.get("body", b"")
            if len(body) > largest:
                raise too_large
            if not event.get("more_body"):
                return bytes(body)

    def _read(self, body: bytes) -> Deserialized:
        """Return the messages of a request. Raises `_Refusal` for malformed ones."""
        try:
            decoded = self._decode(split_messages(body, self._settings.mode))
        except FormatError as error:
            raise _Refusal(400, str(error)) from error
        if decoded.bad and not self._skips_bad:
            first = decoded.bad[0]
            raise _Refusal(400, f"message {first.place} is malformed: {first.reason}")
        return decoded

    async def _take(self, content: Deserialized, receive: Any) -> tuple[int, str]:
        """Hand messages to the reader, and return the answer when it is due."""
        delivery = None if self._is_stopping else self._reader.accept(content)
        if delivery is None:
            raise _Refusal(503, "too many messages wait: send them again", _RETRY_AFTER)
        gone = asyncio.ensure_future(receive())
        try:
            await asyncio.wait(
                {delivery.answered, gone},
                timeout=self._settings.response_timeout_ms / 1_000,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            gone.cancel()
        if delivery.answered.done() and delivery.answered.result():
            return (202, "") if self._settings.acknowledge == "receipt" else (200, "")
        self._reader.withdraw(delivery)
        reason = "the job stops or restarts" if delivery.answered.done() else "no checkpoint has completed in time"
        raise _Refusal(503, f"{reason}: send the messages again", _RETRY_AFTER)


def split_messages(body: bytes, mode: str) -> list[bytes]:
    """Return the messages of a request.

    Raises:
        FormatError: in mode `batch`, for another body than a JSON array.
    """
    if mode == "single":
        return [body]
    if mode == "lines":
        return [line for line in body.splitlines() if line.strip()]
    try:
        return [bytes(part) for part in msgspec.json.decode(body, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"the request is not a JSON array of messages: {error}") from error
