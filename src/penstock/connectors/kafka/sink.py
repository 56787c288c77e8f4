"""`KafkaSink`: writes records to Kafka topics, optionally exactly once.

`KafkaWriter` writes without transactions: at least once, or without a guarantee. `TransactionalWriter` writes in
transactions that the committer ends; `producer` has the rules.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

from penstock.base.errors import ConfigurationError, OperationError, PenstockError, WrongTypeError
from penstock.base.lineage import LineageDataset, name_kafka
from penstock.codecs.column_data import ColumnData
from penstock.connectors.base import DeliveryGuarantee
from penstock.connectors.kafka.client import TIMEOUT, producer_settings, require_library, require_protocol
from penstock.connectors.kafka.producer import (
    FAIL,
    FENCED_TIMEOUT_MS,
    IGNORE,
    ONGOING,
    Brokers,
    KafkaCommittable,
    KafkaCommitter,
    NumberPool,
    ProducerKey,
    TransactionEndedError,
    TransactionNames,
    TransactionState,
    WriterState,
    end_former,
)
from penstock.connectors.kafka.records import KafkaRecordSerializationSchema, Messages
from penstock.runtime.connector import Committer, RecordError, Sink, SinkWriter, SinkWriterContext


class Messenger(Protocol):
    """Sends a writer's messages."""

    def send(self, messages: Messages) -> None:
        """Send messages in order, waiting while the queue is full."""
        ...

    def flush(self) -> None:
        """Wait until all messages are accepted."""
        ...

    def count_partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        ...

    def leave(self) -> None:
        """Discard unsent messages, and close the connections."""
        ...


class MessageMaker:
    """Converts the records of one subtask to messages, and counts them under Flink's names."""

    def __init__(self, context: SinkWriterContext, schema: KafkaRecordSerializationSchema[Any]) -> None:
        self._count = context.count
        self._schema = schema
        self._partitions: dict[str, int] = {}
        if schema.partitioner is not None:
            schema.partitioner.open(context.subtask_index, context.parallelism)

    def make(self, records: Sequence[Any] | ColumnData, timestamps: list[int] | None, messenger: Messenger) -> Messages:
        """Convert records to messages."""

        def count_partitions(topic: str) -> int:
            if topic not in self._partitions:
                self._partitions[topic] = messenger.count_partitions(topic)
            return self._partitions[topic]

        messages = self._schema.messages(records, timestamps, count_partitions)
        self._count("numRecordsSend", len(messages))
        self._count("numBytesSend", sum([len(value) for value in messages.values if value is not None]))
        return messages

    def on_failure(self) -> None:
        """Count a failed delivery."""
        self._count("numRecordsSendErrors")

    @contextmanager
    def counting_failures(self) -> Iterator[None]:
        """Count failed deliveries within the context."""
        try:
            yield
        except OperationError:
            self.on_failure()
            raise


