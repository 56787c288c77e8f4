"""`TableResult`: the result of a statement, its rows, and the job that produces them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final

from penstock.base.errors import WrongTimeError
from penstock.base.types import Row, RowKind
from penstock.drivers.job_client import JobClient
from penstock.table.catalog.columns import ResolvedSchema
from penstock.table.catalog.table_schema import TableSchema
from penstock.table.plan.executor import ChangelogRow, Job
from penstock.table.session.result_kind import ResultKind
from penstock.table.session.tableau import PrintStyle

__all__ = ["CloseableIterator", "TableResult"]

_KINDS: Final = {kind.short_string: kind for kind in RowKind}


class CloseableIterator:
    """Iterates over result rows as they arrive. Closing it (or leaving its `with` block) stops the query."""

    def __init__(self, rows: Iterator[ChangelogRow], on_close: Callable[[], None] | None = None) -> None:
        self._rows = rows
        self._on_close = on_close

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Row:
        """Wait for the next row and return it. Raises the job's error if it failed."""
        kind, values = next(self._rows)
        return Row.of_kind(_KINDS[kind], *values)

    def next(self) -> Row:
        """Wait for the next row and return it. Raises StopIteration at the end, and the job's error if it failed."""
        return self.__next__()

    def close(self) -> None:
        """Stop the query if it still runs."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self.close()


class TableResult:
    """The result of a statement. The rows of a query can be read once, by `collect` or `print`.

    Args:
        result_kind: whether there are rows.
        schema: the columns of the rows.
        rows: returns the rows.
        style: how to print them.
        job: the job that produces them, if any.
        on_close: stops the query.
    """

    def __init__(
        self,
        result_kind: ResultKind,
        schema: ResolvedSchema,
        rows: Callable[[], Iterator[ChangelogRow]],
        style: PrintStyle,
        job: Job | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._result_kind = result_kind
        self._schema = schema
        self._rows = rows
        self._style = style
        self._job = job
        self._on_close = on_close
        self._is_read = False

    def get_result_kind(self) -> ResultKind:
        """Return whether there are rows."""
        return self._result_kind

    def get_resolved_schema(self) -> ResolvedSchema:
        """Return the columns of the rows."""
        return self._schema

    def get_table_schema(self) -> TableSchema:
        """Return the column names and types in the older form; `get_resolved_schema` has more detail."""
        names = self._schema.get_column_names()
        return TableSchema(names, self._schema.get_column_data_types())

    def get_job_client(self) -> JobClient | None:
        """Return the client of the job, or None for a statement without a job."""
        return None if self._job is None else self._job.client()

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait until the result is available. All rows remain for `collect` and `print`.

        A query waits for its first row or its end, an INSERT for the end of its job. Other statements have their
        results immediately.

        Args:
            timeout_ms: the longest time to wait, in milliseconds; None for no limit.

        Raises:
            CallTimeoutError: if the result is not available by then.
            JobExecutionError: if the job fails first.
        """
        if self._job is not None:
            self._job.wait(timeout_ms)

    def collect(self) -> CloseableIterator:
        """Return the rows as they arrive. The row counts of an INSERT are available when its job ends.

        Raises:
            WrongTimeError: if the rows of a query were requested before.
        """
        return CloseableIterator(self._take(), self._on_close)

    def print(self) -> None:
        """Print the rows as they arrive, until the end.

        Raises:
            WrongTimeError: if the rows of a query were requested before.
        """
        self._style.print(self._take(), sys.stdout.write)
        sys.stdout.flush()

    def _take(self) -> Iterator[ChangelogRow]:
        if self._is_read and self._on_close is not None:
            raise WrongTimeError("the rows of a query come once, and they were asked for before: run the query again")
        self._is_read = True
        return self._rows()
