"""`to_condition`: conditions of a query for the systems of tables, in the form of `penstock.connectors.conditions`.

Integers, doubles, texts, booleans and times are compared. Decimals and floats are left to the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.connectors.conditions import Condition
from penstock.sql.data import types
from penstock.sql.data.types import DataType
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, separated

_OPERATORS: Final = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EQUALITIES: Final = {"=": "in", "<>": "not in"}
_PRESENCE: Final = {"IS NULL": "missing", "IS NOT NULL": "exists"}
#: longer lists of constants are evaluated by the query
_IN_MAX: Final = 1_000


def name_type(kind: DataType) -> str | None:
    """Return how a type is called in conditions; None for types that are not compared by the service."""
    match kind:
        case types.IntegralType():
            return "integer"
        case types.DoubleType():
            return "double"
        case types.VarCharType():
            return "text"
        case types.BooleanType():
            return "boolean"
        case types.TimestampType() | types.LocalZonedTimestampType():
            return "time"
    return None


def translate(conditions: Sequence[Typed], columns: Sequence[str]) -> tuple[tuple[Typed, ...], tuple[Condition, ...]]:
    """Return the conditions that `to_condition` can translate, and their translations."""
    translated = [(condition, to_condition(condition, columns)) for condition in conditions]
    used = tuple(condition for condition, part in translated if part is not None)
    return used, tuple(part for _, part in translated if part is not None)


def to_condition(condition: Typed, columns: Sequence[str]) -> Condition | None:
    """Return what documents that satisfy a condition match; None if the service cannot tell."""
    if isinstance(condition, Field):
        is_boolean = isinstance(condition.type, types.BooleanType)
        return _build("in", columns[condition.index], "boolean", (True,)) if is_boolean else None
    if not isinstance(condition, FunctionCall) or condition.options:
        return None
    name, operands = condition.function, condition.operands
    if name in ("AND", "OR"):
        parts = [part for operand in operands if (part := to_condition(operand, columns)) is not None]
        if len(parts) < (len(operands) if name == "OR" else 1):
            return None
        return Condition(name.lower(), tuple(parts))
    first = operands[0] if operands else None
    if not isinstance(first, Field):
        if len(operands) == 2 and isinstance(operands[1], Field) and (name in _MIRRORED or name in _EQUALITIES):
            mirrored = replace(condition, function=_MIRRORED.get(name, name), operands=operands[::-1])
            return to_condition(mirrored, columns)
        return None
    kind, field = name_type(first.type), columns[first.index]
    if kind is None:
        return None
    if name in _PRESENCE:
        return _build(_PRESENCE[name], field, kind)
    among = separated(operands[1:]) if name == "IN" else operands[1:]
    if not among or len(among) > _IN_MAX:
        return None
    values = [_constant(each, kind) for each in among]
    if None in values:
        return None
    if name == "IN" or name in _EQUALITIES:
        return None if kind == "time" else _build(_EQUALITIES.get(name, "in"), field, kind, tuple(values))
    if name in _OPERATORS:
        return Condition("range", (), field, tuple(values), _OPERATORS[name], kind)
    return None


def _build(kind: str, field: str, type: str, values: tuple[Any, ...] = ()) -> Condition:
    return Condition(kind, (), field, values, type=type)


def _constant(constant: Typed, kind: str) -> Any:
    """Return a constant as the service compares it; None if it cannot."""
    if not isinstance(constant, Constant) or constant.value is None:
        return None
    value: Any = constant.value
    if kind == "text":  # trailing blanks of CHAR do not count
        is_text = isinstance(constant.type, types.VarCharType | types.CharType)
        return value if is_text and value == value.rstrip(" ") else None
    return value if name_type(constant.type) == kind else None
