"""The transactions of an exactly-once Kafka sink, their committer, and the producers that send a sink's messages.

The following rules determine who owns the transactions and how they end, so that no record is lost or duplicated.
Kafka's transaction coordinator keeps one transaction per *transactional id*. `InitProducerId` on an id returns a
producer id and an *epoch* that is higher each time, and aborts the open transaction of the id. From then on no producer
can write or end anything with an earlier epoch. The rules build on this alone:

**One transaction per epoch.** A writer begins each transaction with a new producer, so a pair of producer id and epoch
identifies one transaction permanently. librdkafka's approach of one producer for many transactions would not do: after
a failure it would be unknown whether the open transaction of a pair is the one that the checkpoint names.

**Prepare.** At a barrier the writer flushes. The broker then has all records, and the coordinator returns their pair
(`DescribeTransactions`: the coordinator is the authority, and it also confirms that the transaction has not timed out).
The pair is the committable. The producer is dropped without notifying the broker, and the transaction stays open.

**Commit.** Any holder of the committable asks the coordinator to end the transaction (`EndTxn`). So the first commit
and one after any failure, on any machine, are the same request. Its answers:

| answer | state of the coordinator | meaning |
| --- | --- | --- |
| none | open, or committed under this pair | committed now, or before |
| concurrent transactions | its markers are being written | ask again |
| fenced, invalid epoch | a later epoch: the id was used again, timed out, or was fenced | the log decides |
| invalid state | aborted under this pair | the log decides |
| unknown producer | the coordinator has forgotten the id (7 days, `transactional.id.expiration.ms`) | the log decides |

`EndTxn` is sent in version 0. From version 5 on each end raises the epoch, and a second commit could not be
distinguished from one that comes too late; the broker goes by the version of the request.

**The log decides.** A transaction ends in every partition that it wrote to with a commit or abort *marker*, which
readers go by. The committable holds an offset of one partition that precedes the marker. The first marker of this
producer from there on belongs to the transaction: either committed, which is fine, or aborted: its records are lost,
and `TransactionLostError` is raised. If the log has no marker, because the records are older than the topic keeps them,
the outcome is unknown, and that is an error of its own.

**Names.** An id consists of the prefix, the job, the operator, the subtask, its attempt, the run of the task, and a
number: no two runs ever use the same id, so no run can abort a transaction that another one has prepared. Within a run
numbers are reused (the coordinator keeps each id for days) by this rule: the transaction under the number was seen
committed as of a snapshot, and a transaction that was prepared for that snapshot, or a later one, is also committed.
Then a completed checkpoint no longer names the first transaction. A job that starts from an older checkpoint, or a
savepoint, gets "fenced" and looks into the log.

**Leftovers.** A run that died leaves its open transaction, and perhaps some that it had prepared. While they are open,
readers of committed records only wait. Therefore a writer, before its first transaction, ends the transactions that
belong to no snapshot:

- of its own operator, whose snapshots it has: for its own job, the transactions of earlier attempts; for jobs that this
  one continues (`forerunners`, and jobs whose state it has), all. For other jobs with this prefix, all, but only in its
  first attempt: a job that keeps running beside its successor, because all others think it dead, must not take over
  from the successor. Transactions of a subtask beyond the current parallelism are the responsibility of one of the
  current subtasks.
- except the transactions that the restored checkpoint names. Every writer's snapshot lists the transactions that it has
  prepared and not seen committed, and every writer gets the lists of all (`Sink.shares_writer_state`). So a writer
  knows them even if the subtask that is to commit one has not started yet.

It ends them by `InitProducerId`, which also fences a run that is still alive. It also fences, once, the ids that such a
run may still use for a transaction: their timeout of `FENCED_TIMEOUT_MS` marks them. A run may, at the worst moment,
take a new id after that. So the writer looks once more at its next barrier. A transaction that escapes even then times
out: no checkpoint names it, so nothing is lost, and readers wait for that long.

A savepoint of a running job names a transaction that the next checkpoint commits. If the job fails before that, the
writers end it: its records are written again, and readers should not wait until it times out. A job that starts from
this very savepoint finds it aborted, and raises an error.

**Two jobs with one prefix.** The job that starts later fences the other, whose next barrier or commit fails.

**Classes.** `KafkaCommitter` ends the transactions: the second phase of the commit (G9). `MessageProducer` wraps
librdkafka's producer: it sends batches, applies back-pressure, and treats every failed delivery as an error.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.base.errors import ConfigurationError, OperationError, PenstockError
from penstock.connectors.kafka.client import client_log, find_credentials_error, refused
from penstock.connectors.kafka.records import Messages
from penstock.runtime.connector import Committer, SinkWriterContext

#: The timeout that distinguishes a fenced id from one that a run may use.
FENCED_TIMEOUT_MS: Final = 1001
ONGOING: Final = "Ongoing"
EMPTY: Final = "Empty"
COMMITTED: Final = "CompleteCommit"


class TransactionLostError(PenstockError, RuntimeError):
    """Records of a checkpoint can never become visible: their transaction was aborted. Retrying does not help."""

    suppresses_restart = True


class TransactionUnknownError(PenstockError, RuntimeError):
    """It can no longer be determined whether a transaction was committed."""

    suppresses_restart = True


class TransactionEndedError(PenstockError, RuntimeError):
    """A transaction ended before it was prepared; its records are written again."""


class ProducerKey(NamedTuple):
    """Identifies one transaction permanently."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class KafkaCommittable:
    """A prepared transaction.

    Attributes:
        key: identifies the transaction.
        topic: a topic that it wrote to.
        partition: a partition of that topic that it wrote to.
        offset: an offset in the partition, not after the transaction's marker.
        records: the number of its records.
        since: the snapshot before it; 0 if it is the first.
    """

    key: ProducerKey
    topic: str
    partition: int
    offset: int
    records: int
    since: int


