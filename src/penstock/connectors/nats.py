"""NATS JetStream: a source by stream sequence or over a durable consumer (`NatsSource`), and a sink (`NatsSink`).

**By sequence.** A stream numbers its messages. The position is the number of the last message and part of checkpoints;
a reader continues after it with a consumer of its own, which acknowledges nothing: exactly once while the stream keeps
its messages. If it has removed messages after the position, the job fails.

**Over a durable consumer.** The server records acknowledgements, and readers share the messages. They are
acknowledged when a checkpoint that covers them has completed (`penstock.connectors.subscriptions`): at least once. The
server delivers a message again that is not acknowledged in `ack_wait_s`, which must be longer than it takes from one
checkpoint to the end of the next. A reader drops repeated messages by their numbers, so with one reader it is exactly
once. A reader that closes returns its messages at once; a killed reader's messages come again after `ack_wait_s`.

**Sink.** A checkpoint waits for the server's acknowledgements: at least once. With message ids the stream drops a
message whose id it has seen within its duplicate window (2 minutes unless set), so messages that are sent again within
it are stored once: exactly once if a job restarts sooner.

The client library is nats-py.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from penstock.base.errors import ConfigurationError, OperationError
from penstock.base.secrets import hide, remember
from penstock.codecs.serialization import DeserializationSchema, SerializationSchema
from penstock.connectors import subscriptions
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, RequestClient, RequestResult
from penstock.connectors.base import require
from penstock.connectors.subscriptions import Delivery, Progress, Subscription, SubscriptionSource, SubscriptionSplit
from penstock.runtime.connector import Boundedness, SinkWriterContext

T = TypeVar("T")

#: how many messages a reader asks for at a time, and how many wait in it before it asks for no more
PULL: Final = 2_000
WAITING_MAX: Final = 8_000
PULL_EXPIRES_S: Final = 5.0
ACK_WAIT_S: Final = 60.0
ACK_PENDING: Final = 65_535
CONNECT_S: Final = 10
#: the limits of a sink unless others are given
SETTINGS: Final = AsyncSinkSettings(
    max_batch_size=1_000, max_in_flight_requests=4, max_time_in_buffer_ms=100, request_timeout_ms=60_000
)
_TIMEOUT, _CONFLICT = "408", "409"
#: error codes of JetStream for messages that it never accepts: an expected sequence, stream or id, and a size
_REJECTED: Final = (10_060, 10_070, 10_071, 10_164, 10_054)


def load_library(user: str) -> Any:
    """Return the module `nats`. Raises `ConfigurationError`, naming the user, if it is not installed."""
    require("nats", user, "nats-py", "nats")
    importlib.import_module("nats.js.errors")
    return importlib.import_module("nats")


@dataclass(frozen=True, slots=True)
class NatsServers:
    """The addresses of servers. The printed form does not include passwords and tokens.

    Attributes:
        urls: `nats://USER:PASSWORD@HOST:PORT` or `tls://…`, several separated by commas.
        token: a token, if the servers ask for one.
        credentials: a file of credentials (`.creds`), if they ask for one.
        ca: the file with the certificates that the servers' must be signed by; it turns on TLS.
        cert: the file with the client's certificate, if it has one.
        key: the file with its key.

    Raises:
        ConfigurationError: for other URLs.
    """

    urls: str
    token: str | None = None
    credentials: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        remember({"token": self.token or "", **{f"url-{url}": url for url in self.urls.split(",")}})
        for url in self.urls.split(","):
            if not url.strip().startswith(("nats://", "tls://")):
                raise ConfigurationError(f"{hide(url)!r} is no address of NATS: it begins with nats:// or tls:// (TLS)")

    def __repr__(self) -> str:
        return f"NatsServers({self.shown!r})"

    @property
    def shown(self) -> str:
        """The URLs without users, passwords and tokens."""
        parts = [url.strip().partition("://") for url in self.urls.split(",")]
        return ",".join(f"{scheme}://{rest.rpartition('@')[2]}" for scheme, _, rest in parts)

    async def connect(self, user: str, on_closed: Callable[[], None]) -> Any:
        """Return a connection, which is not opened again when it is lost; `on_closed` is called then.

        Raises:
            OSError: if the servers cannot be reached.
            OperationError: if they refuse.
        """
        nats = load_library(user)
        errors: list[Exception] = []

        async def on_error(error: Exception) -> None:
            errors.append(error)

        async def closed() -> None:
            on_closed()

        options: dict[str, Any] = {}
        if self.token is not None:
            options["token"] = self.token
        if self.credentials is not None:
            options["user_credentials"] = self.credentials
        if self.ca is not None or self.cert is not None:
            options["tls"] = self._build_context()
        try:
            return await nats.connect(
                [url.strip() for url in self.urls.split(",")],
                allow_reconnect=False,
                connect_timeout=CONNECT_S,
                ping_interval=10,
                error_cb=on_error,
                closed_cb=closed,
                **options,
            )
        except nats.errors.NoServersError as error:
            reason = errors[-1] if errors else error
            if isinstance(reason, OSError):
                raise reason from error
            raise OperationError(f"{self.shown} refuses the connection: {hide(str(reason))}") from error
        except nats.errors.Error as error:
            text = str(error)
            if "authorization" in text.lower() or "authentication" in text.lower():
                raise OperationError(f"{self.shown} refuses the connection: {hide(text)}") from error
            raise ConnectionError(f"{self.shown}: {hide(text)}") from error

    def _build_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"the certificates for {self.shown} cannot be read: {error}") from error
        return context


class NatsMessage(NamedTuple):
    """A message of a stream. Its timestamp is when the server stored it.

    Attributes:
        subject: the subject.
        data: the content.
        headers: the headers.
        sequence: its number in the stream.
        timestamp: when it was stored (ms).
        delivered: how often it was delivered.

    Examples:
        >>> from penstock.datastream.connectors.nats import NatsMessage
        >>> NatsMessage("cups.7", b"tea", {}, 1).data.decode()
        'tea'
    """

    subject: str
    data: bytes
    headers: Mapping[str, str] = {}
    sequence: int = 0
    timestamp: int = 0
    delivered: int = 1


def get_data(message: NatsMessage) -> bytes:
    """Return the content of a message."""
    return message.data


def get_timestamp(message: NatsMessage) -> int:
    """Return when a message was stored (ms)."""
    return message.timestamp


def keep_message(message: NatsMessage) -> NatsMessage:
    """Return the message: it has its public form."""
    return message


class _Reply(NamedTuple):
    """The fields of a message's reply subject."""

    delivered: int
    sequence: int
    consumer_sequence: int
    timestamp_ns: int
    pending: int


