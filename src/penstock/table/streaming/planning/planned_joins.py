"""The operator of a join and its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.table.plan.logical import Node, Project
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.streaming.planning.rule import Factory
from penstock.table.typed.nodes import Field, Typed


@dataclass(frozen=True, slots=True)
class PlannedJoin:
    """The operator of a join, its inputs, and the columns that each input is partitioned by."""

    title: str
    inputs: tuple[Node, Node]
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    operator: Factory
    #: whether updates of its inputs, and its own, must include UPDATE_BEFORE
    has_before: bool


def with_keys(node: Node, keys: Sequence[Typed]) -> tuple[Node, tuple[int, ...]]:
    """Append the expressions that are not columns of the node yet. Returns the node, and the indices of all
    expressions.
    """
    expressions: list[Typed] = list(node.schema.fields())
    columns = list(node.schema)
    indices: list[int] = []
    for key in keys:
        if isinstance(key, Field):
            indices.append(key.index)
        else:
            indices.append(len(columns))
            columns.append(PlanColumn(f"$key{len(columns)}", key.type))
            expressions.append(key)
    if len(columns) == len(node.schema):
        return node, tuple(indices)
    return Project(schema=RowSchema(tuple(columns)), input=node, expressions=tuple(expressions)), tuple(indices)