class KafkaWriter(SinkWriter[Any, Any]):
    """Sends each record as soon as it arrives.

    Args:
        context: the context of the writer's task.
        schema: converts records to messages.
        messenger: sends the messages.
        waits: whether a checkpoint waits until Kafka has accepted all earlier records.
    """

    def __init__(
        self,
        context: SinkWriterContext,
        schema: KafkaRecordSerializationSchema[Any],
        messenger: Messenger,
        waits: bool,
    ) -> None:
        self._maker = MessageMaker(context, schema)
        self._messenger = messenger
        self._waits = waits

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Send records in order."""
        self._write(values, timestamps)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """Send records that are columns."""
        self._write(data, None if rowtimes is None else rowtimes.tolist())

    def _write(self, records: list[Any] | ColumnData, timestamps: list[int] | None) -> None:
        messages = self._maker.make(records, timestamps, self._messenger)
        with self._maker.counting_failures():
            self._messenger.send(messages)

    def flush(self, end_of_input: bool) -> None:
        """Wait until Kafka has all records; without a guarantee, only at the end of the input."""
        if self._waits or end_of_input:
            with self._maker.counting_failures():
                self._messenger.flush()

    def close(self) -> None:
        """Discard unsent messages."""
        self._messenger.leave()


_log = logging.getLogger("penstock.connectors.kafka")

#: A writer looks for earlier runs at its start, and at a later barrier for runs that took a new id in the meantime.
LOOKS = 2


class Transaction(Messenger, Protocol):
    """One transaction."""

    def begin(self) -> None:
        """Begin the transaction."""
        ...

    def abort(self) -> None:
        """Abort the transaction, so that its records are never visible."""
        ...


class PrefixTakenError(PenstockError, RuntimeError):
    """Another job has taken over the transactional ids. Another attempt would only take them back."""

    suppresses_restart = True


class TransactionalWriter(SinkWriter[Any, KafkaCommittable]):
    """Sends the records between two barriers in one transaction.

    Args:
        context: the context of the writer's task.
        schema: converts records to messages.
        names: the transactional ids.
        brokers: the cluster.
        open_transaction: returns the transaction of an id.
        restored: the states of all writers in the checkpoint.
    """

    def __init__(
        self,
        context: SinkWriterContext,
        schema: KafkaRecordSerializationSchema[Any],
        names: TransactionNames,
        brokers: Brokers,
        open_transaction: Callable[[str], Transaction],
        restored: Sequence[WriterState] = (),
    ) -> None:
        self._maker = MessageMaker(context, schema)
        self._names = names.continuing(state.job for state in restored)
        self._brokers = brokers
        self._open_transaction = open_transaction
        self._kept = frozenset(key for state in restored for key in state.prepared)
        self._since = context.restored_checkpoint_id or 0
        self._pool = NumberPool()
        self._looks = 0
        #: its id is taken over ahead of time, so that a barrier does not wait for that
        self._spare: tuple[int, Transaction] | None = None
        self._open: tuple[int, Transaction] | None = None
        self._records = 0
        #: whether this is the last transaction; an epoch has only one
        self._has_ended = context.owes_nothing

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Send records in order."""
        self._write(values, timestamps)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """Send records that are columns."""
        self._write(data, None if rowtimes is None else rowtimes.tolist())

    def _write(self, records: list[Any] | ColumnData, timestamps: list[int] | None) -> None:
        if not len(records):
            return
        try:
            _, transaction = self._open or self._begin()
            messages = self._maker.make(records, timestamps, transaction)
            transaction.send(messages)
        except (RecordError, TransactionEndedError):
            raise
        except OperationError as error:
            self._maker.on_failure()
            raise self._explained(error) from error
        self._records += len(records)

    def _begin(self) -> tuple[int, Transaction]:
        if not self._looks:
            self._end_former()
        entry = self._open = self._take_spare()
        try:
            entry[1].begin()
        except TransactionEndedError as error:
            raise self._explained(error) from error
        return entry

    def _take_spare(self) -> tuple[int, Transaction]:
        entry, self._spare = self._spare, None
        return entry or self._make()

    def _make(self) -> tuple[int, Transaction]:
        number = self._pool.take()
        return number, self._open_transaction(self._names.format_transactional_id(number))

    def _end_former(self) -> None:
        self._looks += 1
        fenced = end_former(self._brokers, self._names, self._kept)
        if fenced:
            _log.info("fenced the transactional ids of earlier runs: %s", ", ".join(fenced))

    def flush(self, end_of_input: bool) -> None:
        """Wait until Kafka has all records, and end the transactions of earlier runs even if there were no records."""
        self._has_ended = self._has_ended or end_of_input
        if self._looks < LOOKS:
            self._end_former()
        if self._open is not None:
            try:
                self._open[1].flush()
            except OperationError as error:
                self._maker.on_failure()
                raise self._explained(error) from error

    def prepare_commit(self) -> list[KafkaCommittable]:
        """Leave the transaction open, and return the committable that ends it."""
        entry = self._open
        transactional_ids = (
            self._pool.waiting
            if entry is None
            else [self._names.format_transactional_id(entry[0]), *self._pool.waiting]
        )
        states = self._brokers.describe(transactional_ids)
        self._pool.at_snapshot(states)
        if entry is None:
            return []
        number, transaction = entry
        committable = self._committable(self._names.format_transactional_id(number), states)
        self._pool.prepared(committable.key, number)
        self._open, self._records = None, 0
        transaction.leave()
        if not self._has_ended:
            self._spare = self._make()
        return [committable]

    def _committable(self, transactional_id: str, states: dict[str, TransactionState]) -> KafkaCommittable:
        state = states.get(transactional_id)
        if state is None or state.state != ONGOING:
            raise self._ended(transactional_id, state)
        topic, partition = state.partitions[0]
        key = ProducerKey(transactional_id, state.producer_id, state.producer_epoch)
        offset = self._brokers.end_offset(topic, partition)
        return KafkaCommittable(key, topic, partition, offset, self._records, self._since)

    def snapshot_state(self, checkpoint_id: int) -> list[WriterState]:
        """Return the state of this writer; a restored writer gets the states of all."""
        self._since = checkpoint_id
        return [WriterState(self._names.job, self._pool.unseen)]

    def close(self) -> None:
        """Abort the transaction if it was not prepared."""
        entry, spare, self._open, self._spare = self._open, self._spare, None, None
        if entry is not None:
            entry[1].abort()
        for left in (entry, spare):
            if left is not None:
                left[1].leave()
        self._brokers.close()

    def _explained(self, error: PenstockError) -> PenstockError:
        """Return the error, or a more specific one if the transaction is not open any more."""
        if self._open is None:
            return error
        transactional_id = self._names.format_transactional_id(self._open[0])
        state = self._brokers.describe([transactional_id]).get(transactional_id)
        return error if state is None or state.state == ONGOING else self._ended(transactional_id, state, error)

    def _ended(
        self, transactional_id: str, state: TransactionState | None, cause: PenstockError | None = None
    ) -> PenstockError:
        """Return the error for a transaction that is not open any more. Its records will be written again."""
        if state is not None and state.timeout_ms == FENCED_TIMEOUT_MS:
            return PrefixTakenError(
                f"the transactional id {transactional_id} of a Kafka sink was taken over by a later run: another job "
                f"with the transactional id prefix {self._names.prefix!r} has begun. Give each job a prefix of its own "
                "(set_transactional_id_prefix), and start this one from its last checkpoint"
            )
        if cause is not None and state is not None and state.state == "Empty":
            return cause
        status = "is unknown to the broker" if state is None else f"is {state.state} at the broker"
        return TransactionEndedError(
            f"the transaction {transactional_id} of a Kafka sink {status}, and so cannot be prepared: it was open for "
            "longer than transaction.timeout.ms, or could not be written. Its records are written again when the "
            "job restarts. Set transaction.timeout.ms above the time between checkpoints, stops included"
        )


