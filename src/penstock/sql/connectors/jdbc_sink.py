"""Writes a table's changes into PostgreSQL: inserts, or upserts and deletes by primary key.

Only the last change of each key in a batch is written: one INSERT … ON CONFLICT upserts rows, and one DELETE removes
rows. Writing a batch again therefore changes nothing. Changes that were written before a failure and are not emitted
again afterwards remain in the table; only a sink with a ledger avoids this.

Keys that differ here may be equal in the database: in a column of type timestamp(0), citext, char(n), uuid or numeric
with fewer digits. If the types of the key columns allow that, the database determines the last change of each key
itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.codecs.column_data import ColumnData
from penstock.connectors.postgres.client import Address, JdbcExecutionOptions, naming, quoted, quoted_list, quoted_path
from penstock.connectors.postgres.ledger import (
    Gathered,
    GatheringWriter,
    LedgerCommitter,
    RowsToHold,
    WrittenRows,
    run_name,
)
from penstock.connectors.postgres.sink import is_plain_table
from penstock.connectors.postgres.text_columns import SESSION, format_csv, has_exact_keys, to_server_texts
from penstock.runtime.connector import Committer, Sink, SinkWriter, SinkWriterContext
from penstock.sql.data.arrow import arrow_type, columns_of_changes
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import DELETE, UPDATE_BEFORE
from penstock.sql.tables.tables import Part, concatenate_kinds, last_of_each, whole_column

if TYPE_CHECKING:
    import psycopg

#: The index of a change in its batch, in the temporary tables. User columns do not have this prefix.
_PLACE: Final = "__penstock_place"


@dataclass(frozen=True, slots=True)
class Target:
    """The table to write.

    Attributes:
        address: the database.
        table: the path of the table.
        names: the names of the written columns, in order.
        types: the types of these columns.
        key: the positions of the primary key columns; empty if rows are only inserted.
    """

    address: Address
    table: str
    names: tuple[str, ...]
    types: tuple[DataType, ...]
    key: tuple[int, ...]


class JdbcTableSink(Sink[Any]):
    """Accepts rows as (kind, internal values), or columns.

    Args:
        target: the table to write.
        execution: when to write.
        ledger_table: records the rows written, so that each row is written once; None to write while rows arrive.
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
        """Whether rows become visible only on commit: true for exactly-once writes."""
        return self._ledger_table is not None


