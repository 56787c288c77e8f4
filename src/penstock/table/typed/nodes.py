"""Expressions whose names are resolved and whose types are known. All are values, and can be pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.table.data.logical_types import DataType


@dataclass(frozen=True, slots=True)
class Typed:
    """The base of all."""

    type: DataType

    def children(self) -> tuple[Typed, ...]:
        """The expressions that it consists of."""
        return ()

    def walk(self) -> Iterator[Typed]:
        """All nodes of the tree, each before its children, from left to right."""
        waiting: list[Typed] = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children())


@dataclass(frozen=True, slots=True)
class Field(Typed):
    """A column of the input, by its position."""

    index: int
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"${self.index}"


def _hashable(value: object) -> object:
    """The same for arrays and maps, which are lists."""
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Constant(Typed):
    """A value that is written in the query or follows from it, as `penstock.table.data.values` holds it."""

    value: object

    def __hash__(self) -> int:
        return hash((self.type, _hashable(self.value)))

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Constants(Typed):
    """The constants of a long IN as one operand. Some are NULL if `type` is nullable."""

    values: tuple[object, ...]

    def __hash__(self) -> int:
        return hash((self.type, _hashable(self.values)))

    def __str__(self) -> str:
        return ", ".join(map(repr, self.values))


@dataclass(frozen=True, slots=True)
class FunctionCall(Typed):
    """A call of a function or operator of the registry. `options`: words of its own syntax."""

    function: str
    operands: tuple[Typed, ...]
    options: tuple[str, ...] = ()

    def children(self) -> tuple[Typed, ...]:
        """The operands."""
        return self.operands

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True, slots=True)
class WidenedFloat(FunctionCall):
    """The cast of a FLOAT to DOUBLE that the Table API adds to a sum, difference, product or quotient.

    As in Flink, the number itself is a FLOAT. Further arithmetic, SUM and AVG take that FLOAT.
    """

    @property
    def number(self) -> Typed:
        """The FLOAT."""
        return self.operands[0]


@dataclass(frozen=True, slots=True)
class Lambda(Typed):
    """A function as an operand: `type` is what its body gives, with its parameters as fields 0 and on."""

    parameters: tuple[str, ...]
    body: Typed

    def children(self) -> tuple[Typed, ...]:
        """The body."""
        return (self.body,)


def separated(operands: Sequence[Typed]) -> list[Typed]:
    """Operands with each of many constants as an operand of its own."""
    found: list[Typed] = []
    for one in operands:
        found += [Constant(one.type, value) for value in one.values] if isinstance(one, Constants) else [one]
    return found


def transformed(node: Typed, change: Callable[[Typed], Typed]) -> Typed:
    """The same expression with each part replaced by what `change` makes of it, from the leaves up."""
    if isinstance(node, FunctionCall):
        node = replace(node, operands=tuple(transformed(operand, change) for operand in node.operands))
    elif isinstance(node, Lambda):
        node = replace(node, body=transformed(node.body, change))
    return change(node)


def conjuncts(condition: Typed) -> list[Typed]:
    """The parts of a condition that all have to be true, in order."""
    if isinstance(condition, FunctionCall) and condition.function == "AND":
        return [part for operand in condition.operands for part in conjuncts(operand)]
    return [condition]