def parse_reply(reply: str) -> _Reply:
    """Return the numbers in `$JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.DELIVERED.SEQUENCE.CONSUMER.TIME.PENDING[.…]`."""
    tokens = reply.split(".")
    start = 4 if len(tokens) == 9 else 6
    return _Reply(*map(int, tokens[start : start + 5]))


class _Pull(Subscription):
    """Pulls messages of a consumer, on an event loop in the thread of the subscription."""

    def __init__(self, source: NatsSource, split: SubscriptionSplit) -> None:
        super().__init__(f"{type(source).__name__} of stream {source.stream!r} at {source.servers.shown}")
        self._source, self._position = source, split.position
        self.stop = split.stop
        self._nats = load_library(type(source).__name__)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._connection: Any = None
        self._pulled: Any = None
        self._failure: Exception | None = None
        #: how many messages the server still owes to earlier pulls
        self._owed = 0
        self._consumer_sequence = 0
        #: how many messages of the stream are not delivered, as of the last message
        self.pending = 0

    def consume(self) -> None:
        """See `Subscription`."""
        self._failure = None
        self._owed = self._consumer_sequence = 0
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(self._consume())
        finally:
            self._loop.run_until_complete(self._end())
            self._loop.run_until_complete(asyncio.sleep(0.05))  # lets transports close
            self._loop.close()

    async def _end(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                await asyncio.wait_for(self._connection.close(), 2)
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _on_closed(self) -> None:
        self._fail(ConnectionError("the connection was lost"))

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        if self._news is not None:
            self._news.set()

    async def _consume(self) -> None:
        news = self._news = asyncio.Event()
        source = self._source
        connection = self._connection = await source.servers.connect(type(source).__name__, self._on_closed)
        context = connection.jetstream(timeout=CONNECT_S)
        try:
            consumer = await self._prepare(context)
        except self._nats.js.errors.ServiceUnavailableError as error:
            raise ConnectionError(f"{self.title}: JetStream is not available: {error}") from error
        except (TimeoutError, self._nats.errors.TimeoutError) as error:
            raise TimeoutError(f"{self.title}: JetStream does not answer") from error
        except self._nats.errors.Error as error:
            raise OperationError(f"{self.title}: {error}") from error
        inbox = connection.new_inbox()
        self._pulled = await connection.subscribe(
            inbox, cb=self._on_message, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        self.connected()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{source.stream}.{consumer}"
        expires = int(PULL_EXPIRES_S * 1e9)
        while not self.is_closing and not self.has_ended:
            if self._failure is not None:
                raise self._failure
            if self._owed <= PULL // 2 and len(self.inbox) < WAITING_MAX:
                count = PULL - self._owed
                self._owed = PULL
                await connection.publish(
                    subject, json.dumps({"batch": count, "expires": expires}).encode(), reply=inbox
                )
            news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05 if len(self.inbox) >= WAITING_MAX else PULL_EXPIRES_S):
                    await news.wait()

    async def _prepare(self, context: Any) -> str:
        """Return the name of the consumer, which is created if it does not exist."""
        source, api = self._source, self._nats.js.api
        if source.durable is not None:
            with suppress(self._nats.js.errors.NotFoundError):
                await context.consumer_info(source.stream, source.durable)
                return source.durable
            await context.add_consumer(
                source.stream,
                api.ConsumerConfig(
                    durable_name=source.durable,
                    ack_policy=api.AckPolicy.EXPLICIT,
                    ack_wait=source.ack_wait_s,
                    max_ack_pending=source.max_ack_pending,
                    filter_subject=source.subject,
                    **self._build_start(api),
                ),
            )
            return source.durable
        state = (await context.stream_info(source.stream)).state
        if self._position is not None and state.first_seq > self._position + 1:
            raise subscriptions.describe_lost(self.title, self._position, state.first_seq)
        if source.bounded and self.stop is None:
            self.stop = state.last_seq
        info = await context.add_consumer(
            source.stream,
            api.ConsumerConfig(
                ack_policy=api.AckPolicy.NONE,
                filter_subject=source.subject,
                inactive_threshold=60.0,
                mem_storage=True,
                **self._build_start(api),
            ),
        )
        self.pending = info.num_pending or 0
        if self.stop is not None and not self.pending:
            self.has_ended = True
        return str(info.name)

    def _build_start(self, api: Any) -> dict[str, Any]:
        start = self._source.starts_at if self._position is None else self._position + 1
        if start == "first":
            return {"deliver_policy": api.DeliverPolicy.ALL}
        if start == "last":
            return {"deliver_policy": api.DeliverPolicy.LAST}
        if start == "next":
            return {"deliver_policy": api.DeliverPolicy.NEW}
        return {"deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": start}

    async def _on_message(self, message: Any) -> None:
        headers = message.headers or {}
        if not message.reply:
            status = headers.get("Status")
            if status == _TIMEOUT:
                self._owed = max(0, self._owed - int(headers.get("Nats-Pending-Messages", self._owed)))
            elif status == _CONFLICT and "batch" not in headers.get("Description", "").lower():
                self._fail(ConnectionError(headers.get("Description", "the consumer was removed")))
        else:
            self._owed -= 1
            reply = parse_reply(message.reply)
            self._take_message(message, headers, reply)
        if self._news is not None and self._owed <= PULL // 2:
            self._news.set()

    def _take_message(self, message: Any, headers: Mapping[str, str], reply: _Reply) -> None:
        is_by_sequence = self._source.durable is None
        self.pending = reply.pending
        if is_by_sequence:
            self._consumer_sequence += 1
            if reply.consumer_sequence != self._consumer_sequence:
                self._fail(ConnectionError("the server has left out messages"))
                return
            if self.has_ended or (self.stop is not None and reply.sequence > self.stop):
                self._finish()
                return
        built = NatsMessage(
            message.subject,
            message.data,
            headers,
            reply.sequence,
            reply.timestamp_ns // 1_000_000,
            reply.delivered,
        )
        self.inbox.append(Delivery(built, None if is_by_sequence else message.reply, reply.sequence))
        if self.stop is not None and (reply.sequence == self.stop or not reply.pending):
            self._finish()

    def _finish(self) -> None:
        self.has_ended = True
        if self._news is not None:
            self._news.set()

    def interrupt(self) -> None:
        """See `Subscription`."""
        self._call(lambda: None if self._news is None else self._news.set())

    def _call(self, function: Callable[[], Any]) -> None:
        with suppress(RuntimeError, AttributeError):  # the loop is closed: the next poll raises the error
            self._loop.call_soon_threadsafe(function)  # type: ignore[union-attr]

    def acknowledge(self, tags: Sequence[Any]) -> None:
        """Acknowledge each message."""
        self._answer(tags, b"+ACK")

    def release(self, tags: Sequence[Any]) -> None:
        """Return messages, which the server delivers again at once."""
        self._answer(tags, b"-NAK")

    def _answer(self, tags: Sequence[Any], answer: bytes) -> None:
        loop, connection = self._loop, self._connection

        async def send() -> None:
            with suppress(self._nats.errors.Error):
                if answer == b"-NAK":  # the server would deliver them to the pull that is waiting here
                    await self._pulled.unsubscribe()
                for tag in tags:
                    await connection.publish(tag, answer)
                if answer == b"-NAK":  # the connection is closed next, and would drop its unsent bytes
                    await connection.flush(2)

        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError, TimeoutError):
                future = asyncio.run_coroutine_threadsafe(send(), loop)
                if answer == b"-NAK":
                    future.result(2)

    def is_passing(self, error: Exception) -> bool:
        """See `Subscription`."""
        return isinstance(error, OSError)


