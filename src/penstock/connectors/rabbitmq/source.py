"""RabbitMQ's sources: `RMQSource` for queues, `RMQStreamSource` for streams.

**Queues.** A message is acknowledged when a checkpoint that covers it has completed, see
`penstock.connectors.subscriptions`: at least once, and exactly once if each message has a correlation id.
Acknowledgements are cumulative: one frame for each checkpoint.

**Streams** (queues with `x-queue-type: stream`) keep their messages, and each has an offset. The position is the offset
of the last message: exactly once. RabbitMQ delivers whole chunks, so messages before the requested offset are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.base.errors import ConfigurationError, OperationError
from penstock.codecs.serialization import DeserializationSchema
from penstock.connectors import subscriptions
from penstock.connectors.rabbitmq.client import NOT_FOUND, RMQConnectionConfig, is_passing, load_library, unwrap
from penstock.connectors.subscriptions import Delivery, Subscription, SubscriptionSource, SubscriptionSplit

#: how many messages of a stream the server sends ahead
STREAM_CREDIT: Final = 5_000


class RMQMessage(NamedTuple):
    """A message of a queue or a stream.

    Attributes:
        body: the content.
        exchange: the exchange that it was published to.
        routing_key: the routing key that it was published with.
        headers: the headers.
        correlation_id: the correlation id; None if it has none.
        message_id: the message id; None if it has none.
        timestamp: the publisher's time (s); None if it has none.
        redelivered: whether the server has delivered it before.
        offset: its offset in a stream; None in a queue.

    Examples:
        >>> from penstock.datastream.connectors.rabbitmq import RMQMessage
        >>> RMQMessage(b"tea", routing_key="cups").body.decode()
        'tea'
    """

    body: bytes
    exchange: str = ""
    routing_key: str = ""
    headers: Mapping[str, Any] = {}
    correlation_id: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    redelivered: bool = False
    offset: int | None = None


#: a message as pika delivers it: method, properties, body
Raw = tuple[Any, Any, bytes]


def get_body(raw: Raw) -> bytes:
    """Return the body of a message."""
    return raw[2]


def build_message(raw: Raw) -> RMQMessage:
    """Return the public form of a message."""
    method, properties, body = raw
    headers = properties.headers or {}
    offset = headers.get("x-stream-offset")
    return RMQMessage(
        body,
        method.exchange,
        method.routing_key,
        headers,
        properties.correlation_id,
        properties.message_id,
        properties.timestamp,
        bool(method.redelivered),
        offset,
    )


class _Consumer(Subscription):
    """Consumes a queue with pika's asynchronous connection, in the thread of the subscription."""

    def __init__(self, source: _RMQBase, arguments: Mapping[str, Any] | None, prefetch: int) -> None:
        super().__init__(f"{type(source).__name__} of queue {source.queue_name!r} at {source.config.shown}")
        self._pika = load_library(type(source).__name__)
        self._source, self._arguments, self._prefetch = source, arguments, prefetch
        self._connection: Any = None
        self._channel: Any = None
        self._failure: Exception | None = None
        #: whether the queue does not exist and is to be declared
        self._is_missing = False

    def consume(self) -> None:
        """See `Subscription`."""
        self._failure, self._is_missing = None, False
        parameters = self._source.config.build_parameters(type(self._source).__name__)
        self._connection = self._pika.SelectConnection(
            parameters,
            on_open_callback=lambda connection: self._open_channel(),
            on_open_error_callback=self._fail,
            on_close_callback=self._fail,
        )
        try:
            self._connection.ioloop.start()
        finally:
            self._connection.ioloop.close()
        if self._failure is not None:
            raise self._failure

    def _open_channel(self) -> None:
        if self.is_closing:
            self._connection.close()
        else:
            self._connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        if self.is_closing:
            return
        channel.add_on_close_callback(self._on_channel_closed)
        name = self._source.queue_name
        channel.basic_qos(prefetch_count=self._prefetch)
        if self._is_missing:
            arguments = dict(self._source.queue_arguments)
            channel.queue_declare(name, durable=True, arguments=arguments, callback=lambda _: self._consume(channel))
        else:
            channel.queue_declare(name, passive=True, callback=lambda _: self._consume(channel))

    def _consume(self, channel: Any) -> None:
        if self.is_closing:
            return
        self._channel = channel
        channel.add_on_cancel_callback(self._on_cancelled)
        channel.basic_consume(
            self._source.queue_name,
            self._on_message,
            arguments=dict(self._arguments or {}),
            callback=lambda _: self.connected(),
        )

    def _on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        mark = properties.correlation_id if self._source.drops_repeated else None
        self.inbox.append(Delivery((method, properties, body), method.delivery_tag, mark))

    def _on_cancelled(self, frame: Any) -> None:
        self._fail(None, OperationError(f"{self.title}: the server has ended the consumer, or the queue was removed"))

    def _on_channel_closed(self, channel: Any, reason: Any) -> None:
        if getattr(reason, "reply_code", None) == NOT_FOUND and not self._is_missing and self._source.declares:
            self._is_missing = True
            self._open_channel()
        elif not self._connection.is_closing and not self._connection.is_closed:
            self._fail(None, reason)

    def _fail(self, connection: Any, reason: Any) -> None:
        self._failure = self._failure or unwrap(reason)
        if self._connection.is_open:
            self._connection.close()  # calls this method again
        elif not self._connection.is_closing:
            self._connection.ioloop.stop()

    def interrupt(self) -> None:
        """See `Subscription`."""
        connection = self._connection
        if connection is not None:
            self._call(lambda: connection.close() if connection.is_open else None)  # else it closes once it is open

    def acknowledge(self, tags: Sequence[Any]) -> None:
        """Acknowledge the last of the tags and all before it."""
        last = tags[-1]
        self._call(lambda: self._channel.basic_ack(last, multiple=True) if self._channel.is_open else None)

    def _call(self, function: Callable[[], Any]) -> None:
        """Call a function in the thread of the connection."""
        try:
            self._connection.ioloop.add_callback_threadsafe(function)
        except (OSError, ValueError, AttributeError):
            return  # the loop is closed: the error of the connection is raised at the next poll

    def is_passing(self, error: Exception) -> bool:
        """See `Subscription`."""
        return is_passing(self._pika, error)


