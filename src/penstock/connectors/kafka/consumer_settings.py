"""Properties of a source: its own, and the properties of Kafka's Java consumer or of librdkafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.secrets import remember
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy

DISCOVERY_INTERVAL: Final = "partition.discovery.interval.ms"
COMMIT_ON_CHECKPOINT: Final = "commit.offsets.on.checkpoint"
UNAVAILABLE_TIMEOUT: Final = "brokers.unavailable.timeout.ms"
MISSING_PARTITION: Final = "missing.partition"
RESET: Final = "auto.offset.reset"
_OWN: Final = frozenset({DISCOVERY_INTERVAL, COMMIT_ON_CHECKPOINT, UNAVAILABLE_TIMEOUT, MISSING_PARTITION, RESET})

_DISCOVERY_INTERVAL_MS: Final = 5 * 60_000
_UNAVAILABLE_TIMEOUT_MS: Final = 5 * 60_000

#: Names that differ between Java and librdkafka.
_RENAMED: Final = {"fetch.max.wait.ms": "fetch.wait.max.ms", "request.timeout.ms": "socket.timeout.ms"}
#: Properties that only a Java client has, or that have no effect here: batches are as large as the job asks for.
_DROPPED: Final = frozenset(
    {"key.deserializer", "value.deserializer", "max.poll.records", "default.api.timeout.ms", "metric.reporters"}
    | {"register.consumer.metrics", "client.id.prefix"}
)
#: Properties that a source sets itself.
_RESERVED: Final = {
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
        if name in _RESERVED:
            raise ConfigurationError(f"a Kafka source cannot take the property {name}: {_RESERVED[name]}")
        if name in _OWN or name in _DROPPED:
            continue
        if name == "sasl.jaas.config":
            settings.update(_credentials(value))
        elif name.startswith("ssl.truststore."):
            raise UnsupportedError(
                f"a Kafka source does not read {name}: use ssl.ca.location with a file in PEM format"
            )
        else:
            settings[_RENAMED.get(name, name)] = value
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
