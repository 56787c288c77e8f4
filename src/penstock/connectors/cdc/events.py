"""The events of a database: changes of rows, and changes of the schemas of its tables.

A source of many tables emits them in the order of the log, and for each table its `CreateTableEvent` before its first
row. Every event names its table. After a `SchemaChangeEvent` the rows of that table have the schema that
`TableSchema.apply` returns.

Source: the events of Flink CDC 3.x pipelines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from penstock.base.errors import ContractError
from penstock.base.types import RowKind


class TableId(NamedTuple):
    """The name of a table. `schema` is MySQL's database, or PostgreSQL's schema."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its name, as the database spells it.
        type: the type of its values in memory.
        sql_type: the type in Flink's SQL, such as `DECIMAL(10, 2)`, without NOT NULL.
        is_nullable: whether it may be NULL.
        comment: its comment.
        default: the text of its default in the database; None if it has none.
    """

    name: str
    type: pa.DataType
    sql_type: str
    is_nullable: bool = True
    comment: str | None = None
    default: str | None = None


class ColumnPosition(NamedTuple):
    """The position of an added column: first (`first`), after column `after`, or last if `after` is None."""

    first: bool = False
    after: str | None = None


#: at the end of the table
LAST: Final = ColumnPosition()


@dataclass(frozen=True, slots=True)
class CreateTableEvent:
    """A table exists, with this schema. Sent once before its first row, and again for each reader that needs it."""

    table_id: TableId
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class AddColumnEvent:
    """A table has another column."""

    table_id: TableId
    column: Column
    position: ColumnPosition = LAST


@dataclass(frozen=True, slots=True)
class DropColumnEvent:
    """A table has lost a column."""

    table_id: TableId
    name: str


@dataclass(frozen=True, slots=True)
class RenameColumnEvent:
    """A column has another name."""

    table_id: TableId
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class AlterColumnTypeEvent:
    """A column has another type, default or comment; its name in `column` is the one it had."""

    table_id: TableId
    column: Column


@dataclass(frozen=True, slots=True)
class TruncateTableEvent:
    """A table has lost all rows."""

    table_id: TableId


@dataclass(frozen=True, slots=True)
class DropTableEvent:
    """A table was dropped."""

    table_id: TableId


SchemaChangeEvent: TypeAlias = (
    CreateTableEvent
    | AddColumnEvent
    | DropColumnEvent
    | RenameColumnEvent
    | AlterColumnTypeEvent
    | TruncateTableEvent
    | DropTableEvent
)


@dataclass(frozen=True, slots=True)
class DataChangeEvent:
    """A row has changed.

    Attributes:
        table_id: its table.
        kind: INSERT, UPDATE_AFTER (with `before`, if the log contains it) or DELETE.
        before: the values before; None for an insert, and for an update whose log lacks them.
        after: the values after; None for a delete.
        meta: metadata: `op_ts` (ms since 1970, 0 for rows of a snapshot), and the metadata that the source names.
    """

    table_id: TableId
    kind: RowKind
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None
    meta: Mapping[str, Any] = field(default_factory=dict)


Event: TypeAlias = SchemaChangeEvent | DataChangeEvent


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table, its primary key (empty without one), and its comment.

    Attributes:
        columns: the columns, in order.
        primary_key: the names of the key columns; empty without a key.
        comment: the comment of the table.
        partition_keys: the partition columns of the table in a target; sources leave them empty.
        options: options for the creation of the table in a target, as (key, value); sources leave them empty.

    Examples:
        >>> import pyarrow as pa
        >>> from penstock.connectors.cdc.events import AddColumnEvent, Column, ColumnPosition, TableId, TableSchema
        >>> cups = TableSchema((Column("id", pa.int64(), "BIGINT", False),), ("id",))
        >>> added = AddColumnEvent(TableId("shop", "cups"), Column("tea", pa.string(), "STRING"), ColumnPosition(True))
        >>> cups.apply(added).names
        ('tea', 'id')
    """

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    def get_position(self, name: str) -> int:
        """Return the position of a column.

        Raises:
            ContractError: if the table lacks the column.
        """
        if name not in self.names:
            raise ContractError(f"there is no column {name!r} among {', '.join(self.names)}")
        return self.names.index(name)

    def apply(self, event: SchemaChangeEvent) -> TableSchema:
        """Return the schema after an event.

        Raises:
            ContractError: if the event does not fit: it names a column that is not there, or one that already is.
        """
        columns = list(self.columns)
        match event:
            case CreateTableEvent():
                return event.schema
            case AddColumnEvent(column=column, position=position):
                if column.name in self.names:
                    raise ContractError(f"{event.table_id} has a column {column.name!r} already")
                index = 0 if position.first else len(columns)
                if position.after is not None:
                    index = self.get_position(position.after) + 1
                columns.insert(index, column)
            case DropColumnEvent(name=name):
                del columns[self.get_position(name)]
            case RenameColumnEvent(name=name, new_name=new_name):
                index = self.get_position(name)
                columns[index] = replace(columns[index], name=new_name)
                key = tuple(new_name if part == name else part for part in self.primary_key)
                return replace(self, columns=tuple(columns), primary_key=key)
            case AlterColumnTypeEvent(column=column):
                columns[self.get_position(column.name)] = column
            case _:
                return self
        return replace(self, columns=tuple(columns))
