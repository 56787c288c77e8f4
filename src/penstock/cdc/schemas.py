"""How the schema of a sink table follows the schemas of its source tables.

`SinkTable` is the state of one sink table: its schema, and the schema of each source table that is routed into it.
`SchemaEvolution.apply` takes a schema change of a source table and returns the changes of the sink table, by
`schema.change.behavior`:

| behavior | meaning |
| --- | --- |
| `exception` | a schema change fails the job |
| `evolve` | every change is applied; one that the sink cannot make fails the job |
| `try_evolve` | a change that the sink cannot make is left out; later rows are converted to the schema of the sink |
| `lenient` | no data is lost: added columns are nullable and last, dropped ones stay, nullable; renamed ones stay |
|           | beside a nullable column of the new name; types only widen |
| `ignore` | no change but the creation of the table reaches the sink; later rows are converted |

**Several source tables in one sink table.** The columns of the sink are the union of theirs, and each has the narrowest
type that holds the values of all; columns that a source table lacks are nullable. No source table takes a column or
rows away from the others: a dropped or renamed column stays, and neither truncation nor the drop of a source table
reaches the sink.

**Columns are nullable when they are added**, because the rows that are there have no value, and whenever rows without
a value for them follow. A dropped column that stays therefore loses its NOT NULL.

Source: the page "Schema Evolution" of Flink CDC 3.x.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from penstock.base.errors import ConfigurationError
from penstock.cdc.expressions import STRING, make_column, parse_type, read_type
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import Column, SchemaChangeEvent, TableId, TableSchema
from penstock.sql import typed
from penstock.sql.analyzer.calls import Calls
from penstock.sql.data.types import (
    CharType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    NumericType,
    TimestampType,
    VarCharType,
)
from penstock.sql.functions import type_rules

_LOG: Final = logging.getLogger("penstock.cdc")
_DIGITS_MAX: Final = 38

#: Says why a sink cannot make a change of a table with this schema; None if it can.
Refusal: TypeAlias = Callable[[TableSchema, SchemaChangeEvent], str | None]

CHANGE_NAMES: Final[Mapping[type, str]] = {
    events.AddColumnEvent: "add.column",
    events.AlterColumnTypeEvent: "alter.column.type",
    events.CreateTableEvent: "create.table",
    events.DropColumnEvent: "drop.column",
    events.DropTableEvent: "drop.table",
    events.RenameColumnEvent: "rename.column",
    events.TruncateTableEvent: "truncate.table",
}


class SchemaChangeError(ConfigurationError):
    """A schema change of a source table cannot be applied to its sink table."""

    suppresses_restart = True


def widest_type(data_type: DataType, other: DataType) -> DataType:
    """Return the narrowest type that holds the values of both, STRING if no other does; nullable if either is.

    Whole numbers and FLOAT or DOUBLE become DOUBLE, as in Flink CDC. DECIMAL and DOUBLE have no common type but STRING.
    """
    is_nullable = data_type.is_nullable or other.is_nullable
    if data_type.nullable() == other.nullable():
        common: DataType | None = data_type
    elif isinstance(data_type, NumericType) and isinstance(other, NumericType):
        common = _widest_number(data_type, other)
    elif {type(data_type), type(other)} == {TimestampType, LocalZonedTimestampType}:
        common = None
    else:
        common = type_rules.common_type([data_type, other])
    common = STRING if common is None else common
    return common.nullable() if is_nullable else common.not_null()


def _widest_number(number: NumericType, other: NumericType) -> DataType | None:
    approximate = [kind for kind in (number, other) if isinstance(kind, FloatType | DoubleType)]
    if approximate:
        return DoubleType() if not any(isinstance(kind, DecimalType) for kind in (number, other)) else None
    if isinstance(number, IntegralType) and isinstance(other, IntegralType):
        return type_rules.wider_number(number, other)
    left, right = type_rules.as_decimal(number), type_rules.as_decimal(other)
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale) + scale
    return DecimalType(digits, scale) if digits <= _DIGITS_MAX else None


def widest_column(column: Column, other: Column) -> Column:
    """Return a column that holds the values of both; see `widest_type`."""
    return make_column(
        column.name, widest_type(read_type(column), read_type(other)), column.comment or other.comment, column.default
    )


def is_widening(column: Column, to: Column) -> bool:
    """Return whether another type of a column holds all values that the column may have."""
    return widest_type(parse_type(column.sql_type), parse_type(to.sql_type)) == parse_type(to.sql_type)


def cast_column(calls: Calls, value: typed.Typed, column: Column, to: Column) -> typed.Typed:
    """Cast the value of a column to the type of another column.

    Only rows after a change that the sink did not make may have values that the other column cannot hold. Such a value
    is NULL, because a cast of SQL would change it: it takes the low bits of a whole number, and the first characters
    of a text.
    """
    if column.sql_type == to.sql_type:
        return value
    target, source = read_type(to).nullable(), read_type(column).nullable()
    cast = calls.cast(value, target, True)
    if is_widening(column, to) or not isinstance(target, IntegralType | DecimalType | VarCharType | CharType):
        return cast
    returned = calls.cast(cast, source, True)
    return calls.call("CASE", [calls.call("=", [returned, value]), cast, typed.Constant(target, None)])


def is_same_type(column: Column, other: Column) -> bool:
    """Return whether two columns have the same type and the same NOT NULL."""
    return column.sql_type == other.sql_type and column.is_nullable == other.is_nullable


def nullable(column: Column) -> Column:
    """Return the column without NOT NULL."""
    return replace(column, is_nullable=True)


def find_changes(
    table_id: TableId, before: TableSchema, after: TableSchema, renamed: tuple[str, str] | None = None
) -> Iterator[SchemaChangeEvent]:
    """Yield the changes that lead from one schema to another, in order.

    Args:
        table_id: the table.
        before: the schema that the table has.
        after: the schema that it gets.
        renamed: a column and its new name, if the change is a rename; otherwise such columns are dropped and added.
    """
    old, new = renamed or ("", "")
    if old in before.names and old not in after.names and new in after.names and new not in before.names:
        rename = events.RenameColumnEvent(table_id, old, new)
        yield rename
        before = before.apply(rename)
    for name in before.names:
        if name not in after.names:
            yield events.DropColumnEvent(table_id, name)
    remaining = [name for name in before.names if name in after.names]
    for index, column in enumerate(after.columns):
        if column.name not in remaining:
            position = events.LAST
            if any(name in remaining for name in after.names[index + 1 :]):
                behind = after.names[index - 1] if index else None
                position = events.ColumnPosition(first=not index, after=behind)
            yield events.AddColumnEvent(table_id, column, position)
            remaining.append(column.name)
    for column in after.columns:
        if column.name in before.names:
            known = before.columns[before.get_position(column.name)]
            if not is_same_type(known, column):
                yield events.AlterColumnTypeEvent(table_id, column)


@dataclass
class SinkTable:
    """The schema of a sink table (None before it exists), and the schemas of its source tables."""

    schema: TableSchema | None = None
    sources: dict[TableId, TableSchema] = field(default_factory=dict)


@dataclass(frozen=True)
class SchemaEvolution:
    """Derives the changes of sink tables.

    Args:
        behavior: `schema.change.behavior`.
        included: the types of changes that reach the sink.
        refuses: says which changes the sink cannot make.
    """

    behavior: str
    included: frozenset[str]
    refuses: Refusal

    def apply(
        self, table: SinkTable, sink_id: TableId, source_id: TableId, event: SchemaChangeEvent
    ) -> list[SchemaChangeEvent]:
        """Note a change of a source table; return the changes of the sink table that follow, in order.

        Raises:
            SchemaChangeError: if the behavior, or the sink, does not allow the change.
        """
        if isinstance(event, events.CreateTableEvent):
            known = table.sources.get(source_id)
            if known is not None and table.schema is not None:
                changes: list[SchemaChangeEvent] = []
                for change in list(find_changes(source_id, known, event.schema)):
                    changes += self.apply(table, sink_id, source_id, change)
                return changes
            return self._accept(table, sink_id, source_id, event, self._created(table, sink_id, source_id, event))
        before = table.sources.get(source_id)
        if before is None:
            raise SchemaChangeError(f"table {source_id} changes its schema, but has not been created")
        if self.behavior == "exception":
            raise SchemaChangeError(
                f"table {source_id} has changed: {describe(event)}. schema.change.behavior is exception, so no schema "
                "may change; set another one to apply changes to the sink"
            )
        table.sources[source_id] = before.apply(event)
        is_shared = len(table.sources) > 1
        if isinstance(event, events.DropTableEvent):
            del table.sources[source_id]
        if table.schema is None or self.behavior == "ignore":
            return []
        derived = self._derived(table.schema, sink_id, event, is_shared or self.behavior == "lenient", is_shared)
        return self._accept(table, sink_id, source_id, event, derived)

    def _created(
        self, table: SinkTable, sink_id: TableId, source_id: TableId, event: events.CreateTableEvent
    ) -> list[SchemaChangeEvent]:
        table.sources[source_id] = event.schema
        if table.schema is None:
            schema = event.schema
            if self.behavior in ("ignore", "try_evolve"):
                # Once the schemas differ, rows may lack the value of any column outside the key.
                columns = [c if c.name in schema.primary_key else nullable(c) for c in schema.columns]
                schema = replace(schema, columns=tuple(columns))
            return [events.CreateTableEvent(sink_id, schema)]
        schema = table.schema
        if schema.primary_key != event.schema.primary_key:
            raise SchemaChangeError(
                f"table {source_id} with the key ({', '.join(event.schema.primary_key)}) is routed into {sink_id}, "
                f"whose key is ({', '.join(schema.primary_key)}): give both the same by primary-keys of a transform"
            )
        changes: list[SchemaChangeEvent] = []
        for column in event.schema.columns:
            changes += self._widened(schema, sink_id, column)
        for column in schema.columns:
            if column.name not in event.schema.names and not column.is_nullable:
                changes.append(events.AlterColumnTypeEvent(sink_id, nullable(column)))
        return changes

    def _widened(self, schema: TableSchema, sink_id: TableId, column: Column) -> Iterator[SchemaChangeEvent]:
        """Yield the change that makes a sink table hold the values of a column."""
        if column.name not in schema.names:
            yield events.AddColumnEvent(sink_id, nullable(column))
            return
        known = schema.columns[schema.get_position(column.name)]
        wide = widest_column(known, column)
        if not is_same_type(known, wide):
            yield events.AlterColumnTypeEvent(sink_id, wide)

    def _derived(
        self, schema: TableSchema, sink_id: TableId, event: SchemaChangeEvent, is_lenient: bool, is_shared: bool
    ) -> list[SchemaChangeEvent]:
        """Return the changes of the sink table for one of a source table."""
        match event:
            case events.AddColumnEvent(column=column, position=position):
                if column.name in schema.names or is_lenient:
                    return list(self._widened(schema, sink_id, column))
                if position.after is not None and position.after not in schema.names:
                    position = events.LAST
                return [events.AddColumnEvent(sink_id, nullable(column), position)]
            case events.DropColumnEvent(name=name):
                if name not in schema.names:
                    return []
                self._refuse_key(schema, sink_id, name, "dropped")
                return self._loosened(schema, sink_id, name) if is_lenient else [events.DropColumnEvent(sink_id, name)]
            case events.RenameColumnEvent(name=name, new_name=new_name):
                return self._renamed(schema, sink_id, name, new_name, is_lenient)
            case events.AlterColumnTypeEvent(column=column):
                if column.name not in schema.names:
                    return []  # a change that was left out has lost the column
                if is_lenient:
                    return list(self._widened(schema, sink_id, column))
                known = schema.columns[schema.get_position(column.name)]
                # NOT NULL is lost once rows may have had NULL.
                column = replace(column, is_nullable=column.is_nullable or known.is_nullable)
                return [] if is_same_type(known, column) else [events.AlterColumnTypeEvent(sink_id, column)]
            case events.TruncateTableEvent():
                return [] if is_shared else [events.TruncateTableEvent(sink_id)]
            case events.DropTableEvent():
                return [] if is_shared else [events.DropTableEvent(sink_id)]
            case _:
                raise AssertionError(event)

    def _renamed(
        self, schema: TableSchema, sink_id: TableId, name: str, new_name: str, is_lenient: bool
    ) -> list[SchemaChangeEvent]:
        if name not in schema.names:
            return []  # its values have not reached the sink; the rows lack it still
        column = schema.columns[schema.get_position(name)]
        if not is_lenient and new_name not in schema.names:
            return [events.RenameColumnEvent(sink_id, name, new_name)]
        self._refuse_key(schema, sink_id, name, "renamed")
        added = self._widened(schema, sink_id, nullable(replace(column, name=new_name)))
        return [*added, *self._loosened(schema, sink_id, name)]

    @staticmethod
    def _loosened(schema: TableSchema, sink_id: TableId, name: str) -> list[SchemaChangeEvent]:
        column = schema.columns[schema.get_position(name)]
        return [] if column.is_nullable else [events.AlterColumnTypeEvent(sink_id, nullable(column))]

    @staticmethod
    def _refuse_key(schema: TableSchema, sink_id: TableId, name: str, what: str) -> None:
        if name in schema.primary_key:
            raise SchemaChangeError(
                f"the key column {name!r} of {sink_id} was {what} at the source, and a table keeps its key: rows could "
                "not be told apart. Give the sink table a key of its own by primary-keys of a transform, or start the "
                "pipeline anew (with schema.change.behavior evolve a key column may be renamed)"
            )

    def _accept(
        self,
        table: SinkTable,
        sink_id: TableId,
        source_id: TableId,
        cause: SchemaChangeEvent,
        derived: list[SchemaChangeEvent],
    ) -> list[SchemaChangeEvent]:
        """Return the changes that reach the sink, and apply them to its schema."""
        accepted: list[SchemaChangeEvent] = []
        for change in derived:
            if isinstance(change, events.CreateTableEvent) and table.schema is None:
                table.schema = change.schema
                if "create.table" in self.included:
                    accepted.append(change)
                continue
            assert table.schema is not None
            kept = [change]
            if self.behavior == "ignore" or CHANGE_NAMES[type(change)] not in self.included:
                kept = self._left_out(table.schema, sink_id, change)
                _LOG.info("%s: a schema change does not reach the sink: %s", source_id, describe(change))
            else:
                reason = self.refuses(table.schema, change)
                if reason is None and self.behavior == "try_evolve" and _narrows(table.schema, change):
                    reason = "values that are there may not fit"
                if reason is not None and self.behavior == "try_evolve":
                    kept = self._left_out(table.schema, sink_id, change)
                    _LOG.warning("%s: the sink cannot follow: %s (%s)", source_id, describe(change), reason)
                elif reason is not None:
                    raise SchemaChangeError(
                        f"table {source_id} has changed: {describe(cause)}. The sink cannot apply this to {sink_id} "
                        f"({describe(change)}), because {reason}. Set schema.change.behavior to try_evolve, or leave "
                        "such changes out by exclude.schema.changes"
                    )
            for each in kept:
                assert table.schema is not None
                table.schema = None if isinstance(each, events.DropTableEvent) else table.schema.apply(each)
                accepted.append(each)
        return accepted

    def _left_out(self, schema: TableSchema, sink_id: TableId, change: SchemaChangeEvent) -> list[SchemaChangeEvent]:
        """Return the changes that replace a suppressed change: its column becomes nullable."""
        if not isinstance(change, events.DropColumnEvent | events.RenameColumnEvent) or self.behavior == "ignore":
            return []
        self._refuse_key(schema, sink_id, change.name, "changed")
        loosened = self._loosened(schema, sink_id, change.name)
        return [each for each in loosened if self.refuses(schema, each) is None]


def _narrows(schema: TableSchema, change: SchemaChangeEvent) -> bool:
    if not isinstance(change, events.AlterColumnTypeEvent):
        return False
    return not is_widening(schema.columns[schema.get_position(change.column.name)], change.column)


def describe(event: SchemaChangeEvent) -> str:
    """Return a schema change in words."""
    match event:
        case events.AddColumnEvent(column=column):
            return f"column {column.name!r} {read_type(column)} is added"
        case events.DropColumnEvent(name=name):
            return f"column {name!r} is dropped"
        case events.RenameColumnEvent(name=name, new_name=new_name):
            return f"column {name!r} is renamed to {new_name!r}"
        case events.AlterColumnTypeEvent(column=column):
            return f"column {column.name!r} becomes {read_type(column)}"
        case events.TruncateTableEvent():
            return "the table is truncated"
        case events.DropTableEvent():
            return "the table is dropped"
        case _:
            return "the table is created"
