"""The producers that send the messages of a Kafka sink, by librdkafka.

A producer sends batches, applies back-pressure, and treats every failed delivery as an error. Only this module of the
sink imports the library, and only writers import this module: a program without Kafka needs no library for it.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.base.errors import ConfigurationError, OperationError
from penstock.connectors.kafka.client import client_log, find_credentials_error, refused
from penstock.connectors.kafka.producer import TransactionEndedError
from penstock.connectors.kafka.records import Messages

_log = logging.getLogger("penstock.connectors.kafka")

#: The maximum duration (s) of one poll of librdkafka's queue.
POLL_S: Final = 0.5
INIT_S: Final = 60.0
ABORT_S: Final = 5.0
METADATA_S: Final = 30.0
#: How long (s) to wait for the reason why a transaction accepts no more messages; a delivery report contains it.
REASON_S: Final = 5.0
#: The maximum number of reasons in an error.
_REASONS: Final = 3
NO_PARTITION: Final = -1

_client_log = client_log("librdkafka", logging.ERROR)


class DeliveryError(OperationError):
    """Kafka did not accept a message."""


class MessageProducer:
    """Sends messages and waits for their delivery.

    Args:
        config: the settings of librdkafka.

    Raises:
        ConfigurationError: if librdkafka does not know a setting.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._failures: list[str] = []
        self.failed = 0
        self._has_broker_reason = False
        self._servers = config.get("bootstrap.servers") or config.get("metadata.broker.list")
        self._refusal: str | None = None
        settings = {
            **config,
            "on_delivery": self._on_delivery,
            "error_cb": self._on_error,
            "delivery.report.only.error": True,
            "logger": _client_log,
        }
        try:
            self._producer = Producer(settings)
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigurationError(f"a setting of the Kafka sink is wrong: {_text(error)}") from error

    def send(self, messages: Messages) -> None:
        """Send messages in order, waiting while the queue is full.

        Raises:
            DeliveryError: if Kafka did not accept one of these messages or an earlier one.
            OperationError: if the brokers refuse the connection.
        """
        position, count = 0, len(messages)
        while position < count:
            position = self._send_messages(messages, position)
            self._serve(self._producer.poll, POLL_S if position < count else 0)
            self.check()

    def _send_messages(self, messages: Messages, position: int) -> int:
        """Send messages until the queue is full; returns the position reached."""
        produce, topic = self._producer.produce, messages.topics
        values, keys = messages.values, messages.keys
        has_more = (messages.timestamps, messages.headers, messages.partitions) != (None, None, None)
        try:
            if has_more or not isinstance(topic, str):
                position = self._send_full(messages, position)
            elif keys is None:
                for value in values[position:] if position else values:
                    produce(topic, value)
                    position += 1
            else:
                for value, key in zip(values[position:], keys[position:], strict=True):
                    produce(topic, value, key)
                    position += 1
        except BufferError:
            pass  # the caller waits, and continues from here
        except KafkaException as error:
            self._await_reason(error)
            raise self._failure(f"message {position + 1} of a batch: {_text(error)}") from error
        return position

    def _await_reason(self, error: KafkaException) -> None:
        """Raise the broker's reason if a transaction accepts no more messages: the error itself lacks it."""
        if error.args[0].code() != KafkaError._STATE:
            return
        until = time.monotonic() + REASON_S
        while not self._failures and self._refusal is None and time.monotonic() < until:
            self._serve(self._producer.poll, POLL_S)
        self.check()

    def _send_full(self, messages: Messages, position: int) -> int:
        produce, count = self._producer.produce, len(messages)
        topics = [messages.topics] * count if isinstance(messages.topics, str) else messages.topics
        keys: list[bytes | None] = messages.keys or [None] * count
        times = messages.timestamps or [0] * count
        partitions = messages.partitions or [NO_PARTITION] * count
        headers = messages.headers or [None] * count
        for i in range(position, count):
            try:
                # librdkafka treats 0 as the current time; times before 1970 cannot be represented.
                time, of_message = max(times[i], 0), headers[i]
                if of_message:
                    produce(
                        topics[i], messages.values[i], keys[i], partitions[i], timestamp=time, headers=list(of_message)
                    )
                else:
                    produce(topics[i], messages.values[i], keys[i], partitions[i], timestamp=time)
            except BufferError:
                return i
        return count

    def flush(self) -> None:
        """Wait until Kafka has accepted all messages.

        Raises:
            DeliveryError: if it did not accept one. librdkafka gives up after `delivery.timeout.ms`.
        """
        while self._serve(self._producer.flush, POLL_S):
            self.check()
        self.check()

    def _serve(self, call: Callable[[float], int], patience_s: float) -> int:
        """Let the library run callbacks; a fatal error counts as a failure."""
        try:
            return call(patience_s)
        except KafkaException as error:
            self._failures.append(_text(error))
        except (KeyboardInterrupt, SystemExit):
            raise
        except:  # noqa: E722 - in the library's hands a fatal error may become what is no exception
            self._failures.append(f"a fatal error: {sys.exc_info()[1]}")
        return 0

    def check(self) -> None:
        """Raise if a message was not accepted, or will not be, because the brokers refuse the connection."""
        if self._refusal is not None:
            raise refused(self._servers, self._refusal)
        if self._failures:
            raise self._failure("; ".join(self._failures))

    def count_partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        try:
            metadata = self._producer.list_topics(topic, METADATA_S).topics[topic]
        except KafkaException as error:
            self._serve(self._producer.poll, 0)
            self.check()
            raise self._failure(f"asking for the partitions of {topic}: {_text(error)}") from error
        if metadata.error is not None:
            raise self._failure(f"asking for the partitions of {topic}: {metadata.error.str()}")
        return len(metadata.partitions)

    def leave(self) -> None:
        """Discard unsent messages, and close the connections. An open transaction stays open.

        The library's producer and this object reference each other: without this, its threads would run until garbage
        collection.
        """
        producer = self.__dict__.pop("_producer", None)  # close may be called twice
        if producer is not None:
            producer.purge()

    def _failure(self, reason: str) -> OperationError:
        return DeliveryError(f"the Kafka sink could not deliver {self.failed or 1} or more messages: {reason}")

    def _on_error(self, error: KafkaError) -> None:
        """Note that a broker refuses the connection; the client handles transient errors itself."""
        self._refusal = find_credentials_error(error) or self._refusal

    def _on_delivery(self, error: KafkaError, message: Any) -> None:
        try:
            len(())
        except SystemError as pending:  # the library runs callbacks even though it has just raised a fatal error
            self._failures.append(str(pending.__cause__ or "a fatal error"))
        self.failed += 1
        partition = message.partition()
        where = "" if partition is None or partition < 0 else f", partition {partition}"
        reason = f"topic {message.topic()}{where}: {error.str()}"
        # Messages dropped because of an earlier one carry only a client error.
        if error.code() > 0 and not self._has_broker_reason:
            self._has_broker_reason = True
            self._failures.insert(0, reason)
            del self._failures[_REASONS:]
        elif len(self._failures) < _REASONS and reason not in self._failures:
            self._failures.append(reason)