class NatsSource(SubscriptionSource):
    """Reads a stream of JetStream, by sequence or over a durable consumer, see the module.

    Args:
        servers: `nats://USER:PASSWORD@HOST:PORT`, `tls://…`; several separated by commas.
        stream: the stream, which must exist.
        durable: the name of a durable consumer, which is created if it does not exist; None to read by sequence.
        subject: only messages of these subjects, such as `cups.*`.
        starts_at: `first`, `last` (the last message), `next` (later messages only), or a number; for a durable
            consumer that exists, its own state.
        bounded: whether to end after the messages that the stream has when the job starts; by sequence only.
        ack_wait_s: after how long the server delivers an unacknowledged message again.
        max_ack_pending: how many unacknowledged messages a durable consumer has at most.
        deserialization_schema: decodes the contents.
        deserialize: returns the record of a `NatsMessage`, in place of a schema. Without either, the record is the
            message.
        **connection: `token`, `credentials`, `ca`, `cert`, `key`, see `NatsServers`.

    Raises:
        ConfigurationError: for URLs of another kind, without a stream, for another start, for two ways to decode, and
            if the package nats-py is not installed.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.nats import NatsSource
        >>> source = NatsSource("nats://localhost", "CUPS", deserialization_schema=SimpleStringSchema())
        >>> source.max_parallelism()
        1
    """

    def __init__(
        self,
        servers: str,
        stream: str,
        *,
        durable: str | None = None,
        subject: str | None = None,
        starts_at: str | int = "first",
        bounded: bool = False,
        ack_wait_s: float = ACK_WAIT_S,
        max_ack_pending: int = ACK_PENDING,
        deserialization_schema: DeserializationSchema[Any] | None = None,
        deserialize: Callable[[NatsMessage], Any] | None = None,
        **connection: str | None,
    ) -> None:
        load_library(type(self).__name__)
        self.servers = NatsServers(servers, **connection)
        if not stream:
            raise ConfigurationError("NatsSource needs the name of a stream")
        if not (starts_at in ("first", "last", "next") or (type(starts_at) is int and starts_at > 0)):
            raise ConfigurationError(f"a stream is read from 'first', 'last', 'next' or a number, not {starts_at!r}")
        if durable is not None and bounded:
            raise ConfigurationError("a durable consumer has no end: leave out durable to read a bounded stream")
        if deserialization_schema is not None and deserialize is not None:
            raise ConfigurationError(
                "give deserialization_schema, for contents, or deserialize, for messages; not both"
            )
        if ack_wait_s <= 0 or max_ack_pending <= 0:
            raise ConfigurationError("ack_wait_s and max_ack_pending must be positive")
        self.stream, self.durable, self.subject = stream, durable, subject
        self.starts_at, self.bounded = starts_at, bounded
        self.ack_wait_s, self.max_ack_pending = ack_wait_s, max_ack_pending
        self.drops_repeated = durable is not None
        if durable is None:
            self.progress = Progress.POSITION
        if deserialization_schema is not None:
            self.reading = subscriptions.SchemaReading(deserialization_schema, stream, get_data, get_timestamp)
        else:
            self.reading = subscriptions.FunctionReading(deserialize, keep_message, get_timestamp)

    @property
    def boundedness(self) -> Boundedness:  # type: ignore[override]
        """Bounded with `bounded`."""
        return Boundedness.BOUNDED if self.bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def max_parallelism(self) -> int | None:
        """Return 1 by sequence; a durable consumer may have several readers."""
        return 1 if self.durable is None else None

    def create_subscription(self, split: SubscriptionSplit) -> Subscription:
        """See `SubscriptionSource`."""
        return _Pull(self, split)


