"""`TableResult`: what a statement gives, its rows, and the job that makes them."""

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
    """Rows of a result, as they come. Closing it (or leaving its `with` block) stops the query."""

    def __init__(self, rows: Iterator[ChangelogRow], on_close: Callable[[], None] | None = None) -> None:
        self._rows = rows
        self._on_close = on_close

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Row:
        """The next row; waits for it. Raises what made the job fail."""
        kind, values = next(self._rows)
        return Row.of_kind(_KINDS[kind], *values)

    def next(self) -> Row:
        """The next row; waits for it. Raises StopIteration at the end, and what made the job fail."""
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
    """What a statement gives. The rows of a query come once: to `collect` or to `print`.

    Args:
        result_kind: whether there are rows.
        schema: the columns of the rows.
        rows: gives the rows.
        style: how they are printed.
        job: the job that makes them, if there is one.
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
        """Whether there are rows."""
        return self._result_kind

    def get_resolved_schema(self) -> ResolvedSchema:
        """The columns of the rows."""
        return self._schema

    def get_table_schema(self) -> TableSchema:
        """The names and types of the columns, in the older form; `get_resolved_schema` says more."""
        names = self._schema.get_column_names()
        return TableSchema(names, self._schema.get_column_data_types())

    def get_job_client(self) -> JobClient | None:
        """The client of the job, or None for a statement without one."""
        return None if self._job is None else self._job.client()

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait until the result can be read. All rows stay for `collect` and `print`.

        For a query this is its first row, or its end; for an INSERT the end of its job. Other statements have their
        results at once.

        Args:
            timeout_ms: how long to wait at most, in milliseconds; None for no limit.

        Raises:
            CallTimeoutError: if the result is not there by then.
            JobExecutionError: if the job fails before.
        """
        if self._job is not None:
            self._job.wait(timeout_ms)

    def collect(self) -> CloseableIterator:
        """The rows as they come. Those of an INSERT, which are counts, come when its job has ended.

        Raises:
            WrongTimeError: if the rows of a query were asked for before.
        """
        return CloseableIterator(self._take(), self._on_close)

    def print(self) -> None:
        """Print the rows as they come, until there are no more.

        Raises:
            WrongTimeError: if the rows of a query were asked for before.
        """
        self._style.print(self._take(), sys.stdout.write)
        sys.stdout.flush()

    def _take(self) -> Iterator[ChangelogRow]:
        if self._is_read and self._on_close is not None:
            raise WrongTimeError("the rows of a query come once, and they were asked for before: run the query again")
        self._is_read = True
        return self._rows()
