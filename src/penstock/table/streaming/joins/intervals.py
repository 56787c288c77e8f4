"""Finds the interval in a join condition: two comparisons that bound the distance of the sides' time attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DayTimeIntervalType
from penstock.table.plan.logical import Join, JoinType
from penstock.table.plan.row_schema import PlanColumn, TimeAttribute
from penstock.table.streaming.joins.interval_join_operator import Interval
from penstock.table.streaming.joins.join_conditions import split_condition
from penstock.table.typed.nodes import Constant, Field, FunctionCall, Typed

#: Comparisons with their operands swapped.
_EXCHANGED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def find_interval(join: Join) -> tuple[Interval, list[Typed]] | None:
    """Return the interval of a join and the rest of its condition; None for a join without an interval."""
    if join.join_type in (JoinType.SEMI, JoinType.ANTI):
        return None
    columns = [*join.left.schema, *join.right.schema]
    width = len(join.left.schema)
    lower: list[tuple[int, int, int]] = []
    upper: list[tuple[int, int, int]] = []
    rest: list[Typed] = []
    for part in split_condition(join.condition):
        bound = _bound(part, columns, width)
        if bound is None:
            rest.append(part)
            continue
        comparison, left, right, distance = bound
        if comparison in (">", ">=", "="):
            lower.append((left, right, distance + (comparison == ">")))
        if comparison in ("<", "<=", "="):
            upper.append((left, right, distance - (comparison == "<")))
    if len(lower) != 1 or len(upper) != 1 or lower[0][:2] != upper[0][:2]:
        return None
    (left, right, least), (_, _, most) = lower[0], upper[0]
    column, other = columns[left], columns[right]
    if column.time is TimeAttribute.ROWTIME and type(column.type) is not type(other.type):
        raise ValidationError(
            "Interval join with rowtime attribute requires same rowtime types, but the types are "
            f"{column.type.nullable()} and {other.type.nullable()}."
        )
    return Interval(least, most, left, right - width, column.time is TimeAttribute.ROWTIME), rest


def _bound(part: Typed, columns: Sequence[PlanColumn], width: int) -> tuple[str, int, int, int] | None:
    """Return a bound on the left time relative to the right time: operator, left and right column, offset in ms."""
    if not isinstance(part, FunctionCall) or part.function not in _EXCHANGED:
        return None
    times = [_find_time_offset(operand, columns) for operand in part.operands]
    time, other = times
    if time is None or other is None or columns[time[0]].time is not columns[other[0]].time:
        return None
    comparison = part.function
    if time[0] >= width:
        time, other, comparison = other, time, _EXCHANGED[comparison]
    if time[0] >= width or other[0] < width:
        return None
    if comparison == "=" and not all(isinstance(operand, Field) for operand in part.operands):
        return None  # as in Flink, which computes both sides and joins them as keys
    return comparison, time[0], other[0], other[1] - time[1]


def _find_time_offset(expression: Typed, columns: Sequence[PlanColumn]) -> tuple[int, int] | None:
    """Return the column and the offset in ms if the expression is a time attribute plus or minus an interval."""
    if isinstance(expression, Field):
        return (expression.index, 0) if columns[expression.index].time is not None else None
    if not isinstance(expression, FunctionCall) or expression.function not in ("+", "-"):
        return None
    operand, other = expression.operands
    if expression.function == "+" and isinstance(operand, Constant):
        operand, other = other, operand
    time = _find_time_offset(operand, columns)
    if time is None or not isinstance(other, Constant) or not isinstance(other.type, DayTimeIntervalType):
        return None
    if not isinstance(other.value, int):
        return None
    return time[0], time[1] + (other.value if expression.function == "+" else -other.value)
