"""The transactions of an exactly-once Kafka sink: who owns which, how one ends, and why no record is lost or doubled.

Kafka's transaction coordinator keeps one transaction for each *transactional id*. `InitProducerId` on an id answers
with a producer id and an *epoch* that is higher each time, and aborts what was open under the id. From then on nobody
can write or end anything with an earlier epoch. Penstock's rules build on this alone:

**One transaction for each epoch.** A writer begins each transaction with a producer of its own, so a pair of producer
id and epoch names one transaction for ever. librdkafka's way of one producer for many transactions would not do: after
a failure nobody could tell whether the open transaction of a pair is the one that the checkpoint names.

**Prepare.** At a barrier the writer flushes. The broker then has all records, and the coordinator says under which pair
(`DescribeTransactions`: it is the owner of that truth, and it also says that the transaction has not timed out). The
pair is the committable. The producer is dropped without a word, and the transaction stays open.

**Commit.** Whoever holds the committable asks the coordinator to end it (`EndTxn`). So the first commit and one after
any failure, on any machine, are the same request. Its answers:

| answer | state of the coordinator | what it means |
| --- | --- | --- |
| none | open, or committed under this pair | committed now, or before |
| concurrent transactions | its markers are being written | ask again |
| fenced, invalid epoch | a later epoch: the id was used again, timed out, or was fenced | the log decides |
| invalid state | aborted under this pair | the log decides |
| unknown producer | the coordinator has forgotten the id (7 days, `transactional.id.expiration.ms`) | the log decides |

`EndTxn` is sent in version 0. From version 5 on each end raises the epoch, and a second commit would not be told from
one that comes too late; the broker goes by the version of the request.

**The log decides.** A transaction ends in every partition that it wrote to with a *marker*, which says commit or abort.
It is what readers go by. The committable holds an offset of one partition that is before the marker. The first marker
of this producer from there on is that of the transaction: committed, which is fine, or aborted: its records are lost,
and `TransactionLostError` says so. If there is no marker, because the records are older than the topic keeps them,
nobody can tell, and that is an error of its own.

**Names.** An id consists of the prefix, the job, the operator, the subtask, its attempt, the run of the task, and a
number: no two runs ever use the same id, so no run can abort what another one has prepared. Within a run numbers are
used again (the coordinator keeps each id for days), by this rule: the transaction under the number was seen committed
as of a snapshot, and one that was prepared for that snapshot, or a later one, is committed, too. Then a checkpoint is
complete that does not name the first any more. A job that begins from an older checkpoint, or a savepoint, gets
"fenced" and looks into the log.

**What is left.** A run that died leaves its open transaction, and with it perhaps some that it had prepared. While they
are open, readers that read committed records only wait. So a writer, before its first transaction, ends those that
belong to no snapshot:

- of its own operator, whose snapshots it has: of its job, those of earlier attempts; of jobs that this one continues
  (`forerunners`, and those whose state it has), all. Of other jobs with this prefix, all, but only in its first
  attempt: one that goes on beside its successor, because all others think it dead, must not take over from that. Of a
  subtask beyond today's parallelism one of today's takes care.
- but for those that the restored checkpoint names. Every writer's snapshot lists what it has prepared and not seen
  committed, and every writer gets the lists of all (`Sink.shares_writer_state`). So a writer knows them even when the
  subtask that is to commit one has not begun yet.

It ends them by `InitProducerId`, which also fences a run that is still alive. It fences those ids, too, that such a run
may still begin a transaction with, once: their time-out of `FENCED_TIMEOUT_MS` marks them. A run may, at the worst
moment, take a new id after that. So the writer looks once more at its next barrier. What even then escapes times out:
it is in no checkpoint, so nothing is lost, and readers wait for that long.

A savepoint beside a running job names a transaction that the next checkpoint commits. If the job fails before, the
writers end it: its records are written again, and readers shall not wait until it times out. A job that begins from
this very savepoint finds it aborted, and says so.

**Two jobs with one prefix.** The one that begins later fences the other, whose next barrier or commit is an error.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from penstock.base.errors import PenstockError
from penstock.core.connector import SinkWriterContext

#: The time-out that tells an id that was fenced from one that a run may use.
FENCED_TIMEOUT_MS: Final = 1001
ONGOING: Final = "Ongoing"
EMPTY: Final = "Empty"
COMMITTED: Final = "CompleteCommit"


class TransactionLostError(PenstockError, RuntimeError):
    """Records of a checkpoint can never be seen: their transaction was aborted. Another attempt does not help."""

    suppresses_restart = True


class TransactionUnknownError(PenstockError, RuntimeError):
    """Nobody can tell any more whether a transaction was committed."""

    suppresses_restart = True


class TransactionEndedError(PenstockError, RuntimeError):
    """A transaction was ended by somebody else before it was prepared; its records are written again."""


class ProducerKey(NamedTuple):
    """Names one transaction for ever."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class KafkaCommittable:
    """A prepared transaction.

    Attributes:
        key: which one.
        topic: one of those that it wrote to.
        partition: one of that topic.
        offset: an offset in the partition that is before the transaction's marker.
        records: how many it holds.
        since: the snapshot before it; 0 for none.
    """

    key: ProducerKey
    topic: str
    partition: int
    offset: int
    records: int
    since: int


