"""`JdbcSink`: records into PostgreSQL by a statement, at least once or exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.base.composite_types import RowTypeInfo, TupleTypeInfo
from penstock.base.errors import MisuseError, UnsupportedError
from penstock.base.typeinfo import TypeInformation
from penstock.base.types import Row, RowKind
from penstock.connectors.postgres.client import Address, Link, driver
from penstock.connectors.postgres.ledger import HeldRows, LedgerCommitter, Writing, run_name
from penstock.connectors.postgres.options import (
    JdbcConnectionOptions,
    JdbcExactlyOnceOptions,
    JdbcExecutionOptions,
)
from penstock.connectors.postgres.statements import Execution, Statement
from penstock.core.connector import Committer, RecordError, Sink, SinkWriter, SinkWriterContext

if TYPE_CHECKING:
    import psycopg


class JdbcSink(Sink[Any]):
    """Executes a statement for each record; made by `sink` or `exactly_once_sink`."""

    def __init__(
        self,
        statement: Statement,
        address: Address,
        execution: JdbcExecutionOptions,
        exactly_once: JdbcExactlyOnceOptions | None,
    ) -> None:
        self._statement = statement
        self._address = address
        self._execution = execution
        self._exactly_once = exactly_once

    @staticmethod
    def sink(
        sql: str,
        type_info: TypeInformation | None,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """A sink that writes while records come: at least once.

        With a statement that may be repeated, such as an INSERT with ON CONFLICT (key) DO UPDATE, the table is right
        after a failure all the same, if the job gives the same records again. Where it depends on the order in which
        several sources come, it may not: use `exactly_once_sink`.

        Args:
            sql: with a `?` for each field of a record, in their order, as in JDBC.
            type_info: the type of the records, ROW or TUPLE; their number of fields is compared with the statement.
            jdbc_connection_options: where the database is.
            jdbc_execution_options: when to write; by default 5000 rows at a time, and at checkpoints.

        Raises:
            ConfigurationError: for a statement that does not fit the type, or without psycopg.
        """
        return JdbcSink._of(sql, type_info, jdbc_connection_options, jdbc_execution_options, None)

    @staticmethod
    def exactly_once_sink(
        sql: str,
        type_info: TypeInformation | None,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_exactly_once_options: JdbcExactlyOnceOptions | None = None,
    ) -> JdbcSink:
        """A sink that writes each record once, when the checkpoint that covers it is complete.

        Rows are held in memory and in the checkpoint until then. A table of the database notes what was written, in
        the same transaction (`penstock.connectors.postgres.ledger` says why).
        """
        options = jdbc_exactly_once_options or JdbcExactlyOnceOptions.defaults()
        return JdbcSink._of(sql, type_info, jdbc_connection_options, None, options)

    @staticmethod
    def _of(
        sql: str,
        type_info: TypeInformation | None,
        connection: JdbcConnectionOptions,
        execution: JdbcExecutionOptions | None,
        exactly_once: JdbcExactlyOnceOptions | None,
    ) -> JdbcSink:
        driver()
        statement = Statement.of(sql)
        fields = type_info.get_field_types() if isinstance(type_info, RowTypeInfo | TupleTypeInfo) else None
        if fields is not None and len(fields) != statement.count:
            raise MisuseError(
                f"records have {len(fields)} fields, but the statement takes {statement.count} values: {sql}"
            )
        return JdbcSink(statement, connection.address(), execution or JdbcExecutionOptions.defaults(), exactly_once)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        to_row = _row_maker(self._statement)
        if self._exactly_once is not None:
            return HoldingWriter(run_name(context), to_row)
        return WritingWriter(context, self._address, self._execution, Execution(self._statement), to_row)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """See `Sink`."""
        options = self._exactly_once
        if options is None:
            return None
        return LedgerCommitter(self._address, options.ledger_table, options.max_retries, Execution(self._statement))

    @property
    def shows_on_commit(self) -> bool:
        """Only what is written exactly once waits for the checkpoint."""
        return self._exactly_once is not None


def _row_maker(statement: Statement) -> Callable[[Sequence[Any]], list[tuple[Any, ...]]]:
    """Records as the values of a statement."""
    count, insert = statement.count, RowKind.INSERT

    def made(values: Sequence[Any]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        append = rows.append
        for value in values:
            kind = type(value)
            if kind is Row:
                if value.get_row_kind() is not insert:
                    error = UnsupportedError(
                        "JdbcSink executes one statement for all records, but this is a change of a table that is no "
                        "insert: write changes by the table connector 'jdbc'"
                    )
                    raise RecordError(value, "the sink") from error
                row = tuple(value)
            elif isinstance(value, tuple | list):
                row = tuple(value)
            else:
                row = (value,)
            if len(row) != count:
                mismatch = MisuseError(f"the statement takes {count} values, but the record has {len(row)} fields")
                raise RecordError(value, "the sink") from mismatch
            append(row)
        return rows

    return made


class WritingWriter(SinkWriter[Any, Any]):
    """Writes what it has gathered when it is enough, when it has waited long enough, and at every checkpoint."""

    def __init__(
        self,
        context: SinkWriterContext,
        address: Address,
        options: JdbcExecutionOptions,
        writing: Writing,
        to_rows: Callable[[Sequence[Any]], Sequence[Any]],
    ) -> None:
        self._context = context
        self._link = Link(address)
        self._options = options
        self._writing = writing
        self._to_rows = to_rows
        self._rows: list[Any] = []
        self._due_ms: int | None = None

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        self._rows += self._to_rows(values)
        if len(self._rows) >= self._options.batch_size:
            self.flush(False)
        elif self._due_ms is None and self._options.batch_interval_ms:
            self._due_ms = self._context.now_ms() + self._options.batch_interval_ms

    def next_flush_ms(self) -> int | None:
        """When rows have waited for as long as they may."""
        return self._due_ms

    def flush(self, end_of_input: bool) -> None:
        """Write what there is."""
        self._due_ms = None
        if self._rows:
            self._link.retrying(self._options.max_retries, self._write)
            self._rows = []

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        self._writing.prepare(connection)
        with connection.transaction():
            self._writing.run(connection, self._rows)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


class HoldingWriter(SinkWriter[Any, HeldRows]):
    """Holds rows until a checkpoint takes them."""

    def __init__(self, run: str, to_rows: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._run = run
        self._to_rows = to_rows
        self._number = 0
        self._rows: list[Any] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        self._rows += self._to_rows(values)

    def prepare_commit(self) -> list[HeldRows]:
        """See `SinkWriter`."""
        if not self._rows:
            return []
        self._number += 1
        rows, self._rows = self._rows, []
        return [HeldRows(self._run, self._number, rows)]
