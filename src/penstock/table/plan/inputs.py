"""Nodes over other inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from penstock.table.plan.logical import Node

NodeT = TypeVar("NodeT", bound=Node)


def all_nodes(node: Node) -> Iterator[Node]:
    """A node and all nodes below it; a node that is read in several places comes several times."""
    yield node
    for below in node.inputs():
        yield from all_nodes(below)


def input_of(node: Node, column: int) -> tuple[Node, int] | None:
    """The input that a column comes from, and its place there; None for a column of the node's own.

    Of nodes whose columns are those of their inputs, one after another, with their own ones last.
    """
    for one in node.inputs():
        if column < len(one.schema):
            return one, column
        column -= len(one.schema)
    return None


def with_inputs(node: NodeT, inputs: Sequence[Node]) -> NodeT:
    """A node over these inputs, as many as it has; the same object if they are the same ones."""
    if all(one is other for one, other in zip(node.inputs(), inputs, strict=True)):
        return node
    names = {one.name for one in fields(node)}
    if "input" in names:
        (inner,) = inputs
        return replace(node, input=inner)  # type: ignore[call-arg]
    if "left" in names:
        left, right = inputs
        return replace(node, left=left, right=right)  # type: ignore[call-arg]
    return replace(node, parts=tuple(inputs))  # type: ignore[call-arg]
