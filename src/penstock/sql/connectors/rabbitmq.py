"""`rabbitmq`: tables whose rows are messages of RabbitMQ's queues and streams.

A table reads `queue`, as a queue that is acknowledged at checkpoints, or by offset if it is a stream
(`scan.queue-type`). It writes to `exchange` with `routing-key`; by default, to the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import ConfigurationError
from penstock.connectors.rabbitmq.client import PREFETCH, RMQConnectionConfig
from penstock.connectors.rabbitmq.sink import SETTINGS, RMQPublication, RMQSink
from penstock.connectors.rabbitmq.source import RMQSource, RMQStreamSource, get_body
from penstock.connectors.subscriptions import SubscriptionSource
from penstock.sql.connectors import queue_tables as tables
from penstock.sql.connectors.queue_tables import TEXT, TEXTS, TIME, MetadataField
from penstock.sql.data import types
from penstock.sql.logical.nodes import Scan, Write
from penstock.sql.tables.connector import FORMAT, TableOptions
from penstock.sql.tables.tables import TableReader, TableWriter

HOST: Final = tables.default_option("host", "localhost", "The host.")
PORT: Final = tables.number_option("port", 5672, "The port.")
VIRTUAL_HOST: Final = tables.default_option("virtual-host", "/", "The virtual host.")
USERNAME: Final = tables.default_option("username", "guest", "The user name.")
PASSWORD: Final = tables.default_option("password", "guest", "The password.")
URI: Final = tables.text_option(
    "uri", "`amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://…` with TLS, in place of the options before."
)
CA: Final = tables.text_option("ssl.ca", "The file with the certificates of authorities; it turns on TLS.")
CERT: Final = tables.text_option("ssl.cert", "The file with the client's certificate.")
KEY: Final = tables.text_option("ssl.key", "The file with the key of the client's certificate.")
QUEUE: Final = tables.text_option("queue", "The queue or stream to read, and to write unless there is an exchange.")
QUEUE_TYPE: Final = tables.word_option(
    "scan.queue-type",
    "queue",
    ("queue", "stream"),
    "`queue` acknowledges messages at checkpoints, for classic and quorum queues; `stream` reads by offset.",
)
CORRELATION: Final = tables.flag_option(
    "scan.use-correlation-id",
    False,
    "Whether messages that come again are dropped by their correlation ids: exactly once, with parallelism 1.",
)
PREFETCH_COUNT: Final = tables.number_option(
    "scan.prefetch-count", PREFETCH, "How many unacknowledged messages a reader has at most."
)
STARTUP: Final = tables.word_option(
    "scan.startup.mode", "first", ("first", "last", "next", "offset"), "Where a stream is read from."
)
OFFSET: Final = tables.text_option("scan.startup.offset", "The offset of the first message, for the mode `offset`.")
EXCHANGE: Final = tables.default_option("exchange", "", "The exchange to write to; empty for the default exchange.")
ROUTING_KEY: Final = tables.text_option("routing-key", "The routing key of written messages; by default the queue.")
MANDATORY: Final = tables.flag_option(
    "sink.mandatory", True, "Whether a message that no queue takes is returned; else the server discards it."
)
RETURNED: Final = tables.word_option(
    "sink.returned", "fail", ("fail", "drop"), "What happens to returned messages: the job fails, or they are dropped."
)


def _get_timestamp(raw: Any) -> int | None:
    seconds = raw[1].timestamp
    return None if seconds is None else seconds * 1_000


def _get_headers(raw: Any) -> dict[str, str]:
    return {str(name): tables.show_value(value) for name, value in (raw[1].headers or {}).items() if value is not None}


def _get_offset(raw: Any) -> int | None:
    return (raw[1].headers or {}).get("x-stream-offset")


METADATA: Final = {
    "routing-key": MetadataField(TEXT, lambda raw: raw[0].routing_key, is_written=True),
    "exchange": MetadataField(TEXT, lambda raw: raw[0].exchange),
    "headers": MetadataField(TEXTS, _get_headers, is_written=True),
    "correlation-id": MetadataField(TEXT, lambda raw: raw[1].correlation_id, is_written=True),
    "message-id": MetadataField(TEXT, lambda raw: raw[1].message_id, is_written=True),
    "timestamp": MetadataField(TIME, _get_timestamp, is_written=True),
    "redelivered": MetadataField(types.BooleanType(), lambda raw: bool(raw[0].redelivered)),
    "offset": MetadataField(types.BigIntType(), _get_offset),
}


@dataclass(frozen=True, slots=True)
class _Publications:
    """Makes messages of bodies and METADATA columns."""

    exchange: str
    routing_key: str
    is_mandatory: bool

    def __call__(self, body: bytes, metadata: Mapping[str, Any]) -> RMQPublication:
        properties: dict[str, Any] = {}
        for name in ("correlation-id", "message-id"):
            if metadata.get(name) is not None:
                properties[name.replace("-", "_")] = metadata[name]
        if metadata.get("timestamp") is not None:
            properties["timestamp"] = metadata["timestamp"] // 1_000
        key: str | None = metadata.get("routing-key")
        return RMQPublication(
            body,
            self.routing_key if key is None else key,
            self.exchange,
            metadata.get("headers"),
            self.is_mandatory,
            properties,
        )


def _keep(publication: RMQPublication) -> RMQPublication:
    return publication


class RabbitmqConnector(tables.QueueConnector):
    """See the module docstring."""

    name = "rabbitmq"
    metadata = METADATA
    required_options = (FORMAT,)
    optional_options = (
        QUEUE,
        HOST,
        PORT,
        VIRTUAL_HOST,
        USERNAME,
        PASSWORD,
        URI,
        CA,
        CERT,
        KEY,
        QUEUE_TYPE,
        CORRELATION,
        PREFETCH_COUNT,
        STARTUP,
        OFFSET,
        EXCHANGE,
        ROUTING_KEY,
        MANDATORY,
        RETURNED,
        *tables.sink_options(SETTINGS),
    )

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader; raise `ValidationError` for contradictory or invalid options."""
        queue = options.required(QUEUE)
        return self.build_reader(scan, options, queue, lambda: _build_source(options, queue), get_body)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return the writer; raise `ValidationError` for contradictory or invalid options."""
        exchange, key = options.read(EXCHANGE), options.get(ROUTING_KEY.key())
        if key is None:
            is_in_rows = any(name == "routing-key" for _, name in write.metadata)
            key = "" if exchange or is_in_rows else options.required(QUEUE)
        build = _Publications(exchange, key, options.read(MANDATORY))

        def create() -> RMQSink[Any]:
            settings = tables.read_settings(SETTINGS, options)
            return RMQSink(_read_config(options), to_message=_keep, returned=options.read(RETURNED), settings=settings)

        return self.build_writer(write, options, create, build)


def _build_source(options: TableOptions, queue: str) -> SubscriptionSource:
    config = _read_config(options)
    if options.read(QUEUE_TYPE) == "queue":
        if STARTUP.key() in options or OFFSET.key() in options:
            raise ConfigurationError(f"{STARTUP.key()} is for streams: set '{QUEUE_TYPE.key()}' = 'stream'")
        return RMQSource(config, queue, options.read(CORRELATION))
    if options.read(CORRELATION):
        raise ConfigurationError(f"{CORRELATION.key()} is for queues: a stream is read by offset, exactly once")
    start: str | int = options.read(STARTUP)
    if start == "offset":
        text = options.required(OFFSET)
        if not text.isdecimal():
            raise ConfigurationError(f"{OFFSET.key()} must be a number, not {text!r}")
        start = int(text)
    return RMQStreamSource(config, queue, starts_at=start)


def _read_config(options: TableOptions) -> RMQConnectionConfig:
    return RMQConnectionConfig(
        host=options.read(HOST),
        port=options.read(PORT) if PORT.key() in options else None,
        virtual_host=options.read(VIRTUAL_HOST),
        username=options.read(USERNAME),
        password=options.read(PASSWORD),
        uri=options.read(URI),
        ssl_ca=options.read(CA),
        ssl_cert=options.read(CERT),
        ssl_key=options.read(KEY),
        prefetch_count=options.read(PREFETCH_COUNT),
    )
