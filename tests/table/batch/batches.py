"""Runs queries in batch, and expressions in Spark beside the kernels that they stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from tests.table.planned import NOW_NS, manager_of, plan_query
from tests.table.running import Answer, Rows, run_over

from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.session import hand_back, obtain_spark
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.types import DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.logical.nodes import ArrowRows, Node, PlanColumn, Project, RowSchema, Scan
from penstock.sql.logical.properties import allow_plans
from penstock.sql.spark.executor import QUERIES, failures_told
from penstock.sql.spark.kernels import BatchSession
from penstock.sql.spark.native import native_text
from penstock.sql.spark.planning import BatchPlanner
from penstock.sql.spark.stored import from_stored
from penstock.sql.tables.tables import TableReader
from penstock.sql.typed import Field, FunctionCall, Typed, transformed

#: Queries of few rows: to compile code, or to plan again while they run, takes longer than they do.
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
}


def spark_of_tests() -> SparkHandle:
    """A session of few partitions."""
    handle = obtain_spark(SETTINGS, 1)
    hand_back(handle, 1)
    return handle


def _reader(tables: Mapping[str, Rows], node: Scan) -> TableReader:
    return tables[node.path[-1]].reader()


#: tables by their names, or what reads them
Tables = Mapping[str, Rows] | Callable[[Scan], TableReader] | None


@contextmanager
def planning(tables: Tables = None) -> Iterator[BatchPlanner]:
    """A planner that knows tables."""
    reader = tables if callable(tables) else partial(_reader, tables or {})
    session = BatchSession(now_ns=NOW_NS)
    planner = BatchPlanner(QUERIES, spark_of_tests().session, reader, session, lambda: 2)
    try:
        with failures_told("the test"):
            yield planner
    finally:
        planner.close()


def run_batch(sql: str, **tables: Rows) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    manager = manager_of(*(table.ddl(name) for name, table in tables.items()))
    return compute_rows(plan_query(sql, manager), tables)


def compute_rows(plan: Node, tables: Tables = None) -> list[tuple[Any, ...]]:
    """The rows of a plan, as `penstock.sql.data.arrow` holds them."""
    allow_plans([plan])
    with planning(tables) as planner:
        found = planner.frame(plan).toArrow()
    columns = [
        to_values(from_stored(column, kind), kind)
        for column, kind in zip(found.columns, plan.schema.types, strict=False)
    ]
    return list(zip(*columns, strict=True)) if columns else [()] * found.num_rows


def show_query(sql: str, **tables: Rows) -> str:
    """The query of Spark that a query becomes."""
    manager = manager_of(*(table.ddl(name) for name, table in tables.items()))
    with planning(tables) as planner:
        return planner.query(plan_query(sql, manager))


def counted(rows: Sequence[tuple[Any, ...]]) -> Counter[str]:
    """Rows in any order, NaN like itself."""
    return Counter(map(repr, rows))


def check_agrees(sql: str, **tables: Rows) -> Answer:
    """A query gives the same rows in a stream, when its changes are made, and in batch."""
    streamed = run_over(tables, sql)
    assert counted(run_batch(sql, **tables)) == counted(streamed.rows()), sql
    return streamed


@dataclass(frozen=True)
class Disagreement:
    """An expression that Spark answers otherwise than the kernel for a row."""

    expression: str
    row: tuple[Any, ...]
    in_spark: Any
    in_kernel: Any


def disagreements(
    expressions: Sequence[Typed], types: Sequence[DataType], rows: Sequence[tuple[Any, ...]]
) -> list[Disagreement]:
    """Where Spark answers otherwise than the kernels. All expressions are native."""
    columns = [to_column([row[index] for row in rows], kind) for index, kind in enumerate(types)]
    kernels = Evaluator(expressions, BatchSession(now_ns=NOW_NS).open())(Columns(columns, len(rows)))
    wanted = [to_values(column, one.type) for column, one in zip(kernels, expressions, strict=True)]
    found = in_spark(expressions, types, columns)
    return [
        Disagreement(str(expression), row, mine, theirs)
        for expression, some, others in zip(expressions, found, wanted, strict=True)
        for row, mine, theirs in zip(rows, some, others, strict=True)
        if repr(mine) != repr(theirs)
    ]


def in_spark(expressions: Sequence[Typed], types: Sequence[DataType], columns: Sequence[pa.Array]) -> list[list[Any]]:
    """What Spark gives for native expressions, row by row in the order of the rows."""
    assert all(native_text(one, str) is not None for one in expressions)
    number = len(types)
    schema = RowSchema(tuple(PlanColumn(f"f{index}", kind) for index, kind in enumerate(types)))
    data = pa.Table.from_arrays(list(columns), names=[f"f{index}" for index in range(number)])
    source = ArrowRows(schema=schema, data=data)
    given = RowSchema(tuple(PlanColumn(f"e{index}", one.type) for index, one in enumerate(expressions)))
    rows = compute_rows(Project(schema=given, input=source, expressions=tuple(expressions)))
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in expressions]


def shifted(expression: Typed, by: int) -> Typed:
    """The same over columns that are further to the right."""
    return transformed(
        expression, lambda node: replace(node, index=node.index + by) if isinstance(node, Field) else node
    )


def called(name: str, result: DataType, *operands: Typed) -> FunctionCall:
    """A call as it is in a plan."""
    return FunctionCall(result, name, operands)
