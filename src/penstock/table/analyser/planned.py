"""Queries that are already planned, for the Table API, and the Table API's own type rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from penstock.table.analyser.calls import Calls
from penstock.table.analyser.select import project
from penstock.table.data.logical_types import LENGTH_MAX, DataType, DecimalType, DoubleType, FloatType, VarCharType
from penstock.table.functions.type_rules import TypeRule, common_type, is_text, order_type
from penstock.table.plan.logical import Node, Project
from penstock.table.sql import relations, sql_of, syntax
from penstock.table.sql.syntax import Query
from penstock.table.typed.nodes import Field, FunctionCall, Typed, WidenedFloat
from penstock.table.user_functions.definition import UserFunction


@dataclass(frozen=True, slots=True)
class PlannedQuery(Query):
    """A query that is already planned."""

    kind: ClassVar = "TABLE"
    plan: Node


sql_of.register(PlannedQuery, lambda node: f"TABLE ({', '.join(node.plan.schema.names)})")


class MethodCalls(Calls):
    """Calls by the rules of the Table API.

    `+` concatenates texts. A FLOAT combined with a DOUBLE becomes DOUBLE, whereas SQL takes the type of the first
    operand.
    """

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls.session)
        self._calls = calls

    @property
    def of_sql(self) -> Calls:
        """See `Calls`."""
        return self._calls

    def user_function(self, call: syntax.Call, gives_rows: bool = False) -> UserFunction | None:
        """See `Calls`."""
        return self._calls.user_function(call, gives_rows)

    def call(self, name: str, operands: Sequence[Typed], options: tuple[str, ...] = ()) -> Typed:
        """See `Calls`."""
        if name == "+" and any(is_text(one.type) for one in operands):
            texts = [one if is_text(one.type) else self.cast(one, VarCharType(LENGTH_MAX)) for one in operands]
            return self._calls.call("||", texts)
        if name in _ARITHMETIC:
            return self._number(name, operands)
        return self._calls.call(name, self._widened(name, operands), options)

    def cast(self, operand: Typed, to: DataType, is_try: bool = False) -> Typed:
        """See `Calls`."""
        return self._calls.cast(_number_of(operand), to, is_try)

    def _number(self, operator: str, operands: Sequence[Typed]) -> Typed:
        """Return a sum, difference, product or quotient.

        As in Flink, FLOAT before DOUBLE is computed as FLOAT, as in SQL, but its type is declared as DOUBLE.
        """
        wanted = order_type([one.type for one in operands])
        found = self._calls.call(operator, [_number_of(one) for one in operands])
        if not isinstance(found.type, FloatType) or not isinstance(wanted, DoubleType):
            return found
        return self.declared(found, DoubleType(found.type.is_nullable))

    def declared(self, value: Typed, to: DataType) -> Typed:
        """Cast a value to the type that the Table API declares for it."""
        cast = self.implicit(value, to)
        return WidenedFloat(cast.type, cast.function, cast.operands) if isinstance(cast, FunctionCall) else cast

    def membership(self, operand: Typed, among: Sequence[Typed]) -> Typed:
        """See `Calls`."""
        widened = self._widened("IN", (operand, *among))
        return self._calls.membership(widened[0], widened[1:])

    def _widened(self, name: str, operands: Sequence[Typed]) -> Sequence[Typed]:
        """Return the operands of a call, with FLOAT operands cast to the wider type of the Table API."""
        rule = _RULES.get(name)
        if rule is None or not any(_has(one.type, FloatType) for one in operands):
            return operands
        found = list(operands)
        for places in _places(name, len(operands)):
            types = [operands[place].type for place in places]
            wanted = rule(types) if any(_has(one, DoubleType, DecimalType) for one in types) else None
            if wanted is None:
                continue
            for place in places:
                one = operands[place]
                if _has(one.type, FloatType, DoubleType, DecimalType):
                    found[place] = self.implicit(one, wanted.nullable() if one.type.is_nullable else wanted.not_null())
        return found


def _number_of(operand: Typed) -> Typed:
    return operand.number if isinstance(operand, WidenedFloat) else operand


_ARITHMETIC: Final = frozenset({"+", "-", "*", "/"})
#: common types in the Table API: they ignore the order of FLOAT and DOUBLE, but not that of DECIMAL and FLOAT
_RULES: Final[dict[str, TypeRule]] = {
    **dict.fromkeys(("=", "<>", "IN"), order_type),
    **dict.fromkeys(("CASE", "ARRAY", "MAP"), common_type),
}


def _places(name: str, count: int) -> tuple[Sequence[int], ...]:
    """Return the groups of operands, by index, that share a common type."""
    if name == "CASE":
        return ((*range(1, count - 1, 2), count - 1),)
    return (range(0, count, 2), range(1, count, 2)) if name == "MAP" else (range(count),)


def _has(found: DataType, *kinds: type[DataType]) -> bool:
    """Return whether a type, or a type nested in it, is of one of these kinds."""
    return isinstance(found, kinds) or any(_has(one, *kinds) for one in found.children())


def set_operation(
    operator: str, inputs: tuple[Node, Node], is_all: bool, query: Callable[[Query], Node], calls: MethodCalls
) -> Node:
    """Return the UNION, INTERSECT or EXCEPT of two plans. `query`: plans a query.

    As in Flink, rows are combined with the types of SQL, and FLOAT before DOUBLE is declared as DOUBLE afterwards.
    """
    found = query(relations.SetOperation(operator, tuple(PlannedQuery(_numbers(one)) for one in inputs), is_all))
    columns = []
    for field, *both in zip(found.schema.fields(), *(one.schema for one in inputs), strict=True):
        wanted = order_type([one.type for one in both])
        columns.append(field if wanted is None else calls.declared(field, wanted))
    return found if all(isinstance(one, Field) for one in columns) else project(found, columns, found.schema.names)


def _numbers(plan: Node) -> Node:
    """Return a plan whose columns are FLOAT where they were only declared as DOUBLE."""
    if not isinstance(plan, Project) or not any(isinstance(one, WidenedFloat) for one in plan.expressions):
        return plan
    return project(plan.input, [_number_of(one) for one in plan.expressions], plan.schema.names)
