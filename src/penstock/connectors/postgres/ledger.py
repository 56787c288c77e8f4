"""Exactly-once writes to PostgreSQL: rows are held until their checkpoint is complete, and a ledger records commits.

Rows must stay invisible until the checkpoint that covers them is complete, and must be written exactly once, although
after a failure it is unknown whether a commit succeeded. Two designs were considered.

**PREPARE TRANSACTION** (used by Flink's `JdbcExactlyOnceOptions`, through XA). A writer inserts into an open
transaction and prepares it at the barrier; the prepared transaction survives any failure and is committed when the
checkpoint is complete.

- A prepared transaction holds its locks. If the writer's next transaction touches one of its keys, it waits for the
  prepared one, in the very thread that should commit it: upserting the same key in two checkpoints blocks forever.
- It has no owner. If its job disappears, it stays with its locks and holds back VACUUM for the whole server. Who may
  roll it back? A new attempt may, if it knows every checkpoint and savepoint that may name it, as with part files
  (`connectors/file/part_files.py`); but a forgotten file does no harm.
- Committing twice fails with "does not exist", which is the same error as for a transaction that an administrator
  rolled back. Data loss would look like success.
- It is off by default (`max_prepared_transactions = 0`), and turning it on needs a server restart; many users who rent
  a server, or reach it through a pooler, cannot do that.

**A ledger.** The writer holds rows until the barrier and returns them as a committable, which the checkpoint stores.
When the checkpoint is complete, one transaction writes the rows *and* records in a table that it did so. This design is
implemented here.

- *Duplicates.* A committable is named by the run of its writer (a string that no two runs share) and a number. A
  transaction that finds the name in the ledger does nothing. The rows and the name are written in the same transaction,
  so neither exists without the other.
- *Lost replies.* A commit whose reply was lost is retried, and the ledger shows whether it succeeded.
- *Zombies.* A task that was given up but still runs may commit at the same time as its successor. The first of them
  locks the run's row in the ledger; the second waits and then finds the name. The successor writes nothing newer before
  that, since restored committables are committed before its writer begins. If a zombie stalls in the middle of its
  transaction, the server ends it after `idle_in_transaction_session_timeout`, which every connection sets.
- *No leftovers.* Until the commit, the server has no lock, no transaction and no staged row. Rows without a complete
  checkpoint vanish with the process. Nothing ever needs to be rolled back, and a savepoint owns its rows because it
  contains them.
- *Order.* The rows of a key go to one run at a time, and the committables of a run are committed in order: at another
  parallelism, all of them go to one subtask. All restored committables are committed before the first checkpoint of the
  new attempt, which needs every task. So of two changes of a key, the later one is committed later.
- *Size.* The ledger does not rely on that order. It stores all numbers of a run as ranges: a run that has committed 1
  to 9000 is one row with `{[1,9001)}`. So the ledger grows by a row per writer and attempt, not per checkpoint.
- *Old savepoints.* A job that starts from an old savepoint finds its committables in the ledger, however old they are.
  Penstock never deletes rows of the ledger: delete the rows whose `committed_at` is older than every savepoint that you
  keep.

The cost: the rows between two checkpoints are kept in memory and in the checkpoint. Checkpoints every few seconds bound
it. For more rows than fit into memory, use the sink that writes immediately, with an idempotent statement.

Write buffers of PostgreSQL sinks: they hold rows, or parts with columns (`ledger.Writing`).
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.connectors.postgres.client import Address, JdbcExecutionOptions, Link, quoted_path
from penstock.runtime.connector import Committer, SinkWriter, SinkWriterContext

if TYPE_CHECKING:
    import psycopg


#: The key for `pg_advisory_xact_lock`, so that two subtasks do not create the table at the same time.
_MAKING: Final = zlib.crc32(b"penstock ledger")


@dataclass(frozen=True, slots=True)
class HeldRows:
    """A committable: rows to write, under a unique name.

    Attributes:
        run: the run of the writer.
        number: counted from 1 within the run.
        rows: in the form that the sink's `Writing` expects.
    """

    run: str
    number: int
    rows: Any


def run_name(context: SinkWriterContext) -> str:
    """Return the name of a run: no two jobs, operators, subtasks, attempts or duplicates of a task share one."""
    return f"{context.job_id}/{context.operator_id}/{context.subtask_index}/{context.run}"


class Writing(Protocol):
    """Writes rows within a transaction."""

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Prepare a connection, outside a transaction."""

    def run(self, connection: psycopg.Connection[Any], rows: Any) -> None:
        """Write the rows, in an open transaction."""


