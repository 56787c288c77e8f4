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
from penstock.table.sql import relations, syntax, to_sql
from penstock.table.sql.syntax import Query
from penstock.table.typed.nodes import Field, FunctionCall, Typed, WidenedFloat
from penstock.table.user_functions.definition import UserFunction


@dataclass(frozen=True, slots=True)
class PlannedQuery(Query):
    """A query that is already planned."""

    kind: ClassVar = "TABLE"
    plan: Node


to_sql.register(PlannedQuery, lambda node: f"TABLE ({', '.join(node.plan.schema.names)})")


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
        if name == "+" and any(is_text(operand.type) for operand in operands):
            texts = [
                operand if is_text(operand.type) else self.cast(operand, VarCharType(LENGTH_MAX))
                for operand in operands
            ]
            return self._calls.call("||", texts)
        if name in _ARITHMETIC:
            return self._number(name, operands)
        return self._calls.call(name, self._widened(name, operands), options)

    def cast(self, operand: Typed, to: DataType, is_try: bool = False) -> Typed:
        """See `Calls`."""
        return self._calls.cast(_unwrap_number(operand), to, is_try)

    def _number(self, operator: str, operands: Sequence[Typed]) -> Typed:
        """Return a sum, difference, product or quotient.

        As in Flink, FLOAT before DOUBLE is computed as FLOAT, as in SQL, but its type is declared as DOUBLE.
        """
        declared_type = order_type([operand.type for operand in operands])
        result = self._calls.call(operator, [_unwrap_number(operand) for operand in operands])
        if not isinstance(result.type, FloatType) or not isinstance(declared_type, DoubleType):
            return result
        return self.declared(result, DoubleType(result.type.is_nullable))

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
        if rule is None or not any(_has(typed.type, FloatType) for typed in operands):
            return operands
        widened = list(operands)
        for indexes in _places(name, len(operands)):
            types = [operands[position].type for position in indexes]
            wider_type = rule(types) if any(_has(kind, DoubleType, DecimalType) for kind in types) else None
            if wider_type is None:
                continue
            for index in indexes:
                operand = operands[index]
                if _has(operand.type, FloatType, DoubleType, DecimalType):
                    widened[index] = self.implicit(
                        operand, wider_type.nullable() if operand.type.is_nullable else wider_type.not_null()
                    )
        return widened


def _unwrap_number(operand: Typed) -> Typed:
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


def _has(data_type: DataType, *kinds: type[DataType]) -> bool:
    """Return whether a type, or a type nested in it, is of one of these kinds."""
    return isinstance(data_type, kinds) or any(_has(child, *kinds) for child in data_type.children())


def set_operation(
    operator: str, inputs: tuple[Node, Node], is_all: bool, query: Callable[[Query], Node], calls: MethodCalls
) -> Node:
    """Return the UNION, INTERSECT or EXCEPT of two plans. `query`: plans a query.

    As in Flink, rows are combined with the types of SQL, and FLOAT before DOUBLE is declared as DOUBLE afterwards.
    """
    plan = query(relations.SetOperation(operator, tuple(PlannedQuery(_numbers(node)) for node in inputs), is_all))
    columns = []
    for field, *both in zip(plan.schema.fields(), *(node.schema for node in inputs), strict=True):
        declared_type = order_type([column.type for column in both])
        columns.append(field if declared_type is None else calls.declared(field, declared_type))
    return plan if all(isinstance(column, Field) for column in columns) else project(plan, columns, plan.schema.names)


def _numbers(plan: Node) -> Node:
    """Return a plan whose columns are FLOAT where they were only declared as DOUBLE."""
    if not isinstance(plan, Project) or not any(
        isinstance(expression, WidenedFloat) for expression in plan.expressions
    ):
        return plan
    return project(plan.input, [_unwrap_number(expression) for expression in plan.expressions], plan.schema.names)
