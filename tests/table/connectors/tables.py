"""Tables by their DDL: the nodes that a planner reads and writes, and sources read to their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from tests.table.planned import manager_of, plan_query

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.connector import Source
from penstock.sql.catalogs.columns import list_metadata_columns, row_schema
from penstock.sql.connectors.built_in import built_in
from penstock.sql.data.arrow import to_values
from penstock.sql.logical.nodes import Node, Scan, Values, Write
from penstock.sql.tables.connector import Connectors
from penstock.sql.tables.tables import TableReader, TableWriter
from penstock.testing.connectors import SourceRun, read_source

LARGE = 1 << 16


def scan_of(ddl: str, name: str = "t") -> Scan:
    """The node that reads a table."""
    node: Node = plan_query(f"SELECT * FROM {name}", manager_of(ddl))
    while not isinstance(node, Scan):
        (node,) = node.inputs()
    return node


def build_reader(ddl: str, connectors: Connectors | None = None) -> TableReader:
    """How a table is read."""
    return (connectors or built_in()).reader(scan_of(ddl))


def build_write(ddl: str, name: str = "t", **more: Any) -> Write:
    """A node that writes into all columns of a table."""
    manager = manager_of(ddl)
    found = manager.find((name,))
    assert found is not None
    columns = [one for one in manager.resolved(found[1]).columns if one.is_persisted()]
    schema = row_schema(columns).without_time()
    return Write(
        schema=schema,
        input=Values(schema=schema, rows=()),
        path=("default_catalog", "default_database", name),
        options=tuple(found[1].options.items()),
        metadata=list_metadata_columns(columns),
        partition_keys=found[1].partition_keys,
        **more,
    )


def writer_of(ddl: str) -> TableWriter:
    """How a table is written."""
    return built_in().writer(build_write(ddl))


def read_rows(source: Source[Any, Any], parallelism: int = 1, hostile: bool = False, size: int = LARGE) -> list[Any]:
    """The rows of a source that ends, as tuples of Python's values."""
    return [tuple(row) for row in read_source(source, size, parallelism, hostile).all_values]


def held_rows(columns: pa.RecordBatch, kinds: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of columns, as held values."""
    found = [to_values(column, kind) for column, kind in zip(columns.columns, kinds, strict=True)]
    return list(zip(*found, strict=True))


def table_rows(ddl: str, parallelism: int = 1, hostile: bool = False) -> list[tuple[Any, ...]]:
    """The rows of a table that ends, as held values; when hostile with a restart after every batch."""
    node = scan_of(ddl)
    cluster = SourceRun(built_in().reader(node).source, parallelism)
    found: list[tuple[Any, ...]] = []
    try:
        while len(cluster.ended) < parallelism:
            for subtask in range(parallelism):
                batch = cluster.poll(subtask, LARGE)
                if isinstance(batch, ColumnBatch):
                    found += held_rows(batch.columns, node.schema.types)
                    if hostile:
                        cluster.restart()
            cluster.deliver()
        return found
    finally:
        cluster.close()
