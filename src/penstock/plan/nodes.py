"""What an operator is to do, without saying which operator does it.

The API adds nodes, and the plan chooses operators for them when it makes the job graph. So a program of the DataStream
API and a query over tables get the same operators. Where there is nothing to choose, a node is just what makes the
operator.
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
    """A node for which there is a choice."""

    @abstractmethod
    def factory(self) -> Factory:
        """What makes the chosen operator; it can be pickled when all that the node holds can."""

    @abstractmethod
    def parts(self) -> tuple[Any, ...]:
        """What tells the node from others of its kind: functions and the like, whatever operator is chosen."""


Node: TypeAlias = OperatorNode | Factory


def factory_of(node: Node) -> Factory:
    """What makes the operator of a node."""
    return node.factory() if isinstance(node, OperatorNode) else node


@dataclass(frozen=True)
class DeclaredNode(OperatorNode):
    """A node whose output type the program declares, or the types of side outputs, by tag.

    Where a type declares rows, the tuples, lists and dicts that the operator emits become rows, and rows get the order
    of the type. Where it declares a FLOAT, the number is rounded to single precision.
    """

    node: Node
    output_type: TypeInformation | None
    side_types: tuple[tuple[str, TypeInformation], ...] = ()

    def factory(self) -> Factory:
        """The operator, with what makes its records what the type says."""
        factory, declared_type = factory_of(self.node), self.output_type
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
        """The node's parts, and a type that is a ROW or holds a FLOAT: checkpoints name only these types."""
        if isinstance(self.output_type, RowTypeInfo) or rounding(self.output_type) is not None:
            return self.node, self.output_type
        return (self.node,)


def declared(node: Node, output_type: TypeInformation | None) -> Node:
    """The node, whose operator emits what the type declares, where that is anything that it may not emit by itself."""
    return node if fitting(output_type) is None else DeclaredNode(node, output_type)


def with_declared_side(node: Node, tag_id: str, type_info: TypeInformation | None) -> Node:
    """The node, whose operator makes the records of that side output follow the type, as `declared` does.

    Raises:
        MisuseError: if another type is declared for the same side output.
    """
    if type_info is None or fitting(type_info) is None:
        return node
    found = node if isinstance(node, DeclaredNode) else DeclaredNode(node, None)
    known = dict(found.side_types)
    if known.setdefault(tag_id, type_info) != type_info:
        raise MisuseError(
            f"side output {tag_id!r} is read with two types, {known[tag_id]} and {type_info}: use one OutputTag"
        )
    return replace(found, side_types=tuple(known.items()))
