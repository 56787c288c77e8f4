"""Translates the properties of Kafka's Java producer to settings of librdkafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.secrets import remember

TIMEOUT: Final = "transaction.timeout.ms"

#: Java's names, and librdkafka's.
_RENAMED: Final = {"max.request.size": "message.max.bytes", "connections.max.idle.ms": "connections.max.idle.ms"}
#: Properties that only a Java client has, or that have no effect here.
_DROPPED: Final = frozenset({"key.serializer", "value.serializer", "max.block.ms", "metric.reporters"})
#: Properties that a sink rejects, with the reason.
_RESERVED: Final = {
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
        if name in _RESERVED:
            raise ConfigurationError(f"a Kafka sink cannot take the property {name}: {_RESERVED[name]}")
        if name in _DROPPED:
            continue
        if name == "buffer.memory":
            settings["queue.buffering.max.kbytes"] = max(int(value) // 1024, 1)
        elif name == "sasl.jaas.config":
            settings.update(_credentials(value))
        elif name.startswith(("ssl.truststore.", "ssl.keystore.")) and not name.endswith((".location", ".password")):
            raise UnsupportedError(f"a Kafka sink does not know {name}: use ssl.ca.location with a file in PEM format")
        elif name.startswith("ssl.truststore."):
            raise UnsupportedError(f"a Kafka sink does not read {name}: use ssl.ca.location with a file in PEM format")
        else:
            settings[_RENAMED.get(name, name)] = value
    if str(settings.get("acks", "all")) not in ("all", "-1") and "enable.idempotence" not in properties:
        settings["enable.idempotence"] = False
    return settings


def _credentials(jaas: str) -> dict[str, str]:
    """Return the user and password of a JAAS line, which never appears in an error."""
    credentials = dict(re.findall(r'\b(username|password)\s*=\s*"([^"]*)"', jaas))
    if len(credentials) != 2:
        raise UnsupportedError(
            "a Kafka sink takes sasl.jaas.config only with a user name and a password; else use the settings of "
            "librdkafka (sasl.username, sasl.password, sasl.oauthbearer.config)"
        )
    return {"sasl.username": credentials["username"], "sasl.password": credentials["password"]}
