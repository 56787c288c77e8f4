"""The transactions of an exactly-once Kafka sink, and their committer.

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

`KafkaCommitter` ends the transactions: the second phase of the commit (G9). The producers are in `message_producer`.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from penstock.base.errors import PenstockError
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
