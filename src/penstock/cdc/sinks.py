"""The sinks of pipelines, by their `type`, and the sink that applies steps to tables.

`StagedSink` writes to targets with tables. Its writer turns the events of a sink table into steps, in order: rows under
a schema (the last change of each key), and changes of the schema. Its committer hands the steps of each table to a
`TableTarget`, several tables at the same time; see the docstring of the package for why each step is applied once.

`PrintSink` writes events to standard output as they come, at least once.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from penstock.base.durable_files import print_lines
from penstock.base.errors import ContractError, OperationError, UnsupportedError
from penstock.base.types import RowKind
from penstock.cdc.definition import PipelineDefinition, Settings
from penstock.cdc.expressions import read_type
from penstock.cdc.operators import SinkEvent, TableKnown
from penstock.cdc.schemas import describe
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import DataChangeEvent, SchemaChangeEvent, TableId, TableSchema
from penstock.connectors.iceberg.committer import CommitName, Naming
from penstock.runtime.connector import Committer, Sink, SinkWriter, SinkWriterContext

_LOG: Final = logging.getLogger("penstock.cdc")
#: The column of staged rows that marks deletions.
IS_DELETED: Final = "__penstock_kind"
#: How many tables are committed at the same time.
_THREADS: Final = 8


class SinkChangeError(OperationError):
    """A step cannot be applied to a target, and another attempt would not help."""

    suppresses_restart = True


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a checkpoint's changes to a table: rows, or a schema change.

    Attributes:
        name: identifies the step, to find out whether it has been applied.
        schema: the schema of the rows; None for a change of the schema.
        message: the rows, the last change of each key, as an Arrow stream with the column `IS_DELETED`.
        change: the change of the schema.
    """

    name: CommitName
    schema: TableSchema | None = None
    message: bytes = b""
    change: SchemaChangeEvent | None = None

    def rows(self) -> pa.Table:
        """Return the rows."""
        with pa.ipc.open_stream(self.message) as reader:
            return reader.read_all()


@dataclass(frozen=True, slots=True)
class TableSteps:
    """The steps of a sink table in a checkpoint, in order."""

    table_id: TableId
    steps: tuple[Step, ...]


class TableTarget(ABC):
    """A system with tables, to which a committer applies steps. Used by several threads, each with its own tables."""

    def apply(self, table_id: TableId, steps: Sequence[Step], is_in_doubt: bool) -> None:
        """Apply the steps of a table that have not been applied yet, in order.

        Dropping a table also drops its record of applied steps. So steps before the last drop are skipped: the drop
        undoes their effects.
        """
        drops = [index for index, step in enumerate(steps) if isinstance(step.change, events.DropTableEvent)]
        if drops:
            self.drop_table(table_id, steps[drops[-1]].name)
            steps = steps[drops[-1] + 1 :]
        for step in steps:
            if step.schema is not None:
                self.write_rows(table_id, step, is_in_doubt)
            elif isinstance(step.change, events.CreateTableEvent):
                self.create_table(table_id, step.change.schema, step.name)
            elif step.change is not None:
                self.change_schema(table_id, step.change, step.name)

    @abstractmethod
    def create_table(self, table_id: TableId, schema: TableSchema, name: CommitName) -> None:
        """Create the table, or check that an existing table has the columns, and add missing columns."""

    @abstractmethod
    def drop_table(self, table_id: TableId, name: CommitName) -> None:
        """Drop the table if it exists, unless it is one that was created after this step."""

    @abstractmethod
    def change_schema(self, table_id: TableId, change: SchemaChangeEvent, name: CommitName) -> None:
        """Change the schema, or remove all rows, unless the step has been applied."""

    @abstractmethod
    def write_rows(self, table_id: TableId, step: Step, is_in_doubt: bool) -> None:
        """Insert, replace and delete rows by key, unless the step has been applied.

        With `is_in_doubt` the step may have been applied long ago.
        """

    def close(self) -> None:  # noqa: B027 - not all targets have connections
        """Release connections."""


class TargetFactory(Protocol):
    """Describes a target, and opens it in the process of the committer. Picklable."""

    def open(self, context: SinkWriterContext) -> TableTarget:
        """Open the target."""
        ...

    def refuses(self, schema: TableSchema, change: SchemaChangeEvent) -> str | None:
        """Return why the target cannot make a change; None if it can."""
        ...