@dataclass(frozen=True, slots=True)
class WriterState:
    """What a snapshot holds of a writer: its job, and what it had prepared and not seen committed by then."""

    job: str
    prepared: list[ProducerKey]


@dataclass(frozen=True, slots=True)
class TransactionState:
    """What the coordinator knows of a transactional id."""

    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: tuple[tuple[str, int], ...] = ()


class Brokers(Protocol):
    """What is asked of a cluster about transactions. All calls wait, and try again what may succeed later."""

    def list_transactions(self, prefix: str) -> dict[str, str]:
        """The state of each transactional id that begins so; at least of those that are ONGOING or EMPTY."""
        ...

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionState]:
        """What the coordinators know of these; those that they do not know are missing."""
        ...

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset after the last record of a partition."""
        ...

    def fence(self, transactional_id: str) -> None:
        """Abort what is open under an id; whoever uses it cannot go on."""
        ...

    def commit(self, key: ProducerKey) -> bool:
        """Commit a transaction; False if the coordinator refuses for good."""
        ...

    def find_marker(self, committable: KafkaCommittable) -> bool | None:
        """Whether the log says committed; None if it does not say."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


class TransactionName(NamedTuple):
    """What a transactional id says."""

    job: str
    operator: str
    subtask: int
    attempt: int
    run: str
    number: int


@dataclass(frozen=True, slots=True)
class TransactionNames:
    """The transactional ids of one writer, and those of others that it looks after."""

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
        """The names for a writer with that context."""
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
        """The same names for a writer whose state comes from these jobs."""
        return replace(self, forerunners=self.forerunners | (frozenset(jobs) - {self.job}))

    def id_of(self, number: int) -> str:
        """A transactional id of this writer."""
        return f"{self.prefix}-{self.job}-{self.operator}-{self.subtask}-{self.attempt}-{self.run}-{number}"

    def parse(self, transactional_id: str) -> TransactionName | None:
        """What an id says; None if no sink with this prefix made it."""
        pattern = rf"{re.escape(self.prefix)}-([0-9a-f]{{12}})-([0-9a-f]{{8}})-(\d+)-(\d+)-([0-9a-f]{{12}})-(\d+)"
        match = re.fullmatch(pattern, transactional_id)
        if match is None:
            return None
        job, operator, subtask, attempt, run, number = match.groups()
        return TransactionName(job, operator, int(subtask), int(attempt), run, int(number))

    def is_of_former(self, transactional_id: str) -> bool:
        """Whether an id is one of a run before this one that this writer looks after."""
        name = self.parse(transactional_id)
        if name is None or name.operator != self.operator or name.subtask % self.parallelism != self.subtask:
            return False
        if name.job == self.job:
            return name.attempt < self.attempt
        return name.job in self.forerunners or not self.attempt

    def is_of_job(self, transactional_id: str) -> bool:
        """Whether an id is one of this job and operator."""
        name = self.parse(transactional_id)
        return name is not None and (name.job, name.operator) == (self.job, self.operator)


def end_former(brokers: Brokers, names: TransactionNames, kept: frozenset[ProducerKey]) -> list[str]:
    """End the transactions of former runs, but for those in `kept`, and fence the runs. Returns the ids fenced."""
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
    #: the how-manieth snapshot of the writer it was prepared for
    snapshot: int
    #: the snapshot as of which it was seen committed
    seen: int | None = None


@dataclass(slots=True)
class NumberPool:
    """The numbers of one writer: which may name a transaction now. See the module's text."""

    _free: list[int] = field(default_factory=list)
    _prepared: list[_Prepared] = field(default_factory=list)
    _next: int = 0
    _snapshots: int = 0

    def take(self) -> int:
        """A number that no snapshot needs."""
        if self._free:
            return self._free.pop(0)
        self._next += 1
        return self._next - 1

    def at_snapshot(self, states: Mapping[str, TransactionState]) -> None:
        """A snapshot begins, for which nothing is prepared yet; `states` has those of `waiting`."""
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
        """A transaction was prepared for the present snapshot."""
        self._prepared.append(_Prepared(key, number, self._snapshots))

    @property
    def waiting(self) -> list[str]:
        """The ids whose numbers are in use for what was prepared."""
        return [entry.key.transactional_id for entry in self._prepared]

    @property
    def unseen(self) -> list[ProducerKey]:
        """What was prepared and not seen committed."""
        return [entry.key for entry in self._prepared if entry.seen is None]


def _is_committed(key: ProducerKey, states: Mapping[str, TransactionState]) -> bool:
    state = states.get(key.transactional_id)
    if state is None:
        return False
    return state.state == COMMITTED and (state.producer_id, state.producer_epoch) == key[1:]


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()
