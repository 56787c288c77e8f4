"""Searches for vectors by PostgreSQL's extension pgvector, for tables of the connector `jdbc`.

The server orders rows by the operator of the metric, so an index that was created for this operator is used: HNSW or
IVFFlat. Without one it compares all vectors.

An index may return fewer rows than a query wants. HNSW returns at most `hnsw.ef_search`, 40 by default, so this setting
is raised to the number of rows; since 0.8, pgvector searches on until there are enough. If there are still too few, the
query is repeated without an index.

Pgvector itself refuses NaN and infinite numbers in vectors. A zero vector has no cosine: it comes last, after all
others, and is refused where a search meets it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import OperationError, WrongValueError
from penstock.connectors.postgres import client, text_columns
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.tables.vectors import COSINE, DOT, L2, StoredVectors, VectorColumn, seen_rows

if TYPE_CHECKING:
    import psycopg


_OPERATORS: Final = {COSINE: "<=>", DOT: "<#>", L2: "<->"}
#: a type of pgvector in the server's notation, perhaps with its schema and the number of numbers
_VECTOR: Final = re.compile(rf'(?:.*\.)?"?(?:{"|".join(text_columns.VECTORS)})"?(?:\((\d+)\))?')
#: the least version that searches an index on until there are enough rows
_ITERATIVE: Final = (0, 8)
#: the greatest value of `hnsw.ef_search`
_EF_SEARCH_MAX: Final = 1_000


def find_vectors(relation: client.Relation) -> frozenset[str]:
    """Return the names of a table's columns that are vectors of pgvector."""
    return frozenset(column.name for column in relation.columns if _VECTOR.fullmatch(column.sql_type))


class StoredInPostgres(StoredVectors):
    """See the module docstring.

    Args:
        address: the database.
        table: the path of the table.
        unrepresentable: how to read values that a type cannot hold, see `text_columns`.
        searched: the column of vectors.
        zone: the session's time zone.
    """

    def __init__(
        self, address: client.Address, table: str, unrepresentable: str, searched: VectorColumn, zone: Any
    ) -> None:
        super().__init__(searched)
        self._address, self._table, self._unrepresentable, self._zone = address, table, unrepresentable, zone

    def open(self, function_context: Any) -> None:
        """Connect to the server, and check the column."""
        self._connection: psycopg.Connection[Any] | None = None
        self._link = client.Link(self._address)
        self._link.retrying(client.MAX_RETRIES, self._prepare)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        if connection is self._connection:
            return
        connection.execute(text_columns.SESSION)
        extension = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
        if extension is None:
            raise OperationError(
                f"the database of table {self.searched.title} has no pgvector: a superuser creates it with CREATE "
                "EXTENSION vector, or leave out 'vector.index', so that the rows are searched here"
            )
        relation = client.relation(connection, self._table)
        name = self.searched.schema.names[self.searched.column]
        vector_type = relation.column(name).sql_type
        match = _VECTOR.fullmatch(vector_type)
        if match is None:
            raise ValidationError(
                f"column '{name}' of table {self.searched.title} is {vector_type} in PostgreSQL: pgvector searches "
                f"columns of type {' and '.join(text_columns.VECTORS)}"
            )
        self.length = int(match[1]) if match[1] else None
        if tuple(map(int, re.findall(r"\d+", extension[0])[:2])) >= _ITERATIVE:
            connection.execute("SET hnsw.iterative_scan = strict_order; SET ivfflat.iterative_scan = relaxed_order")
        self._path, self._connection, self._wanted = relation.path, connection, 0

    def find_nearest(self, vector: list[float], top_k: int) -> list[tuple[Any, ...]]:
        """See `StoredVectors`."""
        rows = self._find_rows(partial(self._ask, vector, top_k))
        return rows if len(rows) == top_k else self._find_rows(partial(self._ask_without_index, vector, top_k))

    def _find_rows(self, ask: Callable[[psycopg.Connection[Any]], bytes]) -> list[tuple[Any, ...]]:
        lines = self._link.retrying(client.MAX_RETRIES, ask)
        if not lines:
            return []
        kinds, names = [arrow_type(column.type) for column in self.searched.schema], self.searched.schema.names
        texts = text_columns.texts_of_csv(lines, len(kinds))
        keys = [f"c{index}" for index in range(len(kinds))]
        batch = text_columns.parse_batch(texts, kinds, keys, self._unrepresentable, names)
        return seen_rows(batch.columns, self.searched.schema, self._zone)

    def _ask_without_index(self, vector: list[float], top_k: int, connection: psycopg.Connection[Any]) -> bytes:
        connection.execute("SET enable_indexscan = off")
        try:
            return self._ask(vector, top_k, connection)
        finally:
            connection.execute("RESET enable_indexscan")

    def _ask(self, vector: list[float], top_k: int, connection: psycopg.Connection[Any]) -> bytes:
        self._prepare(connection)
        self._reach(connection, top_k)
        name = client.quoted(self.searched.schema.names[self.searched.column])
        text = f"'[{','.join(map(repr, vector))}]'"
        query = (
            f"SELECT {client.quoted_list(self.searched.schema.names)} FROM {self._path} WHERE {name} IS NOT NULL "
            f"ORDER BY {name} {_OPERATORS[self.searched.metric]} {text} LIMIT {top_k}"
        )
        with client.naming(f"cannot search table {self.searched.title} for vectors"):
            try:
                with connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)") as copy:
                    return b"".join(map(bytes, copy))
            except client.driver().errors.DataException as error:
                raise self._find_other_length(connection, name, len(vector)) or error from error

    def _reach(self, connection: psycopg.Connection[Any], top_k: int) -> None:
        """Let an index return as many rows as are wanted."""
        if top_k <= self._wanted:
            return
        connection.execute(
            "SELECT set_config('hnsw.ef_search', greatest(nullif(current_setting('hnsw.ef_search', true), '')::int, "
            f"40, {min(top_k, _EF_SEARCH_MAX)})::text, false)"
        )
        self._wanted = top_k

    def _find_other_length(self, connection: psycopg.Connection[Any], name: str, length: int) -> WrongValueError | None:
        """Return the error for the first row whose vector has another number of numbers than a query."""
        lengths: Sequence[Any] = connection.execute(
            f"SELECT DISTINCT vector_dims({name}) FROM {self._path} WHERE {name} IS NOT NULL LIMIT 2"
        ).fetchall()
        if len(lengths) == 1 and lengths[0][0] != length:
            return WrongValueError(
                f"a vector of {length} numbers: those of table {self.searched.title} have {lengths[0][0]}"
            )
        if len(lengths) < 2:
            return None
        columns = [f"{client.quoted(column)}::text" for column in self.searched.schema.names]
        row = connection.execute(
            f"SELECT vector_dims({name}), {', '.join(columns)} FROM {self._path} WHERE vector_dims({name}) <> {length} "
            "LIMIT 1"
        ).fetchone()
        return None if row is None else self.searched.refuse(row[1:], f"it has {row[0]} numbers instead of {length}")
