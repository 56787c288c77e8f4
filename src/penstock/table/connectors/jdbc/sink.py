"""Writes the changes of a table into PostgreSQL: inserts, or rows by their primary key.

Of each key only the last change of a batch is written: rows are put in the place of those that were there, by one
INSERT … ON CONFLICT, and rows that go are deleted, by one DELETE. So writing a batch again changes nothing. Changes
that are written, and after a failure do not come again, stay: only a sink with a ledger has none of those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.codecs.column_data import ColumnData
from penstock.connectors.postgres.client import Address, naming, quoted, quoted_list, quoted_path
from penstock.connectors.postgres.gathering import Gathered, GatheringWriter, RowsToHold, WrittenRows
from penstock.connectors.postgres.ledger import LedgerCommitter, run_name
from penstock.connectors.postgres.options import JdbcExecutionOptions
from penstock.connectors.postgres.statements import is_plain_table
from penstock.connectors.postgres.text_columns import SESSION, csv_of, texts_of
from penstock.core.connector import Committer, Sink, SinkWriter, SinkWriterContext
from penstock.table.connectors.last_changes import Part, kinds_of, last_of_each, whole_column
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import columns_of_changes
from penstock.table.plan.changes import DELETE, UPDATE_BEFORE

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go.

    Attributes:
        address: the database.
        table: the path of the table.
        names: its columns, in the order of those that are written, and
        types: their types.
        key: the places of its primary key; none where rows are only inserted.
    """

    address: Address
    table: str
    names: tuple[str, ...]
    types: tuple[DataType, ...]
    key: tuple[int, ...]


class JdbcTableSink(Sink[Any]):
    """Takes rows as (kind, held values), or columns.

    Args:
        target: where rows go.
        execution: when.
        ledger_table: notes what was written, each row once; None to write while rows come.
    """

    def __init__(self, target: Target, execution: JdbcExecutionOptions, ledger_table: str | None) -> None:
        self._target = target
        self._execution = execution
        self._ledger_table = ledger_table

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        target = self._target
        gathered: Gathered = (
            WrittenRows(context, target.address, self._execution, ColumnsWriting(target))
            if self._ledger_table is None
            else RowsToHold(run_name(context))
        )
        return _TableWriter(target, gathered)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """See `Sink`."""
        if self._ledger_table is None:
            return None
        retries = self._execution.max_retries
        return LedgerCommitter(self._target.address, self._ledger_table, retries, ColumnsWriting(self._target))

    @property
    def shows_on_commit(self) -> bool:
        """Only what is written exactly once waits for the checkpoint."""
        return self._ledger_table is not None


class _TableWriter(GatheringWriter):
    """Gathers columns."""

    def __init__(self, target: Target, gathered: Gathered) -> None:
        super().__init__(gathered)
        self._target = target

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if not values:
            return
        columns, kinds = columns_of_changes(values, self._target.names, self._target.types)
        self._add(ColumnData(columns), kinds if any(kinds) else None)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._add(data, None)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._add(data, kinds)

    def _add(self, data: ColumnData, kinds: bytes | None) -> None:
        self._gathered.add([(data, kinds)], len(data))


class ColumnsWriting:
    """Writes columns within a transaction, once in each (`ledger.Writing`)."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._table = quoted_path(target.table)
        self._connection: psycopg.Connection[Any] | None = None
        self._copies = False
        digest = hashlib.blake2b(repr((target.table, target.names)).encode(), digest_size=6).hexdigest()
        self._stage, self._gone = f"penstock_rows_{digest}", f"penstock_keys_{digest}"

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """See `Writing`."""
        if connection is self._connection:
            return
        target = self._target
        connection.execute(SESSION)
        with naming(f"cannot write into {self._table}"):
            self._copies = not target.key and is_plain_table(connection, self._table)
            if not self._copies:
                self._make(connection, self._stage, target.names)
            if target.key:
                self._make(connection, self._gone, [target.names[place] for place in target.key])
        self._connection = connection

    def _make(self, connection: psycopg.Connection[Any], stage: str, names: Sequence[str]) -> None:
        connection.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS {stage} ON COMMIT DELETE ROWS AS "
            f"SELECT {quoted_list(names)} FROM {self._table} WITH NO DATA"
        )

    def run(self, connection: psycopg.Connection[Any], rows: Sequence[Part]) -> None:
        """See `Writing`."""
        target = self._target
        table = pa.Table.from_batches([data.columns.rename_columns(list(target.names)) for data, _ in rows])
        columns = [whole_column(column) for column in table.itercolumns()]
        with naming(f"PostgreSQL refuses rows of {self._table}"):
            if target.key:
                self._replace(connection, columns, kinds_of(rows))
            elif self._copies:
                self._copy(connection, self._table, target.names, columns)
            else:
                self._copy(connection, self._stage, target.names, columns)
                self._insert(connection, "")

    def _replace(self, connection: psycopg.Connection[Any], columns: list[pa.Array], kinds: Any) -> None:
        target = self._target
        last = last_of_each([columns[place] for place in target.key])
        # An update's row before is the last change of its key where the row after has another one.
        is_gone = (kinds[last] == DELETE) | (kinds[last] == UPDATE_BEFORE)
        gone, there = last[is_gone], last[~is_gone]
        key = [target.names[place] for place in target.key]
        if len(gone):
            self._copy(connection, self._gone, key, [columns[place].take(pa.array(gone)) for place in target.key])
            matches = " AND ".join(f"t.{quoted(name)} = k.{quoted(name)}" for name in key)
            connection.execute(f"DELETE FROM {self._table} AS t USING {self._gone} AS k WHERE {matches}")
        if len(there):
            self._copy(connection, self._stage, target.names, [column.take(pa.array(there)) for column in columns])
            others = [quoted(name) for place, name in enumerate(target.names) if place not in target.key]
            sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
            does = f"UPDATE SET {sets}" if others else "NOTHING"
            # In the order of their keys, so that two who write do not wait for each other.
            self._insert(connection, f" ORDER BY {quoted_list(key)} ON CONFLICT ({quoted_list(key)}) DO {does}")

    def _insert(self, connection: psycopg.Connection[Any], clause: str) -> None:
        names = quoted_list(self._target.names)
        connection.execute(f"INSERT INTO {self._table} ({names}) SELECT {names} FROM {self._stage}{clause}")

    def _copy(
        self, connection: psycopg.Connection[Any], table: str, names: Sequence[str], columns: Sequence[pa.Array]
    ) -> None:
        lines = csv_of([texts_of(column) for column in columns])
        text = f"COPY {table} ({quoted_list(names)}) FROM STDIN (FORMAT csv)"
        with connection.cursor() as cursor, cursor.copy(text) as copy:
            copy.write(lines)