class _OpenRows:
    """The rows of a table under one schema since its last step: for each key its last row, or None if deleted."""

    def __init__(self, table_id: TableId, schema: TableSchema) -> None:
        if not schema.primary_key:
            raise SinkChangeError(
                f"table {table_id} has no primary key, and rows are replaced and deleted by their key: name its "
                "columns by primary-keys of a transform"
            )
        self.schema = schema
        self._table_id = table_id
        self._key = [schema.get_position(name) for name in schema.primary_key]
        self._required = [(index, column.name) for index, column in enumerate(schema.columns) if not column.is_nullable]
        self._rows: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}

    def add(self, event: DataChangeEvent) -> None:
        """Note a change."""
        before = None if event.before is None else self._extract_key(event.before)
        if event.after is None:
            if before is None:
                raise ContractError(f"a deletion of {self._table_id} does not say which row is deleted")
            self._put(before, None)
            return
        key = self._extract_key(event.after)
        if before is not None and before != key:
            self._put(before, None)
        for index, name in self._required:
            if event.after[index] is None:
                raise SinkChangeError(
                    f"a row of {self._table_id} has no value for column {name!r}, which is NOT NULL in the sink. The "
                    "column was dropped or renamed at the source, or is NULL behind the transform"
                )
        self._put(key, event.after)

    def _extract_key(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        key = tuple([row[index] for index in self._key])
        if None in key:
            raise SinkChangeError(
                f"a row of {self._table_id} has NULL in its key ({', '.join(self.schema.primary_key)}): {row!r}"
            )
        return key

    def _put(self, key: tuple[Any, ...], row: tuple[Any, ...] | None) -> None:
        self._rows.pop(key, None)  # a repeated key moves to the end of the order
        self._rows[key] = row

    def message(self) -> bytes:
        """Return the rows as an Arrow stream; empty without rows."""
        if not self._rows:
            return b""
        width = len(self.schema.columns)
        rows: list[Sequence[Any]] = []
        for key, row in self._rows.items():
            if row is None:
                values: list[Any] = [None] * width
                for index, value in zip(self._key, key, strict=True):
                    values[index] = value
                rows.append(values)
            else:
                rows.append(row)
        columns = zip(self.schema.columns, zip(*rows, strict=True), strict=True)
        arrays = [_array(self._table_id, column, values) for column, values in columns]
        arrays.append(pa.array([row is None for row in self._rows.values()], pa.bool_()))
        table = pa.table(arrays, [*self.schema.names, IS_DELETED])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())


