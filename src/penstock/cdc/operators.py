"""The two steps between source and sink: the transform of each source table, and the schema of each sink table.

`TransformFunction` runs keyed by source table, `EvolutionFunction` by sink table, so that each of them sees the events
of its table in order; see the docstring of the package. Both keep schemas in keyed state, and whatever they compile
from them in memory.

`TableKnown` carries the schema of a table whose target already exists to the sink: it is the first event of each table
after a start, because the sink keeps no schemas.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.base.errors import ContractError
from penstock.cdc.expressions import Expressions, RowFunction, read_type
from penstock.cdc.schemas import SchemaEvolution, SinkTable, cast_column, describe, find_changes
from penstock.cdc.tables import Router
from penstock.cdc.transform import Environment, TableTransform, Transforms
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import DataChangeEvent, Event, SchemaChangeEvent, TableId, TableSchema
from penstock.datastream import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.sql import typed
from penstock.sql.user_functions.classes import FunctionContext
from penstock.sql.user_functions.definition import OpenFunctions

_LOG: Final = logging.getLogger("penstock.cdc")
_MILLISECOND_NS: Final = 1_000_000


class Routed(NamedTuple):
    """An event of a source table on its way to a sink table. `event` has the transformed schema."""

    sink_id: TableId
    source_id: TableId
    event: Event


@dataclass(frozen=True, slots=True)
class TableKnown:
    """The target of a table exists, or will by an earlier commit, with this schema."""

    table_id: TableId
    schema: TableSchema


SinkEvent: TypeAlias = TableKnown | SchemaChangeEvent | DataChangeEvent


def get_source_key(event: Event) -> tuple[str, str]:
    """Return the key of a source's event."""
    return event.table_id.schema, event.table_id.table


def get_sink_key(routed: Routed) -> tuple[str, str]:
    """Return the key of a routed event."""
    return routed.sink_id.schema, routed.sink_id.table


@dataclass
class _Source:
    """The state of a source table: its schema, and the transformed schema."""

    schema: TableSchema
    transformed: TableSchema


class TransformFunction(KeyedProcessFunction):
    """Transforms the rows of source tables, and routes them to sink tables.

    Args:
        transforms: the rules.
        router: finds the sink tables.
        zone: the time zone of time functions.
    """

    def __init__(self, transforms: Transforms, router: Router, zone: tzinfo) -> None:
        self._transforms, self._router, self._zone = transforms, router, zone

    def open(self, runtime_context: Any) -> None:
        """See `Function`."""
        self._state = runtime_context.get_state(ValueStateDescriptor("source-table"))
        self._known: dict[TableId, tuple[_Source, TableTransform]] = {}
        context = FunctionContext(runtime_context.get_metrics_group(), {}, runtime_context.get_task_name())
        self._functions = OpenFunctions("Transform", context, self._zone)
        self._now_ms = 0
        self._environment = Environment(self._zone, lambda: self._now_ms * _MILLISECOND_NS, self._functions)

    def close(self) -> None:
        """See `Function`."""
        self._functions.close()

    def process_element(self, value: Event, ctx: Any) -> Iterator[Routed]:
        """See `KeyedProcessFunction`."""
        self._now_ms = ctx.timer_service().current_processing_time()
        table_id = value.table_id
        known = self._known.get(table_id)
        changes: list[SchemaChangeEvent] = []
        if known is None:
            known, changes = self._restored(table_id)
        if isinstance(value, DataChangeEvent):
            if known is None:
                raise ContractError(f"the source sent a row of {table_id} before the schema of that table")
            row = known[1].apply(value)
            events_out: list[Event] = [*changes] if row is None else [*changes, row]
        else:
            events_out = [*changes, *self._changed(table_id, known, value)]
        for sink_id in self._router.route(table_id) if events_out else ():
            for event in events_out:
                yield Routed(sink_id, table_id, event)

    def _restored(self, table_id: TableId) -> tuple[tuple[_Source, TableTransform] | None, list[SchemaChangeEvent]]:
        """Return the state of a table, and the schema changes that follow from changed rules."""
        state: _Source | None = self._state.value()
        if state is None:
            return None, []
        transform = self._transforms.compile(table_id, state.schema, self._environment)
        changes = list(find_changes(table_id, state.transformed, transform.schema))
        return self._note(table_id, state.schema, transform), changes

    def _note(
        self, table_id: TableId, schema: TableSchema, transform: TableTransform
    ) -> tuple[_Source, TableTransform]:
        state = _Source(schema, transform.schema)
        self._state.update(state)
        self._known[table_id] = state, transform
        return self._known[table_id]

    def _changed(
        self, table_id: TableId, known: tuple[_Source, TableTransform] | None, event: SchemaChangeEvent
    ) -> list[SchemaChangeEvent]:
        """Record a schema change; return the resulting changes of the transformed schema."""
        if known is None and not isinstance(event, events.CreateTableEvent):
            raise ContractError(f"the source sent a change of the schema of {table_id} before that schema")
        if isinstance(event, events.DropTableEvent):
            self._state.clear()
            self._known.pop(table_id, None)
            return [event]
        if isinstance(event, events.TruncateTableEvent):
            return [event]
        if isinstance(event, events.CreateTableEvent):
            schema = event.schema
            if known is not None and known[0].schema == schema:
                return []
        else:
            assert known is not None
            schema = known[0].schema.apply(event)
        transform = self._transforms.compile(table_id, schema, self._environment)
        before = None if known is None else known[0].transformed
        self._note(table_id, schema, transform)
        if before is None:
            return [events.CreateTableEvent(table_id, transform.schema)]
        renamed = (event.name, event.new_name) if isinstance(event, events.RenameColumnEvent) else None
        return list(find_changes(table_id, before, transform.schema, renamed))


