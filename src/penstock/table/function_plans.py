"""Plans of the Table API with user-defined functions: one row per row, or any number of rows."""

from __future__ import annotations

from typing import Final

from penstock.table.analyser.inline_calls import InlineCall
from penstock.table.analyser.planned import PlannedQuery
from penstock.table.analyser.select import project
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import RowType
from penstock.table.methods.operand import Operand
from penstock.table.plan.logical import Node
from penstock.table.sql import relations, syntax
from penstock.table.sql.relations import DerivedTable, FunctionTable
from penstock.table.table_plans import Plans
from penstock.table.udf import UserDefinedFunctionWrapper
from penstock.table.user_functions.definition import FunctionKind

_SCALAR: Final = (FunctionKind.SCALAR, FunctionKind.ASYNC_SCALAR)


def to_call(plan: Node, function: object, what: str) -> Operand:
    """Return a call of a function; a function given without operands is called with the whole row."""
    if isinstance(function, UserDefinedFunctionWrapper):
        names = tuple(plan.schema.names)
        row = syntax.RowValue(tuple(syntax.Reference((name,)) for name in names), names)
        function = function(Operand(row))
    if not isinstance(function, Operand) or not isinstance(function._node, syntax.Call):
        raise ValidationError(f"{what} takes a function, or a call of one, not {function}")
    return function


def mapped(plans: Plans, plan: Node, function: object) -> Node:
    """Plan `map`: the result of a scalar function for each row."""
    call = to_call(plan, function, "map")
    if isinstance(call._node, InlineCall) and call._node.user.kind not in _SCALAR:
        raise ValidationError("Only a scalar function can be used in the map operator.")
    selected = plans.select(plan, [call if len(call._names) <= 1 else Operand(call._node)])
    (column,) = selected.schema
    if not isinstance(column.type, RowType):
        return selected
    fields = [Operand(syntax.FieldAccess(syntax.Reference((column.name,)), name)) for name in column.type.field_names()]
    names = call._names or column.type.field_names()
    if len(names) != len(fields):
        raise ValidationError(f"{call} gives {len(fields)} columns, and gets {len(names)} names")
    apart = plans.select(selected, fields)
    return project(apart, apart.schema.fields(), names)


def flat_mapped(plans: Plans, plan: Node, function: object) -> Node:
    """Plan `flat_map`: the rows that a table function returns for each row."""
    call = to_call(plan, function, "flat_map")
    correlated = _correlated(plans, plan, call, "INNER", None)
    width = len(plan.schema)
    return project(correlated, correlated.schema.fields()[width:], correlated.schema.names[width:])


def lateral(plans: Plans, plan: Node, function: object, join_type: str, condition: object | None) -> Node:
    """Join each row with the rows that a table function returns for it."""
    correlated = _correlated(plans, plan, to_call(plan, function, "join_lateral"), join_type, condition)
    names, width = correlated.schema.names, len(plan.schema)
    both = sorted(set(names[:width]) & set(names[width:]))
    if both:
        raise ValidationError(
            f"join relations with ambiguous names: [{', '.join(both)}]; name the columns of the function with alias"
        )
    return correlated


def _correlated(plans: Plans, plan: Node, call: Operand, join_type: str, condition: object | None) -> Node:
    table = FunctionTable(call._node, True, alias="$function" if call._names else None, columns=call._names)
    return plans.related(relations.Join(DerivedTable(PlannedQuery(plan)), table, join_type), condition)