class TransactionProducer(MessageProducer):
    """A producer for one transaction: created, begun, flushed, and then left open or aborted.

    It takes over its transactional id in the background, starting at construction.

    Args:
        config: the settings of librdkafka.
        transactional_id: the id.
    """

    def __init__(self, config: Mapping[str, Any], transactional_id: str) -> None:
        super().__init__({**config, "transactional.id": transactional_id})
        self.transactional_id = transactional_id
        self._init_error: KafkaException | None = None
        take_over = partial(self._take_over, self._producer)
        self._init = threading.Thread(target=take_over, name="penstock-kafka-init", daemon=True)
        self._init.start()

    def _take_over(self, producer: Producer) -> None:
        try:
            producer.init_transactions(INIT_S)
        except KafkaException as error:
            self._init_error = error

    def begin(self) -> None:
        """Begin the transaction.

        Raises:
            ConfigurationError: if the brokers do not allow the timeout.
            OperationError: if the id could not be taken over.
            TransactionEndedError: if the transaction cannot begin, because another producer has taken over the id.
        """
        self._init.join()
        error = self._init_error
        if error is not None:
            code = error.args[0].code()
            if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise ConfigurationError(
                    "the brokers do not allow the transaction.timeout.ms of the Kafka sink: set it to at most their "
                    "transaction.max.timeout.ms (15 minutes unless configured) by set_property, or raise theirs. It "
                    "must be longer than the longest time for which the job may stand still"
                ) from error
            self._serve(self._producer.poll, 0)
            self.check()
            raise OperationError(f"the Kafka sink cannot take over {self.transactional_id}: {_text(error)}") from error
        try:
            self._producer.begin_transaction()
        except KafkaException as failure:
            raise TransactionEndedError(f"{self.transactional_id} cannot begin: {_text(failure)}") from failure

    def abort(self) -> None:
        """Abort the transaction, so that its records are never visible; if this fails, the next attempt does it."""
        self._init.join()
        if self._init_error is None:
            try:
                self._producer.abort_transaction(ABORT_S)
            except KafkaException as error:
                _log.info("%s is left open: %s", self.transactional_id, _text(error))


def _text(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(first)