class EvolutionFunction(KeyedProcessFunction):
    """Derives the schema of each sink table, and converts the rows of its source tables to that schema.

    Args:
        evolution: derives the changes of a sink table.
        zone: the time zone of conversions between times and texts.
    """

    def __init__(self, evolution: SchemaEvolution, zone: tzinfo) -> None:
        self._evolution, self._zone = evolution, zone

    def open(self, runtime_context: Any) -> None:
        """See `Function`."""
        self._state = runtime_context.get_state(ValueStateDescriptor("sink-table"))
        self._known: dict[TableId, SinkTable] = {}
        self._converters: dict[tuple[TableId, TableId], RowFunction] = {}
        self._left_out = runtime_context.get_metrics_group().counter("numRowsWithoutTable")

    def process_element(self, value: Routed, ctx: Any) -> Iterator[SinkEvent]:
        """See `KeyedProcessFunction`."""
        sink_id, source_id, event = value
        table = self._known.get(sink_id)
        if table is None:
            table = self._known[sink_id] = self._state.value() or SinkTable()
            if table.schema is not None:
                yield TableKnown(sink_id, table.schema)
        if isinstance(event, DataChangeEvent):
            if table.schema is None:
                # The sink table was dropped, or its creation was left out: the row has no target.
                self._left_out.inc()
                return
            convert = self._converters.get((sink_id, source_id))
            if convert is None:
                convert = self._converters[sink_id, source_id] = self._converter(table, source_id)
            if convert.is_copy:
                yield replace(event, table_id=sink_id)
                return
            before = None if event.before is None else convert(event.before)
            after = None if event.after is None else convert(event.after)
            yield replace(event, table_id=sink_id, before=before, after=after)
            return
        had_schema = table.schema
        changes = self._evolution.apply(table, sink_id, source_id, event)
        for change in changes:
            _LOG.info("sink table %s: %s", sink_id, describe(change))
        self._state.update(table)
        for pair in [pair for pair in self._converters if pair[0] == sink_id]:
            del self._converters[pair]
        if had_schema is None and table.schema is not None and not changes:
            yield TableKnown(sink_id, table.schema)  # the creation is left out: the table exists
        yield from changes

    def _converter(self, table: SinkTable, source_id: TableId) -> RowFunction:
        """Return the function from rows of a source table to rows of the sink table."""
        assert table.schema is not None
        source = table.sources.get(source_id)
        if source is None:
            raise ContractError(f"a row of {source_id} comes before the schema of that table")
        types = [read_type(column) for column in source.columns]
        calls = Expressions(self._zone).calls()
        expressions: list[typed.Typed] = []
        for column in table.schema.columns:
            if column.name not in source.names:
                expressions.append(typed.Constant(read_type(column).nullable(), None))
                continue
            index = source.get_position(column.name)
            field = typed.Field(types[index], index, column.name)
            expressions.append(cast_column(calls, field, source.columns[index], column))
        return RowFunction(expressions, types, self._zone, lambda: 0)
