"""The job of a pipeline, and its preview (`--dry-run`).

`python -m penstock.cdc.pipeline FILE` runs a pipeline as `penstock cdc FILE` does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.base.configuration import Configuration
from penstock.base.options import CHECKPOINTING_INTERVAL_MS, PARALLELISM, RUNTIME_MODE
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.cdc import operators
from penstock.cdc.definition import PipelineDefinition, load_definition
from penstock.cdc.schemas import SchemaEvolution, SinkTable
from penstock.cdc.sinks import create_sink
from penstock.cdc.sources import create_source, discover_tables
from penstock.cdc.tables import Router
from penstock.cdc.transform import Environment, Transforms
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import Event, TableId, TableSchema
from penstock.datastream import StreamExecutionEnvironment
from penstock.sql.session.session import parse_zone, system_zone

if TYPE_CHECKING:
    from penstock.datastream import DataStream

#: The interval of checkpoints (ms) if neither the pipeline nor the configuration sets one: rows appear at checkpoints.
INTERVAL_MS: Final = 10_000


@dataclass(frozen=True)
class _Parts:
    """The parts that a definition is compiled into."""

    transforms: Transforms
    router: Router
    zone: tzinfo


def _create_parts(definition: PipelineDefinition) -> _Parts:
    zone = parse_zone(definition.zone or system_zone())
    transforms = Transforms(definition.transforms, definition.functions, zone)
    return _Parts(transforms, Router(definition.routes, definition.route_mode == "FIRST_MATCH"), zone)


def check_definition(definition: PipelineDefinition) -> None:
    """Raise `DefinitionError` for errors that can be detected without the source's tables."""
    _create_parts(definition)
    create_source(definition)
    create_sink(definition)


def create_environment(
    definition: PipelineDefinition, options: Configuration | None = None
) -> StreamExecutionEnvironment:
    """Return the environment of a pipeline. `options` and command-line options override the definition."""
    configuration = Configuration.from_dict({**definition.options, **(options or Configuration()).to_dict()})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    settings = env.get_configuration()
    if settings.read(CHECKPOINTING_INTERVAL_MS) is None and definition.runtime_mode == "STREAMING":
        settings.set_string(CHECKPOINTING_INTERVAL_MS.key(), f"{INTERVAL_MS} ms")
    if not settings.contains_key(RUNTIME_MODE.key()):
        settings.set_string(RUNTIME_MODE.key(), definition.runtime_mode)
    if definition.parallelism is not None and not settings.contains_key(PARALLELISM.key()):
        env.set_parallelism(definition.parallelism)
    return env


def build_pipeline(env: StreamExecutionEnvironment, definition: PipelineDefinition) -> None:
    r"""Add the operators of a pipeline to an environment.

    Examples:
        >>> from pathlib import Path
        >>> from penstock.cdc.definition import parse_definition
        >>> from penstock.cdc.pipeline import build_pipeline, create_environment
        >>> _ = Path("events.jsonl").write_text(
        ...     '{"create": "shop.cups", "columns": {"id": "INT NOT NULL"}, "primary-key": ["id"]}\n'
        ...     '{"insert": "shop.cups", "row": {"id": 1}}\n'
        ... )
        >>> pipeline = parse_definition('''
        ... source: {type: values, path: events.jsonl}
        ... sink: {type: print}
        ... pipeline: {name: To the console, execution.runtime-mode: BATCH}
        ... ''')
        >>> env = create_environment(pipeline)
        >>> build_pipeline(env, pipeline)
        >>> result = env.execute(pipeline.name)
        CreateTableEvent{tableId=shop.cups, the table is created: id INT NOT NULL}
        DataChangeEvent{tableId=shop.cups, before=[], after=[1], op=INSERT}

    Raises:
        DefinitionError: if the definition does not fit.
    """
    parts, sink = _create_parts(definition), create_sink(definition)
    evolution = SchemaEvolution(definition.behavior, definition.included, sink.refuses)
    source = env.from_source(create_source(definition), WatermarkStrategy.no_watermarks(), "Source").uid("cdc-source")
    # Several readers would have a schema change of a table at different places among its rows.
    source = source.set_parallelism(1)
    routed = (
        source.key_by(operators.get_source_key)
        .process(operators.TransformFunction(parts.transforms, parts.router, parts.zone))
        .name("Transform")
        .uid("cdc-transform")
    )
    stream: DataStream = (
        routed.key_by(operators.get_sink_key)
        .process(operators.EvolutionFunction(evolution, parts.zone))
        .name("Schema")
        .uid("cdc-schema")
    )
    if sink.attach is not None:
        stream = sink.attach(stream)
    stream.sink_to(sink.sink).name("Sink").uid("cdc-sink")


