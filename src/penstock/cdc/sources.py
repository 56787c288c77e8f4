r"""The sources of pipelines, by their `type`.

**`values`** reads a file of JSON lines, an event in each, so that a pipeline can be tried and tested without a
database:

    {"create": "shop.cups", "columns": {"id": "BIGINT NOT NULL", "name": "STRING"}, "primary-key": ["id"]}
    {"insert": "shop.cups", "row": {"id": 1, "name": "mug"}}
    {"update": "shop.cups", "before": {"id": 1, "name": "mug"}, "after": {"id": 1, "name": "jar"}}
    {"delete": "shop.cups", "row": {"id": 1, "name": "jar"}}
    {"add-column": "shop.cups", "column": {"size": "INT"}, "after": "id"}
    {"rename-column": "shop.cups", "name": "name", "new-name": "title"}
    {"alter-column": "shop.cups", "column": {"size": "BIGINT"}}
    {"drop-column": "shop.cups", "name": "size"}
    {"truncate": "shop.cups"}
    {"drop-table": "shop.cups"}

`after` and `first` of a new column, and `before` of an update, may be left out. Numbers of DECIMAL, dates and times are
texts, bytes are in base64. The source goes on where its checkpoint was: its position is the offset in the file, with
the schemas that the tables have there. With `bounded: false` it waits for more lines at the end of the file.

**`mysql`** and **`postgres`** read databases, and take the options of Flink CDC. One subtask reads them: a pipeline
needs all events of a table in one order, with each schema change between the rows before and after it.

Source: the values connector of Flink CDC's own tests, which has such events as Java objects.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

from penstock.base.errors import ConfigurationError, FormatError, UnsupportedError
from penstock.base.types import RowKind
from penstock.cdc.definition import PipelineDefinition, Settings
from penstock.cdc.expressions import make_column, parse_type
from penstock.cdc.tables import TableSelector, parse_table_id, split_patterns
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import Column, Event, TableId, TableSchema
from penstock.connectors.split_reader import PositionedReader, SplitQueue
from penstock.runtime import connector
from penstock.runtime.records import Batch
from penstock.sql.data import types

#: The most bytes of lines in a batch.
_BATCH_BYTES: Final = 1 << 20
Source: TypeAlias = connector.Source[Event, Any]


def create_source(definition: PipelineDefinition) -> Source:
    """Return the source of a pipeline.

    Raises:
        DefinitionError: if an option is missing, or unknown, or has a wrong value.
        UnsupportedError: if the source type is unknown.
    """
    settings = definition.source
    kind = settings.need("type").lower()
    settings.text("name")
    if kind not in _SOURCES:
        raise UnsupportedError(
            f"{settings.fail('type', f'there is no source {kind!r}')}; there are {', '.join(_SOURCES)}"
        )
    source = _SOURCES[kind](settings)
    settings.refuse_others()
    return source


def discover_tables(source: Source) -> Iterable[Event]:
    """Return the events that say which tables a source has, for a dry run; rows among them do not count.

    Raises:
        UnsupportedError: if the source cannot list them.
    """
    discover: Callable[[], Iterable[Event]] | None = getattr(source, "discover_tables", None)
    if discover is None:
        raise UnsupportedError(f"{type(source).__name__} cannot tell its tables before it runs: run the pipeline")
    return discover()


def _create_values(settings: Settings) -> Source:
    selector = settings.text("tables")
    return ValuesSource(
        settings.need("path"),
        settings.boolean("bounded", True),
        None if selector is None else TableSelector.parse(selector),
    )


@dataclass(frozen=True, slots=True)
class ValuesSplit:
    """The file, read up to an offset, with the schemas that the tables have there."""

    offset: int = 0
    schemas: Mapping[TableId, TableSchema] = field(default_factory=dict)


class ValuesSource(connector.Source[Event, ValuesSplit]):
    r"""Reads events from a file of JSON lines; see the module docstring.

    Args:
        path: the file.
        is_bounded: whether the end of the file is the end of the source.
        selector: the tables to read; None for all.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.cdc.sources import ValuesSource
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> _ = Path("events.jsonl").write_text('{"create": "shop.cups", "columns": {"id": "INT"}}\n')
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> stream = env.from_source(ValuesSource("events.jsonl"), WatermarkStrategy.no_watermarks(), "events")
        >>> [str(event.table_id) for event in stream.collect()]
        ['shop.cups']
    """

    def __init__(self, path: str, is_bounded: bool = True, selector: TableSelector | None = None) -> None:
        self._path = str(Path(path).absolute())
        self._is_bounded, self._selector = is_bounded, selector

    @property
    def boundedness(self) -> connector.Boundedness:
        """See `Source`."""
        bounded, unbounded = connector.Boundedness
        return bounded if self._is_bounded else unbounded

    def max_parallelism(self) -> int | None:
        """Return 1, because one subtask reads the file."""
        return 1

    def discover_tables(self) -> Iterator[Event]:
        """Yield the changes of schemas in the file."""
        schemas: dict[TableId, TableSchema] = {}
        with open(self._path, "rb") as file:
            for line in file:
                if line.strip() and not line.startswith((b'{"insert"', b'{"update"', b'{"delete"')):
                    event = parse_event(line, schemas, self._path)
                    if self._selector is None or self._selector.selects(event.table_id):
                        yield event

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[ValuesSplit], restored: Any | None
    ) -> connector.SplitEnumerator[ValuesSplit]:
        """See `Source`."""
        return SplitQueue(context, [ValuesSplit()], restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Event, ValuesSplit]:
        """See `Source`."""
        return _ValuesReader(context, self._path, self._is_bounded, self._selector)


class _ValuesReader(PositionedReader[ValuesSplit]):
    def __init__(
        self,
        context: connector.SourceReaderContext,
        path: str,
        is_bounded: bool,
        selector: TableSelector | None,
    ) -> None:
        super().__init__(context)
        self._path, self._is_bounded, self._selector = path, is_bounded, selector

    def read(self, split: ValuesSplit, max_records: int) -> tuple[Batch, ValuesSplit] | connector.InputStatus | None:
        """See `PositionedReader`."""
        with open(self._path, "rb") as file:
            file.seek(split.offset)
            lines = file.read(_BATCH_BYTES).splitlines(keepends=True)
            while lines and not lines[-1].endswith(b"\n"):
                # The line continues after the part that was read, or is still being written.
                rest = file.readline()
                if not rest and self._is_bounded:
                    break
                lines[-1] += rest
                if not rest:
                    lines.pop()
        lines = lines[:max_records]
        if not lines:
            return None if self._is_bounded else connector.InputStatus.NOTHING_AVAILABLE
        schemas, values, offset = dict(split.schemas), [], split.offset
        for line in lines:
            if line.strip():
                event = parse_event(line, schemas, f"{self._path}, offset {offset}")
                if self._selector is None or self._selector.selects(event.table_id):
                    values.append(event)
            offset += len(line)
        return Batch(values, None), replace(split, offset=offset, schemas=schemas)


def parse_event(line: str | bytes, schemas: dict[TableId, TableSchema], place: str = "") -> Event:
    """Return the event of a line, and note the schema of its table.

    Args:
        line: the JSON.
        schemas: the schemas of the tables so far; changes of schemas update them.
        place: where the line is, for errors.

    Raises:
        FormatError: if the line is not a valid event.
    """
    try:
        entry = json.loads(line)
        kind = next(iter(entry))
        table_id = parse_table_id(entry[kind])
        event = _make_event(kind, table_id, entry, schemas)
    except (ValueError, TypeError, KeyError, StopIteration, ArithmeticError, AttributeError) as error:
        raise FormatError(f"{place}: this line is no event: {error!r}: {line!r}") from error
    if isinstance(event, events.CreateTableEvent):
        schemas[table_id] = event.schema
    elif isinstance(event, events.DropTableEvent):
        schemas.pop(table_id, None)
    elif not isinstance(event, events.DataChangeEvent):
        schemas[table_id] = schemas[table_id].apply(event)
    return event


def _make_event(
    kind: str, table_id: TableId, entry: Mapping[str, Any], schemas: Mapping[TableId, TableSchema]
) -> Event:
    match kind:
        case "create":
            columns = tuple(_column(name, text) for name, text in entry["columns"].items())
            key = tuple(entry.get("primary-key", ()))
            return events.CreateTableEvent(table_id, TableSchema(columns, key, entry.get("comment")))
        case "insert" | "delete":
            row = _row(schemas[table_id], entry["row"])
            if kind == "insert":
                return events.DataChangeEvent(table_id, RowKind.INSERT, None, row)
            return events.DataChangeEvent(table_id, RowKind.DELETE, row, None)
        case "update":
            before = None if entry.get("before") is None else _row(schemas[table_id], entry["before"])
            after = _row(schemas[table_id], entry["after"])
            return events.DataChangeEvent(table_id, RowKind.UPDATE_AFTER, before, after)
        case "add-column" | "alter-column":
            ((name, text),) = entry["column"].items()
            if kind == "alter-column":
                return events.AlterColumnTypeEvent(table_id, _column(name, text))
            position = events.ColumnPosition(bool(entry.get("first")), entry.get("after"))
            return events.AddColumnEvent(table_id, _column(name, text), position)
        case "drop-column":
            return events.DropColumnEvent(table_id, entry["name"])
        case "rename-column":
            return events.RenameColumnEvent(table_id, entry["name"], entry["new-name"])
        case "truncate":
            return events.TruncateTableEvent(table_id)
        case "drop-table":
            return events.DropTableEvent(table_id)
        case _:
            raise ValueError(f"there is no event {kind!r}")


def _column(name: str, text: str) -> Column:
    return make_column(name, parse_type(text))


def _row(schema: TableSchema, values: Mapping[str, Any]) -> tuple[Any, ...]:
    unknown = [name for name in values if name not in schema.names]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}")
    return tuple(
        None if values.get(column.name) is None else _parse_value(parse_type(column.sql_type), values[column.name])
        for column in schema.columns
    )


def _parse_value(data_type: types.DataType, value: Any) -> Any:
    match data_type:
        case types.DecimalType():
            return decimal.Decimal(str(value)).quantize(decimal.Decimal(1).scaleb(-data_type.scale))
        case types.FloatType() | types.DoubleType():
            return float(value)
        case types.DateType():
            return datetime.date.fromisoformat(value)
        case types.TimeType():
            return datetime.time.fromisoformat(value)
        case types.LocalZonedTimestampType():
            moment = datetime.datetime.fromisoformat(value)
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
        case types.TimestampType():
            return datetime.datetime.fromisoformat(value)
        case types.BinaryType() | types.VarBinaryType():
            return base64.b64decode(value)
        case types.ArrayType():
            return [None if item is None else _parse_value(data_type.element_type, item) for item in value]
        case _:
            return value


def _load(module: str, settings: Settings) -> Any:
    """Import a module of a database's connector."""
    try:
        return import_module(f"penstock.connectors.{module}")
    except ModuleNotFoundError as error:
        kind = settings.need("type")
        raise UnsupportedError(
            f"{settings.fail('type', f'the source {kind!r} is not there')}: {error.name} is missing"
        ) from error


