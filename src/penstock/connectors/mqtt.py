"""MQTT 5: a source of subscriptions with sessions (`MqttSource`), and a sink of acknowledged publishes (`MqttSink`).

**Source.** With QoS 1 and 2, a message is acknowledged when a checkpoint that covers it has completed
(`penstock.connectors.subscriptions`): at least once. The server keeps the session of a client id while the client is
away, and redelivers unacknowledged messages. So client ids are `PREFIX-0`, `PREFIX-1` and so on, one for each
split: a job that restarts, also with fewer subtasks, connects as all of them. Another client with the same id ends
the connection of the first, so a worker that was given up receives nothing any more.

If the session of a restored split is lost (it has expired, or the server has no persistence), messages may be lost,
and the source fails by default. With QoS 0 nothing is acknowledged: at most once.

QoS 2 is at least once too. The client takes the responsibility for a message with PUBREC, which is therefore sent at
the checkpoint; paho-mqtt would send it at once, and a crash would lose the message.

**Sink.** With QoS 1 and 2 a checkpoint waits for the server's acknowledgements: at least once; QoS 0: at most once. One
request is in flight, so messages arrive in order.

The client library is paho-mqtt.
"""

from __future__ import annotations

import importlib
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from penstock.base.errors import ConfigurationError, OperationError
from penstock.base.secrets import remember
from penstock.codecs.serialization import DeserializationSchema, SerializationSchema
from penstock.connectors import subscriptions
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, RequestClient, RequestResult
from penstock.connectors.base import require
from penstock.connectors.subscriptions import Delivery, Progress, Subscription, SubscriptionSource, SubscriptionSplit
from penstock.runtime.connector import SinkWriterContext

T = TypeVar("T")

#: the default limit of unacknowledged messages in a reader: as many as MQTT can number
RECEIVE_MAXIMUM: Final = 65_535
#: how many messages of QoS 0 wait in a reader before it stops to receive
QOS_0_MAX: Final = 65_535
SESSION_EXPIRY_S: Final = 86_400
KEEP_ALIVE_S: Final = 30
CONNECT_S: Final = 10.0
#: the limits of a sink unless others are given
SETTINGS: Final = AsyncSinkSettings(
    max_batch_size=1_000, max_in_flight_requests=1, max_time_in_buffer_ms=100, request_timeout_ms=60_000
)
_SCHEMES: Final = {"mqtt": 1883, "mqtts": 8883}
_FAILURE: Final = 128
#: reason codes that pass: server unavailable or busy, shutting down, quotas, session taken over, keep alive, moved
_PASSING_CODES: Final = (128, 136, 137, 139, 141, 142, 151, 159)
_SHARED: Final = "$share/"
#: how many packets are read without another look at the connection
_READS: Final = 1_000
#: the acknowledgement of a message of QoS 1: its kind, its length, the message id
_PUBACK: Final = struct.Struct("!BBH")
_PUBACK_KIND: Final = 0x40


def load_library(user: str) -> Any:
    """Return the module `paho.mqtt.client`. Raises `ConfigurationError`, naming the user, if it is not installed."""
    require("paho.mqtt.client", user, "paho-mqtt", "mqtt")
    return importlib.import_module("paho.mqtt.client")