def _array(table_id: TableId, column: events.Column, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, column.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SinkChangeError(
            f"column {column.name!r} of {table_id} is {column.sql_type}, and a row has a value that is not: {error}"
        ) from error


class _StagedWriter(SinkWriter[SinkEvent, TableSteps]):
    def __init__(self, context: SinkWriterContext) -> None:
        self._naming = Naming(context)
        self._count = context.count
        self._open: dict[TableId, _OpenRows | None] = {}
        self._schemas: dict[TableId, TableSchema] = {}
        self._steps: dict[TableId, list[Step]] = {}

    def write_batch(self, values: list[SinkEvent], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        for event in values:
            table_id = event.table_id
            if isinstance(event, DataChangeEvent):
                rows = self._open.get(table_id)
                if rows is None:
                    rows = self._open[table_id] = _OpenRows(table_id, self._schemas[table_id])
                rows.add(event)
            elif isinstance(event, TableKnown):
                self._close_rows(table_id)
                self._schemas[table_id] = event.schema
            else:
                self._close_rows(table_id)
                self._steps.setdefault(table_id, []).append(Step(self._naming.next(), change=event))
                self._count("numSchemaChanges")
                if isinstance(event, events.CreateTableEvent):
                    _OpenRows(table_id, event.schema)  # checks the key before anything is created
                    self._schemas[table_id] = event.schema
                elif isinstance(event, events.DropTableEvent):
                    del self._schemas[table_id]
                else:
                    self._schemas[table_id] = self._schemas[table_id].apply(event)

    def _close_rows(self, table_id: TableId) -> None:
        rows = self._open.pop(table_id, None)
        message = b"" if rows is None else rows.message()
        if rows is not None and message:
            step = Step(self._naming.next(), rows.schema, message)
            self._steps.setdefault(table_id, []).append(step)
            self._count("numBytesStaged", len(message))

    def prepare_commit(self) -> list[TableSteps]:
        """See `SinkWriter`."""
        for table_id in list(self._open):
            self._close_rows(table_id)
        steps, self._steps = self._steps, {}
        return [TableSteps(table_id, tuple(of_table)) for table_id, of_table in steps.items()]


class _StagedCommitter(Committer[TableSteps]):
    def __init__(self, factory: TargetFactory, context: SinkWriterContext) -> None:
        self._target = factory.open(context)

    def commit(self, committables: Sequence[TableSteps]) -> None:
        """See `Committer`."""
        self._commit(committables, False)

    def recommit(self, committables: Sequence[TableSteps]) -> None:
        """See `Committer`."""
        self._commit(committables, True)

    def _commit(self, committables: Sequence[TableSteps], is_in_doubt: bool) -> None:
        of_tables: dict[TableId, list[Step]] = {}
        for committable in committables:
            of_tables.setdefault(committable.table_id, []).extend(committable.steps)
        if not of_tables:
            return
        with ThreadPoolExecutor(min(_THREADS, len(of_tables)), "cdc-commit") as pool:
            futures = [
                pool.submit(self._target.apply, table_id, steps, is_in_doubt) for table_id, steps in of_tables.items()
            ]
        for future in futures:
            future.result()
        _LOG.info("committed %d steps of %d tables", sum(map(len, of_tables.values())), len(of_tables))

    def close(self) -> None:
        """See `Committer`."""
        self._target.close()


class StagedSink(Sink[SinkEvent]):
    """Applies the events of sink tables to a target, exactly once; see the docstring of the package.

    Args:
        factory: opens the target.
    """

    commits_globally = True

    def __init__(self, factory: TargetFactory) -> None:
        self._factory = factory

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[SinkEvent, TableSteps]:
        """See `Sink`."""
        return _StagedWriter(context)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any]:
        """See `Sink`."""
        return _StagedCommitter(self._factory, context)


class _PrintWriter(SinkWriter[SinkEvent, Any]):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def write_batch(self, values: list[SinkEvent], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        for event in values:
            if not isinstance(event, TableKnown):
                print_lines(f"{self._prefix}{format_event(event)}\n")


def format_event(event: SchemaChangeEvent | DataChangeEvent) -> str:
    """Return an event as a line of text."""
    if not isinstance(event, DataChangeEvent):
        columns = ""
        if isinstance(event, events.CreateTableEvent):
            columns = ": " + ", ".join(f"{column.name} {read_type(column)}" for column in event.schema.columns)
        return f"{type(event).__name__}{{tableId={event.table_id}, {describe(event)}{columns}}}"
    kinds = {RowKind.INSERT: "INSERT", RowKind.UPDATE_AFTER: "UPDATE", RowKind.DELETE: "DELETE"}
    return (
        f"DataChangeEvent{{tableId={event.table_id}, before={_brackets(event.before)}, "
        f"after={_brackets(event.after)}, op={kinds.get(event.kind, event.kind.name)}}}"
    )


def _brackets(row: Iterable[Any] | None) -> str:
    return "[]" if row is None else f"[{', '.join('null' if value is None else str(value) for value in row)}]"


class PrintSink(Sink[SinkEvent]):
    """Prints the events of sink tables, each in a line, at least once."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[SinkEvent, Any]:
        """See `Sink`."""
        return _PrintWriter(f"{context.subtask_index}> " if self._prefix == "subtask" else self._prefix)


@dataclass(frozen=True)
class PipelineSink:
    """A sink of a pipeline.

    Attributes:
        sink: takes the events of sink tables.
        refuses: says which schema changes it cannot make.
        attach: attaches the sink to the stream of events; None for `sink_to`.
    """

    sink: Sink[Any]
    refuses: Callable[[TableSchema, SchemaChangeEvent], str | None]
    attach: Callable[[Any], Any] | None = None


def refuse_nothing(schema: TableSchema, change: SchemaChangeEvent) -> str | None:
    """Return None: the sink takes every schema change."""
    return None


def staged(factory: TargetFactory) -> PipelineSink:
    """Return the sink of a target."""
    return PipelineSink(StagedSink(factory), factory.refuses)


def _create_print(settings: Settings) -> PipelineSink:
    settings.boolean("print.enabled", True)
    settings.text("standard-error")
    return PipelineSink(PrintSink("subtask" if settings.boolean("print.subtask", False) else ""), refuse_nothing)


Factory: TypeAlias = Callable[[Settings], PipelineSink]


def _lazily(module: str, function: str) -> Factory:
    """Return a factory in a module that is imported when a pipeline names its sink."""

    def create(settings: Settings) -> PipelineSink:
        from importlib import import_module

        sink: PipelineSink = getattr(import_module(f"penstock.cdc.{module}"), function)(settings)
        return sink

    return create


_SINKS: Final[Mapping[str, Factory]] = {
    "values": _create_print,
    "print": _create_print,
    "iceberg": _lazily("lake_targets", "create_iceberg"),
    "delta": _lazily("lake_targets", "create_delta"),
    "kafka": _lazily("kafka_messages", "create_kafka"),
    "postgres": _lazily("sql_targets", "create_postgres"),
    "mysql": _lazily("sql_targets", "create_mysql"),
}


def create_sink(definition: PipelineDefinition) -> PipelineSink:
    """Return the sink of a pipeline.

    Raises:
        DefinitionError: if an option is missing, or unknown, or has a wrong value.
        UnsupportedError: if the sink type is unknown.
    """
    settings = definition.sink
    kind = settings.need("type").lower()
    for key in ("name", "include.schema.changes", "exclude.schema.changes"):
        settings.texts(key)
    if kind not in _SINKS:
        raise UnsupportedError(f"{settings.fail('type', f'there is no sink {kind!r}')}; there are {', '.join(_SINKS)}")
    sink = _SINKS[kind](settings)
    settings.refuse_others()
    return sink
