"""The world outside the job: everything that a simulated job's user functions and connectors reach besides the runtime.

User functions and sinks are sent to workers as bytes, so they cannot hold references to it; they hold its name and find
it here. It outlives workers and attempts, as a database does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import WrongValueError
from penstock.core.protocol import StopMode
from penstock.drivers.simulation.kafka_model import KafkaModel
from penstock.drivers.simulation.page_cache import PageCache

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
        """Remove the transactions that earlier attempts of a writer left, by the file sink's rules (`part_names`)."""
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
