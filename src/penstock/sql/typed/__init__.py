"""Typed expressions, the analyser's output, with resolved names and types; among them calls of user-defined functions.

All expressions are immutable and picklable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from penstock.sql.data.types import DataType
from penstock.sql.user_functions.definition import UserFunction


@dataclass(frozen=True, slots=True)
class Typed:
    """The base class of all nodes."""

    type: DataType

    def children(self) -> tuple[Typed, ...]:
        """Return the subexpressions."""
        return ()

    def walk(self) -> Iterator[Typed]:
        """Iterate over all nodes of the tree in preorder, from left to right."""
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
    """Convert arrays and maps, which are lists, to tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Constant(Typed):
    """A constant written in the query or derived from it, in the representation of `penstock.sql.data.arrow`."""

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
    """A call of a function or operator of the registry. `options`: keywords of its own syntax."""

    function: str
    operands: tuple[Typed, ...]
    options: tuple[str, ...] = ()

    def children(self) -> tuple[Typed, ...]:
        """Return the operands."""
        return self.operands

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True, slots=True)
class WidenedFloat(FunctionCall):
    """The cast of a FLOAT to DOUBLE that the Table API adds to a sum, difference, product or quotient.

    As in Flink, the number itself is a FLOAT. Further arithmetic, SUM and AVG use that FLOAT.
    """

    @property
    def number(self) -> Typed:
        """The FLOAT."""
        return self.operands[0]


@dataclass(frozen=True, slots=True)
class Lambda(Typed):
    """A lambda function as an operand. `type`: the type of its body, in which the parameters are fields 0 and on."""

    parameters: tuple[str, ...]
    body: Typed

    def children(self) -> tuple[Typed, ...]:
        """Return the body."""
        return (self.body,)


def separated(operands: Sequence[Typed]) -> list[Typed]:
    """Expand each `Constants` operand into one operand per constant."""
    expanded: list[Typed] = []
    for operand in operands:
        expanded += (
            [Constant(operand.type, value) for value in operand.values] if isinstance(operand, Constants) else [operand]
        )
    return expanded


def transformed(node: Typed, change: Callable[[Typed], Typed]) -> Typed:
    """Rebuild an expression bottom-up, replacing each node by the result of `change`."""
    if isinstance(node, FunctionCall):
        node = replace(node, operands=tuple(transformed(operand, change) for operand in node.operands))
    elif isinstance(node, Lambda):
        node = replace(node, body=transformed(node.body, change))
    return change(node)


def conjuncts(condition: Typed) -> list[Typed]:
    """Return the conjuncts of a condition, in order."""
    if isinstance(condition, FunctionCall) and condition.function == "AND":
        return [part for operand in condition.operands for part in conjuncts(operand)]
    return [condition]


@dataclass(frozen=True, slots=True)
class UserCall(FunctionCall):
    """A call of a user-defined function. `at`: its position in the query, which distinguishes identical calls."""

    user: UserFunction = field(kw_only=True)
    at: int = field(default=-1, kw_only=True, compare=False)

    def is_same(self, other: UserCall) -> bool:
        """Return whether both calls can share one value; each call of a nondeterministic function has its own."""
        return self == other and (self.user.is_deterministic or self.at == other.at)


def collect_user_calls(expression: Typed) -> list[UserCall]:
    """Return all calls of user-defined functions in an expression."""
    return [node for node in expression.walk() if isinstance(node, UserCall)]
