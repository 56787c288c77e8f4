"""Tracks whether brokers are available, from a consumer's callbacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from penstock.base.errors import OperationError
from penstock.connectors.kafka.library import LOG, find_credentials_error, refused

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


#: Errors that report a missing topic or partition.
GONE: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"})


class BrokerWatch:
    """Notes when all brokers are down, and when one is back. Its methods are the callbacks of a consumer.

    Args:
        servers: the brokers, as they appear in the log.
        timeout_ms: how long all brokers may be down.
    """

    def __init__(self, servers: str, timeout_ms: int) -> None:
        self._servers = servers
        self._timeout_ms = timeout_ms
        self._is_down = False
        self._down_since_ms: int | None = None
        self._reason = ""
        self._refusal: str | None = None
        #: how often all brokers were down
        self.outages = 0
        #: whether the client has reported a missing topic or partition
        self.misses_something = False

    @property
    def is_down(self) -> bool:
        """Whether all brokers are down."""
        return self._is_down

    def on_error(self, error: KafkaError) -> None:
        """Handle an error of the client as a whole."""
        self._refusal = find_credentials_error(error) or self._refusal
        if error.name() in GONE:
            self.misses_something = True
        elif error.name() == "_ALL_BROKERS_DOWN":
            self._is_down = True
        elif error.name() in ("_TRANSPORT", "_RESOLVE", "_TIMED_OUT"):
            self._reason = error.str()
        else:
            LOG.warning("the Kafka client reports: %s (%s)", error.str(), error.name())

    def on_statistics(self, text: str) -> None:
        """Handle the client's state, sent every second; used only while all brokers are down."""
        if self._is_down and any(broker.get("state") == "UP" for broker in json.loads(text)["brokers"].values()):
            self.saw_broker()

    def saw_broker(self) -> None:
        """Note that a broker has answered."""
        if self._is_down:
            self._is_down = False
            if self._down_since_ms is not None:
                LOG.warning("a Kafka broker of %s is back", self._servers)
            self._down_since_ms = None

    def check(self, now_ms: int) -> None:
        """Log that all brokers are down.

        Raises:
            OperationError: if they have been down for too long, or reject the credentials.
        """
        if self._refusal is not None:
            raise refused(self._servers, self._refusal)
        if not self._is_down:
            return
        if self._down_since_ms is None:
            self._down_since_ms = now_ms
            self.outages += 1
            LOG.warning(
                "no Kafka broker of %s can be reached (%s); the source tries for %d s",
                self._servers,
                self._reason,
                self._timeout_ms // 1000,
            )
        elif now_ms - self._down_since_ms >= self._timeout_ms:
            raise OperationError(
                f"no Kafka broker of {self._servers} could be reached for {self._timeout_ms // 1000} s "
                f"({self._reason}). Check bootstrap.servers and the brokers; the property "
                "brokers.unavailable.timeout.ms says how long the source waits"
            )
