"""`RMQSink`: publishes messages to RabbitMQ with confirms.

RabbitMQ confirms a message when it has it; for a durable queue, when it is on disk. A checkpoint waits for confirms: at
least once. A mandatory message that no queue takes is returned, which is an error unless the sink drops it.

**Order.** The messages of a routing key arrive in order within a subtask: only one request with messages of a key is in
flight, and a message that is published again precedes later ones of its key.
"""

from __future__ import annotations

import asyncio
import importlib
import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from penstock.base.errors import ConfigurationError, short_repr
from penstock.codecs.serialization import SerializationSchema
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, RequestClient, RequestError, RequestResult
from penstock.connectors.rabbitmq.client import NOT_FOUND, RMQConnectionConfig, is_passing, load_library, unwrap
from penstock.runtime.connector import SinkWriterContext

T = TypeVar("T")

#: the limits of a sink unless others are given
SETTINGS: Final = AsyncSinkSettings(max_batch_size=1_000, max_in_flight_requests=4, max_time_in_buffer_ms=100)
#: how many bytes are written at once, and how many routing keys have their frames kept
_PIECE_BYTES: Final = 1 << 16
_HEADS_MAX: Final = 10_000
#: the parts of frames of AMQP 0-9-1: kinds of frames, the number of the class `basic`, the end of a frame
_HEADER_KIND: Final = 2
_BODY: Final = 3
_BASIC: Final = 60
_END: Final = b"\xce"
_HEADER: Final = struct.Struct(">BHIHxxQ")
_HEADER_BYTES: Final = 12
_BODY_START: Final = struct.Struct(">BH")
_LENGTH: Final = struct.Struct(">I")


class RMQPublication(NamedTuple):
    """A message to publish.

    Attributes:
        body: the content.
        routing_key: the routing key; for the default exchange the name of the queue.
        exchange: the exchange; empty for the default one.
        headers: the headers.
        mandatory: whether a message that no queue takes is returned.
        properties: further properties by pika's names, such as `correlation_id`, `message_id`, `expiration`,
            `content_type`. Messages are persistent (`delivery_mode` 2) unless they say otherwise.

    Examples:
        >>> from penstock.datastream.connectors.rabbitmq import RMQPublication
        >>> RMQPublication(b"tea", "cups", properties={"correlation_id": "7"}).routing_key
        'cups'
    """

    body: bytes
    routing_key: str
    exchange: str = ""
    headers: Mapping[str, Any] | None = None
    mandatory: bool = True
    properties: Mapping[str, Any] = {}


class RMQSink(AsyncSinkBase[T, RMQPublication], Generic[T]):
    """Publishes messages, and waits for their confirms at checkpoints: at least once.

    Args:
        connection_config: the server.
        queue_name: the queue, which is declared as durable if it does not exist; None with `to_message`.
        serialization_schema: encodes the bodies.
        to_message: returns the `RMQPublication` of a record, in place of a queue and a schema.
        returned: what happens to mandatory messages that no queue takes: `fail`, or `drop` them.
        settings: the limits. Default: 1,000 messages and 5 MiB a request, 100 ms in the buffer.

    Raises:
        ConfigurationError: unless there are a queue and a schema, or `to_message`; and without the package pika.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQPublication, RMQSink
        >>> config = RMQConnectionConfig.Builder().set_host("localhost").build()
        >>> sink = RMQSink(config, "cups", SimpleStringSchema())
        >>> by_key = RMQSink(config, to_message=lambda cup: RMQPublication(cup[1], cup[0], "amq.topic"))
    """

    keeps_order_in_request: ClassVar[bool] = True

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str | None = None,
        serialization_schema: SerializationSchema[T] | None = None,
        *,
        to_message: Callable[[T], RMQPublication] | None = None,
        returned: str = "fail",
        settings: AsyncSinkSettings | None = None,
    ) -> None:
        super().__init__(settings or SETTINGS)
        load_library(type(self).__name__)
        if (to_message is None) == (queue_name is None or serialization_schema is None):
            raise ConfigurationError("RMQSink needs a queue_name and a serialization_schema, or to_message; not both")
        if returned not in ("fail", "drop"):
            raise ConfigurationError(f"messages that no queue takes 'fail' the job or are 'drop'ped, not {returned!r}")
        self.config, self.queue_name = connection_config, queue_name
        self.drops_returned = returned == "drop"
        self._schema, self._to_message = serialization_schema, to_message

    def create_client(self, context: SinkWriterContext) -> RequestClient[RMQPublication]:
        """See `AsyncSinkBase`."""
        return _Publisher(self)

    def convert(self, record: T, timestamp: int | None) -> RMQPublication:
        """See `AsyncSinkBase`."""
        if self._to_message is None:
            assert self._schema is not None
            return RMQPublication(self._schema.serialize(record), self.queue_name or "")
        return self._to_message(record)

    def get_size_in_bytes(self, entry: RMQPublication) -> int:
        """Return the size of the body."""
        return len(entry.body)

    def get_ordering_key(self, entry: RMQPublication) -> Hashable | None:
        """Return the exchange and the routing key."""
        return entry.exchange, entry.routing_key

    def handle_rejected(self, entry: RMQPublication, reason: str) -> None:
        """Fail, unless returned messages are dropped."""
        if not self.drops_returned:
            raise RequestError(
                f"RMQSink: {self.config.shown} returns {short_repr(entry)}: {reason}. Bind a queue, publish it without "
                "mandatory, or set returned to 'drop'"
            )