class LedgerCommitter(Committer[HeldRows]):
    """Writes each committable together with its name, in one transaction each."""

    def __init__(self, address: Address, ledger_table: str, retries: int, writing: Writing) -> None:
        self._link = Link(address)
        self._ledger = quoted_path(ledger_table)
        self._retries = retries
        self._writing = writing
        self._ready: psycopg.Connection[Any] | None = None

    def commit(self, committables: Sequence[HeldRows]) -> None:
        """See `Committer`."""
        for committable in committables:
            self._link.retrying(self._retries, partial(self._commit, committable))

    def _commit(self, committable: HeldRows, connection: psycopg.Connection[Any]) -> None:
        self._prepare(connection)
        with connection.transaction():
            noted = connection.execute(
                f"INSERT INTO {self._ledger} AS known (run, numbers) "
                "VALUES (%s, int8multirange(int8range(%s, %s))) "
                "ON CONFLICT (run) DO UPDATE SET numbers = known.numbers + excluded.numbers, committed_at = now() "
                "WHERE NOT known.numbers @> excluded.numbers",
                (committable.run, committable.number, committable.number + 1),
            )
            if noted.rowcount:
                self._writing.run(connection, committable.rows)

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        if connection is self._ready:
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            row = connection.execute("SELECT to_regclass(%s)", (self._ledger,)).fetchone()
            if row is None or row[0] is None:
                connection.execute(
                    f"CREATE TABLE {self._ledger} (run text PRIMARY KEY, "
                    "numbers int8multirange NOT NULL, committed_at timestamptz NOT NULL DEFAULT now())"
                )
        self._writing.prepare(connection)
        self._ready = connection

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


class Gathered(ABC):
    """The buffered rows of one writer."""

    @abstractmethod
    def add(self, parts: Sequence[Any], count: int) -> None:
        """Add parts that contain `count` rows in total."""

    def next_flush_ms(self) -> int | None:
        """Return the time at which the buffered rows are due to be written; None if they have no deadline."""
        return None

    @abstractmethod
    def flush(self) -> None:
        """Write the buffered rows, unless they wait for a checkpoint to complete."""

    def take(self) -> list[HeldRows]:
        """Return the rows that a checkpoint must store."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Close the connection, if there is one."""


class WrittenRows(Gathered):
    """Writes rows when the batch is full, when they have waited long enough, and at every checkpoint."""

    def __init__(
        self, context: SinkWriterContext, address: Address, options: JdbcExecutionOptions, writing: Writing
    ) -> None:
        self._context = context
        self._link = Link(address)
        self._options = options
        self._writing = writing
        self._parts: list[Any] = []
        self._count = 0
        self._due_ms: int | None = None

    def add(self, parts: Sequence[Any], count: int) -> None:
        """See `Gathered`."""
        self._parts += parts
        self._count += count
        if self._count >= self._options.batch_size:
            self.flush()
        elif self._due_ms is None and self._options.batch_interval_ms:
            self._due_ms = self._context.now_ms() + self._options.batch_interval_ms

    def next_flush_ms(self) -> int | None:
        """See `Gathered`."""
        return self._due_ms

    def flush(self) -> None:
        """See `Gathered`."""
        self._due_ms = None
        if self._parts:
            self._link.retrying(self._options.max_retries, self._write)
            self._parts, self._count = [], 0

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        self._writing.prepare(connection)
        with connection.transaction():
            self._writing.run(connection, self._parts)

    def close(self) -> None:
        """See `Gathered`."""
        self._link.close()


class RowsToHold(Gathered):
    """Holds rows for the ledger until a checkpoint stores them."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._number = 0
        self._parts: list[Any] = []

    def add(self, parts: Sequence[Any], count: int) -> None:
        """See `Gathered`."""
        self._parts += parts

    def take(self) -> list[HeldRows]:
        """See `Gathered`."""
        if not self._parts:
            return []
        self._number += 1
        parts, self._parts = self._parts, []
        return [HeldRows(self._run, self._number, parts)]

    def flush(self) -> None:
        """Do nothing: no row is written before a checkpoint is complete."""

    def close(self) -> None:
        """Do nothing, because this buffer does not connect."""


class GatheringWriter(SinkWriter[Any, HeldRows]):
    """Buffers the rows that a subclass makes from records."""

    def __init__(self, gathered: Gathered) -> None:
        self._gathered = gathered

    def next_flush_ms(self) -> int | None:
        """See `SinkWriter`."""
        return self._gathered.next_flush_ms()

    def flush(self, end_of_input: bool) -> None:
        """See `SinkWriter`."""
        self._gathered.flush()

    def prepare_commit(self) -> list[HeldRows]:
        """See `SinkWriter`."""
        return self._gathered.take()

    def close(self) -> None:
        """See `SinkWriter`."""
        self._gathered.close()