class NatsPublication(NamedTuple):
    """A message to publish.

    Attributes:
        subject: the subject, which a stream must have.
        data: the content.
        message_id: an id; the stream drops the message if it is sent again within its duplicate window.
        headers: the headers.
        expected_last_sequence: the number that the last message of the stream must have; otherwise the job fails.
        expected_last_subject_sequence: the number that the last message of the subject must have; 0 for none.

    Examples:
        >>> from penstock.datastream.connectors.nats import NatsPublication
        >>> NatsPublication("cups.7", b"tea", message_id="order-12").subject
        'cups.7'
    """

    subject: str
    data: bytes
    message_id: str | None = None
    headers: Mapping[str, str] = {}
    expected_last_sequence: int | None = None
    expected_last_subject_sequence: int | None = None


class NatsSink(AsyncSinkBase[T, NatsPublication], Generic[T]):
    """Publishes messages to JetStream, and waits for their acknowledgements at checkpoints.

    At least once; with message ids exactly once, as long as messages that are sent again arrive within the duplicate
    window of the stream.

    Args:
        servers: `nats://USER:PASSWORD@HOST:PORT`, `tls://…`; several separated by commas.
        subject: the subject; None with `to_message`.
        serialization_schema: encodes the contents.
        message_id: returns the id of a record, the same whenever the job produces it.
        to_message: returns the `NatsPublication` of a record, in place of the three before.
        settings: the limits. Default: 1,000 messages a request, 4 requests at a time, 100 ms in the buffer.
        **connection: `token`, `credentials`, `ca`, `cert`, `key`, see `NatsServers`.

    Raises:
        ConfigurationError: for URLs of another kind, unless there are a subject and a schema or `to_message`, and if
            the package nats-py is not installed.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.nats import NatsSink
        >>> sink = NatsSink("nats://localhost", "cups.new", SimpleStringSchema(), message_id=lambda cup: cup)
    """

    keeps_order_in_request: ClassVar[bool] = True

    def __init__(
        self,
        servers: str,
        subject: str | None = None,
        serialization_schema: SerializationSchema[T] | None = None,
        *,
        message_id: Callable[[T], str] | None = None,
        to_message: Callable[[T], NatsPublication] | None = None,
        settings: AsyncSinkSettings | None = None,
        **connection: str | None,
    ) -> None:
        super().__init__(settings or SETTINGS)
        load_library(type(self).__name__)
        self.servers = NatsServers(servers, **connection)
        if (to_message is None) == (subject is None or serialization_schema is None):
            raise ConfigurationError("NatsSink needs a subject and a serialization_schema, or to_message; not both")
        self._subject, self._schema = subject, serialization_schema
        self._message_id, self._to_message = message_id, to_message

    def create_client(self, context: SinkWriterContext) -> RequestClient[NatsPublication]:
        """See `AsyncSinkBase`."""
        return _Publisher(self.servers)

    def convert(self, record: T, timestamp: int | None) -> NatsPublication:
        """See `AsyncSinkBase`."""
        if self._to_message is not None:
            return self._to_message(record)
        assert self._schema is not None
        message_id = None if self._message_id is None else self._message_id(record)
        return NatsPublication(self._subject or "", self._schema.serialize(record), message_id)

    def get_size_in_bytes(self, entry: NatsPublication) -> int:
        """Return the size of the content."""
        return len(entry.data)

    def get_ordering_key(self, entry: NatsPublication) -> str:
        """Return the subject."""
        return entry.subject