@dataclass(slots=True)
class _Request:
    """The messages of a request that are not confirmed.

    Attributes:
        open: positions by delivery tag.
        done: is set when all are confirmed; an error if the connection fails.
        refused: positions that the server refuses at present.
        rejected: positions and reasons of returned messages.
    """

    entries: Sequence[RMQPublication]
    done: asyncio.Future[None]
    open: dict[int, int] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    rejected: dict[int, str] = field(default_factory=dict)


class Frames:
    """Builds the frames of messages, those of a request in few pieces.

    `basic_publish` of pika makes and writes three frames for each message, which takes several times as long.

    Args:
        pika: the library.
    """

    def __init__(self, pika: Any) -> None:
        self._pika = pika
        self._frame = importlib.import_module("pika.frame")
        self._plain = b"".join(pika.BasicProperties(delivery_mode=2).encode())
        #: by channel, exchange, routing key and mandatory, what precedes the properties of a message
        self._heads: dict[tuple[int, str, str, bool], bytes] = {}

    def build(self, channel: Any, entries: Sequence[RMQPublication]) -> list[bytes]:
        """Return what is sent for entries, in pieces."""
        number, body_max = channel.channel_number, channel.connection._body_max_length
        body_start = _BODY_START.pack(_BODY, number)
        plain, end = self._plain, _END
        pieces: list[bytes] = []
        parts: list[bytes] = []
        size = 0
        for entry in entries:
            body: bytes = entry.body if type(entry.body) is bytes else self._pika.compat.as_bytes(entry.body)
            length = len(body)
            properties = plain if not (entry.headers or entry.properties) else self._encode_properties(entry)
            parts += (
                self._find_head(number, entry.exchange, entry.routing_key, entry.mandatory),
                _HEADER.pack(_HEADER_KIND, number, _HEADER_BYTES + len(properties), _BASIC, length),
                properties,
                end,
            )
            for start in range(0, length, body_max):
                part = body if length <= body_max else body[start : start + body_max]
                parts += (body_start, _LENGTH.pack(len(part)), part, end)
            size += length
            if size >= _PIECE_BYTES:
                pieces.append(b"".join(parts))
                parts, size = [], 0
        if parts:
            pieces.append(b"".join(parts))
        return pieces

    def _find_head(self, number: int, exchange: str, routing_key: str, mandatory: bool) -> bytes:
        head = self._heads.get((number, exchange, routing_key, mandatory))
        if head is None:
            method = self._pika.spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
            head = self._frame.Method(number, method).marshal()
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            self._heads[number, exchange, routing_key, mandatory] = head
        return head

    def _encode_properties(self, entry: RMQPublication) -> bytes:
        values = {"delivery_mode": 2, **entry.properties}
        if entry.headers:
            values["headers"] = dict(entry.headers)
        return b"".join(self._pika.BasicProperties(**values).encode())


