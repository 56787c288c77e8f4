"""Leaves of a plan: tables, constants, and rows of the program."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.core.columns.batch import as_columns
from penstock.core.connector import Boundedness
from penstock.core.records import Batch
from penstock.drivers.spark.table_frames import frame_of_arrow, frame_of_source
from penstock.drivers.spark.table_queries import table_of_frame
from penstock.table.batch.declared import DeclaredColumn, DeclaredTable, table_text
from penstock.table.batch.planning import BatchPlanner, column, schema_text, table_key
from penstock.table.batch.stored import stored_type, to_stored
from penstock.table.connectors.tables import TableReader
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType, quoted
from penstock.table.evaluation.evaluator import columns_of_rows
from penstock.table.plan import logical
from penstock.table.plan.changes import INSERTS


def values(planner: BatchPlanner, node: logical.Values) -> str:
    """Return rows of constants."""
    types = node.schema.types
    if not types:
        return f"SELECT true AS c0 FROM range({len(node.rows)})"
    return _rows(planner, columns_of_rows(node.rows, types, planner.session.open()), types)


def arrow_rows(planner: BatchPlanner, node: logical.ArrowRows) -> str:
    """Return rows of the program."""
    arrays = [chunked.combine_chunks() for chunked in node.data.columns]
    return _rows(planner, arrays, node.schema.types)


def _rows(planner: BatchPlanner, arrays: list[Any], types: list[DataType]) -> str:
    stored = [to_stored(array, kind) for array, kind in zip(arrays, types, strict=True)]
    fields = [pa.field(column(index), stored_type(kind)) for index, kind in enumerate(types)]
    table = pa.Table.from_arrays(stored, schema=pa.schema(fields))
    return f"SELECT * FROM {planner.view(frame_of_arrow(planner.spark, table, schema_text(types)))}"


def scan(planner: BatchPlanner, node: logical.Scan) -> str:
    """Return all columns of a table."""
    table = declared_table(planner, node)
    texts = [f"{text} AS {column(index)}" for index, text in enumerate(table.texts())]
    return f"SELECT {', '.join(texts) or 'true AS c0'} FROM {table.source}"


def declared_table(planner: BatchPlanner, node: logical.Scan) -> DeclaredTable:
    """Return a table: the DataFrame of its connector, or the rows of its source. Each plan looks it up once."""
    key = table_key(node)
    table = planner.tables.get(key)
    if table is None:
        table = planner.tables[key] = _table(planner, node)
    return table


def _table(planner: BatchPlanner, node: logical.Scan) -> DeclaredTable:
    reader = planner.table_reader(node)
    title = ".".join(node.path)
    if reader.changes != INSERTS:
        raise ValidationError(
            "Querying a table in batch mode is currently only possible for INSERT-only table sources. But the source "
            f"for table '{title}' produces other changelog messages than just INSERT."
        )
    if reader.frame is not None:
        return _of_spark(planner, partial(reader.frame, planner.spark), reader.spark_table, node)
    part = planner.plan_scan(node)
    view = planner.view(
        _read(planner, planner.reader(part.scan) if part.scan is not node else reader, part.scan, title)
    )
    positions = {index: at for at, index in enumerate(part.columns)}
    columns = [
        DeclaredColumn(column(positions[index]) if index in positions else None, kind)
        for index, kind in enumerate(node.schema.types)
    ]
    return DeclaredTable(view, tuple(columns))


def _read(planner: BatchPlanner, reader: TableReader, node: logical.Scan, title: str) -> Any:
    source, types = reader.source, tuple(node.schema.types)
    if source is None:
        raise ValidationError(f"table '{title}' has neither a source nor a Spark data frame")
    if source.boundedness is not Boundedness.BOUNDED:
        raise _unbounded(title)
    return frame_of_source(planner.spark, source, planner.parallelism(), _Stored(types), schema_text(types))


class _Stored:
    """Converts a batch of a source to Spark's columns."""

    def __init__(self, types: tuple[DataType, ...]) -> None:
        self._types = types

    def __call__(self, batch: Batch) -> pa.RecordBatch:
        columns = as_columns(batch, "Source").columns.columns
        stored = [to_stored(array, kind) for array, kind in zip(columns, self._types, strict=False)]
        return pa.RecordBatch.from_arrays(stored, [column(index) for index in range(len(stored))])


def _unbounded(title: str) -> ValidationError:
    return ValidationError(
        f"Querying an unbounded table '{title}' in batch mode is not allowed. The table source is unbounded."
    )


def _of_spark(planner: BatchPlanner, frame: Callable[[], Any], name: str | None, node: logical.Scan) -> DeclaredTable:
    """Return a table that Spark reads, in the declared types. `name`: its name in Spark, if any."""
    title = ".".join(node.path)
    dataframe: Any = frame() if name is None else None
    table = table_of_frame(dataframe) if name is None else planner.spark_table(name)
    if table.is_streaming:
        raise _unbounded(title)
    cols = table.columns
    names = [field.name for field in cols]
    if len(cols) != len(node.schema):
        raise ValidationError(
            f"table '{title}' has {len(node.schema)} columns, and the Spark data frame that it reads has {len(cols)}: "
            f"{', '.join(names)}"
        )
    if len({column_name.lower() for column_name in names}) < len(names):
        names = [column(index) for index in range(len(names))]
        dataframe, name = (frame() if dataframe is None else dataframe).toDF(*names), None
    columns = []
    for spark_name, spark_column, declared in zip(names, cols, node.schema, strict=True):
        declared_column = DeclaredColumn(quoted(spark_name), declared.type, spark_column.type)
        if declared_column.text() is None:
            raise ValidationError(
                f"column '{declared.name}' of table '{title}' is declared as {declared.type}, and Spark has "
                f"{spark_column.type} there: declare it as what Spark has"
            )
        columns.append(declared_column)
    source = planner.view(dataframe) if name is None else table_text(name)
    return DeclaredTable(source, tuple(columns))