def _startup_mode(settings: Settings, modes: Sequence[str]) -> str:
    return settings.choice("scan.startup.mode", modes, "initial")


def _create_mysql(settings: Settings) -> Source:
    """Return the source of the type `mysql`, with the option names of Flink CDC."""
    client, database = _load("mysql.client", settings), _load("mysql.cdc.database", settings)
    address = client.MySqlAddress(
        settings.need("hostname"),
        settings.integer("port", 3306),
        settings.need("username"),
        settings.need("password"),
    )
    more: dict[str, Any] = {}
    server_id = settings.text("server-id")
    if server_id is not None:
        first, _, last = server_id.partition("-")
        try:
            more["server_ids"] = int(first), int(last or first)
        except ValueError:
            raise settings.fail(
                "server-id", f"{server_id!r} is neither a number nor a range such as 5400-5404"
            ) from None
    mode = _startup_mode(settings, database.STARTUP_MODES)
    if mode == "specific-offset":
        raise UnsupportedError(
            f"{settings.fail('scan.startup.mode', f'{mode} is not supported in a pipeline')}: use earliest-offset, "
            "latest-offset or timestamp"
        )
    if mode == "timestamp":
        settings.need("scan.startup.timestamp-millis")
        more["start_timestamp_ms"] = settings.integer("scan.startup.timestamp-millis", 0, 0)
    if "scan.incremental.snapshot.chunk.size" in settings:
        more["chunk_size"] = settings.integer("scan.incremental.snapshot.chunk.size", 8096, 2)
    settings_of_source = database.CdcSettings(
        address,
        _full_names(settings),
        startup=mode,
        adds_tables=settings.boolean("scan.newly-added-table.enabled", False),
        **more,
    )
    source: Source = _load("mysql.cdc.source", settings).MySqlEventSource(settings_of_source)
    return source


