"""Join conditions: extracts equality keys, and pushes down conditions on one side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.table.analyser.calls import Calls
from penstock.table.analyser.subqueries import TRUE, all_of, shifted
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import ArrayType, DataType, MapType, MultisetType, RawType, RowType, VariantType
from penstock.table.evaluation.stability import is_stable
from penstock.table.plan.logical import Filter, Join, JoinType, Node
from penstock.table.typed.nodes import Field, FunctionCall, Typed, conjuncts

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


def parts_of(condition: Typed) -> list[Typed]:
    """Return the conjuncts of a condition; an empty list for TRUE."""
    return [part for part in conjuncts(condition) if part != TRUE]


def is_key(part: Typed, width: int) -> bool:
    """Return whether a conjunct is a key of the join. `width`: the number of columns of the left side."""
    return _key_of(part, width) is not None


def keys_of(condition: Typed, width: int, calls: Calls) -> JoinKeys:
    """Extract the keys of a condition. `width`: the number of columns of the left side.

    Keys are compared with `penstock.state.equality`, so NaN matches NaN, unlike with `=`.
    """
    found: list[tuple[Typed, Typed, bool]] = []
    rest: list[Typed] = []
    for part in parts_of(condition):
        key = _key_of(part, width)
        if key is None:
            rest.append(part)
        else:
            found.append(key)
    left, right, nulls_match = zip(*found, strict=True) if found else ((), (), ())
    return JoinKeys(left, right, nulls_match, all_of(rest, calls))


def _key_of(part: Typed, width: int) -> tuple[Typed, Typed, bool] | None:
    if not isinstance(part, FunctionCall) or part.function not in ("=", "IS NOT DISTINCT FROM"):
        return None
    one, other = part.operands
    if _side_of(one, width) == 1:
        one, other = other, one
    if _side_of(one, width) != 0 or _side_of(other, width) != 1 or not are_keys(one.type, other.type):
        return None
    return one, shifted(other, -width), part.function != "="


def are_keys(one: DataType, other: DataType) -> bool:
    """Return whether rows can be looked up by the equality of columns of these types."""
    return not isinstance(one, _NO_KEYS) and arrow_type(one) == arrow_type(other)


def _side_of(expression: Typed, width: int) -> int | None:
    """Return 0 or 1 for an expression over one side; None if it reads both or neither, or is not deterministic."""
    sides = {int(one.index >= width) for one in expression.walk() if isinstance(one, Field)}
    return sides.pop() if len(sides) == 1 and is_stable(expression) else None


def settled(join: Join, above: Typed, calls: Calls) -> tuple[Join, Typed]:
    """Push a filter above a join, and the join's own condition, below the join or into it as far as possible.

    Returns the join and the remaining filter above it. An outer side becomes an inner one if the filter rejects its
    NULL-padded rows.
    """
    width = len(join.left.schema)
    asked = parts_of(above)
    join_type = _without_nulls(join.join_type, asked, width)
    left: list[Typed] = []
    right: list[Typed] = []
    within: list[Typed] = []
    behind: list[Typed] = []
    is_half = join_type in (JoinType.SEMI, JoinType.ANTI)
    for part in asked:
        side = _side_of(part, width)
        if side == 0 and (join_type in (JoinType.INNER, JoinType.LEFT) or is_half):
            left.append(part)
        elif side == 1 and join_type in (JoinType.INNER, JoinType.RIGHT):
            right.append(shifted(part, -width))
        else:
            (within if join_type is JoinType.INNER and is_stable(part) else behind).append(part)
    for part in parts_of(join.condition):
        side = _side_of(part, width)
        if side == 0 and join_type in (JoinType.INNER, JoinType.RIGHT, JoinType.SEMI):
            left.append(part)
        elif side == 1 and (join_type in (JoinType.INNER, JoinType.LEFT) or is_half):
            right.append(shifted(part, -width))
        else:
            within.append(part)
    found = replace(
        join,
        left=_filtered(join.left, left, calls),
        right=_filtered(join.right, right, calls),
        join_type=join_type,
        condition=all_of(within, calls),
    )
    return found, all_of(behind, calls)


def _filtered(node: Node, conditions: Sequence[Typed], calls: Calls) -> Node:
    return Filter(schema=node.schema, input=node, condition=all_of(conditions, calls)) if conditions else node


def _without_nulls(join_type: JoinType, asked: Iterable[Typed], width: int) -> JoinType:
    """Return the join type without the outer sides whose NULL-padded rows the conditions reject."""
    keeps_left, keeps_right = join_type.keeps_left, join_type.keeps_right
    if not (keeps_left or keeps_right):
        return join_type
    for part in asked:
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
            return any(_refuses(one, columns) for one in condition.operands)
        if condition.function == "OR":
            return all(_refuses(one, columns) for one in condition.operands)
        if condition.function in ("IS NOT NULL", "IS TRUE", "IS FALSE"):
            return _is_null(condition.operands[0], columns)
    return _is_null(condition, columns)


def _is_null(expression: Typed, columns: range) -> bool:
    """Return whether the expression is NULL if all these columns are NULL."""
    if isinstance(expression, Field):
        return expression.index in columns
    if isinstance(expression, FunctionCall) and expression.function in _STRICT:
        return any(_is_null(one, columns) for one in expression.operands)
    return False
