"""The base of all Table API expressions: an SQL syntax node with its column names and sort order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from penstock.table.methods.literals import to_literal
from penstock.table.sql import syntax, to_sql

OperandT = TypeVar("OperandT", bound="Operand")


class Operand:
    """An SQL syntax node.

    `names`: the column names, if any; `is_descending`: the sort order, if any.
    """

    def __init__(self, node: syntax.Expression, names: tuple[str, ...] = (), is_descending: bool | None = None) -> None:
        self._node = node
        self._names = names
        self._is_descending = is_descending

    def _new(self, node: syntax.Expression) -> Self:
        return type(self)(node)

    def _called(self, name: str, *operands: object, **more: Any) -> Self:
        """Call an SQL function on the expression and further operands. Operands that are None are omitted."""
        given = (operand for operand in operands if operand is not None)
        return self._new(build_call(name, self, *given, **more))

    def _operated(self, operator: str, *operands: object) -> Self:
        """Apply an SQL operator to the expression and others."""
        return self._new(syntax.Call(operator, (self._node, *map(to_node, operands))))

    def _chained(self, operator: str, other: object) -> Self:
        """Combine two expressions with AND or OR. An existing chain of the same operator is extended."""
        node = self._node
        is_chain = isinstance(node, syntax.Call) and node.name == operator and not node.path
        before = node.operands if is_chain and isinstance(node, syntax.Call) else (node,)
        return self._new(syntax.Call(operator, (*before, to_node(other))))

    def __str__(self) -> str:
        order = {None: "", False: " ASC", True: " DESC"}[self._is_descending]
        names = f" AS {', '.join(self._names)}" if self._names else ""
        return to_sql(self._node) + names + order

    __repr__ = __str__


class Derived(property):
    """A property of expressions that returns another expression."""

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
    """A property that calls an SQL function on the expression alone."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(lambda operand: operand._called(name), text)


class Test(Derived):
    """A property that applies a postfix operator such as IS NULL."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(lambda operand: operand._operated(name), text)


def to_node(value: object) -> syntax.Expression:
    """Return the node of an expression, or a Python value as a literal."""
    return value._node if isinstance(value, Operand) else to_literal(value)


def build_call(name: str, *operands: object, **more: Any) -> syntax.Call:
    """Create a call of an SQL function. `more`: further fields of the node, such as `options`."""
    return syntax.Call(name, tuple(map(to_node, operands)), (name,), **more)
