"""Kafka's client libraries: import on use, clear errors, limited logging, and properties of consumers and producers.

The libraries are optional; the error for a missing one says how to install it.

**Logging.** librdkafka logs every attempt to connect, ten times a second, and aiokafka every second. A logger therefore
passes on each kind of line once a minute; the connector logs unavailable brokers itself.

**Properties.** A source accepts its own properties, and the properties of Kafka's Java consumer or of librdkafka.
`producer_settings` translates the properties of Kafka's Java producer to settings of librdkafka.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.base.secrets import remember
from penstock.connectors.base import require
from penstock.connectors.kafka.partitions import KafkaOffsetResetStrategy

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient


#: The interval (s) between lines of one kind about one broker.
INTERVAL_S: Final = 60.0
#: Above this number all kinds are forgotten together, to bound memory.
_KINDS_MAX: Final = 1_000
#: The parts that vary among lines of a kind: the number of the client, and figures such as durations.
_VARYING: Final = re.compile(r"\[rdkafka#[^]]*\]|\([^)]*\)|\d+(?:\.\d+)?(?:ms|s)\b")


class RepeatedLines(logging.Filter):
    """Passes on a line unless one of its kind came within the last minute, with the number of suppressed lines.

    Args:
        clock: returns the time in seconds.
        thread_name: filter only the lines of threads with this name; None to filter all lines.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, thread_name: str | None = None) -> None:
        super().__init__()
        self._clock = clock
        self._thread_name = thread_name
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        if self._thread_name is not None and record.threadName != self._thread_name:
            return True
        text = record.getMessage()
        kind, now = _VARYING.sub("", text), self._clock()
        since, left_out = self._seen.get(kind, (None, 0))
        if since is not None and now - since < INTERVAL_S:
            self._seen[kind] = since, left_out + 1
            return False
        if len(self._seen) >= _KINDS_MAX:
            self._seen.clear()
        self._seen[kind] = now, 0
        if left_out:
            record.msg, record.args = f"{text} [{left_out} more lines like this since the last one]", None
        return True


def limit_lines(logger_names: Iterable[str], thread_name: str) -> None:
    """Limit a library's loggers to one line of each kind per minute, for threads with this name."""
    for name in logger_names:
        logger = logging.getLogger(name)
        if not any(isinstance(log_filter, RepeatedLines) for log_filter in logger.filters):
            logger.addFilter(RepeatedLines(thread_name=thread_name))


def client_log(name: str, level: int = logging.NOTSET) -> logging.Logger:
    """Return the logger for a kind of client, below the connector's own."""
    logger = logging.getLogger(f"penstock.connectors.kafka.{name}")
    logger.setLevel(level)
    if not any(isinstance(log_filter, RepeatedLines) for log_filter in logger.filters):
        logger.addFilter(RepeatedLines())
    return logger


