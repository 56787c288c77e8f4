"""Table definitions, read from the catalog of a database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.base.errors import MissingPathError, UnknownNameError
from penstock.connectors.postgres.client import quoted_path
from penstock.connectors.postgres.text_columns import to_arrow_type

if TYPE_CHECKING:
    import psycopg

_COLUMNS = """
    SELECT a.attname, t.typname, a.atttypmod, format_type(a.atttypid, a.atttypmod),
           coalesce(array_position(i.indkey::int2[], a.attnum), -1), a.attgenerated <> ''
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column: its name, its Arrow type, its type in the server's notation, and whether the server computes it."""

    name: str
    type: pa.DataType
    sql_type: str
    is_generated: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view: its quoted path, its columns, and the names of its primary key columns."""

    path: str
    columns: tuple[RelationColumn, ...]
    key: tuple[str, ...]

    def column(self, name: str) -> RelationColumn:
        """Return a column. Raises `UnknownNameError` if no column has the name."""
        for candidate in self.columns:
            if candidate.name == name:
                return candidate
        names = ", ".join(column.name for column in self.columns)
        raise UnknownNameError(f"table {self.path} of PostgreSQL has no column {name!r}; it has {names}")


def relation(connection: psycopg.Connection[Any], path: str) -> Relation:
    """Read the definition of a table. Raises `MissingPathError` if it does not exist."""
    quoted = quoted_path(path)
    rows = connection.execute(_COLUMNS, (quoted,)).fetchall()
    if not rows:
        raise MissingPathError(f"PostgreSQL at {connection.info.host}:{connection.info.port} has no table {quoted}")
    columns = tuple(
        RelationColumn(name, to_arrow_type(kind, modifier), sql_type, is_generated)
        for name, kind, modifier, sql_type, _, is_generated in rows
    )
    key = sorted((position, name) for name, _, _, _, position, _ in rows if position >= 0)
    return Relation(quoted, columns, tuple(name for _, name in key))
