"""The target table of a sink: creates it if missing, and compares its columns with those to write."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from penstock.base.errors import ConfigurationError
from penstock.connectors.delta.features import check_writable
from penstock.connectors.delta.partitions import check_partition_type
from penstock.connectors.delta.place import TablePlace, read_arrow_schema
from penstock.connectors.delta.types import is_same, stored_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG: Final = logging.getLogger("penstock.connectors.delta")
#: How many times to re-read the table when other writers change it concurrently.
_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class Target:
    """The table and columns that a sink writes.

    Attributes:
        place: the table's location.
        columns: the columns, in the table's types.
        partition_columns: the partition columns of a new table; None for those of the existing table.
        key: the columns of the upsert key; empty if rows are only appended.
        merge_schema: whether to add columns that the table lacks.
        properties: the properties of a new table, such as `delta.enableChangeDataFeed`.
    """

    place: TablePlace
    columns: pa.Schema
    partition_columns: tuple[str, ...] | None
    key: tuple[str, ...] = ()
    merge_schema: bool = False
    properties: tuple[tuple[str, str], ...] = ()

    def check(self) -> None:
        """Raise `ConfigurationError` for unknown partition or key columns and for reserved column names."""
        for role, names in (("partition", self.partition_columns or ()), ("key", self.key)):
            for name in names:
                if name not in self.columns.names:
                    raise ConfigurationError(
                        f"{role} column {name!r} is none of the columns {', '.join(self.columns.names)} that go into "
                        f"the Delta table {self.place.path}"
                    )
        hidden = [name for name in self.columns.names if name.startswith("_penstock_")]
        if hidden:
            raise ConfigurationError(f"column {hidden[0]!r} has a name that the sink uses itself: call it otherwise")
        for name in self.partition_columns or ():
            check_partition_type(name, self.columns.field(name).type)
        if self.partition_columns and len(self.partition_columns) == len(self.columns):
            raise ConfigurationError(
                f"the Delta table {self.place.path} needs a column that it is not partitioned by, too"
            )


def make_if_missing(target: Target) -> None:
    """Create the table if it does not exist."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError

    location = target.place
    if location.exists():
        return
    location.files()
    try:
        DeltaTable.create(
            location.path,
            Schema.from_arrow(target.columns),
            mode="error",
            partition_by=list(target.partition_columns or ()),
            configuration=dict(target.properties) or None,
            storage_options=dict(location.options),
        )
        _LOG.info("made the Delta table %s", location.path)
    except DeltaError:
        if not location.exists():  # another writer may have created it in the meantime
            raise


class Prepared(NamedTuple):
    """A table that accepts a sink's columns: their schema there, in the sink's order, and the partition columns."""

    columns: pa.Schema
    partition_columns: tuple[str, ...]


def prepare(target: Target) -> Prepared:
    """Make sure that the table accepts the columns.

    Raises:
        ConfigurationError: for columns that do not fit; the message names them.
        UnsupportedTableError: for a table with rules that the sink does not support.
    """
    from deltalake.exceptions import DeltaError

    make_if_missing(target)
    for tries_left in reversed(range(_TRIES)):
        table = target.place.open()
        missing = _compared(target, table)
        if not missing:
            return Prepared(_as_stored(target, table), tuple(table.metadata().partition_columns))
        if not target.merge_schema:
            raise ConfigurationError(
                f"the Delta table {target.place.path} has no columns {', '.join(column.name for column in missing)}: "
                "add "
                "them, leave them out, or let the sink add them by with_merge_schema(True), 'mergeSchema' = 'true'"
            )
        try:
            table.alter.add_columns(_to_delta_fields(missing))
            _LOG.info("added columns %s to %s", ", ".join(column.name for column in missing), target.place.path)
        except DeltaError:
            if not tries_left:
                raise
    raise AssertionError


def _to_delta_fields(missing: list[pa.Field]) -> list[Any]:
    from deltalake import Schema

    return list(Schema.from_arrow(stored_schema(pa.schema(missing))).fields)


def _compared(target: Target, table: DeltaTable) -> list[pa.Field]:
    """Return the columns that the table lacks. Raises for any other mismatch."""
    path = target.place.path
    check_writable(target.place, table, bool(target.key))
    schema = read_arrow_schema(table)
    keys = tuple(table.metadata().partition_columns)
    if target.partition_columns is not None and target.partition_columns != keys:
        raise ConfigurationError(
            f"the Delta table {path} is partitioned by {', '.join(keys) or 'nothing'}, and the sink by "
            f"{', '.join(target.partition_columns) or 'nothing'}: name the columns that the table has"
        )
    lacking = [name for name in keys if name not in target.columns.names]
    if lacking:
        raise ConfigurationError(
            f"the Delta table {path} is partitioned by {', '.join(lacking)}, which is not among the columns of the "
            f"sink: {', '.join(target.columns.names)}"
        )
    for field in target.columns:
        if field.name in schema.names and not is_same(schema.field(field.name).type, field.type):
            raise ConfigurationError(
                f"column {field.name!r} is {schema.field(field.name).type} in the Delta table {path}, and {field.type} "
                "in the sink: cast it"
            )
    needed = [column.name for column in schema if not column.nullable and column.name not in target.columns.names]
    if needed:
        raise ConfigurationError(
            f"columns {', '.join(needed)} of the Delta table {path} may not be NULL, and the sink does not have them"
        )
    return [column for column in target.columns if column.name not in schema.names]


def _as_stored(target: Target, table: DeltaTable) -> pa.Schema:
    schema = read_arrow_schema(table)
    return pa.schema(
        [
            target.columns.field(column.name).with_nullable(schema.field(column.name).nullable)
            for column in target.columns
        ]
    )