@dataclass(frozen=True, slots=True)
class WriterState:
    """The state of a writer in a snapshot: its job, and the transactions prepared and not seen committed by then."""

    job: str
    prepared: list[ProducerKey]


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The coordinator's state of a transactional id."""

    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: tuple[tuple[str, int], ...] = ()


class Brokers(Protocol):
    """Requests about transactions to a cluster. All calls wait for an answer, and retry transient errors."""

    def list_transactions(self, prefix: str) -> dict[str, str]:
        """Return the state of each transactional id with this prefix, at least of the ONGOING or EMPTY ones."""
        ...

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionState]:
        """Return the coordinators' states of these ids, omitting unknown ones."""
        ...

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset after the last record of a partition."""
        ...

    def fence(self, transactional_id: str) -> None:
        """Abort the open transaction of an id, and fence its producer."""
        ...

    def commit(self, key: ProducerKey) -> bool:
        """Commit a transaction; return False if the coordinator refuses for good."""
        ...

    def find_marker(self, committable: KafkaCommittable) -> bool | None:
        """Return whether the transaction's marker in the log is a commit; None if the log has no marker."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class TransactionName(NamedTuple):
    """The parts of a transactional id."""

    job: str
    operator: str
    subtask: int
    attempt: int
    run: str
    number: int


