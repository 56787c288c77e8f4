"""An enumerator's requests to the brokers, with retries while brokers do not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.base.errors import ConfigurationError, OperationError
from penstock.connectors.kafka.library import LOG, PASSING, find_credentials_error, make_admin
from penstock.connectors.kafka.offsets import Offsets
from penstock.connectors.kafka.partitions import KafkaTopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

_REQUEST_S: Final = 10.0
#: The timeout of the first request, short so that a wrong address is reported soon.
_FIRST_REQUEST_S: Final = 2.0
_RETRY_S: Final = 0.5
#: Includes a topic that was described, but that the broker asked next does not know yet.
_PASSING: Final = PASSING | {"UNKNOWN_TOPIC_OR_PART"}


class KafkaMetadata:
    """Topics and offsets, as the brokers know them. Its calls wait for answers.

    Args:
        settings: librdkafka's connection settings.
        group_id: the group whose committed offsets are requested, if any.
        read_committed: whether a partition ends where its first open transaction begins.
        patience_ms: how long brokers may be silent; no request waits longer.
    """

    def __init__(
        self, settings: Mapping[str, Any], group_id: str | None, read_committed: bool, patience_ms: int
    ) -> None:
        self._settings = settings
        self._group_id = group_id
        self._read_committed = read_committed
        self._patience_s = max(patience_ms / 1000, 0.1)
        self._was_asked = False
        self._admin: AdminClient | None = None
        self._refusal: str | None = None
        self._reason: str | None = None

    @property
    def _request_s(self) -> float:
        return min(_REQUEST_S if self._was_asked else _FIRST_REQUEST_S, self._patience_s)

    @property
    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = make_admin({**self._settings, "error_cb": self._on_error})
        return self._admin

    def _on_error(self, error: KafkaError) -> None:
        self._refusal = find_credentials_error(error) or self._refusal
        if error.name() in ("_TRANSPORT", "_RESOLVE"):
            self._reason = error.str()

    @property
    def reason(self) -> str | None:
        """Why the last connection failed, if the last error was about that; `refusal` updates it."""
        return self._reason

    def was_asked(self, has_answer: bool) -> None:
        """Note that the first request is over; later ones may take longer."""
        self._was_asked = True
        if has_answer:
            self._reason = None

    def refusal(self) -> str | None:
        """Return why brokers reject the credentials, if they do; the answers themselves do not contain the reason."""
        self._client.poll(0)
        return self._refusal

    def topic_names(self) -> Collection[str]:
        """Return all topics except Kafka's internal ones."""
        return [name for name in self._client.list_topics(timeout=self._request_s).topics if not name.startswith("__")]

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the number of partitions of each topic, omitting topics that do not exist."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        counts: dict[str, int] = {}
        if not topics:
            return counts
        answers = self._client.describe_topics(TopicCollection(sorted(set(topics))), request_timeout=self._request_s)
        for topic, answer in answers.items():
            try:
                counts[topic] = len(answer.result().partitions)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        return counts

    def earliest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the first offset of each partition."""
        return self._offsets(partitions, lambda spec: spec.earliest())

    def latest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the end offset of each partition."""
        return self._offsets(partitions, lambda spec: spec.latest())

    def at(self, timestamp_ms: int, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the offset of the first record at or after a time, for partitions that have one."""
        offsets = self._offsets(partitions, lambda spec: spec.for_timestamp(timestamp_ms))
        return {partition: offset for partition, offset in offsets.items() if offset >= 0}

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the committed offsets of the group."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        if self._group_id is None or not partitions:
            return {}
        requested = [TopicPartition(partition.topic, partition.partition) for partition in partitions]
        request = ConsumerGroupTopicPartitions(self._group_id, requested)
        (answer,) = self._client.list_consumer_group_offsets([request], request_timeout=self._request_s).values()
        return {
            KafkaTopicPartition(partition.topic, partition.partition): partition.offset
            for partition in answer.result().topic_partitions
            if partition.offset >= 0
        }

    def _offsets(self, partitions: Collection[KafkaTopicPartition], where: Callable[[Any], Any]) -> Offsets:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        if not partitions:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if self._read_committed else IsolationLevel.READ_UNCOMMITTED
        specs = {TopicPartition(partition.topic, partition.partition): where(OffsetSpec) for partition in partitions}
        answers = self._client.list_offsets(specs, isolation_level=isolation, request_timeout=self._request_s)
        return {
            KafkaTopicPartition(partition.topic, partition.partition): answer.result().offset
            for partition, answer in answers.items()
        }


def ask_patiently(
    ask: Callable[[], T],
    activity: str,
    patience_ms: int,
    is_closed: Callable[[], bool],
    metadata: KafkaMetadata,
) -> T:
    """Call `ask`, which queries `metadata`, until brokers answer; returns the answer.

    Raises:
        ConfigurationError: if brokers reject the credentials.
        OperationError: if brokers do not answer for `patience_ms`, or refuse.
    """
    from confluent_kafka import KafkaException

    begun = time.monotonic()
    while True:
        try:
            answer = ask()
            metadata.was_asked(has_answer=True)
            return answer
        except KafkaException as error:
            metadata.was_asked(has_answer=False)
            reason = error.args[0]
            if (refused := metadata.refusal()) is not None:
                raise ConfigurationError(
                    f"{activity}: the Kafka brokers refuse the connection: {refused}. Check the properties "
                    "security.protocol, sasl.* and ssl.*"
                ) from error
            silent_s = time.monotonic() - begun
            text = metadata.reason or reason.str()
            passes = reason.retriable() or reason.name() in _PASSING
            if not passes:
                raise OperationError(
                    f"{activity}: the Kafka brokers refuse: {reason.str()} ({reason.name()})"
                ) from error
            if silent_s * 1000 >= patience_ms or is_closed():
                raise OperationError(
                    f"{activity}: no Kafka broker has answered for {silent_s:.0f} s ({text}). Check "
                    "bootstrap.servers and the brokers; the property brokers.unavailable.timeout.ms says how long the "
                    "source waits"
                ) from error
            LOG.warning("%s: Kafka does not answer yet (%s); asking again", activity, text)
            time.sleep(_RETRY_S)
