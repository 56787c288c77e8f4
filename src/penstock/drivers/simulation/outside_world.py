"""The world outside the job: everything that a simulated job's user functions and connectors reach besides the runtime.

`Outside`: user functions and sinks are sent to workers as bytes, so they cannot hold references to it; they hold its
name and find it here. It outlives workers and attempts, as a database does.

`KafkaModel` models a Kafka cluster's transactions: coordinator, epochs, logs with markers, and the readers' view. It
responds as the broker does to clients of its first transaction protocol, such as librdkafka; tests against the real
broker (`tests/connectors/kafka`) keep the two consistent. A process may die before or after each step.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.base.errors import OperationError, WrongValueError
from penstock.connectors.kafka import producer
from penstock.connectors.kafka.records import Messages
from penstock.drivers.simulation.disk import PageCache
from penstock.runtime.protocol import StopMode

ABORTED = "CompleteAbort"
TIMEOUT_MS = 60_000


class LogEntry(NamedTuple):
    """A message or an end marker: `commits` distinguishes commit and abort markers; None for a message."""

    producer_id: int
    producer_epoch: int
    value: bytes | None
    commits: bool | None = None


@dataclass
class _Entry:
    producer_id: int
    epoch: int = -1
    state: str = producer.EMPTY
    timeout_ms: int = TIMEOUT_MS
    topics: set[str] = field(default_factory=set)


@dataclass
class KafkaModel:
    """The brokers. Each topic has one partition.

    Attributes:
        step: called before and after each change; may raise if the process dies.
    """

    step: Callable[[], None] = lambda: None
    entries: dict[str, _Entry] = field(default_factory=dict)
    logs: dict[str, list[LogEntry]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=lambda: {"refused": 0, "aborted": 0, "fenced": 0, "reused": 0})

    # --- what a client asks -------------------------------------------------------------------------------------------

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
        """Take over a transactional id; abort its open transaction."""
        self.step()
        entry = self.entries.setdefault(transactional_id, _Entry(len(self.entries)))
        if entry.state == producer.ONGOING:
            entry.epoch += 1
            self._end(entry, False)
        if entry.epoch >= 0:
            self.seen["fenced" if timeout_ms == producer.FENCED_TIMEOUT_MS else "reused"] += 1
        entry.epoch += 1
        entry.state, entry.timeout_ms = producer.EMPTY, timeout_ms
        self.step()
        return entry.producer_id, entry.epoch

    def append(self, key: producer.ProducerKey, topic: str, values: Iterable[bytes | None]) -> None:
        """Write messages of a transaction, which begins with the first one."""
        self.step()
        entry = self.entries[key.transactional_id]
        if (entry.producer_id, entry.epoch) != key[1:] or entry.state not in (producer.EMPTY, producer.ONGOING):
            raise OperationError(f"{key} is fenced")
        entry.state = producer.ONGOING
        entry.topics.add(topic)
        self.logs.setdefault(topic, []).extend(LogEntry(key.producer_id, key.producer_epoch, value) for value in values)
        self.step()

    def end(self, key: producer.ProducerKey, commits: bool) -> bool:
        """End a transaction; return False if the broker refuses permanently."""
        self.step()
        entry = self.entries.get(key.transactional_id)
        if entry is None or (entry.producer_id, entry.epoch) != key[1:]:
            self.seen["refused"] += 1
            return False
        if entry.state == producer.ONGOING:
            self._end(entry, commits)
        self.step()
        return entry.state == (producer.COMMITTED if commits else ABORTED)

    def _end(self, entry: _Entry, commits: bool) -> None:
        for topic in sorted(entry.topics):
            self.logs[topic].append(LogEntry(entry.producer_id, entry.epoch, None, commits))
        entry.topics = set()
        entry.state = producer.COMMITTED if commits else ABORTED
        self.seen["aborted"] += not commits

    # --- what happens by itself ---------------------------------------------------------------------------------------

    def time_out(self, transactional_id: str) -> None:
        """Abort a transaction that was open for too long."""
        entry = self.entries[transactional_id]
        if entry.state == producer.ONGOING:
            entry.epoch += 1
            self._end(entry, False)

    def forget(self, transactional_id: str) -> None:
        """Expire an id that was not used for days."""
        del self.entries[transactional_id]

    # --- what readers see ---------------------------------------------------------------------------------------------

    def open_ids(self) -> list[str]:
        """Return the ids with open transactions, for which readers of committed records wait."""
        return [name for name, entry in self.entries.items() if entry.state == producer.ONGOING]

    def visible(self, topic: str) -> list[Any]:
        """Return the committed records of a topic that readers see, in order, up to the first open transaction."""
        log = self.logs.get(topic, [])
        is_seen: list[bool] = [False] * len(log)
        waiting: dict[int, list[int]] = {}
        for offset, entry in enumerate(log):
            if entry.commits is None:
                waiting.setdefault(entry.producer_id, []).append(offset)
            else:
                for of_record in waiting.pop(entry.producer_id, ()):
                    is_seen[of_record] = entry.commits
        end = min((offsets[0] for offsets in waiting.values()), default=len(log))
        values = [entry.value for entry, is_visible in zip(log[:end], is_seen, strict=False) if is_visible]
        return [ast.literal_eval(value.decode()) for value in values if value is not None]

    def visible_at_last(self, topic: str) -> list[Any]:
        """Return the visible records once the open transactions of dead and forgotten processes have timed out."""
        for name in self.open_ids():
            self.time_out(name)
        return self.visible(topic)

    def is_committed(self, committable: producer.KafkaCommittable) -> bool:
        """Return whether the log has a commit marker for it."""
        return ModelBrokers(self).find_marker(committable) is True


class ModelBrokers:
    """The broker requests of a sink."""

    def __init__(self, model: KafkaModel) -> None:
        self._model = model

    def list_transactions(self, prefix: str) -> dict[str, str]:
        self._model.step()
        return {name: entry.state for name, entry in self._model.entries.items() if name.startswith(prefix)}

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, producer.TransactionState]:
        self._model.step()
        entries = self._model.entries
        return {
            name: producer.TransactionState(
                entries[name].state,
                entries[name].producer_id,
                entries[name].epoch,
                entries[name].timeout_ms,
                tuple((topic, 0) for topic in sorted(entries[name].topics)),
            )
            for name in transactional_ids
            if name in entries
        }

    def end_offset(self, topic: str, partition: int) -> int:
        return len(self._model.logs.get(topic, ()))

    def fence(self, transactional_id: str) -> None:
        self._model.init_producer_id(transactional_id, producer.FENCED_TIMEOUT_MS)

    def commit(self, key: producer.ProducerKey) -> bool:
        return self._model.end(key, True)

    def find_marker(self, committable: producer.KafkaCommittable) -> bool | None:
        for entry in self._model.logs[committable.topic][committable.offset :]:
            if entry.commits is not None and entry.producer_id == committable.key.producer_id:
                return entry.commits
        return None

    def close(self) -> None:
        """Do nothing: the model holds no resources."""


class ModelTransaction:
    """A producer for one transaction; its messages are sent from time to time, and at the latest by the flush."""

    def __init__(self, model: KafkaModel, transactional_id: str) -> None:
        self._model = model
        self._key = producer.ProducerKey(transactional_id, *model.init_producer_id(transactional_id, TIMEOUT_MS))
        self._buffered: list[tuple[str, bytes | None]] = []

    def begin(self) -> None:
        """Do nothing: the broker learns of the transaction from the first message."""

    def send(self, messages: Messages) -> None:
        assert isinstance(messages.topics, str)
        self._buffered += [(messages.topics, value) for value in messages.values]
        if len(self._buffered) > 2:
            self.flush()

    def flush(self) -> None:
        buffered, self._buffered = self._buffered, []
        for topic in dict.fromkeys(topic for topic, _ in buffered):
            self._model.append(self._key, topic, [value for of, value in buffered if of == topic])

    def count_partitions(self, topic: str) -> int:
        return 1

    def leave(self) -> None:
        self._buffered = []

    def abort(self) -> None:
        self._buffered = []
        self._model.end(self._key, False)


TransactionId = tuple[str, str, int, int, str]  # job, operator, subtask, attempt, run and count

VIOLATIONS_MAX = 10

_worlds: dict[str, Outside] = {}


class PlannedError(Exception):
    """Raised by a user function when the history plans it."""


@dataclass
class Transaction:
    """Records prepared by a sink writer.

    Attributes:
        sink: the sink.
        records: the records.
        since: the last snapshot that the writer took part in, or was restored from.
        checkpoint_id: the first checkpoint whose snapshot contains it.
        is_committed: whether it is visible.
        is_pinned: whether a savepoint names it.
        is_removed: whether a later attempt removed it, because no valid snapshot could name it.
    """

    sink: str
    records: list[Any]
    since: int
    checkpoint_id: int | None = None
    is_committed: bool = False
    is_pinned: bool = False
    is_removed: bool = False


@dataclass
class Outside:
    """An external system with transactions, planned errors for user functions, and random numbers for connectors."""

    chance: random.Random
    #: called at each user call; may raise
    on_user_call: Callable[[], None] = lambda: None
    #: called before and after each commit; may raise
    on_commit: Callable[[], None] = lambda: None
    #: called before each step of the file system; may raise
    on_file_step: Callable[[], None] = lambda: None
    #: whether a job may by now commit transactions that it or another job prepared for a checkpoint: (the committing
    #: job, the preparing job, the checkpoint)
    is_covered: Callable[[str, str, int], bool] = lambda job_id, owner, checkpoint_id: True
    #: called when a source reader begins
    on_reader_begun: Callable[[], None] = lambda: None
    #: called when a sink writer is notified that no more records follow: operator, subtask, attempt
    on_finish: Callable[[str, int, int], None] = lambda operator_id, subtask, attempt: None
    #: whether the current process belongs to a deposed job master, so that its actions are not checked
    is_deposed: Callable[[], bool] = lambda: False
    #: the savepoints that are to end the current job: no source is polled after their barriers
    stopping: dict[int, StopMode] = field(default_factory=dict)
    #: whether only transactions covered by a checkpoint may be committed
    needs_checkpoints: bool = True
    #: the transactions that batches have begun to commit, by job
    commit_logs: dict[str, list[TransactionId]] = field(default_factory=dict)
    #: the file system that connectors write to
    files: PageCache = field(default_factory=PageCache)
    #: the brokers that connectors write to
    kafka: KafkaModel = field(default_factory=KafkaModel)
    #: the files held by processes that write them, with the process that holds each
    held: dict[str, str] = field(default_factory=dict)
    #: the current process, and whether a process is still alive
    process: Callable[[], str] = lambda: ""
    is_alive: Callable[[str], bool] = lambda process: False
    transactions: dict[TransactionId, Transaction] = field(default_factory=dict)
    committed: dict[str, list[Any]] = field(default_factory=dict)
    commits: int = 0
    repeated_commits: int = 0
    violations: list[str] = field(default_factory=list)
    #: remarks of connectors about a history, for checks that depend on them
    remarks: set[str] = field(default_factory=set)

    def watch(
        self,
        on_commit: Callable[[], None],
        is_covered: Callable[[str, str, int], bool],
        on_reader_begun: Callable[[], None] = lambda: None,
        on_finish: Callable[[str, int, int], None] = lambda operator_id, subtask, attempt: None,
        is_deposed: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set the functions that are called from now on."""
        self.on_commit, self.is_covered, self.is_deposed = on_commit, is_covered, is_deposed
        self.on_file_step = self.kafka.step = on_commit
        self.on_reader_begun, self.on_finish = on_reader_begun, on_finish

    def prepare(self, transaction_id: TransactionId, sink: str, records: list[Any], since: int) -> None:
        """Store records that are not yet visible."""
        if transaction_id in self.transactions:
            self.note(f"outside: transaction {transaction_id} was prepared twice")
        self.transactions[transaction_id] = Transaction(sink, list(records), since)

    def remove_stale(
        self, job_id: str, operator_id: str, subtask: int, parallelism: int, attempt: int, since: int
    ) -> None:
        """Remove the transactions that earlier attempts of a writer left, by the file sink's rules (`part_files`)."""
        for (owner, operator, writer, of_attempt, _), transaction in self.transactions.items():
            is_own = (owner, operator) == (job_id, operator_id) and writer % parallelism == subtask
            if is_own and of_attempt < attempt and transaction.since >= since and not transaction.is_pinned:
                transaction.is_removed = True

    def note(self, violation: str) -> None:
        """Record a violation, unless there are already many."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(violation)

    def end_job(self, job_id: str) -> None:
        """End a job that owes no commits: remove its prepared but uncommitted transactions."""
        for (owner, *_), transaction in self.transactions.items():
            if owner == job_id and not transaction.is_committed and not transaction.is_pinned:
                transaction.is_removed = True

    def commit(self, transaction_id: TransactionId, job_id: str) -> None:
        """Make a transaction of a job visible; a visible one stays unchanged."""
        self.on_commit()
        transaction = self.transactions.get(transaction_id)
        if transaction is None:
            self.note(f"outside: transaction {transaction_id} was committed but never prepared")
        elif transaction.is_committed:
            self.repeated_commits += 1
        elif transaction.is_removed:
            self.note(f"outside: transaction {transaction_id} was removed, and is to be committed after that")
        else:
            covered = transaction.checkpoint_id
            is_covered = covered is not None and self.is_covered(job_id, transaction_id[0], covered)
            if self.needs_checkpoints and not is_covered:
                self.note(f"outside: transaction {transaction_id} was committed before checkpoint {covered} was")
            transaction.is_committed = True
            self.commits += 1
            self.committed.setdefault(transaction.sink, []).extend(transaction.records)
        self.on_commit()

    def take_back(self, job_id: str) -> None:
        """Undo the commits that a batch has begun, and forget that it had."""
        for transaction_id in self.commit_logs.pop(job_id, ()):
            transaction = self.transactions[transaction_id]
            if transaction.is_committed:
                transaction.is_committed = False
                for record in transaction.records:
                    self.committed[transaction.sink].remove(record)


def outside(name: str) -> Outside:
    """Return the world of that name."""
    return _worlds[name]


@contextmanager
def present(name: str, world: Outside) -> Iterator[Outside]:
    """Register a world under a name within the block."""
    if name in _worlds:
        raise WrongValueError(f"there is a world named {name!r} already")
    _worlds[name] = world
    try:
        yield world
    finally:
        del _worlds[name]