class _TableWriter(GatheringWriter):
    """Buffers columns."""

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
    """Writes columns within a transaction, once per transaction (`ledger.Writing`)."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._table = quoted_path(target.table)
        self._connection: psycopg.Connection[Any] | None = None
        self._copies = False
        digest = hashlib.blake2b(repr((target.table, target.names)).encode(), digest_size=6).hexdigest()
        self._stage, self._gone = f"penstock_rows_{digest}", f"penstock_keys_{digest}"
        self._is_exact = True

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """See `Writing`."""
        if connection is self._connection:
            return
        target = self._target
        connection.execute(SESSION)
        with naming(f"cannot write into {self._table}"):
            self._copies = not target.key and is_plain_table(connection, self._table)
            if target.key:
                self._is_exact = has_exact_keys(connection, self._table, self._key_types())
            if not self._copies:
                self._make(connection, self._stage, target.names)
            if target.key:
                self._make(connection, self._gone, self._key())
        self._connection = connection

    def _key(self) -> list[str]:
        return [self._target.names[index] for index in self._target.key]

    def _key_types(self) -> list[tuple[str, pa.DataType]]:
        return [(self._target.names[index], arrow_type(self._target.types[index])) for index in self._target.key]

    def _make(self, connection: psycopg.Connection[Any], stage: str, names: Sequence[str]) -> None:
        position_column = "" if self._is_exact else f", 0::bigint AS {_PLACE}"
        connection.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS {stage} ON COMMIT DELETE ROWS AS "
            f"SELECT {quoted_list(names)}{position_column} FROM {self._table} WITH NO DATA"
        )

    def run(self, connection: psycopg.Connection[Any], rows: Sequence[Part]) -> None:
        """See `Writing`."""
        target = self._target
        table = pa.Table.from_batches([data.columns.rename_columns(list(target.names)) for data, _ in rows])
        columns = [whole_column(column) for column in table.itercolumns()]
        with naming(f"PostgreSQL refuses rows of {self._table}"):
            if target.key:
                self._replace(connection, columns, concatenate_kinds(rows))
            elif self._copies:
                self._copy(connection, self._table, target.names, columns)
            else:
                self._copy(connection, self._stage, target.names, columns)
                self._insert(connection, "")

    def _replace(self, connection: psycopg.Connection[Any], columns: list[pa.Array], kinds: Any) -> None:
        target = self._target
        last = last_of_each([columns[index] for index in target.key])
        # An update's previous row is the last change of its key if the new row has another key.
        is_gone = (kinds[last] == DELETE) | (kinds[last] == UPDATE_BEFORE)
        deleted, upserted = last[is_gone], last[~is_gone]
        key = self._key()
        if len(deleted):
            keys = [columns[index].take(pa.array(deleted)) for index in target.key]
            self._copy(connection, self._gone, *self._with_places(key, keys, deleted))
            matches = _matches(key, "t", "k")
            connection.execute(f"DELETE FROM {self._table} AS t USING {self._gone} AS k WHERE {matches}")
        if len(upserted):
            rows = [column.take(pa.array(upserted)) for column in columns]
            self._copy(connection, self._stage, *self._with_places(target.names, rows, upserted))
            non_key_columns = [name for name in target.names if name not in key]
            sets = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in non_key_columns)
            does = f"UPDATE SET {sets}" if non_key_columns else "NOTHING"
            source = None if self._is_exact else self._last_rows(key, non_key_columns)
            # Sort by key, so that concurrent writers do not wait for each other.
            self._insert(connection, f" ORDER BY {quoted_list(key)} ON CONFLICT ({quoted_list(key)}) DO {does}", source)

    def _with_places(
        self, names: Sequence[str], columns: Sequence[pa.Array], indices: Any
    ) -> tuple[Sequence[str], Sequence[pa.Array]]:
        """Return the columns, with the index of each change in the batch if the database compares keys itself."""
        if self._is_exact:
            return names, columns
        return [*names, _PLACE], [*columns, pa.array(indices, pa.int64())]

    def _last_rows(self, key: Sequence[str], non_key_columns: Sequence[str]) -> str:
        """Return a subquery for the rows that remain if the staged changes are executed one by one after the deletions.

        An update does not write the key, so a row has the key of its first change, and the other columns of its last
        one.
        """
        columns = [f"first_value(s.{quoted(name)}) OVER w AS {quoted(name)}" for name in key]
        columns += [f"last_value(s.{quoted(name)}) OVER w AS {quoted(name)}" for name in non_key_columns]
        keys = ", ".join(f"s.{quoted(name)}" for name in key)
        by_place = f"PARTITION BY {keys} ORDER BY s.{_PLACE}"
        return (
            f"(SELECT {', '.join(columns)}, row_number() OVER ({by_place}) AS {_PLACE} FROM {self._stage} AS s "
            f"WHERE NOT EXISTS (SELECT FROM {self._gone} AS k WHERE {_matches(key, 'k', 's')} "
            f"AND k.{_PLACE} > s.{_PLACE}) "
            f"WINDOW w AS ({by_place} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)) AS r "
            f"WHERE {_PLACE} = 1"
        )

    def _insert(self, connection: psycopg.Connection[Any], clause: str, source: str | None = None) -> None:
        names = quoted_list(self._target.names)
        connection.execute(f"INSERT INTO {self._table} ({names}) SELECT {names} FROM {source or self._stage}{clause}")

    def _copy(
        self, connection: psycopg.Connection[Any], table: str, names: Sequence[str], columns: Sequence[pa.Array]
    ) -> None:
        lines = format_csv([to_server_texts(column) for column in columns])
        text = f"COPY {table} ({quoted_list(names)}) FROM STDIN (FORMAT csv)"
        with connection.cursor() as cursor, cursor.copy(text) as copy:
            copy.write(lines)


def _matches(key: Sequence[str], alias: str, other: str) -> str:
    return " AND ".join(f"{alias}.{quoted(name)} = {other}.{quoted(name)}" for name in key)
