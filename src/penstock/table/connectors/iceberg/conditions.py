"""Translates query conditions to pyiceberg expressions, which skip files and parts of files.

They skip no row that satisfies a condition; the query evaluates every condition again. Only conditions with the same
meaning in both systems are translated: comparisons of a column with constants of its own kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.table.data import logical_types as types
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column
from penstock.table.typed.nodes import Constant, Field, FunctionCall, Typed, separated

_MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CLASSES: Final = {
    "=": "EqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
}
#: Groups of types that all compare with each other, in the same order in both systems.
_KINDS: Final[tuple[tuple[type[DataType], ...], ...]] = (
    (types.IntegralType,),
    (types.VarCharType,),
    (types.DateType,),
    (types.BooleanType,),
)
_IN_MAX: Final = 200


def to_row_filter(condition: Typed, names: Sequence[str]) -> Any | None:
    """Return a condition over columns with these names; None if it cannot be used to skip rows."""
    from pyiceberg import expressions

    classes: Any = expressions  # its classes accept names, which their type hints omit
    if not isinstance(condition, FunctionCall) or condition.options:
        return None
    name, operands = condition.function, condition.operands
    if name in ("AND", "OR"):
        parts = [to_row_filter(operand, names) for operand in operands]
        known = [part for part in parts if part is not None]
        if not known or (name == "OR" and len(known) < len(parts)):
            return None
        joined = known[0]
        for expression in known[1:]:
            joined = classes.And(joined, expression) if name == "AND" else classes.Or(joined, expression)
        return joined
    first = operands[0] if operands else None
    if name in ("IS NULL", "IS NOT NULL") and isinstance(first, Field):
        return classes.IsNull(names[first.index]) if name == "IS NULL" else classes.NotNull(names[first.index])
    if name == "IN" and isinstance(first, Field):
        values = [_constant(constant, first.type) for constant in separated(operands[1:])]
        if not values or len(values) > _IN_MAX or any(value is None for value in values):
            return None
        return classes.In(names[first.index], values)
    if name in _CLASSES and len(operands) == 2:
        left, right = operands
        if isinstance(left, Constant) and isinstance(right, Field):
            left, right, name = right, left, _MIRRORED[name]
        if isinstance(left, Field):
            value = _constant(right, left.type)
            if value is not None:
                return getattr(classes, _CLASSES[name])(names[left.index], value)
    return None


def _constant(constant: Typed, other: DataType) -> Any | None:
    """Return the value of a constant of the column's kind; None for NULL and for other constants."""
    if not isinstance(constant, Constant) or constant.value is None:
        return None
    for kind in _KINDS:
        if isinstance(other, kind):
            is_text = isinstance(constant.type, types.CharType | types.VarCharType) and kind == (types.VarCharType,)
            if not (is_text or isinstance(constant.type, kind)):
                return None
            value = to_column([constant.value], constant.type)[0].as_py()
            if isinstance(other, types.IntegralType) and not -(2**63) <= value < 2**63:
                return None
            # pyiceberg parses dates from ISO text.
            return value.isoformat() if isinstance(other, types.DateType) else value
    return None
