"""`JdbcSink`: writes records to PostgreSQL with an SQL statement, at least once or exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.base.composite_types import RowTypeInfo, TupleTypeInfo
from penstock.base.errors import MisuseError, UnsupportedError
from penstock.base.typeinfo import TypeInformation
from penstock.base.types import Row, RowKind, values_by_names
from penstock.connectors.postgres.client import Address, driver
from penstock.connectors.postgres.gathering import Gathered, GatheringWriter, RowsToHold, WrittenRows
from penstock.connectors.postgres.ledger import LedgerCommitter, run_name
from penstock.connectors.postgres.options import (
    JdbcConnectionOptions,
    JdbcExactlyOnceOptions,
    JdbcExecutionOptions,
)
from penstock.connectors.postgres.statements import Execution, Statement
from penstock.core.connector import Committer, RecordError, Sink, SinkWriter, SinkWriterContext

if TYPE_CHECKING:
    pass


class JdbcSink(Sink[Any]):
    """Executes a statement for each record; created by `sink` or `exactly_once_sink`."""

    def __init__(
        self,
        statement: Statement,
        address: Address,
        execution: JdbcExecutionOptions,
        exactly_once: JdbcExactlyOnceOptions | None,
        names: tuple[str, ...] = (),
    ) -> None:
        self._statement = statement
        #: the names of the records' fields, if they have any
        self._names = names
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
        """Create a sink that writes as records arrive: at least once.

        With an idempotent statement, such as an INSERT with ON CONFLICT (key) DO UPDATE, the table is correct even
        after a failure, provided that the job produces the same records again. It may not be if the result depends on
        the order of several sources: use `exactly_once_sink`.

        Args:
            sql: the statement, with a `?` for each field of a record, in their order, as in JDBC.
            type_info: the type of the records, ROW or TUPLE; its number of fields is checked against the statement.
            jdbc_connection_options: the database's address and user.
            jdbc_execution_options: when to write; by default 5000 rows at a time, and at checkpoints.

        Raises:
            MisuseError: if the statement does not fit the type.
            ConfigurationError: if the statement has no `?`, or psycopg is missing.
        """
        return JdbcSink._build_sink(sql, type_info, jdbc_connection_options, jdbc_execution_options, None)

    @staticmethod
    def exactly_once_sink(
        sql: str,
        type_info: TypeInformation | None,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_exactly_once_options: JdbcExactlyOnceOptions | None = None,
    ) -> JdbcSink:
        """Create a sink that writes each record once, when the checkpoint that covers it is complete.

        Until then, rows are held in memory and in the checkpoint. A table in the database records each commit in the
        same transaction (`penstock.connectors.postgres.ledger` explains why).
        """
        options = jdbc_exactly_once_options or JdbcExactlyOnceOptions.defaults()
        return JdbcSink._build_sink(sql, type_info, jdbc_connection_options, None, options)

    @staticmethod
    def _build_sink(
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
        names = tuple(type_info.get_field_names()) if isinstance(type_info, RowTypeInfo) else ()
        options = execution or JdbcExecutionOptions.defaults()
        return JdbcSink(statement, connection.address(), options, exactly_once, names)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        to_row = _row_maker(self._statement, self._names)
        gathered: Gathered = (
            WrittenRows(context, self._address, self._execution, Execution(self._statement))
            if self._exactly_once is None
            else RowsToHold(run_name(context))
        )
        return _RecordsWriter(gathered, to_row)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """See `Sink`."""
        options = self._exactly_once
        if options is None:
            return None
        return LedgerCommitter(self._address, options.ledger_table, options.max_retries, Execution(self._statement))

    @property
    def shows_on_commit(self) -> bool:
        """Whether rows wait for the checkpoint; only exactly-once sinks do."""
        return self._exactly_once is not None


def _row_maker(statement: Statement, names: tuple[str, ...]) -> Callable[[Sequence[Any]], list[tuple[Any, ...]]]:
    """Return a function that converts records into statement values: rows by these names, others by position."""
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
                row = tuple(values_by_names(value, names))
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


class _RecordsWriter(GatheringWriter):
    """Buffers rows."""

    def __init__(self, gathered: Gathered, to_rows: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        super().__init__(gathered)
        self._to_rows = to_rows

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        rows = self._to_rows(values)
        self._gathered.add(rows, len(rows))