class _StreamConsumer(_Consumer):
    """Consumes a stream from an offset."""

    def __init__(self, source: RMQStreamSource, split: SubscriptionSplit) -> None:
        start: Any = source.starts_at if split.position is None else split.position + 1
        super().__init__(source, {"x-stream-offset": start}, STREAM_CREDIT)
        self._next = 0 if split.position is None else split.position + 1
        self._expected = split.position

    def _on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        offset = properties.headers["x-stream-offset"]
        if offset < self._next:
            channel.basic_ack(method.delivery_tag)
            return
        if self._expected is not None and offset > self._expected + 1:
            self._check_first(self._expected, offset)
        self._expected = None
        self.inbox.append(Delivery((method, properties, body), method.delivery_tag, offset))

    def _check_first(self, position: int, offset: int) -> None:
        """Look whether the stream still begins before an offset: there are offsets without messages."""

        def consume(channel: Any) -> None:
            channel.basic_qos(prefetch_count=1)
            channel.basic_consume(self._source.queue_name, on_first, arguments={"x-stream-offset": "first"})

        def on_first(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            first = properties.headers["x-stream-offset"]
            if first > position + 1:
                self.inbox.clear()
                self._fail(None, subscriptions.describe_lost(self.title, position, first))
            elif channel.is_open:
                channel.close()

        self._connection.channel(on_open_callback=consume)


class _RMQBase(SubscriptionSource):
    """What sources of queues and of streams have in common."""

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        deserialization_schema: DeserializationSchema[Any] | None,
        deserialize: Callable[[RMQMessage], Any] | None,
        queue_arguments: Mapping[str, Any] | None,
        declares: bool,
    ) -> None:
        load_library(type(self).__name__)
        if deserialization_schema is not None and deserialize is not None:
            raise ConfigurationError("give deserialization_schema, for bodies, or deserialize, for messages; not both")
        if not queue_name:
            raise ConfigurationError(f"{type(self).__name__} needs the name of a queue")
        self.config, self.queue_name = connection_config, queue_name
        self.queue_arguments = dict(queue_arguments or {})
        self.declares = declares
        self.reading: subscriptions.MessageReading
        if deserialization_schema is not None:
            self.reading = subscriptions.SchemaReading(deserialization_schema, queue_name, get_body)
        else:
            self.reading = subscriptions.FunctionReading(deserialize, build_message)


