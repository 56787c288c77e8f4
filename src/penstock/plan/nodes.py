"""Descriptions of an operator's task that do not select the operator.

The API adds nodes, and the plan chooses their operators when it builds the job graph, so DataStream programs and table
queries get the same operators. If there is no choice, a node is simply the operator's factory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from penstock.base.declared_values import fitting
from penstock.base.errors import MisuseError
from penstock.base.single_precision import rounding
from penstock.base.typeinfo import RowTypeInfo, TypeInformation
from penstock.core.operators.base import StreamOperator
from penstock.core.operators.emitting_rows import (
    emitting_declared,
    emitting_rows,
    emitting_sides,
    emitting_singles,
)

Factory: TypeAlias = Callable[[], StreamOperator]


class OperatorNode(ABC):
    """A node with a choice of operators."""

    @abstractmethod
    def factory(self) -> Factory:
        """Return the factory of the chosen operator; it can be pickled if the node's values can."""

    @abstractmethod
    def parts(self) -> tuple[Any, ...]:
        """Return the values that distinguish the node from others of its kind, whatever operator is chosen.

        These are functions and the like.
        """


Node: TypeAlias = OperatorNode | Factory


def get_factory(node: Node) -> Factory:
    """Return the operator factory of a node."""
    return node.factory() if isinstance(node, OperatorNode) else node


@dataclass(frozen=True)
class DeclaredNode(OperatorNode):
    """A node whose output type, or types of side outputs by tag, the program declares.

    If a type declares rows, the tuples, lists and dicts that the operator emits become rows, and rows get the field
    order of the type. Numbers that it declares as FLOAT are rounded to single precision.
    """

    node: Node
    output_type: TypeInformation | None
    side_types: tuple[tuple[str, TypeInformation], ...] = ()

    def factory(self) -> Factory:
        """Return a factory of the operator that converts its records to the declared types."""
        factory, declared_type = get_factory(self.node), self.output_type
        if isinstance(declared_type, RowTypeInfo):
            factory = partial(emitting_rows, factory, declared_type)
            if rounding(declared_type) is not None:
                factory = partial(emitting_singles, factory, declared_type)
        elif declared_type is not None:
            factory = partial(emitting_declared, factory, declared_type)
        if self.side_types:
            factory = partial(emitting_sides, factory, self.side_types)
        return factory

    def parts(self) -> tuple[Any, ...]:
        """Return the node's parts, and its type if that is a ROW or has a FLOAT: checkpoints name only these types."""
        if isinstance(self.output_type, RowTypeInfo) or rounding(self.output_type) is not None:
            return self.node, self.output_type
        return (self.node,)


def declared(node: Node, output_type: TypeInformation | None) -> Node:
    """Return a node whose operator emits the declared type; the same node if the type needs no conversion."""
    return node if fitting(output_type) is None else DeclaredNode(node, output_type)


def with_declared_side(node: Node, tag_id: str, type_info: TypeInformation | None) -> Node:
    """Return a node whose operator converts the records of that side output to the type, as `declared` does.

    Raises:
        MisuseError: if another type is declared for the same side output.
    """
    if type_info is None or fitting(type_info) is None:
        return node
    declared_node = node if isinstance(node, DeclaredNode) else DeclaredNode(node, None)
    known = dict(declared_node.side_types)
    if known.setdefault(tag_id, type_info) != type_info:
        raise MisuseError(
            f"side output {tag_id!r} is read with two types, {known[tag_id]} and {type_info}: use one OutputTag"
        )
    return replace(declared_node, side_types=tuple(known.items()))
