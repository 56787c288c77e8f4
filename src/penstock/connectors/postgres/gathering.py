"""Write buffers of PostgreSQL sinks: they hold rows, or parts with columns (`ledger.Writing`)."""

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