#: Transient errors, by librdkafka's names: brokers come back, elect a leader, or agree on a coordinator.
PASSING: Final = frozenset(
    {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_WAIT_COORD"}
    | {"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"}
    | {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "REQUEST_TIMED_OUT"}
)
LOG: Final = logging.getLogger("penstock.connectors.kafka")
#: The logger for librdkafka's own lines.
CLIENT_LOG: Final = client_log("client")


def require_library() -> None:
    """Check that the library is installed; raises `ConfigurationError` if not."""
    require("confluent_kafka", "Kafka", "confluent-kafka", "kafka")


def require_protocol() -> None:
    """Check that the library for Kafka's protocol requests is installed; raises as `require_library`."""
    require("aiokafka", "DeliveryGuarantee.EXACTLY_ONCE of a Kafka sink", "aiokafka", "kafka")


def find_credentials_error(error: KafkaError) -> str | None:
    """Return why the credentials or a certificate were rejected; None for other errors, most of them transient."""
    text = error.str()
    if error.name() == "_AUTHENTICATION" and "disconnected" not in text.lower():
        return text
    return text if error.name() == "_SSL" and "certificate verify failed" in text else None


def refused(servers: object, reason: str) -> OperationError:
    """Return the error for brokers that reject the credentials, or whose certificate the client rejects."""
    return OperationError(
        f"the Kafka brokers of {servers} refuse the connection: {reason}. Check the properties security.protocol, "
        "sasl.* and ssl.*"
    )


def make_consumer(settings: Mapping[str, Any]) -> Consumer:
    """Return a new consumer.

    Raises:
        ConfigurationError: if librdkafka does not know a setting, or the library is missing.
    """
    require_library()
    from confluent_kafka import Consumer, KafkaException

    try:
        return Consumer(dict(settings), logger=CLIENT_LOG)
    except (KafkaException, TypeError, ValueError) as error:
        raise ConfigurationError(f"the Kafka consumer cannot be set up: {_reason(error)}") from error


def make_admin(settings: Mapping[str, Any]) -> AdminClient:
    """Return a client for requests about topics, offsets and groups; raises as `make_consumer`."""
    require_library()
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return AdminClient(dict(settings), logger=CLIENT_LOG)
    except (KafkaException, TypeError, ValueError) as error:
        raise ConfigurationError(f"the Kafka client cannot be set up: {_reason(error)}") from error


class TopicCreator:
    """Creates topics that do not exist, with the defaults of the brokers.

    Args:
        properties: the properties of a producer for the brokers.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        settings = producer_settings(properties)
        of_producer = ("transaction", "enable.idempotence", "partitioner", "linger.ms")
        self._servers = properties.get("bootstrap.servers")
        # Its requests fail when the client is collected.
        self._admin = make_admin({key: value for key, value in settings.items() if not key.startswith(of_producer)})

    def create(self, topic: str) -> None:
        """Create a topic; raises `OperationError` if the brokers refuse, or cannot be reached."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        try:
            self._admin.create_topics([NewTopic(topic, -1, -1)])[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                text = f"topic {topic!r} cannot be created at {self._servers}: {error.args[0].str()}"
                raise OperationError(text) from error


def _reason(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    describe = getattr(first, "str", None)
    return str(describe()) if callable(describe) else str(first)


DISCOVERY_INTERVAL: Final = "partition.discovery.interval.ms"
COMMIT_ON_CHECKPOINT: Final = "commit.offsets.on.checkpoint"
UNAVAILABLE_TIMEOUT: Final = "brokers.unavailable.timeout.ms"
MISSING_PARTITION: Final = "missing.partition"
RESET: Final = "auto.offset.reset"
_OWN: Final = frozenset({DISCOVERY_INTERVAL, COMMIT_ON_CHECKPOINT, UNAVAILABLE_TIMEOUT, MISSING_PARTITION, RESET})

_DISCOVERY_INTERVAL_MS: Final = 5 * 60_000
_UNAVAILABLE_TIMEOUT_MS: Final = 5 * 60_000

#: Names that differ between Java and librdkafka.
_CONSUMER_RENAMED: Final = {"fetch.max.wait.ms": "fetch.wait.max.ms", "request.timeout.ms": "socket.timeout.ms"}
#: Properties that only a Java client has, or that have no effect here: batches are as large as the job asks for.
_CONSUMER_DROPPED: Final = frozenset(
    {"key.deserializer", "value.deserializer", "max.poll.records", "default.api.timeout.ms", "metric.reporters"}
    | {"register.consumer.metrics", "client.id.prefix"}
)
#: Properties that a source sets itself.
_CONSUMER_RESERVED: Final = {
    "enable.partition.eof": "the source needs it to see the end of a partition",
    "partition.assignment.strategy": "the source assigns partitions itself",
    "group.instance.id": "the source does not join its group, it only commits offsets to it",
    "client.id": "each reader has its own: set_client_id_prefix",
}
_RESETS: Final = {
    "earliest": KafkaOffsetResetStrategy.EARLIEST,
    "smallest": KafkaOffsetResetStrategy.EARLIEST,
    "latest": KafkaOffsetResetStrategy.LATEST,
    "largest": KafkaOffsetResetStrategy.LATEST,
    "none": KafkaOffsetResetStrategy.NONE,
    "error": KafkaOffsetResetStrategy.NONE,
}
#: Defaults of a reader. A client that was ahead of the job does not sleep for a second, and buffers at most 16 MiB of
#: each partition; the availability of brokers is known after a second.
_DEFAULTS: Final[dict[str, Any]] = {
    "enable.auto.commit": False,
    "isolation.level": "read_uncommitted",
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 16_384,
    "statistics.interval.ms": 1_000,
    "reconnect.backoff.max.ms": 1_000,
}
_GROUPLESS: Final = "penstock-no-group"


@dataclass(frozen=True)
class ConsumerOptions:
    """The options of a source, parsed from its properties.

    Attributes:
        settings: the settings of librdkafka.
        group_id: the consumer group, if any.
        discovery_interval_ms: the time between partition discoveries; None to discover partitions once.
        commits: whether offsets are committed to the group when a checkpoint completes.
        unavailable_timeout_ms: how long brokers may be unavailable before the source fails.
        fails_on_missing: whether a missing partition fails the job.
        reset: the strategy for an offset that no longer exists; None to use the strategy of the starting offsets.
    """

    settings: Mapping[str, Any]
    group_id: str | None
    discovery_interval_ms: int | None
    commits: bool
    unavailable_timeout_ms: int
    fails_on_missing: bool
    reset: KafkaOffsetResetStrategy | None

    @property
    def reads_committed(self) -> bool:
        """Whether records of open and aborted transactions are skipped."""
        return str(self.settings["isolation.level"]) == "read_committed"

    def of_admin(self) -> dict[str, Any]:
        """Return the connection settings alone."""
        about = ("bootstrap.servers", "security.", "sasl.", "ssl.", "socket.", "client.id", "enable.ssl.", "broker.")
        return {name: value for name, value in self.settings.items() if name.startswith(about)}

    def of_consumer(self, subtask_index: int) -> dict[str, Any]:
        """Return the settings of a reader's consumer."""
        client = {"client.id": f"{self.settings['client.id']}-{subtask_index}"} if "client.id" in self.settings else {}
        return {**self.settings, **client, "enable.partition.eof": True, RESET: "error"}


def consumer_options(properties: Mapping[str, str], client_id_prefix: str | None, looks_once: bool) -> ConsumerOptions:
    """Parse properties; with `looks_once` new partitions are not discovered unless the properties say so.

    Raises:
        ConfigurationError: for an invalid value, or a property that a source sets itself.
        UnsupportedError: for a property without a counterpart in librdkafka.
    """
    remember(properties)
    if not properties.get("bootstrap.servers"):
        raise ConfigurationError("a Kafka source needs set_bootstrap_servers('host:port,...')")
    interval = _number(properties, DISCOVERY_INTERVAL, -1 if looks_once else _DISCOVERY_INTERVAL_MS)
    group = properties.get("group.id") or None
    settings = {**_DEFAULTS, **_translated(properties), "group.id": group or _GROUPLESS}
    if client_id_prefix is not None:
        settings["client.id"] = client_id_prefix
    if group is None and str(settings["enable.auto.commit"]).lower() == "true":
        raise ConfigurationError("enable.auto.commit needs a consumer group: set_group_id")
    return ConsumerOptions(
        settings,
        group,
        interval if interval > 0 else None,
        group is not None and _chosen(properties, COMMIT_ON_CHECKPOINT, {"true": True, "false": False}, "true"),
        _number(properties, UNAVAILABLE_TIMEOUT, _UNAVAILABLE_TIMEOUT_MS),
        _chosen(properties, MISSING_PARTITION, {"fail": True, "ignore": False}, "fail"),
        _chosen(properties, RESET, _RESETS, properties[RESET]) if RESET in properties else None,
    )


def _translated(properties: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _CONSUMER_RESERVED:
            raise ConfigurationError(f"a Kafka source cannot take the property {name}: {_CONSUMER_RESERVED[name]}")
        if name in _OWN or name in _CONSUMER_DROPPED:
            continue
        if name == "sasl.jaas.config":
            settings.update(_credentials(value))
        elif name.startswith("ssl.truststore."):
            raise UnsupportedError(
                f"a Kafka source does not read {name}: use ssl.ca.location with a file in PEM format"
            )
        else:
            settings[_CONSUMER_RENAMED.get(name, name)] = value
    return settings


def _credentials(jaas: str) -> dict[str, str]:
    """Return the user and password of a JAAS line, which never appears in an error."""
    credentials = dict(re.findall(r'\b(username|password)\s*=\s*"([^"]*)"', jaas))
    if len(credentials) != 2:
        raise UnsupportedError(
            "a Kafka source takes sasl.jaas.config only with a user name and a password; else use the settings of "
            "librdkafka (sasl.username, sasl.password, sasl.oauthbearer.config)"
        )
    return {"sasl.username": credentials["username"], "sasl.password": credentials["password"]}


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(properties.get(name, default))
    except ValueError:
        raise ConfigurationError(f"{name} must be a number of ms, not {properties[name]!r}") from None


def _chosen(properties: Mapping[str, str], name: str, choices: Mapping[str, Any], default: str) -> Any:
    value = str(properties.get(name, default)).lower()
    if value not in choices:
        raise ConfigurationError(f"{name} must be one of {', '.join(choices)}, not {properties[name]!r}")
    return choices[value]


TIMEOUT: Final = "transaction.timeout.ms"

#: Java's names, and librdkafka's.
_PRODUCER_RENAMED: Final = {
    "max.request.size": "message.max.bytes",
    "connections.max.idle.ms": "connections.max.idle.ms",
}
#: Properties that only a Java client has, or that have no effect here.
_PRODUCER_DROPPED: Final = frozenset({"key.serializer", "value.serializer", "max.block.ms", "metric.reporters"})
#: Properties that a sink rejects, with the reason.
_PRODUCER_RESERVED: Final = {
    "transactional.id": "the sink names its transactions itself: set_transactional_id_prefix",
    "isolation.level": "it is a property of consumers",
    "on_delivery": "the sink waits for deliveries itself",
    "delivery.report.only.error": "the sink waits for deliveries itself",
}
#: Puts a key into the same partition as Java's clients do.
_PARTITIONER: Final = "murmur2_random"


def producer_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of librdkafka's producer.

    Raises:
        ConfigurationError: for a property that a sink sets itself.
        UnsupportedError: for a property without a counterpart in librdkafka.
    """
    remember(properties)
    settings: dict[str, Any] = {"partitioner": _PARTITIONER, "enable.idempotence": True, "linger.ms": 5}
    for name, value in properties.items():
        if name in _PRODUCER_RESERVED:
            raise ConfigurationError(f"a Kafka sink cannot take the property {name}: {_PRODUCER_RESERVED[name]}")
        if name in _PRODUCER_DROPPED:
            continue
        if name == "buffer.memory":
            settings["queue.buffering.max.kbytes"] = max(int(value) // 1024, 1)
        elif name == "sasl.jaas.config":
            settings.update(_producer_credentials(value))
        elif name.startswith(("ssl.truststore.", "ssl.keystore.")) and not name.endswith((".location", ".password")):
            raise UnsupportedError(f"a Kafka sink does not know {name}: use ssl.ca.location with a file in PEM format")
        elif name.startswith("ssl.truststore."):
            raise UnsupportedError(f"a Kafka sink does not read {name}: use ssl.ca.location with a file in PEM format")
        else:
            settings[_PRODUCER_RENAMED.get(name, name)] = value
    if str(settings.get("acks", "all")) not in ("all", "-1") and "enable.idempotence" not in properties:
        settings["enable.idempotence"] = False
    return settings


def _producer_credentials(jaas: str) -> dict[str, str]:
    """Return the user and password of a JAAS line, which never appears in an error."""
    credentials = dict(re.findall(r'\b(username|password)\s*=\s*"([^"]*)"', jaas))
    if len(credentials) != 2:
        raise UnsupportedError(
            "a Kafka sink takes sasl.jaas.config only with a user name and a password; else use the settings of "
            "librdkafka (sasl.username, sasl.password, sasl.oauthbearer.config)"
        )
    return {"sasl.username": credentials["username"], "sasl.password": credentials["password"]}
