"""`KafkaSink`: writes records to Kafka topics, optionally exactly once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from penstock.base.errors import ConfigurationError, WrongTypeError
from penstock.connectors.delivery import DeliveryGuarantee
from penstock.connectors.kafka.committer import FAIL, IGNORE, KafkaCommitter
from penstock.connectors.kafka.library import require_library, require_protocol
from penstock.connectors.kafka.producer_settings import TIMEOUT, producer_settings
from penstock.connectors.kafka.record_schema import KafkaRecordSerializationSchema
from penstock.connectors.kafka.transactional_writer import Transaction, TransactionalWriter
from penstock.connectors.kafka.transactions import FENCED_TIMEOUT_MS, Brokers, TransactionNames
from penstock.connectors.kafka.writer import KafkaWriter, Messenger
from penstock.core.connector import Committer, Sink, SinkWriter, SinkWriterContext

T = TypeVar("T")

#: The default transaction timeout, as in Flink.
TIMEOUT_MS: Final = 3_600_000
PREFIX_CHARS_MAX: Final = 200


class KafkaSink(Sink[T]):
    """Writes records to Kafka topics. Create one with `builder`.

    With `DeliveryGuarantee.EXACTLY_ONCE`, consumers that set `isolation.level=read_committed` see each record once, as
    soon as the checkpoint that covers it completes. With AT_LEAST_ONCE they see records at once, and some of them again
    after a failure. With NONE a checkpoint does not wait for Kafka, and a failure may lose records.
    """

    #: each writer knows the prepared transactions of all writers, see `transactions`
    shares_writer_state = True

    def __init__(
        self,
        settings: dict[str, Any],
        guarantee: DeliveryGuarantee,
        schema: KafkaRecordSerializationSchema[T],
        prefix: str | None,
        unknown: str = FAIL,
    ) -> None:
        self._settings = settings
        self._guarantee = guarantee
        self._schema = schema
        self._prefix = prefix
        self._unknown = unknown

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Return a builder."""
        return KafkaSinkBuilder()

    @property
    def shows_on_commit(self) -> bool:
        """Whether consumers of committed records see the output only after its commit."""
        return self._guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[T, Any]:
        """Return a writer for one subtask."""
        return self.restore_writer(context, ())

    def restore_writer(self, context: SinkWriterContext, state: Sequence[Any]) -> SinkWriter[T, Any]:
        """Return a writer that knows the prepared transactions of all subtasks."""
        if not self.shows_on_commit:
            waits = self._guarantee is DeliveryGuarantee.AT_LEAST_ONCE
            return KafkaWriter(context, self._schema, self._messenger(), waits)
        names = TransactionNames.of(context, str(self._prefix))
        return TransactionalWriter(context, self._schema, names, self._brokers(), self._transaction, state)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """Return a committer that ends transactions; None unless the guarantee is EXACTLY_ONCE."""
        if not self.shows_on_commit:
            return None
        return KafkaCommitter(self._brokers(), TransactionNames.of(context, str(self._prefix)), self._unknown)

    # --- the client libraries, which are not needed to build a program ------------------------------------------------

    def _messenger(self) -> Messenger:
        require_library()
        from penstock.connectors.kafka.producer import MessageProducer

        return MessageProducer(self._settings)

    def _transaction(self, transactional_id: str) -> Transaction:
        require_library()
        from penstock.connectors.kafka.producer import TransactionProducer

        return TransactionProducer(self._settings, transactional_id)

    def _brokers(self) -> Brokers:
        require_protocol()
        from penstock.connectors.kafka.cluster import KafkaCluster

        return KafkaCluster(self._settings)


class KafkaSinkBuilder:
    """Builder for `KafkaSink`; brokers and a serializer are required."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._guarantee = DeliveryGuarantee.AT_LEAST_ONCE
        self._schema: KafkaRecordSerializationSchema[Any] | None = None
        self._prefix: str | None = None
        self._unknown = FAIL

    def build(self) -> KafkaSink[Any]:
        """Build the sink.

        Raises:
            ConfigurationError: if brokers, the serializer, or the prefix for EXACTLY_ONCE is missing.
        """
        if not self._properties.get("bootstrap.servers"):
            raise ConfigurationError("a Kafka sink needs set_bootstrap_servers('host:port,...')")
        if self._schema is None:
            raise ConfigurationError("a Kafka sink needs set_record_serializer")
        is_exact = self._guarantee is DeliveryGuarantee.EXACTLY_ONCE
        if is_exact and not self._prefix:
            raise ConfigurationError(
                "a Kafka sink with DeliveryGuarantee.EXACTLY_ONCE needs set_transactional_id_prefix, with a prefix "
                "that no other job uses on these brokers"
            )
        settings = producer_settings(self._properties)
        if is_exact:
            settings.setdefault(TIMEOUT, TIMEOUT_MS)
            if str(settings[TIMEOUT]) == str(FENCED_TIMEOUT_MS):  # reserved for fenced ids
                settings[TIMEOUT] = FENCED_TIMEOUT_MS + 1
        return KafkaSink(settings, self._guarantee, self._schema, self._prefix, self._unknown)

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the bootstrap brokers: `host:port`, separated by commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set the delivery guarantee in case of failures; AT_LEAST_ONCE by default."""
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            raise WrongTypeError(f"set_delivery_guarantee takes a DeliveryGuarantee, not {delivery_guarantee!r}")
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set the prefix of the transactional ids of EXACTLY_ONCE. Jobs on the same brokers need different prefixes."""
        if not re.fullmatch(r"[ -~]+", transactional_id_prefix) or len(transactional_id_prefix) > PREFIX_CHARS_MAX:
            raise ConfigurationError(
                f"a transactional id prefix has 1 to {PREFIX_CHARS_MAX} printable ASCII characters, "
                f"unlike {transactional_id_prefix!r}"
            )
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema[Any]) -> KafkaSinkBuilder:
        """Set the schema that converts records to messages."""
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            kind = type(record_serializer).__name__
            raise WrongTypeError(f"set_record_serializer takes a KafkaRecordSerializationSchema, not {kind}")
        self._schema = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of Kafka's producer, by its name in Java or in librdkafka."""
        self._properties[key] = value
        return self

    def with_unknown_transactions(self, unknown: str) -> KafkaSinkBuilder:
        """Set how a job handles transactions of its checkpoint whose outcome is unknown.

        This happens if the job stood still for so long that the brokers have forgotten the transaction (7 days unless
        configured), and the topic has dropped its records. `fail` is the default; `ignore` only logs it.

        Raises:
            ConfigurationError: if it is neither.
        """
        if unknown not in (FAIL, IGNORE):
            raise ConfigurationError(f"with_unknown_transactions takes {FAIL!r} or {IGNORE!r}, not {unknown!r}")
        self._unknown = unknown
        return self
