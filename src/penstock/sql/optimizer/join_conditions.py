"""Join conditions: extracts equality keys, and pushes down conditions on one side.

Finds the interval in a join condition: two comparisons that bound the distance of the sides' time attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.subqueries import TRUE, conjoin, shifted
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    MultisetType,
    RawType,
    RowType,
    VariantType,
)
from penstock.sql.expressions.sharing import is_stable
from penstock.sql.logical.nodes import Filter, Join, JoinType, Node, PlanColumn, TimeAttribute
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, conjuncts

_NO_KEYS: Final = (ArrayType, MapType, MultisetType, RawType, RowType, VariantType)
#: Functions that return NULL if any operand is NULL.
_STRICT: Final = frozenset({"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "NOT", "LIKE", "CAST"})


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """The equalities of a condition as expressions over each side's columns. `rest`: the remaining condition."""

    left: tuple[Typed, ...]
    right: tuple[Typed, ...]
    nulls_match: tuple[bool, ...]
    rest: Typed


def split_condition(condition: Typed) -> list[Typed]:
    """Return the conjuncts of a condition; an empty list for TRUE."""
    return [part for part in conjuncts(condition) if part != TRUE]


def is_key(part: Typed, width: int) -> bool:
    """Return whether a conjunct is a key of the join. `width`: the number of columns of the left side."""
    return _find_key(part, width) is not None


def extract_join_keys(condition: Typed, width: int, calls: Calls) -> JoinKeys:
    """Extract the keys of a condition. `width`: the number of columns of the left side.

    Keys are compared with `penstock.state.equality`, so NaN matches NaN, unlike with `=`.
    """
    keys: list[tuple[Typed, Typed, bool]] = []
    rest: list[Typed] = []
    for part in split_condition(condition):
        key = _find_key(part, width)
        if key is None:
            rest.append(part)
        else:
            keys.append(key)
    left, right, nulls_match = zip(*keys, strict=True) if keys else ((), (), ())
    return JoinKeys(left, right, nulls_match, conjoin(rest, calls))


def _find_key(part: Typed, width: int) -> tuple[Typed, Typed, bool] | None:
    if not isinstance(part, FunctionCall) or part.function not in ("=", "IS NOT DISTINCT FROM"):
        return None
    operand, other = part.operands
    if _find_side(operand, width) == 1:
        operand, other = other, operand
    if _find_side(operand, width) != 0 or _find_side(other, width) != 1 or not are_keys(operand.type, other.type):
        return None
    return operand, shifted(other, -width), part.function != "="


def are_keys(data_type: DataType, other: DataType) -> bool:
    """Return whether rows can be looked up by the equality of columns of these types."""
    return not isinstance(data_type, _NO_KEYS) and arrow_type(data_type) == arrow_type(other)


def _find_side(expression: Typed, width: int) -> int | None:
    """Return 0 or 1 for an expression over one side; None if it reads both or neither, or is not deterministic."""
    sides = {int(part.index >= width) for part in expression.walk() if isinstance(part, Field)}
    return sides.pop() if len(sides) == 1 and is_stable(expression) else None


def settled(join: Join, above: Typed, calls: Calls) -> tuple[Join, Typed]:
    """Push a filter above a join, and the join's own condition, below the join or into it as far as possible.

    Returns the join and the remaining filter above it. An outer side becomes an inner one if the filter rejects its
    NULL-padded rows.
    """
    width = len(join.left.schema)
    predicates = split_condition(above)
    join_type = _without_nulls(join.join_type, predicates, width)
    left: list[Typed] = []
    right: list[Typed] = []
    within: list[Typed] = []
    behind: list[Typed] = []
    is_half = join_type in (JoinType.SEMI, JoinType.ANTI)
    for part in predicates:
        side = _find_side(part, width)
        if side == 0 and (join_type in (JoinType.INNER, JoinType.LEFT) or is_half):
            left.append(part)
        elif side == 1 and join_type in (JoinType.INNER, JoinType.RIGHT):
            right.append(shifted(part, -width))
        else:
            (within if join_type is JoinType.INNER and is_stable(part) else behind).append(part)
    for part in split_condition(join.condition):
        side = _find_side(part, width)
        if side == 0 and join_type in (JoinType.INNER, JoinType.RIGHT, JoinType.SEMI):
            left.append(part)
        elif side == 1 and (join_type in (JoinType.INNER, JoinType.LEFT) or is_half):
            right.append(shifted(part, -width))
        else:
            within.append(part)
    new_join = replace(
        join,
        left=_filtered(join.left, left, calls),
        right=_filtered(join.right, right, calls),
        join_type=join_type,
        condition=conjoin(within, calls),
    )
    return new_join, conjoin(behind, calls)


def _filtered(node: Node, conditions: Sequence[Typed], calls: Calls) -> Node:
    return Filter(schema=node.schema, input=node, condition=conjoin(conditions, calls)) if conditions else node


def _without_nulls(join_type: JoinType, predicates: Iterable[Typed], width: int) -> JoinType:
    """Return the join type without the outer sides whose NULL-padded rows the conditions reject."""
    keeps_left, keeps_right = join_type.keeps_left, join_type.keeps_right
    if not (keeps_left or keeps_right):
        return join_type
    for part in predicates:
        if _refuses(part, range(width)):
            keeps_right = False
        if _refuses(part, range(width, 1 << 30)):
            keeps_left = False
    if keeps_left:
        return JoinType.FULL if keeps_right else JoinType.LEFT
    return JoinType.RIGHT if keeps_right else JoinType.INNER


def _refuses(condition: Typed, columns: range) -> bool:
    """Return whether the condition cannot be true if all these columns are NULL."""
    if isinstance(condition, FunctionCall):
        if condition.function == "AND":
            return any(_refuses(operand, columns) for operand in condition.operands)
        if condition.function == "OR":
            return all(_refuses(operand, columns) for operand in condition.operands)
        if condition.function in ("IS NOT NULL", "IS TRUE", "IS FALSE"):
            return _is_null(condition.operands[0], columns)
    return _is_null(condition, columns)


def _is_null(expression: Typed, columns: range) -> bool:
    """Return whether the expression is NULL if all these columns are NULL."""
    if isinstance(expression, Field):
        return expression.index in columns
    if isinstance(expression, FunctionCall) and expression.function in _STRICT:
        return any(_is_null(operand, columns) for operand in expression.operands)
    return False


#: Comparisons with their operands swapped.
_EXCHANGED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Interval:
    """The bounds of left time minus right time in ms, and the indices of the time columns."""

    lower: int
    upper: int
    left_time: int
    right_time: int
    is_event_time: bool


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
