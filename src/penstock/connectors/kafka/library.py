"""The optional client library: imported on use, with a clear error if it is missing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ConfigurationError, OperationError
from penstock.connectors.extras import require
from penstock.connectors.kafka.client_log import client_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient

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


def _reason(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    describe = getattr(first, "str", None)
    return str(describe()) if callable(describe) else str(first)
