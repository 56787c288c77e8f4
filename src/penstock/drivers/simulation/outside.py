"""The world outside the job: what user functions and connectors of a simulated job reach besides the runtime.

User functions and sinks travel to workers as bytes, so they cannot hold references to it; they hold its name, and find
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
    """Raised by a user function because the history plans it."""


@dataclass
class Transaction:
    """Records that a sink writer has prepared.

    Attributes:
        sink: the sink.
        records: the records.
        since: the last snapshot that the writer had taken part in, or was restored from.
        checkpoint_id: the checkpoint in whose snapshot it lies first.
        is_committed: whether it is visible.
        is_pinned: whether a savepoint names it.
        is_removed: whether a later attempt has removed it, because no snapshot that counts could name it.
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
    """An external system with transactions, a fuse for user functions, and chance for connectors."""

    chance: random.Random
    #: called at each user call; may raise
    on_user_call: Callable[[], None] = lambda: None
    #: called before and after each commit; may raise
    on_commit: Callable[[], None] = lambda: None
    #: called before each step of the file system; may raise
    on_file_step: Callable[[], None] = lambda: None
    #: whether a job may commit what another one, or itself, had prepared for a checkpoint by then:
    #: (the job that commits, the job that prepared, the checkpoint)
    is_covered: Callable[[str, str, int], bool] = lambda job_id, owner, checkpoint_id: True
    #: called when a source reader begins
    on_reader_begun: Callable[[], None] = lambda: None
    #: called when a sink writer is told that no record will follow: operator, subtask, attempt
    on_finish: Callable[[str, int, int], None] = lambda operator_id, subtask, attempt: None
    #: whether it is a process of a deposed job master that does something now: nobody expects anything of those
    is_deposed: Callable[[], bool] = lambda: False
    #: the savepoints that are to end the present job: no source is polled after their barriers
    stopping: dict[int, StopMode] = field(default_factory=dict)
    #: whether only what a checkpoint covers may be committed
    needs_checkpoints: bool = True
    #: what batches have begun to commit, by job
    commit_logs: dict[str, list[TransactionId]] = field(default_factory=dict)
    #: the file system in which connectors write
    files: PageCache = field(default_factory=PageCache)
    #: the brokers to which connectors write
    kafka: KafkaModel = field(default_factory=KafkaModel)
    #: the files that processes hold while they write them, and by which one each is held
    held: dict[str, str] = field(default_factory=dict)
    #: the process that is at work, and whether one is still there
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
        """From now on these hear of what happens."""
        self.on_commit, self.is_covered, self.is_deposed = on_commit, is_covered, is_deposed
        self.on_file_step = self.kafka.step = on_commit
        self.on_reader_begun, self.on_finish = on_reader_begun, on_finish

    def prepare(self, transaction_id: TransactionId, sink: str, records: list[Any], since: int) -> None:
        """Store records that are not visible yet."""
        if transaction_id in self.transactions:
            self.note(f"outside: transaction {transaction_id} was prepared twice")
        self.transactions[transaction_id] = Transaction(sink, list(records), since)

    def remove_stale(
        self, job_id: str, operator_id: str, subtask: int, parallelism: int, attempt: int, since: int
    ) -> None:
        """A writer begins: what former attempts have left goes, by the rules of the file sink (`part_names`)."""
        for (owner, operator, writer, of_attempt, _), transaction in self.transactions.items():
            is_own = (owner, operator) == (job_id, operator_id) and writer % parallelism == subtask
            if is_own and of_attempt < attempt and transaction.since >= since and not transaction.is_pinned:
                transaction.is_removed = True

    def note(self, violation: str) -> None:
        """Keep a violation, unless there are many already."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(violation)

    def end_job(self, job_id: str) -> None:
        """A job is over and owes nothing: what its runs have prepared and not committed goes."""
        for (owner, *_), transaction in self.transactions.items():
            if owner == job_id and not transaction.is_committed and not transaction.is_pinned:
                transaction.is_removed = True

    def commit(self, transaction_id: TransactionId, job_id: str) -> None:
        """A job makes a transaction visible; one that is visible already stays as it is."""
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
        """Make invisible again what a batch had begun to commit, and forget that it had."""
        for transaction_id in self.commit_logs.pop(job_id, ()):
            transaction = self.transactions[transaction_id]
            if transaction.is_committed:
                transaction.is_committed = False
                for record in transaction.records:
                    self.committed[transaction.sink].remove(record)


def outside(name: str) -> Outside:
    """The world of that name."""
    return _worlds[name]


@contextmanager
def present(name: str, world: Outside) -> Iterator[Outside]:
    """Let a world be found under a name for a while."""
    if name in _worlds:
        raise WrongValueError(f"there is a world named {name!r} already")
    _worlds[name] = world
    try:
        yield world
    finally:
        del _worlds[name]
