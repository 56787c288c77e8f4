"""What all expressions of the Table API have: a node of SQL's syntax, and how it is called and ordered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from penstock.table.methods.literals import literal_of
from penstock.table.sql import sql_of, syntax

OperandT = TypeVar("OperandT", bound="Operand")


class Operand:
    """A node of SQL's syntax.

    `names`: what the column is called, if it is; `is_descending`: how it is ordered by, if it says so.
    """

    def __init__(self, node: syntax.Expression, names: tuple[str, ...] = (), is_descending: bool | None = None) -> None:
        self._node = node
        self._names = names
        self._is_descending = is_descending

    def _new(self, node: syntax.Expression) -> Self:
        return type(self)(node)

    def _called(self, name: str, *others: object, **more: Any) -> Self:
        """A call of a function of SQL on the expression and further operands; those that are None are not there."""
        given = (one for one in others if one is not None)
        return self._new(call_of(name, self, *given, **more))

    def _operated(self, operator: str, *others: object) -> Self:
        """An operator of SQL between the expression and others."""
        return self._new(syntax.Call(operator, (self._node, *map(node_of, others))))

    def _chained(self, operator: str, other: object) -> Self:
        """AND or OR of the expression and another one. Where it is a chain of them already, the chain gets longer."""
        node = self._node
        is_chain = isinstance(node, syntax.Call) and node.name == operator and not node.path
        before = node.operands if is_chain and isinstance(node, syntax.Call) else (node,)
        return self._new(syntax.Call(operator, (*before, node_of(other))))

    def __str__(self) -> str:
        order = {None: "", False: " ASC", True: " DESC"}[self._is_descending]
        names = f" AS {', '.join(self._names)}" if self._names else ""
        return sql_of(self._node) + names + order

    __repr__ = __str__


class Derived(property):
    """A property of expressions that gives another expression."""

    def __init__(self, make: Callable[[Operand], Operand], text: str) -> None:
        super().__init__(make)
        self.__doc__ = text

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type | None = None) -> Self: ...
        @overload
        def __get__(self, instance: OperandT, owner: type | None = None) -> OperandT: ...
        def __get__(self, instance: Operand | None, owner: type | None = None) -> Any: ...


class Unary(Derived):
    """A property that calls a function of SQL on the expression alone."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(lambda operand: operand._called(name), text)


class Test(Derived):
    """A property that puts an operator after the expression, such as IS NULL."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(lambda operand: operand._operated(name), text)


def node_of(value: object) -> syntax.Expression:
    """The node of an expression, or a value of Python as a literal."""
    return value._node if isinstance(value, Operand) else literal_of(value)


def call_of(name: str, *operands: object, **more: Any) -> syntax.Call:
    """A call of a function of SQL. `more`: what else the node has, such as `options`."""
    return syntax.Call(name, tuple(map(node_of, operands)), (name,), **more)
