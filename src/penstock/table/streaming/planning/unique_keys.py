"""Properties of updated rows: the columns that identify them, and how the other columns change."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import TypeGuard

from penstock.table.plan import logical
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.row_schema import TimeAttribute
from penstock.table.typed.nodes import Constant, Field, FunctionCall, Typed, conjuncts


class Course(Enum):
    """How a column changes when its row is updated."""

    CONSTANT = "stays"
    INCREASING = "grows"
    DECREASING = "falls"
    UNKNOWN = "may do either"


def unique_key(node: logical.Node) -> frozenset[int] | None:
    """Return columns that updates leave unchanged and that are unique at any time, or None if unknown."""
    match node:
        case logical.Project():
            inner = unique_key(node.input)
            positions = {
                expression.index: position
                for position, expression in enumerate(node.expressions)
                if isinstance(expression, Field)
            }
            if inner is None or not inner <= positions.keys():
                return None
            return frozenset(positions[index] for index in inner)
        case logical.Aggregate(sets=()):
            return frozenset(range(len(node.keys)))
        case _:
            return None


def courses(node: logical.Node, changes: Callable[[logical.Node], Changes]) -> list[Course]:
    """Return how each column of a node changes."""
    match node:
        case logical.Project():
            inner = courses(node.input, changes)
            # A processing time is the arrival time of a row, even if rows do not carry it.
            is_time = [column.time is TimeAttribute.PROCTIME for column in node.schema]
            return [
                Course.UNKNOWN if is_late else _course(expression, inner)
                for expression, is_late in zip(node.expressions, is_time, strict=True)
            ]
        case logical.Aggregate(sets=()) if changes(node.input) == INSERTS:
            return [Course.CONSTANT] * len(node.keys) + [_course_of_call(call, node.input) for call in node.calls]
        case _:
            return [Course.UNKNOWN] * len(node.schema)


def _course(expression: Typed, inner: list[Course]) -> Course:
    if isinstance(expression, Field):
        return inner[expression.index]
    return Course.CONSTANT if isinstance(expression, Constant) else Course.UNKNOWN


def _course_of_call(call: logical.AggregateCall, rows: logical.Node) -> Course:
    if call.function in ("COUNT", "MAX"):
        return Course.INCREASING
    if call.function == "MIN":
        return Course.DECREASING
    if call.function in ("SUM", "SUM0", "$SUM0"):
        sign = _sign(call.operands[0], rows)
        return Course.INCREASING if sign > 0 else Course.DECREASING if sign < 0 else Course.UNKNOWN
    return Course.UNKNOWN


def _sign(value: Typed, rows: logical.Node) -> int:
    """Return 1 if a value is never negative, -1 if it is never positive, 0 if unknown."""
    while isinstance(value, Field):
        if isinstance(rows, logical.Project):
            value, rows = rows.expressions[value.index], rows.input
        elif isinstance(rows, logical.Filter):
            signs = [_infer_sign(part, value.index) for part in conjuncts(rows.condition)]
            if any(signs):
                return next(sign for sign in signs if sign)
            rows = rows.input
        else:
            return 0
    if not isinstance(value, Constant):
        return 0
    return 1 if _is_number(value.value) and value.value >= 0 else -1 if _is_number(value.value) else 0


def _infer_sign(condition: Typed, column: int) -> int:
    """Return the sign that a comparison with a constant implies for a column."""
    if not isinstance(condition, FunctionCall) or condition.function not in (">", ">=", "<", "<="):
        return 0
    left, right = condition.operands
    is_that = isinstance(left, Field) and left.index == column
    if not is_that or not isinstance(right, Constant) or not _is_number(right.value):
        return 0
    if condition.function.startswith(">"):
        return 1 if right.value >= 0 else 0
    return -1 if right.value <= 0 else 0


def _is_number(value: object) -> TypeGuard[int | float | Decimal]:
    """Return whether a value is a number other than NaN."""
    return isinstance(value, int | float | Decimal) and value == value