@dataclass(frozen=True, slots=True)
class TransactionNames:
    """The transactional ids of one writer, and of the earlier runs that it cleans up after."""

    prefix: str
    job: str
    operator: str
    subtask: int
    parallelism: int
    attempt: int
    run: str
    #: the jobs that this one continues
    forerunners: frozenset[str] = frozenset()

    @staticmethod
    def of(context: SinkWriterContext, prefix: str) -> TransactionNames:
        """Return the names for a writer with that context."""
        return TransactionNames(
            prefix,
            _digest(context.job_id),
            _digest(context.operator_id)[:8],
            context.subtask_index,
            context.parallelism,
            context.attempt,
            _digest(context.job_id, context.operator_id, context.run),
            frozenset(map(_digest, context.forerunners)),
        )

    def continuing(self, jobs: Iterable[str]) -> TransactionNames:
        """Return the same names for a writer whose state comes from these jobs."""
        return replace(self, forerunners=self.forerunners | (frozenset(jobs) - {self.job}))

    def format_transactional_id(self, number: int) -> str:
        """Return a transactional id of this writer."""
        return f"{self.prefix}-{self.job}-{self.operator}-{self.subtask}-{self.attempt}-{self.run}-{number}"

    def parse(self, transactional_id: str) -> TransactionName | None:
        """Parse an id; return None if no sink with this prefix created it."""
        pattern = rf"{re.escape(self.prefix)}-([0-9a-f]{{12}})-([0-9a-f]{{8}})-(\d+)-(\d+)-([0-9a-f]{{12}})-(\d+)"
        match = re.fullmatch(pattern, transactional_id)
        if match is None:
            return None
        job, operator, subtask, attempt, run, number = match.groups()
        return TransactionName(job, operator, int(subtask), int(attempt), run, int(number))

    def is_of_former(self, transactional_id: str) -> bool:
        """Return whether an id belongs to an earlier run that this writer cleans up after."""
        name = self.parse(transactional_id)
        if name is None or name.operator != self.operator or name.subtask % self.parallelism != self.subtask:
            return False
        if name.job == self.job:
            return name.attempt < self.attempt
        return name.job in self.forerunners or not self.attempt

    def is_of_job(self, transactional_id: str) -> bool:
        """Return whether an id belongs to this job and operator."""
        name = self.parse(transactional_id)
        return name is not None and (name.job, name.operator) == (self.job, self.operator)


def end_former(brokers: Brokers, names: TransactionNames, kept: frozenset[ProducerKey]) -> list[str]:
    """End the transactions of earlier runs, except those in `kept`, and fence the runs. Returns the fenced ids."""
    listed = brokers.list_transactions(f"{names.prefix}-")
    open_ids = [i for i, state in listed.items() if state in (ONGOING, EMPTY) and names.is_of_former(i)]
    fenced: list[str] = []
    for transactional_id, state in brokers.describe(open_ids).items():
        key = ProducerKey(transactional_id, state.producer_id, state.producer_epoch)
        is_due = state.state == ONGOING or (state.state == EMPTY and state.timeout_ms != FENCED_TIMEOUT_MS)
        if is_due and key not in kept:
            brokers.fence(transactional_id)
            fenced.append(transactional_id)
    return fenced


@dataclass(slots=True)
class _Prepared:
    key: ProducerKey
    number: int
    #: the ordinal of the writer's snapshot that it was prepared for
    snapshot: int
    #: the ordinal of the first snapshot that saw it committed
    seen: int | None = None


@dataclass(slots=True)
class NumberPool:
    """The transaction numbers of one writer, and which of them are free. See the module docstring."""

    _free: list[int] = field(default_factory=list)
    _prepared: list[_Prepared] = field(default_factory=list)
    _next: int = 0
    _snapshots: int = 0

    def take(self) -> int:
        """Return a number that no snapshot needs."""
        if self._free:
            return self._free.pop(0)
        self._next += 1
        return self._next - 1

    def at_snapshot(self, states: Mapping[str, TransactionState]) -> None:
        """Begin a snapshot, before anything is prepared for it; `states` covers the ids in `waiting`."""
        self._snapshots += 1
        newest = -1
        for entry in self._prepared:
            if _is_committed(entry.key, states):
                newest = max(newest, entry.snapshot)
                entry.seen = self._snapshots if entry.seen is None else entry.seen
        done = [entry for entry in self._prepared if entry.seen is not None and entry.seen <= newest]
        self._free += [entry.number for entry in done]
        self._prepared = [entry for entry in self._prepared if entry not in done]

    def prepared(self, key: ProducerKey, number: int) -> None:
        """Note a transaction that was prepared for the current snapshot."""
        self._prepared.append(_Prepared(key, number, self._snapshots))

    @property
    def waiting(self) -> list[str]:
        """The ids of prepared transactions whose numbers are not free yet."""
        return [entry.key.transactional_id for entry in self._prepared]

    @property
    def unseen(self) -> list[ProducerKey]:
        """The transactions that were prepared and not seen committed."""
        return [entry.key for entry in self._prepared if entry.seen is None]


