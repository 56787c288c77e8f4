"""The operator of a join, and what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.table.plan.logical import Node, Project
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.streaming.planning.rule import Factory
from penstock.table.typed.nodes import Field, Typed


@dataclass(frozen=True, slots=True)
class PlannedJoin:
    """The operator of a join, what it reads, and by which columns the rows of either input are partitioned."""

    title: str
    inputs: tuple[Node, Node]
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    operator: Factory
    #: whether its inputs have to send updates with the rows as they were, and it does, too
    has_before: bool


def with_keys(node: Node, keys: Sequence[Typed]) -> tuple[Node, tuple[int, ...]]:
    """A node with what it lacks of these expressions as further columns, and where the expressions are."""
    expressions: list[Typed] = list(node.schema.fields())
    columns = list(node.schema)
    places: list[int] = []
    for key in keys:
        if isinstance(key, Field):
            places.append(key.index)
        else:
            places.append(len(columns))
            columns.append(PlanColumn(f"$key{len(columns)}", key.type))
            expressions.append(key)
    if len(columns) == len(node.schema):
        return node, tuple(places)
    return Project(schema=RowSchema(tuple(columns)), input=node, expressions=tuple(expressions)), tuple(places)