class RMQSource(_RMQBase):
    """Reads a queue, classic or quorum; acknowledges at checkpoints, see the module.

    Args:
        connection_config: the server.
        queue_name: the queue. If it does not exist, it is declared as durable.
        use_correlation_id: whether each message has a correlation id of its own: then exactly once, with parallelism 1;
            else at least once.
        deserialization_schema: decodes the bodies.
        deserialize: returns the record of an `RMQMessage`, in place of a schema. Without either, the record is the
            message.
        queue_arguments: the arguments of a queue that is declared, such as `{"x-queue-type": "quorum"}`.

    Raises:
        ConfigurationError: for an empty name, two ways to decode, and without the package pika.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSource
        >>> config = RMQConnectionConfig.Builder().set_host("localhost").set_port(5672).build()
        >>> source = RMQSource(config, "cups", True, SimpleStringSchema())
        >>> source.max_parallelism(), source.replayable
        (1, True)
    """

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        use_correlation_id: bool = False,
        deserialization_schema: DeserializationSchema[Any] | None = None,
        *,
        deserialize: Callable[[RMQMessage], Any] | None = None,
        queue_arguments: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(connection_config, queue_name, deserialization_schema, deserialize, queue_arguments, True)
        self.drops_repeated = use_correlation_id

    def create_subscription(self, split: SubscriptionSplit) -> Subscription:
        """See `SubscriptionSource`."""
        return _Consumer(self, None, self.config.prefetch_count)


class RMQStreamSource(_RMQBase):
    """Reads a stream, a queue with `x-queue-type: stream`, in order, exactly once as long as it keeps its messages.

    Args:
        connection_config: the server.
        queue_name: the stream, which must exist.
        deserialization_schema: decodes the bodies.
        deserialize: returns the record of an `RMQMessage`, in place of a schema.
        starts_at: `first`, `last` (the last chunk), `next` (later messages only), or an offset.

    Raises:
        ConfigurationError: for another start, an empty name, two ways to decode, and without the package pika.

    Examples:
        >>> from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQStreamSource
        >>> config = RMQConnectionConfig.Builder().set_host("localhost").build()
        >>> source = RMQStreamSource(config, "log", deserialize=lambda message: (message.offset, message.body))
    """

    progress = subscriptions.Progress.POSITION

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        deserialization_schema: DeserializationSchema[Any] | None = None,
        *,
        deserialize: Callable[[RMQMessage], Any] | None = None,
        starts_at: str | int = "first",
    ) -> None:
        super().__init__(connection_config, queue_name, deserialization_schema, deserialize, None, False)
        if not (starts_at in ("first", "last", "next") or (type(starts_at) is int and starts_at >= 0)):
            raise ConfigurationError(f"a stream is read from 'first', 'last', 'next' or an offset, not {starts_at!r}")
        self.starts_at = starts_at

    def create_subscription(self, split: SubscriptionSplit) -> Subscription:
        """See `SubscriptionSource`."""
        return _StreamConsumer(self, split)