def _full_names(settings: Settings) -> tuple[str, ...]:
    """Return regular expressions of whole names for the option `tables`."""
    try:
        patterns = split_patterns(settings.need("tables"))
    except ConfigurationError as error:
        raise settings.fail("tables", str(error)) from error
    for parts in patterns:
        if len(parts) != 2:
            raise settings.fail("tables", f"write database.table instead of {'.'.join(parts)!r}")
    return tuple(rf"(?:{schema})\.(?:{table})" for schema, table in patterns)


def _create_postgres(settings: Settings) -> Source:
    """Return the source of the type `postgres`, with the option names of Flink CDC."""
    options = _load("postgres.cdc.options", settings)
    tables = settings.need("tables")
    first = split_patterns(tables)[0]
    if len(first) != 3:
        raise settings.fail("tables", f"write database.schema.table instead of {'.'.join(first)!r}")
    plugin = settings.text("decoding.plugin.name")
    if plugin not in (None, "pgoutput"):
        raise settings.fail("decoding.plugin.name", f"the plug-in is pgoutput, not {plugin!r}")
    more: dict[str, Any] = {}
    if "scan.incremental.snapshot.chunk.size" in settings:
        more["chunk_size"] = settings.integer("scan.incremental.snapshot.chunk.size", 8096, 1)
    settings_of_source = options.make_settings(
        settings.need("hostname"),
        first[0],
        tables,
        settings.need("slot.name"),
        port=settings.integer("port", 5432),
        username=settings.need("username"),
        password=settings.need("password"),
        publication=settings.text("publication.name"),
        startup=_startup_mode(settings, options.STARTUP_MODES),
        truncates="skip" if settings.boolean("skip.truncates", False) else "fail",
        **more,
    )
    source: Source = _load("postgres.cdc.source", settings).PostgresEventSource(settings_of_source)
    return source


_SOURCES: Final[dict[str, Callable[[Settings], Source]]] = {
    "values": _create_values,
    "mysql": _create_mysql,
    "postgres": _create_postgres,
}
