"""Nodes that pass on, compute, filter, combine or sort rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.table.batch.chains import build_join_chain, projected
from penstock.table.batch.kernels import Correlated
from penstock.table.batch.map_keys import group_text, has_maps
from penstock.table.batch.native import native_text
from penstock.table.batch.planning import BatchPlanner, column, order_text, select, with_maps
from penstock.table.batch.stored import spark_type
from penstock.table.data.logical_types import BooleanType, DataType
from penstock.table.plan import logical
from penstock.table.typed.nodes import FunctionCall, Typed, conjuncts


def project(planner: BatchPlanner, node: logical.Project) -> str:
    """Return expressions over the columns of the input."""
    query = projected(planner, node)
    if query is not None:
        return query
    source = planner.over(planner.query(node.input), node.input.schema, node.expressions)
    return select(source.texts, source.query)


def filtered(planner: BatchPlanner, node: logical.Filter) -> str:
    """Filter first by the conditions that Spark can evaluate, so that fewer rows go through a step."""
    chain = build_join_chain(planner, node)
    if chain is not None:
        return chain.query()
    query = planner.query(node.input)
    native: list[str] = []
    rest: list[Typed] = []
    for part in conjuncts(node.condition):
        text = native_text(part, column)
        if text is None:
            rest.append(part)
        else:
            native.append(text)
    columns = [column(index) for index in range(len(node.schema))]
    if native:
        query = select(columns, query, f" WHERE {' AND '.join(native)}")
    if not rest:
        return query
    condition = rest[0] if len(rest) == 1 else FunctionCall(BooleanType(), "AND", tuple(rest))
    source = planner.over(query, node.input.schema, [condition], range(len(node.schema)))
    return select(columns, source.query, f" WHERE {source.texts[0]}")


def correlate(planner: BatchPlanner, node: logical.Correlate) -> str:
    """Join each row with the rows that a table function makes of it."""
    before = node.input.schema
    # The plan below the node need not travel to Spark's tasks.
    alone = replace(node, input=logical.Values(schema=before, rows=()))
    work = Correlated(alone, planner.session)
    return f"SELECT * FROM {planner.step(planner.query(node.input), work, before.types, node.schema.types)}"


def set_operation(planner: BatchPlanner, node: logical.SetOperation) -> str:
    """Return UNION, INTERSECT or EXCEPT."""
    word = f" {node.operator} {'ALL' if node.is_all else 'DISTINCT'} "
    if node.operator == "UNION" and node.is_all:
        return word.join(f"({_as_types(planner, part, node.schema.types)})" for part in node.parts)
    types = node.schema.types
    keys = [group_text(column(index), kind) for index, kind in enumerate(types)]
    parts = [_as_types(planner, part, types) for part in node.parts]
    if any(map(has_maps, types)):
        parts = [select(keys, part) for part in parts]
    if node.operator == "EXCEPT" and not node.is_all:
        return with_maps(_except(parts, len(types)), types)
    return with_maps(word.join(f"({part})" for part in parts), types)


def _except(parts: Sequence[str], width: int) -> str:
    """Return EXCEPT as the join that Spark makes of it.

    Spark first tries to make a filter of an EXCEPT of one table, and fails if the condition reads a column that a step
    has computed and that the EXCEPT does not have.
    """
    columns = ", ".join(f"t0.{column(index)}" for index in range(width))
    joins = "".join(
        f" LEFT ANTI JOIN ({part}) t{number} ON "
        + " AND ".join(f"t0.{column(index)} <=> t{number}.{column(index)}" for index in range(width))
        for number, part in enumerate(parts[1:], 1)
    )
    return f"SELECT DISTINCT {columns} FROM ({parts[0]}) t0{joins}"


def _as_types(planner: BatchPlanner, node: logical.Node, types: Sequence[DataType]) -> str:
    """Cast the rows of a part of a set operation to the types of the whole."""
    pairs = [
        (spark_type(actual), spark_type(expected)) for actual, expected in zip(node.schema.types, types, strict=True)
    ]
    texts = [
        column(index) if actual == expected else f"CAST({column(index)} AS {expected})"
        for index, (actual, expected) in enumerate(pairs)
    ]
    return select(texts, planner.query(node))


def sort(planner: BatchPlanner, node: logical.Sort) -> str:
    """Sort or limit the rows."""
    rest = f" ORDER BY {order_text(node.keys)}" if node.keys else ""
    rest += "" if node.fetch is None else f" LIMIT {node.fetch}"
    rest += f" OFFSET {node.offset}" if node.offset else ""
    return f"SELECT * FROM ({planner.query(node.input)}){rest}"


def passed_on(planner: BatchPlanner, node: logical.WatermarkAssigner) -> str:
    """Return the input unchanged: a batch has all rows, and needs no watermark."""
    return planner.query(node.input)
