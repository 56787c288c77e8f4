"""The table whose changes are read, as the catalog has it: its columns, and how its keys are put in order."""

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
        name: as SQL has it.
        place: among the columns of the table.
        is_number: whether it is ordered as a number, else by the bytes of its text.
        is_native: whether that is the order of the column itself, and so of its index.
        sql_type: its type.
    """

    name: str
    place: int
    is_number: bool
    is_native: bool
    sql_type: str

    @property
    def order(self) -> str:
        """What rows are ordered by."""
        return f"t.{self.name}" if self.is_native else f'(t.{self.name}::text) COLLATE "C"'

    def value(self, text: str) -> int | str:
        """A value of a key, of its text."""
        return int(text) if self.is_number else text

    def literal(self, value: int | str) -> str:
        """The same in SQL, to compare with `order`."""
        return f"{literal(str(value))}::{self.sql_type}" if self.is_native else f'{literal(str(value))} COLLATE "C"'


@dataclass(frozen=True, slots=True)
class CdcTable:
    """A table, and the columns of it that are read.

    Attributes:
        address: the database.
        path: in quotes.
        oid: its number.
        names: of the columns that are read, and
        types: their Arrow types.
        key: its primary key.
        unrepresentable: what to do with values that a type cannot hold.
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
        """The names as SQL has them."""
        return [quoted(name) for name in self.names]

    def literals(self, key: Key) -> list[str]:
        """A key in SQL."""
        return [column.literal(value) for column, value in zip(self.key, key, strict=True)]


def key_columns(connection: psycopg.Connection[Any], found: Relation) -> tuple[KeyColumn, ...]:
    """The primary key of a table; none where there is none."""
    names = [one.name for one in found.columns]
    columns = []
    for name in found.key:
        kind = found.column(name).sql_type
        is_number = kind in _NUMBERS
        is_native = is_number or kind == "uuid"
        if kind == "text" or kind.startswith("character varying"):
            asked = connection.execute(_COLLATION, (found.path, name)).fetchone()
            is_native = asked is not None and bool(asked[0])
        if kind.startswith("character(") or kind == "citext":
            raise UnsupportedError(
                f"column {name!r} of the primary key of {found.path} is {kind}, of which different texts are equal: "
                "read the table without a snapshot (startup mode latest-offset), or give it another key"
            )
        columns.append(KeyColumn(quoted(name), names.index(name), is_number, is_native, kind))
    return tuple(columns)
