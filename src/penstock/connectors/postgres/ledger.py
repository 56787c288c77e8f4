"""Exactly once into PostgreSQL: what a sink holds until its checkpoint is complete, and the ledger of what it wrote.

Rows must not be seen before the checkpoint that covers them is complete, and must be written once, though nobody knows
after a failure whether the commit got through. Two ways were weighed.

**PREPARE TRANSACTION** (what Flink's `JdbcExactlyOnceOptions` use, by XA). A writer inserts into an open transaction
and prepares it at the barrier; the prepared transaction survives everything and is committed when the checkpoint is
complete.

- A prepared transaction holds its locks. The next transaction of the same writer that touches one of its keys waits
  for it, in the thread that is to commit it: an upsert of the same key in two checkpoints stands still for ever.
- It belongs to nobody. Of a job that is gone it stays, with its locks, and holds back VACUUM for the whole server. Who
  may roll it back? A new attempt, if it knows every checkpoint and savepoint that may name it: as with part files
  (`connectors/file/part_names.py`), but a forgotten file does no harm.
- Committing twice gives "does not exist", which cannot be told from a transaction that an administrator rolled back.
  So a loss would look like a success.
- It is off in a server as it is installed (`max_prepared_transactions = 0`), and needs a restart to be turned on; many
  who rent a server, or reach it through a pooler, cannot.

**A ledger.** The writer holds rows until the barrier and hands them out as a committable, which the checkpoint stores.
When the checkpoint is complete, one transaction of the server writes the rows *and* notes in a table that it has done
so. That is what is built.

- *Twice.* A committable has a name: the run of its writer (a text that no two runs share) and a number. A transaction
  that finds the name in the ledger does nothing. Rows and name are one transaction, so there is no moment between.
- *Lost answers.* A commit whose answer was lost is tried again, and finds its name or not.
- *Zombies.* A task that was given up and lives on may commit at the same time as its successor. The ledger's row of a
  run is locked by the first; the second waits and then finds the name. Nothing later is written by the successor
  before, since restored committables are committed before its writer begins. A zombie that stands still in the middle
  of its transaction is ended by the server after `idle_in_transaction_session_timeout`, which every connection sets.
- *Nothing is left behind.* Until the commit the server has nothing: no lock, no transaction, no staged row. What no
  checkpoint completed goes with the process. There is nothing that anybody would have to roll back, and a savepoint
  owns its rows, since they are in it.
- *Order.* Rows of one key come to one run at a time, and what a run has prepared is committed in its order: at another
  parallelism it goes to one subtask as a whole. All that was restored is committed before the new attempt has its first
  checkpoint, which needs every task. So of two changes of a key the later one is committed later.
- *Size.* The ledger does not rely on that order. It keeps all numbers of a run, as ranges: one that has committed 1 to
  9000 is one row with `{[1,9001)}`. So it grows by a row a writer and attempt, not by checkpoints.
- *A job that starts from an old savepoint* finds what the savepoint names as committed, whenever it was. Rows of the
  ledger are never deleted by Penstock: delete those whose `committed_at` is older than every savepoint that you keep.

What it costs: the rows between two checkpoints are in memory, and in the checkpoint. A checkpoint a few seconds apart
bounds that. For more than memory holds there is the sink that writes at once, with a statement that may be repeated.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.connectors.postgres.client import Address, Link, quoted_path
from penstock.core.connector import Committer, SinkWriterContext

if TYPE_CHECKING:
    import psycopg

#: What `pg_advisory_xact_lock` is told, so that two subtasks do not make the table at the same time.
_MAKING: Final = zlib.crc32(b"penstock ledger")


@dataclass(frozen=True, slots=True)
class HeldRows:
    """A committable: what to write, under a name that only this has.

    Attributes:
        run: the run of the writer.
        number: from 1, counted by the run.
        rows: whatever the sink's `Writing` takes.
    """

    run: str
    number: int
    rows: Any


def run_name(context: SinkWriterContext) -> str:
    """The name of a run: no two jobs, operators, subtasks, attempts or doubles of a task share one."""
    return f"{context.job_id}/{context.operator_id}/{context.subtask_index}/{context.run}"


class Writing(Protocol):
    """Writes rows within a transaction."""

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Get a connection ready, outside of a transaction."""

    def run(self, connection: psycopg.Connection[Any], rows: Any) -> None:
        """Write them, in a transaction that is open."""


class LedgerCommitter(Committer[HeldRows]):
    """Writes what is committed together with its name, each committable in one transaction."""

    def __init__(self, address: Address, ledger_table: str, retries: int, writing: Writing) -> None:
        self._link = Link(address)
        self._ledger = quoted_path(ledger_table)
        self._retries = retries
        self._writing = writing
        self._ready: psycopg.Connection[Any] | None = None

    def commit(self, committables: Sequence[HeldRows]) -> None:
        """See `Committer`."""
        for one in committables:
            self._link.retrying(self._retries, partial(self._commit, one))

    def _commit(self, held: HeldRows, connection: psycopg.Connection[Any]) -> None:
        self._prepare(connection)
        with connection.transaction():
            noted = connection.execute(
                f"INSERT INTO {self._ledger} AS known (run, numbers) "
                "VALUES (%s, int8multirange(int8range(%s, %s))) "
                "ON CONFLICT (run) DO UPDATE SET numbers = known.numbers + excluded.numbers, committed_at = now() "
                "WHERE NOT known.numbers @> excluded.numbers",
                (held.run, held.number, held.number + 1),
            )
            if noted.rowcount:
                self._writing.run(connection, held.rows)

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        if connection is self._ready:
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            there = connection.execute("SELECT to_regclass(%s)", (self._ledger,)).fetchone()
            if there is None or there[0] is None:
                connection.execute(
                    f"CREATE TABLE {self._ledger} (run text PRIMARY KEY, "
                    "numbers int8multirange NOT NULL, committed_at timestamptz NOT NULL DEFAULT now())"
                )
        self._writing.prepare(connection)
        self._ready = connection

    def close(self) -> None:
        """Close the connection."""
        self._link.close()