class MqttRefusedError(OperationError):
    """The server refuses; `code` is the reason code of MQTT 5."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class MqttAddress:
    """The address of a server. Its printed form does not include the password.

    Attributes:
        url: `mqtt://USER:PASSWORD@HOST:PORT`, or `mqtts://…` with TLS.
        ca: the file with the certificates that the server's must be signed by; None for those of the system.
        cert: the file with the client's certificate, if it has one.
        key: the file with its key.

    Raises:
        ConfigurationError: for another kind of URL.
    """

    url: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        remember({"url": self.url})
        parts = urlsplit(self.url)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise ConfigurationError(f"{self.shown} is no address of MQTT: it is mqtt://HOST:PORT, or mqtts://… (TLS)")
        if (self.ca or self.cert) and parts.scheme != "mqtts":
            raise ConfigurationError(f"{self.shown} uses no TLS, and has certificates: it must begin with mqtts://")

    def __repr__(self) -> str:
        return f"MqttAddress({self.shown!r})"

    @property
    def shown(self) -> str:
        """The URL without the user and the password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def connect(
    client: Any, address: MqttAddress, clean: bool, properties: Any, run: Callable[[Any], None] | None = None
) -> bool:
    """Connect a client, and return whether the server has a session of it. `run` receives until the answer is there.

    Raises:
        OSError: if the server cannot be reached.
        MqttRefusedError: if it refuses.
    """
    parts = urlsplit(address.url)
    answers: list[tuple[Any, Any]] = []
    answered = threading.Event()

    def on_connect(client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        answers.append((flags, reason))
        answered.set()

    client.on_connect = on_connect
    if parts.username is not None:
        client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
    if parts.scheme == "mqtts":
        client.tls_set(address.ca, address.cert, address.key)
    client.connect_timeout = CONNECT_S
    port = parts.port or _SCHEMES[parts.scheme]
    client.connect(str(parts.hostname), port, KEEP_ALIVE_S, clean_start=clean, properties=properties)
    deadline_s = time.monotonic() + CONNECT_S
    if run is None:
        client.loop_start()
        answered.wait(CONNECT_S)
    else:
        with suppress(ConnectionError):  # a server that refuses closes the connection
            while not answers and time.monotonic() < deadline_s:
                run(client)
    if not answers:
        raise ConnectionError(f"{address.shown} does not answer")
    flags, reason = answers[0]
    if reason.value >= _FAILURE:
        raise MqttRefusedError(f"{address.shown} refuses the connection: {reason}", reason.value)
    return bool(flags.session_present)


def is_passing(error: Exception) -> bool:
    """Return whether a failed connection may be opened later."""
    return error.code in _PASSING_CODES if isinstance(error, MqttRefusedError) else isinstance(error, OSError)


class MqttMessage(NamedTuple):
    """A message of a topic.

    Attributes:
        topic: the topic.
        payload: the content.
        qos: the QoS of the delivery.
        retain: whether the server had retained it for later subscribers.
        duplicate: whether the server has delivered it before.
        properties: `content_type`, `correlation_data`, `response_topic`, `message_expiry_interval` and
                `payload_format_indicator`, if the message has them.
        user_properties: the publisher's own properties, as pairs.

    Examples:
        >>> from penstock.datastream.connectors.mqtt import MqttMessage
        >>> MqttMessage("cups/7", b"tea").payload.decode()
        'tea'
    """

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    properties: Mapping[str, Any] = {}
    user_properties: Sequence[tuple[str, str]] = ()


_PROPERTIES: Final = {
    "content_type": "ContentType",
    "correlation_data": "CorrelationData",
    "response_topic": "ResponseTopic",
    "message_expiry_interval": "MessageExpiryInterval",
    "payload_format_indicator": "PayloadFormatIndicator",
}


class ReceivedMessage(NamedTuple):
    """A message in the form of paho-mqtt's `MQTTMessage`, as far as this module reads it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    mid: int
    properties: None = None


def read_plain_message(command: int, packet: bytes | bytearray) -> ReceivedMessage | None:
    """Decode a PUBLISH packet of MQTT 5 without properties, as most are: paho-mqtt takes long for its objects.

    Args:
        command: the first byte of the packet.
        packet: what follows its length.

    Returns:
        the message; None for a packet with properties, of QoS 2, or that is malformed: paho-mqtt decodes these.
    """
    qos = command >> 1 & 3
    try:
        at = 2 + (packet[0] << 8 | packet[1])
        topic, mid = packet[2:at].decode(), 0
        if qos:
            mid, at = packet[at] << 8 | packet[at + 1], at + 2
        if qos > 1 or packet[at] or not topic:
            return None
    except (IndexError, UnicodeDecodeError):
        return None
    return ReceivedMessage(topic, bytes(packet[at + 1 :]), qos, bool(command & 1), bool(command & 8), mid)


def get_payload(raw: Any) -> bytes:
    """Return the content of a message of paho-mqtt."""
    payload: bytes = raw.payload
    return payload


def get_user_properties(raw: Any) -> list[tuple[str, str]]:
    """Return the publisher's own properties."""
    return [(str(name), str(value)) for name, value in getattr(raw.properties, "UserProperty", ())]


def build_message(raw: Any) -> MqttMessage:
    """Return the public form of a message."""
    properties = {
        name: getattr(raw.properties, theirs) for name, theirs in _PROPERTIES.items() if hasattr(raw.properties, theirs)
    }
    return MqttMessage(
        raw.topic, raw.payload, raw.qos, bool(raw.retain), bool(raw.dup), properties, get_user_properties(raw)
    )


class _Session(Subscription):
    """Receives the messages of a session, in the thread of the subscription."""

    keeps_session = True

    def __init__(self, source: MqttSource, split: SubscriptionSplit) -> None:
        self._client_id = f"{source.client_id}-{split.number}"
        super().__init__(f"{type(source).__name__} {self._client_id!r} at {source.address.shown}")
        self._mqtt = load_library(type(source).__name__)
        self._source = source
        self._had_session = split.position is not None
        self._client: Any = None
        self._refusal: MqttRefusedError | None = None
        self._reason: Any = None
        #: messages of QoS 2 for which PUBREC was not sent
        self._deferred: list[int] = []
        self._received = 0

    def consume(self) -> None:
        """See `Subscription`."""
        source = self._source
        self._refusal = self._reason = None
        client = self._client = self._create_client()
        properties = _build_properties("CONNECT", ReceiveMaximum=source.receive_maximum)
        properties.SessionExpiryInterval = source.session_expiry_s
        try:
            has_session = connect(client, source.address, False, properties, self._turn)
            if self._had_session and not has_session and source.qos and not source.ignores_lost_sessions:
                raise OperationError(
                    f"{self.title}: the server has lost the session of this client, so messages since the checkpoint "
                    "may be lost. Let sessions live longer (session_expiry_s, persistence of the server), and start "
                    "the job without the checkpoint, or set ignores_lost_sessions, to go on without them"
                )
            options = importlib.import_module("paho.mqtt.subscribeoptions").SubscribeOptions(
                qos=source.qos, retainHandling=1
            )
            client.subscribe([(topic, options) for topic in source.topics])
            while not self.is_closing:
                self._turn(client)
        finally:
            if client.is_connected():
                client.disconnect()
                client.loop(0.1)
            client.on_disconnect = client.on_socket_close = None

    def _create_client(self) -> Any:
        mqtt = self._mqtt
        session = self

        class Client(mqtt.Client):  # type: ignore[name-defined, misc]
            def _send_pubrec(self, mid: int) -> Any:
                session._deferred.append(mid)
                return mqtt.MQTT_ERR_SUCCESS

            def _handle_publish(self) -> Any:
                message = read_plain_message(self._in_packet["command"], self._in_packet["packet"])
                if message is None:
                    return super()._handle_publish()
                session._deliver(message)
                return mqtt.MQTT_ERR_SUCCESS

        client = Client(mqtt.CallbackAPIVersion.VERSION2, self._client_id, protocol=mqtt.MQTTv5, manual_ack=True)
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        return client

    def _turn(self, client: Any) -> None:
        """Send and receive; raise if the connection fails."""
        received, code = self._received, client.loop(0.2)
        for _ in range(_READS):  # more may have arrived: paho-mqtt waits before each packet, and looks for other work
            if code != self._mqtt.MQTT_ERR_SUCCESS or self._received == received:
                break
            received, code = self._received, client.loop_read()
        if self._deferred:
            for mid in self._deferred:
                self.inbox.append(Delivery(client._in_messages[mid], (mid, 2), None))
            self._deferred.clear()
        while len(self.inbox) > QOS_0_MAX and self._source.qos == 0 and not self.is_closing:
            time.sleep(0.01)
        if self._refusal is not None:
            raise self._refusal
        if code != self._mqtt.MQTT_ERR_SUCCESS and not self.is_closing:
            reason = "" if self._reason is None else f", {self._reason}"
            raise ConnectionError(f"{self._mqtt.error_string(code)}{reason}")

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        if message.qos == 2:
            client.ack(message.mid, 2)  # the second half of the acknowledgement: PUBREC was sent at a checkpoint
            return
        self._deliver(message)

    def _deliver(self, message: Any) -> None:
        self._received += 1
        self.inbox.append(Delivery(message, (message.mid, 1) if message.qos else None, None))

    def _on_subscribe(self, client: Any, data: Any, mid: int, reasons: Sequence[Any], properties: Any) -> None:
        for topic, reason in zip(self._source.topics, reasons, strict=True):
            if reason.value >= _FAILURE:
                text = f"{self.title}: the server refuses the subscription to {topic!r}: {reason}"
                self._refusal = MqttRefusedError(text, reason.value)
                return
        self.connected()

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._reason = reason

    def interrupt(self) -> None:
        """See `Subscription`: the loop looks for it."""

    def acknowledge(self, tags: Sequence[Any]) -> None:
        """Send PUBACK, or PUBREC for QoS 2; all PUBACKs as if they were a single packet."""
        client = self._client
        mids = [mid for mid, qos in tags if qos == 1]
        if mids:
            packets = b"".join([_PUBACK.pack(_PUBACK_KIND, 2, mid) for mid in mids])
            client._packet_queue(_PUBACK_KIND, packets, mids[-1], 1)
        for mid, qos in tags:
            if qos == 2:
                self._mqtt.Client._send_pubrec(client, mid)

    def is_passing(self, error: Exception) -> bool:
        """See `Subscription`."""
        return is_passing(error)


def _build_properties(packet: str, **values: Any) -> Any:
    """Return properties of MQTT 5 for a packet."""
    packets = importlib.import_module("paho.mqtt.packettypes").PacketTypes
    properties = importlib.import_module("paho.mqtt.properties").Properties(getattr(packets, packet))
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


class MqttSource(SubscriptionSource):
    """Reads topics; acknowledges at checkpoints, see the module.

    Args:
        url: the server: `mqtt://USER:PASSWORD@HOST:PORT`, `mqtts://…` with TLS.
        *topics: the topic filters, such as `cups/+`. With parallelism above 1 all are shared subscriptions,
                `$share/GROUP/FILTER`, which deliver each message to one reader.
        client_id: the beginning of the client ids, which no other job may use.
        qos: 1 or 2, at least once; 0, at most once.
        session_expiry_s: how long the server keeps messages while the job is away.
        receive_maximum: how many unacknowledged messages a reader has at most.
        ignores_lost_sessions: whether to go on if the server has lost the session of a restored job.
        deserialization_schema: decodes payloads.
        deserialize: returns the record of an `MqttMessage`, in place of a schema. Without either, the record is the
            message.
        ca: the file with the certificates that the server's must be signed by; None for those of the system.
        cert: the file with the client's certificate, if it has one.
        key: the file with its key.

    Raises:
        ConfigurationError: for a URL of another kind, without topics or a client id, for two ways to decode, and if the
            package paho-mqtt is not installed.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.mqtt import MqttSource
        >>> source = MqttSource(
        ...     "mqtt://localhost", "$share/bar/cups/#", client_id="bar", deserialization_schema=SimpleStringSchema()
        ... )
        >>> source.replayable
        True
    """

    def __init__(
        self,
        url: str,
        *topics: str,
        client_id: str,
        qos: int = 1,
        session_expiry_s: int = SESSION_EXPIRY_S,
        receive_maximum: int = RECEIVE_MAXIMUM,
        ignores_lost_sessions: bool = False,
        deserialization_schema: DeserializationSchema[Any] | None = None,
        deserialize: Callable[[MqttMessage], Any] | None = None,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
    ) -> None:
        load_library(type(self).__name__)
        self.address = MqttAddress(url, ca, cert, key)
        if not topics or not all(topics):
            raise ConfigurationError("MqttSource needs a topic filter")
        if not client_id:
            raise ConfigurationError("MqttSource needs a client_id, which stays the same when the job starts again")
        if qos not in (0, 1, 2):
            raise ConfigurationError(f"qos is 0, 1 or 2, not {qos!r}")
        if qos and session_expiry_s <= 0:
            raise ConfigurationError("session_expiry_s must be positive: a session that ends loses its messages")
        if not 0 < receive_maximum <= RECEIVE_MAXIMUM:
            raise ConfigurationError(f"receive_maximum must be from 1 to {RECEIVE_MAXIMUM}, not {receive_maximum}")
        if deserialization_schema is not None and deserialize is not None:
            raise ConfigurationError(
                "give deserialization_schema, for payloads, or deserialize, for messages; not both"
            )
        self.topics, self.client_id, self.qos = topics, client_id, qos
        self.session_expiry_s, self.receive_maximum = session_expiry_s, receive_maximum
        self.ignores_lost_sessions = ignores_lost_sessions
        if qos == 0:
            self.progress = Progress.AT_ONCE
            self.replayable = False
        if deserialization_schema is not None:
            name = ", ".join(topics)
            self.reading = subscriptions.SchemaReading(deserialization_schema, name, get_payload)
        else:
            self.reading = subscriptions.FunctionReading(deserialize, build_message)

    def max_parallelism(self) -> int | None:
        """Return 1 unless all subscriptions are shared: other ones give each message to each reader."""
        return None if all(topic.startswith(_SHARED) for topic in self.topics) else 1

    def create_subscription(self, split: SubscriptionSplit) -> Subscription:
        """See `SubscriptionSource`."""
        return _Session(self, split)


class MqttPublication(NamedTuple):
    """A message to publish.

    Attributes:
        topic: the topic.
        payload: the content.
        qos: 1 or 2, at least once; 0, at most once.
        retain: whether the server keeps it for later subscribers, in place of the last one; an empty one removes it.
        properties: see `MqttMessage`.
        user_properties: the publisher's own properties, as pairs.

    Examples:
        >>> from penstock.datastream.connectors.mqtt import MqttPublication
        >>> MqttPublication("cups/7", b"tea", retain=True).qos
        1
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    properties: Mapping[str, Any] = {}
    user_properties: Sequence[tuple[str, str]] = ()


class MqttSink(AsyncSinkBase[T, MqttPublication], Generic[T]):
    """Publishes messages, and waits for their acknowledgements at checkpoints: at least once with QoS 1 and 2.

    Args:
        url: the server: `mqtt://USER:PASSWORD@HOST:PORT`, `mqtts://…` with TLS.
        topic: the topic; None with `to_message`.
        serialization_schema: encodes payloads.
        to_message: returns the `MqttPublication` of a record, in place of a topic and a schema.
        qos: the QoS with `topic`.
        retain: whether messages are retained, with `topic`.
        settings: the limits. Default: 1,000 messages a request, one request at a time, 100 ms in the buffer.
        ca: the file with the certificates that the server's must be signed by; None for those of the system.
        cert: the file with the client's certificate, if it has one.
        key: the file with its key.

    Raises:
        ConfigurationError: for a URL of another kind, unless there are a topic and a schema or `to_message`, and if the
            package paho-mqtt is not installed.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.mqtt import MqttPublication, MqttSink
        >>> sink = MqttSink("mqtt://localhost", "cups", SimpleStringSchema())
        >>> by_cup = MqttSink("mqtt://localhost", to_message=lambda cup: MqttPublication(f"cups/{cup[0]}", cup[1]))
    """

    keeps_order_in_request: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        topic: str | None = None,
        serialization_schema: SerializationSchema[T] | None = None,
        *,
        to_message: Callable[[T], MqttPublication] | None = None,
        qos: int = 1,
        retain: bool = False,
        settings: AsyncSinkSettings | None = None,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(settings or SETTINGS)
        load_library(type(self).__name__)
        self.address = MqttAddress(url, ca, cert, key)
        if (to_message is None) == (topic is None or serialization_schema is None):
            raise ConfigurationError("MqttSink needs a topic and a serialization_schema, or to_message; not both")
        if qos not in (0, 1, 2):
            raise ConfigurationError(f"qos is 0, 1 or 2, not {qos!r}")
        self._topic, self._schema, self._to_message = topic, serialization_schema, to_message
        self._qos, self._retain = qos, retain

    def create_client(self, context: SinkWriterContext) -> RequestClient[MqttPublication]:
        """See `AsyncSinkBase`."""
        return _Publisher(self.address)

    def convert(self, record: T, timestamp: int | None) -> MqttPublication:
        """See `AsyncSinkBase`."""
        if self._to_message is None:
            assert self._schema is not None
            return MqttPublication(self._topic or "", self._schema.serialize(record), self._qos, self._retain)
        return self._to_message(record)

    def get_size_in_bytes(self, entry: MqttPublication) -> int:
        """Return the size of the payload."""
        return len(entry.payload)

    def get_ordering_key(self, entry: MqttPublication) -> str:
        """Return the topic."""
        return entry.topic


class _Publisher(RequestClient[MqttPublication]):
    """Publishes the entries of one request at a time; a lost connection is replaced by a new one without a session."""

    def __init__(self, address: MqttAddress) -> None:
        self._address = address
        self._mqtt = load_library("MqttSink")
        self._client: Any = None
        self._lock = threading.Lock()
        #: reason codes by message id, noted by paho's thread, which may hold locks of its own
        self._answers: dict[int, int] = {}
        self._has_news = threading.Event()
        self._lost: str | None = None

    def _connect(self) -> Any:
        mqtt = self._mqtt
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "", protocol=mqtt.MQTTv5, reconnect_on_failure=False)
        client.max_inflight_messages_set(RECEIVE_MAXIMUM)
        self._answers, self._lost = {}, None
        client.on_publish = self._on_publish
        client.on_disconnect = self._on_disconnect
        try:
            connect(client, self._address, True, None)
        except Exception:
            client.loop_stop()
            raise
        return client

    def _on_publish(self, client: Any, data: Any, mid: int, reason: Any, properties: Any) -> None:
        self._answers[mid] = reason.value
        self._has_news.set()

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._lost = str(reason)
        self._has_news.set()

    def submit_request_entries(self, entries: Sequence[MqttPublication]) -> RequestResult:
        """Publish entries, and wait for their acknowledgements."""
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            try:
                return self._publish(entries)
            except Exception:
                client, self._client = self._client, None
                client.loop_stop()
                raise

    def _publish(self, entries: Sequence[MqttPublication]) -> RequestResult:
        publish, success = self._client.publish, self._mqtt.MQTT_ERR_SUCCESS
        waiting: dict[int, int] = {}
        for position, entry in enumerate(entries):
            properties = _build_publish_properties(entry) if entry.properties or entry.user_properties else None
            info = publish(entry.topic, entry.payload, entry.qos, entry.retain, properties)
            if info.rc != success:
                raise ConnectionError(f"{self._address.shown}: {self._mqtt.error_string(info.rc)}")
            waiting[info.mid] = position
        again: list[int] = []
        rejected: dict[int, str] = {}
        while waiting:
            self._has_news.clear()
            for mid in [mid for mid in waiting if mid in self._answers]:
                position, code = waiting.pop(mid), self._answers.pop(mid)
                if code in _PASSING_CODES:
                    again.append(position)
                elif code >= _FAILURE:
                    rejected[position] = f"reason code {code} of MQTT 5"
            if waiting:
                if self._lost is not None:
                    raise ConnectionError(f"{self._address.shown}: the connection was lost: {self._lost}")
                self._has_news.wait(1.0)
        return RequestResult(again, rejected)

    def is_retryable(self, error: Exception) -> bool:
        """See `RequestClient`."""
        return is_passing(error)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()


def _build_publish_properties(entry: MqttPublication) -> Any:
    values = {_PROPERTIES[name]: value for name, value in entry.properties.items()}
    properties = _build_properties("PUBLISH", **values)
    if entry.user_properties:
        properties.UserProperty = [(str(name), str(value)) for name, value in entry.user_properties]
    return properties
