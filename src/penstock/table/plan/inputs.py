"""Traverses plans and replaces inputs of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from penstock.table.plan.logical import Node

NodeT = TypeVar("NodeT", bound=Node)


def all_nodes(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it. A node read in several places is repeated."""
    yield node
    for below in node.inputs():
        yield from all_nodes(below)


def find_input(node: Node, column: int) -> tuple[Node, int] | None:
    """Return the input of a column and the column's index in it; None for a column that the node adds.

    Only for nodes whose columns are those of their inputs, in order, followed by their own.
    """
    for upstream in node.inputs():
        if column < len(upstream.schema):
            return upstream, column
        column -= len(upstream.schema)
    return None


def with_inputs(node: NodeT, inputs: Sequence[Node]) -> NodeT:
    """Replace the inputs of a node, one for one. Returns the node itself if they are the same objects."""
    if all(upstream is other for upstream, other in zip(node.inputs(), inputs, strict=True)):
        return node
    names = {field.name for field in fields(node)}
    if "input" in names:
        (inner,) = inputs
        return replace(node, input=inner)  # type: ignore[call-arg]
    if "left" in names:
        left, right = inputs
        return replace(node, left=left, right=right)  # type: ignore[call-arg]
    return replace(node, parts=tuple(inputs))  # type: ignore[call-arg]
