"""Writes records in transactions that the committer ends; `transactions` has the rules."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.base.errors import OperationError, PenstockError
from penstock.codecs.column_data import ColumnData
from penstock.connectors.kafka.record_schema import KafkaRecordSerializationSchema
from penstock.connectors.kafka.transactions import (
    FENCED_TIMEOUT_MS,
    ONGOING,
    Brokers,
    KafkaCommittable,
    NumberPool,
    ProducerKey,
    TransactionEndedError,
    TransactionNames,
    TransactionState,
    WriterState,
    end_former,
)
from penstock.connectors.kafka.writer import MessageMaker, Messenger
from penstock.core.connector import RecordError, SinkWriter, SinkWriterContext

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
