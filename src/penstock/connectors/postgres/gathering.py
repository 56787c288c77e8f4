"""What sinks of PostgreSQL gather before it is written: rows, or parts that are columns (`ledger.Writing`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.connectors.postgres.client import Address, Link
from penstock.connectors.postgres.ledger import HeldRows, Writing
from penstock.connectors.postgres.options import JdbcExecutionOptions
from penstock.core.connector import SinkWriter, SinkWriterContext

if TYPE_CHECKING:
    import psycopg


class Gathered(ABC):
    """Rows on their way, of one writer."""

    @abstractmethod
    def add(self, parts: Sequence[Any], count: int) -> None:
        """Take parts, which hold so many rows."""

    def next_flush_ms(self) -> int | None:
        """When rows have waited for as long as they may."""
        return None

    @abstractmethod
    def flush(self) -> None:
        """Write what there is, if rows are written before a checkpoint is complete."""

    def take(self) -> list[HeldRows]:
        """What a checkpoint is to hold."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Close the connection, if there is one."""


class WrittenRows(Gathered):
    """Written when it is enough, when it has waited long enough, and at every checkpoint."""

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
    """Held until a checkpoint takes them, for the ledger."""

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
        """Nothing is written before a checkpoint is complete."""

    def close(self) -> None:
        """There is no connection."""


class GatheringWriter(SinkWriter[Any, HeldRows]):
    """Gathers what a subclass makes of records."""

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