@dataclass(frozen=True)
class PlannedTable:
    """A sink table of a dry run: its source tables, and the schema that it would have."""

    table_id: TableId
    sources: tuple[TableId, ...]
    schema: TableSchema


def plan_tables(definition: PipelineDefinition, source_events: Iterable[Event]) -> list[PlannedTable]:
    """Return the sink tables that a pipeline would write, by name.

    Args:
        definition: the pipeline.
        source_events: the events of the source's tables; rows are not looked at.

    Raises:
        DefinitionError: if a transform does not fit a table.
        SchemaChangeError: if tables do not fit into one sink table.
    """
    parts, sink = _create_parts(definition), create_sink(definition)
    evolution = SchemaEvolution(definition.behavior, definition.included, sink.refuses)
    environment = Environment(parts.zone, lambda: 0)
    schemas: dict[TableId, TableSchema] = {}
    for event in source_events:
        if isinstance(event, events.DropTableEvent):
            schemas.pop(event.table_id, None)
        elif isinstance(event, events.CreateTableEvent):
            schemas[event.table_id] = event.schema
        elif not isinstance(event, events.DataChangeEvent):
            schemas[event.table_id] = schemas[event.table_id].apply(event)
    tables: dict[TableId, SinkTable] = {}
    for source_id, schema in schemas.items():
        transformed = parts.transforms.compile(source_id, schema, environment).schema
        for sink_id in parts.router.route(source_id):
            table = tables.setdefault(sink_id, SinkTable())
            evolution.apply(table, sink_id, source_id, events.CreateTableEvent(source_id, transformed))
    return [
        PlannedTable(sink_id, tuple(table.sources), table.schema)
        for sink_id, table in sorted(tables.items())
        if table.schema is not None
    ]


def describe_plan(definition: PipelineDefinition, tables: list[PlannedTable]) -> Iterator[str]:
    """Yield the lines that `penstock cdc --dry-run` prints."""
    sources = {source for table in tables for source in table.sources}
    kinds = f"{definition.source.need('type')} → {definition.sink.need('type')}"
    yield f"{definition.name}: {kinds}, {len(sources)} source tables, {len(tables)} sink tables"
    yield f"schema.change.behavior: {definition.behavior} ({', '.join(sorted(definition.included)) or 'no changes'})"
    for table in tables:
        yield ""
        yield f"{', '.join(map(str, table.sources))} → {table.table_id}"
        for column in table.schema.columns:
            null = "" if column.is_nullable else " NOT NULL"
            key = ", key" if column.name in table.schema.primary_key else ""
            yield f"    {column.name} {column.sql_type}{null}{key}"
        if table.schema.partition_keys:
            yield f"    partitioned by {', '.join(table.schema.partition_keys)}"


def find_table_events(definition: PipelineDefinition) -> Iterable[Event]:
    """Return the events of the source's tables for a dry run.

    Raises:
        UnsupportedError: if the source cannot list its tables without running.
    """
    return discover_tables(create_source(definition))


def main(path: str) -> None:
    """Run the pipeline of a file to its end."""
    definition = load_definition(path)
    folder = Path(path).absolute().parent
    sys.path.insert(0, str(folder))  # the modules of Python functions, which workers get as files
    env = create_environment(definition)
    for module in sorted({rule.target.partition(":")[0] for rule in definition.functions}):
        file = folder / f"{module}.py"
        if file.exists():
            env.add_python_file(str(file))
    build_pipeline(env, definition)
    env.execute(definition.name)


if __name__ == "__main__":
    main(sys.argv[1])
