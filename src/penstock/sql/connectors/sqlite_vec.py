"""`sqlite-vec`: a table in a SQLite file, which the extension sqlite-vec searches.

It is a virtual table `vec0`, or a table with vectors as BLOB or as JSON text, which is compared row by row. Columns
have the same names in both.

Rows are written in one transaction, which is rolled back after any error: sqlite-vec 0.1.9 keeps parts of a row whose
INSERT has failed. It accepts a NaN, and by cosine a zero vector. They have no distance, and may come first for every
query; so the table is checked when a search opens it, which takes as long as a few searches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from penstock.base.errors import MissingPathError, OperationError, UnsupportedError
from penstock.sql.connectors import vector_stores as stores
from penstock.sql.data import types
from penstock.sql.data.errors import ValidationError
from penstock.sql.tables.connector import TableOptions
from penstock.sql.tables.vectors import COSINE, DOT, L2, VectorColumn, import_optional

PATH: Final = stores.text_option("path", "The SQLite file.")
TABLE: Final = stores.text_option(
    "table-name", "The table in the file: a virtual table `vec0`, or a table with vectors as BLOB or JSON text."
)
#: the greatest number of rows that a virtual table returns
_NEAREST_MAX: Final = 4_096
_LOCK_WAIT_MS: Final = 60_000


class SqliteVecConnector(stores.StoreConnector):
    """See the module docstring."""

    name = "sqlite-vec"
    package = "apsw", "apsw", "sqlite-vec"
    column_types = (*stores.PLAIN, types.BinaryType, types.VarBinaryType)
    required_options = (PATH, TABLE)
    optional_options = stores.WRITING

    def create_store(self, options: TableOptions, searched: VectorColumn, key: Sequence[int]) -> stores.Store:
        """See `StoreConnector`. Raises `UnsupportedError` for the metric `dot`."""
        import_optional("sqlite_vec", "sqlite-vec", "sqlite-vec", f"connector '{self.name}' of table {options.title}")
        if searched.metric == DOT:
            raise UnsupportedError(
                f"sqlite-vec has no inner product: 'vector.metric' of table {options.title} is {COSINE} or {L2}"
            )
        for column in searched.schema:
            if isinstance(column.type, types.ArrayType) and not stores.is_vector_type(column.type):
                raise UnsupportedError(
                    f"column '{column.name}' of table {options.title} is {column.type}, which SQLite does not store: "
                    "its arrays are vectors, ARRAY<FLOAT> or ARRAY<DOUBLE>"
                )
        return StoredInSqlite(options.required(PATH), options.required(TABLE), searched, key)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class StoredInSqlite(stores.Store):
    """See the module docstring. `path`: the file; `table`: its name there; the others as in `Store`."""

    def __init__(self, path: str, table: str, searched: VectorColumn, key: Sequence[int]) -> None:
        super().__init__(searched, key)
        self._path, self._table = path, table
        self._names = [_quoted(name) for name in self.schema.names]
        self._selected = ", ".join(self._names)

    @contextmanager
    def _naming(self, what: str) -> Any:
        try:
            yield
        except self._errors as error:
            raise OperationError(f"{what} of SQLite's table {self._table} in {self._path} failed: {error}") from error

    def open(self, function_context: Any) -> None:
        """Open the file, and check the table."""
        apsw = import_optional("apsw", "apsw", "sqlite-vec", f"table {self.title}")
        extension = import_optional("sqlite_vec", "sqlite-vec", "sqlite-vec", f"table {self.title}")
        self._errors = apsw.Error
        flags = apsw.SQLITE_OPEN_READWRITE if self.is_written else apsw.SQLITE_OPEN_READONLY
        with self._naming("opening"):
            self._connection = apsw.Connection(self._path, flags)
            self._connection.set_busy_timeout(_LOCK_WAIT_MS)
            self._connection.enable_load_extension(True)
            self._connection.load_extension(extension.loadable_path())
            self._connection.enable_load_extension(False)
            text = self._run("SELECT sql FROM sqlite_master WHERE name = ? COLLATE NOCASE", self._table)
            if not text:
                raise MissingPathError(f"SQLite file {self._path} of table {self.title} has no table {self._table}")
            self._sql = text[0][0] or ""
            self._is_virtual = re.search(r"\bUSING\s+vec0\b", self._sql, re.IGNORECASE) is not None
            for index, column in enumerate(self.schema):
                if stores.is_vector_type(column.type):
                    self.add_vectors(index, *(self._read_definition if self._is_virtual else self._ask_length)(index))
            if not self.is_written:
                self._check_table()

    def _run(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(text, values))

    def _ask_length(self, index: int) -> tuple[str, int | None]:
        """Return the metric of a column, and the length of its first vector."""
        name, table = self._names[index], _quoted(self._table)
        lengths = self._run(f"SELECT vec_length({name}) FROM {table} WHERE {name} IS NOT NULL LIMIT 1")
        return self.searched.metric, lengths[0][0] if lengths else None

    def _read_definition(self, index: int) -> tuple[str, int]:
        """Return the metric of a column of a virtual table, and its length. Raises `ValidationError` for another metric
        than the table's.
        """
        name, wanted = self.schema.names[index], self.searched.metric
        match = re.search(rf"[(,]\s*{re.escape(name)}\s+(\w+)\s*\[\s*(\d+)\s*\]([^,)]*)", self._sql, re.IGNORECASE)
        if match is None or not match[1].lower().startswith("f"):
            raise ValidationError(
                f"column '{name}' of table {self.title} is no float vector of SQLite's table {self._table}: {self._sql}"
            )
        given = re.search(r"distance_metric\s*=\s*(\w+)", match[3], re.IGNORECASE)
        metric = L2 if given is None else given[1].lower()
        if metric != wanted and index == self.searched.column:
            raise ValidationError(
                f"column '{name}' of SQLite's table {self._table} is compared by {metric}, and 'vector.metric' of "
                f"table {self.title} is {wanted}: "
                + (f"set it to {metric}" if metric in (COSINE, L2) else f"the metrics are {COSINE} and {L2}")
            )
        return metric, int(match[2])

    def _check_table(self) -> None:
        """Raise `WrongValueError` for a row whose vector has no distance."""
        name, metric = self._names[self.searched.column], self.searched.metric
        rows = f"SELECT {self._selected} FROM {_quoted(self._table)} WHERE {name} IS NOT NULL"
        if self.length is not None and not self._is_virtual:
            for row in self._run(f"{rows} AND vec_length({name}) <> ? LIMIT 1", self.length):
                self.searched.read([self._as_row(row)], self.length)
        # A vector without a distance has none to itself: it is NULL.
        for row in self._run(f"{rows} AND vec_distance_{metric}({name}, {name}) IS NULL LIMIT 1"):
            values = self._as_row(row)
            self.searched.read([values], len(values[self.searched.column]))
            raise self.searched.refuse(values, stores.OUT_OF_RANGE)

    def find_nearest(self, vector: list[float], top_k: int) -> list[tuple[Any, ...]]:
        """See `StoredVectors`."""
        name, table = self._names[self.searched.column], _quoted(self._table)
        if self._is_virtual and top_k <= _NEAREST_MAX:
            text = f"SELECT {self._selected} FROM {table} WHERE {name} MATCH ? AND k = ?"
        else:
            text = (
                f"SELECT {self._selected} FROM {table} WHERE {name} IS NOT NULL "
                f"ORDER BY vec_distance_{self.searched.metric}({name}, ?) LIMIT ?"
            )
        with self._naming("a search"):
            return list(map(self._as_row, self._run(text, _to_blob(vector), top_k)))

    def _as_row(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(
            _from_blob(value) if index in self.vectors else stores.as_declared(value, self.schema[index].type)
            for index, value in enumerate(values)
        )

    def write(self, deleted: list[tuple[Any, ...]], upserted: list[tuple[Any, ...]]) -> None:
        """See `Store`."""
        table, condition = _quoted(self._table), " AND ".join(f"{self._names[index]} = ?" for index in self.key)
        rows = [
            tuple(_to_blob(value) if index in self.vectors else value for index, value in enumerate(row))
            for row in upserted
        ]
        keys = [*deleted, *(tuple(row[index] for index in self.key) for row in upserted)]
        placeholders = ", ".join("?" * len(self._names))
        with self._naming("writing"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(f"DELETE FROM {table} WHERE {condition}", keys)
                self._connection.executemany(f"INSERT INTO {table} ({self._selected}) VALUES ({placeholders})", rows)
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file."""
        if hasattr(self, "_connection"):
            self._connection.close()


def _to_blob(vector: Sequence[float] | None) -> bytes | None:
    return None if vector is None else np.asarray(vector, np.float32).tobytes()


def _from_blob(stored: bytes | str | None) -> list[float] | None:
    if isinstance(stored, bytes):
        return np.frombuffer(stored, np.float32).astype(np.float64).tolist()  # type: ignore[no-any-return]
    return None if stored is None else list(json.loads(stored))
