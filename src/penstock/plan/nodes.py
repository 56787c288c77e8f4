"""What an operator is to do, without saying which operator does it.

The API adds nodes, and the plan chooses operators for them when it makes the job graph. So a program of the DataStream
API and a query over tables get the same operators. Where there is nothing to choose, a node is just what makes the
operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from penstock.base.single_precision import rounding
from penstock.base.typeinfo import RowTypeInfo, TypeInformation
from penstock.core.operators.base import StreamOperator
from penstock.core.operators.emitting_rows import emitting_rows, emitting_singles

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
    """A node whose output type the program declares.

    Where the type declares rows, the tuples, lists and dicts that the operator emits become rows. Where it declares a
    FLOAT, the number is rounded to single precision.
    """

    node: Node
    output_type: TypeInformation

    def factory(self) -> Factory:
        """The operator, with what makes its records what the type says."""
        factory = factory_of(self.node)
        if isinstance(self.output_type, RowTypeInfo):
            factory = partial(emitting_rows, factory, self.output_type)
        if rounding(self.output_type) is not None:
            factory = partial(emitting_singles, factory, self.output_type)
        return factory

    def parts(self) -> tuple[Any, ...]:
        """Those of the node, and the type."""
        return self.node, self.output_type


def declared(node: Node, output_type: TypeInformation | None) -> Node:
    """The node, whose operator emits what the type declares, where that is anything that it may not emit by itself."""
    if output_type is None or not (isinstance(output_type, RowTypeInfo) or rounding(output_type) is not None):
        return node
    return DeclaredNode(node, output_type)
