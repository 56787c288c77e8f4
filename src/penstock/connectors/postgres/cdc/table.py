"""The table to read, as the catalog describes it: its columns, and the order of its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.connectors.postgres.cdc.position import Key
from penstock.connectors.postgres.client import Address, quoted
from penstock.connectors.postgres.relations import Relation
from penstock.connectors.postgres.text_columns import literal
from penstock.connectors.postgres.unrepresentable import FAIL

if TYPE_CHECKING:
    import psycopg

_NUMBERS: Final = frozenset({"smallint", "integer", "bigint"})
_COLLATION: Final = """
    SELECT coalesce(
        c.collcollate IN ('C', 'POSIX') OR (c.collname = 'default' AND d.datcollate IN ('C', 'POSIX')), false
    )
    FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation,
         (SELECT datcollate FROM pg_database WHERE datname = current_database()) d
    WHERE a.attrelid = to_regclass(%s) AND a.attname = %s
"""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the primary key.

    Attributes:
        name: its quoted name.
        place: its index among the table's columns.
        is_number: whether it is ordered as a number; otherwise by the bytes of its text.
        is_native: whether the column itself, and so its index, has this order.
        sql_type: its SQL type.
    """

    name: str
    place: int
    is_number: bool
    is_native: bool
    sql_type: str

    @property
    def order(self) -> str:
        """The SQL expression that orders the rows."""
        return f"t.{self.name}" if self.is_native else f'(t.{self.name}::text) COLLATE "C"'

    def value(self, text: str) -> int | str:
        """Parse a key value from its text."""
        return int(text) if self.is_number else text

    def literal(self, value: int | str) -> str:
        """Return the value as an SQL literal that can be compared with `order`."""
        return f"{literal(str(value))}::{self.sql_type}" if self.is_native else f'{literal(str(value))} COLLATE "C"'


@dataclass(frozen=True, slots=True)
class CdcTable:
    """A table, and its columns to read.

    Attributes:
        address: the database's address.
        path: its quoted path.
        oid: its OID.
        names: the names of the columns to read.
        types: the Arrow types of these columns.
        key: its primary key.
        unrepresentable: how to read values that a type cannot hold.
    """

    address: Address
    path: str
    oid: int
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    key: tuple[KeyColumn, ...]
    unrepresentable: str = FAIL

    @property
    def quoted_names(self) -> list[str]:
        """The column names, quoted for SQL."""
        return [quoted(name) for name in self.names]

    def literals(self, key: Key) -> list[str]:
        """Return a key as SQL literals."""
        return [column.literal(value) for column, value in zip(self.key, key, strict=True)]


def key_columns(connection: psycopg.Connection[Any], relation: Relation) -> tuple[KeyColumn, ...]:
    """Return the columns of a table's primary key; empty if the table does not have one."""
    names = [column.name for column in relation.columns]
    columns = []
    for name in relation.key:
        kind = relation.column(name).sql_type
        is_number = kind in _NUMBERS
        is_native = is_number or kind == "uuid"
        if kind == "text" or kind.startswith("character varying"):
            row = connection.execute(_COLLATION, (relation.path, name)).fetchone()
            is_native = row is not None and bool(row[0])
        if kind.startswith("character(") or kind == "citext":
            raise UnsupportedError(
                f"column {name!r} of the primary key of {relation.path} is {kind}, of which different texts are equal: "
                "read the table without a snapshot (startup mode latest-offset), or give it another key"
            )
        columns.append(KeyColumn(quoted(name), names.index(name), is_number, is_native, kind))
    return tuple(columns)