T = TypeVar("T")

#: The default transaction timeout, as in Flink.
TIMEOUT_MS: Final = 3_600_000
PREFIX_CHARS_MAX: Final = 200


class KafkaSink(Sink[T]):
    """Writes records to Kafka topics. Create one with `builder`.

    With `DeliveryGuarantee.EXACTLY_ONCE`, consumers that set `isolation.level=read_committed` see each record once, as
    soon as the checkpoint that covers it completes. With AT_LEAST_ONCE they see records at once, and some of them again
    after a failure. With NONE a checkpoint does not wait for Kafka, and a failure may lose records.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
        >>> messages = KafkaRecordSerializationSchema.builder().set_topic("orders")
        >>> messages = messages.set_value_serialization_schema(SimpleStringSchema()).build()
        >>> builder = KafkaSink.builder().set_bootstrap_servers("localhost:9092")
        >>> sink = builder.set_record_serializer(messages).build()
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

    def describe_lineage(self) -> tuple[LineageDataset, ...]:
        """Return the topic, unless it depends on the record."""
        if self.lineage or not isinstance(self._schema.topic, str):
            return self.lineage
        return (LineageDataset(name_kafka(str(self._settings.get("bootstrap.servers", ""))), self._schema.topic),)

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
        from penstock.connectors.kafka.message_producer import MessageProducer

        return MessageProducer(self._settings)

    def _transaction(self, transactional_id: str) -> Transaction:
        require_library()
        from penstock.connectors.kafka.message_producer import TransactionProducer

        return TransactionProducer(self._settings, transactional_id)

    def _brokers(self) -> Brokers:
        require_protocol()
        from penstock.connectors.kafka.cluster import KafkaCluster

        return KafkaCluster(self._settings)


class KafkaSinkBuilder:
    """Builder for `KafkaSink`; brokers and a serializer are required.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> from penstock.datastream.connectors.kafka import (
        ...     DeliveryGuarantee, KafkaRecordSerializationSchema, KafkaSink
        ... )
        >>> messages = KafkaRecordSerializationSchema.builder().set_topic("orders")
        >>> messages = messages.set_value_serialization_schema(SimpleStringSchema()).build()
        >>> builder = KafkaSink.builder().set_bootstrap_servers("localhost:9092")
        >>> builder = builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        >>> builder = builder.set_transactional_id_prefix("shop").set_record_serializer(messages)
        >>> sink = builder.build()
    """

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
