"""Calls of user-defined aggregate functions."""

from __future__ import annotations

from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.data.errors import ValidationError
from penstock.table.functions.built_in import is_built_in
from penstock.table.plan.logical import UserAggregateCall
from penstock.table.sql import syntax
from penstock.table.typed.nodes import Typed
from penstock.table.user_functions.definition import AGGREGATES, FunctionKind, UserFunction


def user_aggregate_call(
    user: UserFunction, call: syntax.Call, analyser: ScalarAnalyser, takes_rows: bool = False
) -> UserAggregateCall:
    """Return a typed aggregate call. Raises `ValidationError` if its function does not accept the operands.

    `takes_rows`: whether a table aggregate function is allowed here.
    """
    if user.kind is FunctionKind.TABLE_AGGREGATE and not takes_rows:
        raise ValidationError(f"{user} gives rows: call it in the Table API, by flat_aggregate")
    if user.kind not in AGGREGATES:
        raise ValidationError(f"{user} is no aggregate function: it cannot be called with OVER")
    for is_written, restriction in (
        (call.respects_nulls is not None, "neither IGNORE NULLS nor RESPECT NULLS: it gets NULL as None"),
        (bool(call.order), "no order: neither ORDER BY nor WITHIN GROUP"),
        (bool(call.within_distinct), "no WITHIN DISTINCT"),
    ):
        if is_written:
            raise ValidationError(f"{user} takes {restriction}")
    if any(isinstance(operand, syntax.Star) for operand in call.operands):
        raise ValidationError(f"{user} takes values: {user.name}(*) has none, so name the columns")
    operands = analyser.calls.user_operands(user, [analyser.typed(operand) for operand in call.operands])
    if call.is_distinct and not operands:
        raise ValidationError(f"{user} is called with DISTINCT, and without an operand")
    # Names in plans are unique, so quote the name of a built-in function.
    name = f"`{user.name}`" if is_built_in(user.name) else user.name
    condition = analyse_filter(call, analyser)
    return UserAggregateCall(
        name, tuple(operands), user.result_type, call.is_distinct, condition, user=user, at=call.at
    )


def analyse_filter(call: syntax.Call, analyser: ScalarAnalyser) -> Typed | None:
    """Return the FILTER condition of an aggregate call, or None."""
    return None if call.condition is None else analyser.calls.call("IS TRUE", [analyser.typed(call.condition)])
