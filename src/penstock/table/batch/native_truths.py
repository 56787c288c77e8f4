"""Comparisons, conditions and choices in Spark SQL.

For Spark, NaN is the greatest number and equals itself. In Penstock it is neither for `=`, `<` and similar operators,
so their texts check for NaN. Join keys, IS [NOT] DISTINCT FROM, arrays, maps and rows follow the common equality
(`penstock.state.equality`), as in Spark. Both compare texts byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.table.batch.map_keys import key_text
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import (
    ArrayType,
    BitmapType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    NullType,
    RawType,
    RowType,
    VariantType,
)
from penstock.table.typed.nodes import Constant, FunctionCall, Typed

_FLOATING: Final = (FloatType, DoubleType)
#: types that are not compared by their stored form
_OTHERS: Final = (ArrayType, MapType, RowType, RawType, VariantType, BitmapType, NullType)


def _is_plain(kind: DataType) -> bool:
    return not isinstance(kind, _OTHERS)


def _may_be_nan(operand: Typed) -> bool:
    is_number = isinstance(operand, Constant) and operand.value == operand.value
    return isinstance(operand.type, _FLOATING) and not is_number


def equality_of_keys(operands: Sequence[str]) -> str:
    """Return the text of `=` for a join key: NaN equals NaN, and 0.0 equals -0.0."""
    return f"({operands[0]} = {operands[1]})"


def _compare(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Compare operands of one type. Arrays, maps and rows are compared for equality only."""
    left, right = call.operands
    if operator in ("=", "<>"):
        keys = _nested_keys(call, operands)
        if keys is not None:
            return f"({keys[0]} {operator} {keys[1]})"
    if not _is_plain(left.type) or left.type.nullable() != right.type.nullable():
        return None
    lhs, rhs = operands
    text = f"({lhs} {operator} {rhs})"
    sides = ((lhs, left, rhs), (rhs, right, lhs))
    nans = [(name, beside) for name, node, beside in sides if _may_be_nan(node)]
    if not nans:
        return text
    if operator == "<>":
        # the opposite of =, so true if either is NaN
        either = " OR ".join([text, *(f"isnan({name})" for name, _ in nans)])
        return f"(({either}) AND {_both(lhs, rhs)})"
    numbers = [f"(NOT isnan({name}) OR {beside} IS NULL)" for name, beside in nans]
    return f"({' AND '.join([text, *numbers])})"


def _both(lhs: str, rhs: str) -> str:
    """Return a text that is true, or NULL if either of two operands is NULL."""
    return f"CASE WHEN {lhs} IS NOT NULL AND {rhs} IS NOT NULL THEN true END"


def _is_distinct(negated: bool, call: FunctionCall, operands: Sequence[str]) -> str | None:
    left, right = call.operands
    keys = _nested_keys(call, operands)
    if keys is None and (not _is_plain(left.type) or left.type.nullable() != right.type.nullable()):
        return None
    lhs, rhs = keys or operands
    text = f"({lhs} <=> {rhs})"
    return text if negated else f"(NOT {text})"


def _nested_keys(call: FunctionCall, operands: Sequence[str]) -> list[str] | None:
    """Return operands of one nested type in a form that Spark compares; None for other operands."""
    left, right = (operand.type for operand in call.operands)
    if not isinstance(left, ArrayType | MapType | RowType) or arrow_type(left) != arrow_type(right):
        return None
    keys = [key_text(text, left) for text in operands]
    return [key for key in keys if key is not None] if None not in keys else None


def _render_membership(call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Return IN for plain types other than floating-point numbers."""
    first = call.operands[0].type
    if not _is_plain(first) or isinstance(first, _FLOATING):
        return None
    if any(operand.type.nullable() != first.nullable() for operand in call.operands):
        return None
    return f"({operands[0]} IN ({', '.join(operands[1:])}))"


def _case(call: FunctionCall, operands: Sequence[str]) -> str | None:
    if isinstance(call.type, NullType):
        return None
    branches = "".join(
        f" WHEN {condition} THEN {value}" for condition, value in zip(operands[0:-1:2], operands[1:-1:2], strict=True)
    )
    return f"(CASE{branches} ELSE {operands[-1]} END)"


def _joined(word: str, call: FunctionCall, operands: Sequence[str]) -> str:
    return f"({f' {word} '.join(operands)})"


def _shaped(shape: str, call: FunctionCall, operands: Sequence[str]) -> str:
    return shape.format(*operands)


def _extreme(name: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Return GREATEST or LEAST, which are NULL if any operand is NULL; Spark's own functions ignore NULL."""
    kind = call.type
    if not _is_plain(kind) or isinstance(kind, _FLOATING) or len(operands) < 2:
        return None
    if any(operand.type.nullable() != kind.nullable() for operand in call.operands):
        return None
    checked = " AND ".join(f"{operand} IS NOT NULL" for operand in operands)
    return f"(CASE WHEN {checked} THEN {name.lower()}({', '.join(operands)}) END)"


Native = Callable[[FunctionCall, Sequence[str]], str | None]

NATIVE: Final[dict[str, Native]] = {
    **{operator: partial(_compare, operator) for operator in ("=", "<>", "<", "<=", ">", ">=")},
    "IS DISTINCT FROM": partial(_is_distinct, False),
    "IS NOT DISTINCT FROM": partial(_is_distinct, True),
    "IN": _render_membership,
    "CASE": _case,
    "COALESCE": lambda call, operands: f"coalesce({', '.join(operands)})",
    "AND": partial(_joined, "AND"),
    "OR": partial(_joined, "OR"),
    "NOT": partial(_shaped, "(NOT {0})"),
    "IS NULL": partial(_shaped, "({0} IS NULL)"),
    "IS NOT NULL": partial(_shaped, "({0} IS NOT NULL)"),
    "IS TRUE": partial(_shaped, "({0} IS TRUE)"),
    "IS NOT TRUE": partial(_shaped, "({0} IS NOT TRUE)"),
    "IS FALSE": partial(_shaped, "({0} IS FALSE)"),
    "IS NOT FALSE": partial(_shaped, "({0} IS NOT FALSE)"),
    "IS UNKNOWN": partial(_shaped, "({0} IS NULL)"),
    "IS NOT UNKNOWN": partial(_shaped, "({0} IS NOT NULL)"),
    "GREATEST": partial(_extreme, "GREATEST"),
    "LEAST": partial(_extreme, "LEAST"),
}
