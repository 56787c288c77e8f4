"""Expressions whose names are resolved and whose types are known. All are values, and can be pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
        """It and all below it."""
        yield self
        for child in self.children():
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Field(Typed):
    """A column of the input, by its position."""

    index: int
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"${self.index}"


@dataclass(frozen=True, slots=True)
class Constant(Typed):
    """A value that is written in the query or follows from it, as `penstock.table.data.values` holds it."""

    value: object

    def __str__(self) -> str:
        return repr(self.value)


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
class Lambda(Typed):
    """A function as an operand: `type` is what its body gives, with its parameters as fields 0 and on."""

    parameters: tuple[str, ...]
    body: Typed

    def children(self) -> tuple[Typed, ...]:
        """The body."""
        return (self.body,)


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