def _is_committed(key: ProducerKey, states: Mapping[str, TransactionState]) -> bool:
    state = states.get(key.transactional_id)
    if state is None:
        return False
    return state.state == COMMITTED and (state.producer_id, state.producer_epoch) == key[1:]


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()


_log = logging.getLogger("penstock.connectors.kafka")

FAIL: Final = "fail"
IGNORE: Final = "ignore"


class KafkaCommitter(Committer[KafkaCommittable]):
    """Commits transactions; repeating a commit has no effect.

    Args:
        brokers: the cluster.
        names: the transactional ids of the writers.
        unknown: how to handle a transaction whose outcome is unknown: FAIL or IGNORE.
    """

    def __init__(self, brokers: Brokers, names: TransactionNames, unknown: str = FAIL) -> None:
        self._brokers = brokers
        self._names = names
        self._unknown = unknown

    def commit(self, committables: Sequence[KafkaCommittable]) -> None:
        """Commit all in order; some may have been committed long ago.

        Raises:
            TransactionLostError: if one was aborted.
            TransactionUnknownError: if the outcome of one is unknown, and this must not be ignored.
        """
        for committable in committables:
            if self._brokers.commit(committable.key):
                continue
            is_committed = self._brokers.find_marker(committable)
            if is_committed is None:
                self._on_unknown(committable)
            elif not is_committed:
                raise self._lost(committable)

    def _on_unknown(self, committable: KafkaCommittable) -> None:
        text = (
            f"{_describe(committable)}: the broker has forgotten the transaction, and the topic does not reach back to "
            "its end, so nobody can tell whether it was committed or lost"
        )
        if self._unknown == FAIL:
            raise TransactionUnknownError(
                f"{text}. If it was committed, or may be lost, set with_unknown_transactions('ignore') on the sink's "
                "builder; else start from an earlier checkpoint, which writes the records again"
            )
        _log.warning("%s", text)

    def _lost(self, committable: KafkaCommittable) -> TransactionLostError:
        name = committable.key.transactional_id
        state = self._brokers.describe([name]).get(name)
        if state is not None and state.timeout_ms == FENCED_TIMEOUT_MS:
            why = (
                f"Another job with the transactional id prefix {self._names.prefix!r}, or a later attempt of the job "
                "that began from an earlier checkpoint, has aborted it. Give each job a prefix of its own"
            )
        else:
            why = (
                "It was open for longer than transaction.timeout.ms. Set that above the longest time for which the job "
                "may stand still (set_property; at most the brokers' transaction.max.timeout.ms)"
            )
        return TransactionLostError(
            f"{_describe(committable)}: the transaction was aborted before it was committed, so these records are lost "
            f"to readers. {why}. To write them again, start from the checkpoint or savepoint before"
        )

    def end_job(self) -> None:
        """Abort the open transactions of this job's runs, which no longer count."""
        listed = self._brokers.list_transactions(f"{self._names.prefix}-{self._names.job}-")
        for name, state in listed.items():
            if state == ONGOING and self._names.is_of_job(name):
                self._brokers.fence(name)

    def close(self) -> None:
        """Close the connections."""
        self._brokers.close()


def _describe(committable: KafkaCommittable) -> str:
    since = f"after checkpoint {committable.since}" if committable.since else "before the first checkpoint"
    return (
        f"{committable.records} records that a Kafka sink wrote {since} (topic {committable.topic}, transactional id "
        f"{committable.key.transactional_id}, producer {committable.key.producer_id}, epoch "
        f"{committable.key.producer_epoch})"
    )


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