class _Publisher(RequestClient[RMQPublication]):
    """Publishes on one channel in confirm mode, on the loop of the sink."""

    def __init__(self, sink: RMQSink[Any]) -> None:
        self._sink = sink
        self._pika = load_library(type(sink).__name__)
        self._connection: Any = None
        self._channel: Any = None
        self._connecting = asyncio.Lock()
        self._published = 0
        self._closed = asyncio.Event()
        #: requests that are not confirmed, oldest first; the tags of each are above those of the one before
        self._requests: list[_Request] = []
        self._frames = Frames(self._pika)

    async def _connect(self) -> None:
        """Open a connection and a channel, and declare the queue if it does not exist."""
        async with self._connecting:
            if self._channel is not None and self._channel.is_open:
                return
            await self._open()
            if self._sink.queue_name is not None:
                try:
                    await self._declare(passive=True)
                except self._pika.exceptions.ChannelClosedByBroker as error:
                    if error.reply_code != NOT_FOUND:
                        raise
                    await self._open()
                    await self._declare(durable=True)
            await self._wait(lambda done: self._channel.confirm_delivery(self._on_confirm, callback=done))
            self._published = 0

    async def _declare(self, **how: bool) -> None:
        await self._wait(lambda done: self._channel.queue_declare(self._sink.queue_name, callback=done, **how))

    async def _open(self) -> None:
        adapter = importlib.import_module("pika.adapters.asyncio_connection").AsyncioConnection
        loop = asyncio.get_running_loop()
        if self._connection is None or not self._connection.is_open:
            opened: asyncio.Future[Any] = loop.create_future()
            parameters = self._sink.config.build_parameters(type(self._sink).__name__)
            self._connection = adapter(
                parameters,
                on_open_callback=lambda connection: _settle(opened, None),
                on_open_error_callback=lambda connection, error: _settle(opened, unwrap(error)),
                on_close_callback=lambda connection, error: self._on_closed(unwrap(error)),
                custom_ioloop=loop,
            )
            await opened
        self._channel = None
        await self._wait(lambda done: self._connection.channel(on_open_callback=lambda each: self._keep(each, done)))

    def _keep(self, channel: Any, done: Callable[[Any], None]) -> None:
        self._channel = channel
        channel.add_on_close_callback(lambda _, reason: self._fail(unwrap(reason)))
        channel.add_on_return_callback(self._on_return)
        done(None)

    async def _wait(self, begin: Callable[[Callable[[Any], None]], Any]) -> None:
        """Call a method that takes a callback, and wait until it is called, or the channel fails."""
        request = _Request((), asyncio.get_running_loop().create_future())
        self._requests.append(request)
        try:
            begin(lambda _: _settle(request.done, None))
            await request.done
        finally:
            self._requests = [each for each in self._requests if each is not request]

    async def submit_request_entries(self, entries: Sequence[RMQPublication]) -> RequestResult:
        """Publish entries, and wait for their confirms."""
        if self._channel is None or not self._channel.is_open:
            await self._connect()
        frames = self._frames.build(self._channel, entries)
        request = _Request(entries, asyncio.get_running_loop().create_future())
        request.open = dict(zip(count(self._published + 1), range(len(entries))))
        self._published += len(entries)
        self._requests.append(request)
        self._channel.connection._output_marshaled_frames(frames)
        try:
            await request.done
        finally:
            self._requests = [each for each in self._requests if each is not request]
        return RequestResult(request.refused, request.rejected, reason="the server refuses the message (nack)")

    def _on_confirm(self, frame: Any) -> None:
        """Note an acknowledgement, which may cover all earlier messages."""
        method = frame.method
        tag, is_refused = method.delivery_tag, method.NAME == "Basic.Nack"
        for request in list(self._requests):
            tags = list(takewhile(tag.__ge__, request.open)) if method.multiple else [tag]
            for each in tags:
                position = request.open.pop(each, None)
                if position is not None and is_refused:
                    request.refused.append(position)
            if request.entries and not request.open:
                _settle(request.done, None)

    def _on_return(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Note a message that no queue takes; its confirm follows."""
        for request in self._requests:
            for position in request.open.values():
                entry = request.entries[position]
                if (
                    position not in request.rejected
                    and entry.body == body
                    and entry.mandatory
                    and (entry.exchange, entry.routing_key) == (method.exchange, method.routing_key)
                ):
                    request.rejected[position] = f"{method.reply_text} ({method.reply_code})"
                    return

    def _on_closed(self, error: Exception) -> None:
        self._closed.set()
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        for request in self._requests:
            _settle(request.done, error)

    def is_retryable(self, error: Exception) -> bool:
        """See `RequestClient`."""
        return is_passing(self._pika, error)

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None and self._connection.is_open:
            self._closed.clear()
            self._connection.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(2):
                    await self._closed.wait()


def _settle(done: asyncio.Future[Any], error: Exception | None) -> None:
    if not done.done():
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
