"""What a table is handed by `INSERT INTO`: planned as for a sink, run in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.table.planned import create, manager_of, plan_query
from tests.table.running import Change, Rows

from penstock.common import Configuration
from penstock.connectors.collect import CollectSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.plan.transformation import Upstream
from penstock.sql.catalogs.columns import row_schema
from penstock.sql.logical.nodes import ALL, SHORT, Changes, Scan, Write
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.options import plan_options
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import TableReader, TableWriter


@dataclass(frozen=True)
class Source(Rows):
    """A table with a primary key or a watermark. `by`: how it is read, but for its source."""

    more: str = ""
    by: TableReader | None = None

    def ddl(self, name: str) -> str:
        return super().ddl(name)[:-1] + f"{self.more})"

    def reader(self) -> TableReader:
        found = super().reader()
        by = self.by
        if by is None:
            return found
        return TableReader(found.source, by.changes, by.has_before, by.key, by.is_upsert, by.has_full_deletes)


#: what takes rows by key, and what takes all changes
UPSERTS = TableWriter(CollectSink(True), ALL, wants_before=False)
RETRACTS = TableWriter(CollectSink(True), ALL)


def by_key(changes: Changes = ALL, *, has_full_deletes: bool = False) -> TableReader:
    """A table that is updated by its first column."""
    return TableReader(CollectSink(True), changes, key=(0,), is_upsert=True, has_full_deletes=has_full_deletes)


def written(
    sql: str,
    sink: str,
    *,
    writer: TableWriter = UPSERTS,
    options: Mapping[str, str] | None = None,
    conflict: str | None = None,
    **tables: Rows,
) -> list[Change]:
    """The changes that a table `sink`, with these columns, is handed."""
    environment, upstreams = planned_sink(sql, sink, writer, options or {}, conflict, tables)
    rows: Any = DataStream(environment, upstreams, None).execute_and_collect()
    return [(SHORT[kind], values) for kind, values in rows]


def planned_sink(
    sql: str,
    sink: str,
    writer: TableWriter,
    options: Mapping[str, str],
    conflict: str | None,
    tables: Mapping[str, Rows],
) -> tuple[StreamExecutionEnvironment, tuple[Upstream, ...]]:
    """The job, and where the rows for the table are read."""
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(1)
    manager = manager_of(*(table.ddl(name) for name, table in tables.items()))
    create(manager, f"CREATE TABLE sink ({sink})")
    found = manager.find(("sink",))
    assert found is not None
    schema = row_schema(manager.resolved(found[1]).columns)
    key = tuple(schema.names.index(name) for name in found[1].schema.primary_key)

    def reader(node: Scan) -> TableReader:
        return tables[node.path[-1]].reader()

    planner = StreamPlanner(environment.add, reader, StreamSession(), manager.calls(), options=plan_options(options))
    write = Write(schema=schema, input=plan_query(sql, manager), path=found[0], key=key, conflict=conflict)
    return environment, planner.written(write, writer)