class _Request:
    """The messages of a request: the answers by position, and how many are missing."""

    __slots__ = ("answers", "done", "missing")

    def __init__(self, count: int) -> None:
        self.answers: list[bytes | None] = [None] * count
        self.missing = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Publisher(RequestClient[NatsPublication]):
    """Publishes on one connection, on the loop of the sink; a lost connection is replaced.

    It reads answers itself: nats-py 2.16 never ends the future of `publish_async` if JetStream answers with an error.
    """

    def __init__(self, servers: NatsServers) -> None:
        self._servers = servers
        self._nats = load_library("NatsSink")
        self._connection: Any = None
        self._connecting = asyncio.Lock()
        self._inbox = ""
        self._published = 0
        #: by number of the message, its request and its position there
        self._open: dict[int, tuple[_Request, int]] = {}

    async def _connect(self) -> None:
        async with self._connecting:
            if self._connection is None or self._connection.is_closed:
                connection = await self._servers.connect("NatsSink", self._on_closed)
                self._inbox = connection.new_inbox()
                await connection.subscribe(
                    f"{self._inbox}.*", cb=self._on_answer, pending_msgs_limit=-1, pending_bytes_limit=-1
                )
                self._connection = connection

    def _on_closed(self) -> None:
        error = ConnectionError(f"{self._servers.shown}: the connection was lost")
        for request, _ in self._open.values():
            if not request.done.done():
                request.done.set_exception(error)

    async def _on_answer(self, message: Any) -> None:
        entry = self._open.pop(int(message.subject[len(self._inbox) + 1 :]), None)
        if entry is None:
            return
        request, position = entry
        if not message.headers:  # else no stream takes the subject
            request.answers[position] = message.data
        request.missing -= 1
        if not request.missing and not request.done.done():
            request.done.set_result(None)

    async def submit_request_entries(self, entries: Sequence[NatsPublication]) -> RequestResult:
        """Publish entries, and wait for their acknowledgements."""
        if self._connection is None or self._connection.is_closed:
            await self._connect()
        connection, inbox = self._connection, self._inbox
        request = _Request(len(entries))
        first = self._published
        self._published += len(entries)
        try:
            for position, entry in enumerate(entries):
                number = first + position
                self._open[number] = request, position
                await connection.publish(
                    entry.subject, entry.data, reply=f"{inbox}.{number}", headers=_build_headers(entry)
                )
            await request.done
        finally:
            for number in range(first, first + len(entries)):
                self._open.pop(number, None)
        return _judge(request, entries)

    def is_retryable(self, error: Exception) -> bool:
        """See `RequestClient`."""
        names = (
            "ConnectionClosedError",
            "StaleConnectionError",
            "TimeoutError",
            "UnexpectedEOF",
            "OutboundBufferLimitError",
        )
        return isinstance(error, OSError) or type(error).__name__ in names

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None and not self._connection.is_closed:
            with suppress(Exception):
                await asyncio.wait_for(self._connection.close(), 2)
            await asyncio.sleep(0.01)  # lets the transport close


def _judge(request: _Request, entries: Sequence[NatsPublication]) -> RequestResult:
    """Return what became of the entries of a request."""
    again: list[int] = []
    rejected: dict[int, str] = {}
    reason = ""
    for position, answer in enumerate(request.answers):
        if answer is None:
            again.append(position)
            reason = f"no stream answers for the subject {entries[position].subject!r}"
        elif b'"error"' in answer and (error := json.loads(answer).get("error")) is not None:
            if error.get("err_code") in _REJECTED:
                rejected[position] = str(error.get("description"))
            else:
                again.append(position)
                reason = str(error.get("description"))
    return RequestResult(again, rejected, reason=reason)


def _build_headers(entry: NatsPublication) -> dict[str, str] | None:
    headers = dict(entry.headers)
    if entry.message_id is not None:
        headers["Nats-Msg-Id"] = entry.message_id
    if entry.expected_last_sequence is not None:
        headers["Nats-Expected-Last-Sequence"] = str(entry.expected_last_sequence)
    if entry.expected_last_subject_sequence is not None:
        headers["Nats-Expected-Last-Subject-Sequence"] = str(entry.expected_last_subject_sequence)
    return headers or None
