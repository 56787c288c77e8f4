"""Translates query conditions to PostgreSQL's SQL.

Both systems agree on integers, decimals, booleans, dates and timestamps. They differ in part on strings (CHAR is padded
with blanks here, but not in PostgreSQL) and on floats (PostgreSQL sorts NaN above all other numbers). Conditions on
these are translated only if they exclude no matching row, and the query evaluates them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.connectors.postgres.text_columns import literal, to_server_texts
from penstock.table.data import logical_types as types
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column
from penstock.table.typed.nodes import Constant, Field, FunctionCall, Typed, separated

_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CASTS: Final[tuple[tuple[type[DataType], str], ...]] = (
    (types.BooleanType, "boolean"),
    (types.IntegralType, "int8"),
    (types.DecimalType, "numeric"),
    (types.FractionalType, "float8"),
    (types.DateType, "date"),
    (types.LocalZonedTimestampType, "timestamptz"),
    (types.TimestampType, "timestamp"),
)
#: longer lists of constants are evaluated by the query
_IN_MAX: Final = 1_000
_TEXTS: Final = (types.CharType, types.VarCharType)


class Condition(NamedTuple):
    """A condition in SQL, and whether it is true for exactly the same rows; otherwise it is true for more rows."""

    sql: str
    is_exact: bool


def to_sql_condition(condition: Typed, columns: Sequence[str]) -> Condition | None:
    """Return a condition over columns, given as SQL expressions; None if the server cannot evaluate it."""
    if isinstance(condition, Field):
        return Condition(columns[condition.index], True) if isinstance(condition.type, types.BooleanType) else None
    if not isinstance(condition, FunctionCall) or condition.options:
        return None
    name, operands = condition.function, condition.operands
    if name in ("AND", "OR"):
        parts = [to_sql_condition(operand, columns) for operand in operands]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return Condition("(" + f" {name} ".join(part.sql for part in known) + ")", all(part.is_exact for part in known))
    if name == "NOT":
        inner = to_sql_condition(operands[0], columns)
        return Condition(f"(NOT {inner.sql})", True) if inner is not None and inner.is_exact else None
    first = operands[0] if operands else None
    if name in ("IS NULL", "IS NOT NULL") and isinstance(first, Field):
        return Condition(f"({columns[first.index]} {name})", True)
    if name == "IN" and isinstance(first, Field):
        among = separated(operands[1:])
        return _build_in_condition(first, among, columns) if len(among) <= _IN_MAX else None
    if name in _COMPARISONS and len(operands) == 2:
        return _comparison(name, *operands, columns=columns)
    return None


def _comparison(name: str, left: Typed, right: Typed, columns: Sequence[str]) -> Condition | None:
    if isinstance(left, Constant) and isinstance(right, Field):
        left, right, name = right, left, _MIRRORED.get(name, name)
    if not isinstance(left, Field) or not isinstance(right, Constant):
        return None
    is_text = isinstance(left.type, _TEXTS)
    # NaN needs no special case: `<` excludes it both in PostgreSQL and here.
    if is_text and name != "=":
        return None
    value = _constant(right, left.type)
    if value is None:
        return None
    is_exact = not is_text and not isinstance(left.type, types.FloatType | types.DoubleType)
    return Condition(f"({columns[left.index]} {name} {value})", is_exact)


def _build_in_condition(column: Field, constants: Sequence[Typed], columns: Sequence[str]) -> Condition | None:
    values = [_constant(constant, column.type) if isinstance(constant, Constant) else None for constant in constants]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    is_exact = not isinstance(column.type, (*_TEXTS, types.FloatType, types.DoubleType))
    return Condition(f"({columns[column.index]} IN ({', '.join(known)}))", is_exact)


def _constant(constant: Constant, other: DataType) -> str | None:
    """Return a constant in SQL; None for NULL, and if the column is of another kind."""
    if constant.value is None:
        return None
    text = literal(to_server_texts(to_column([constant.value], constant.type))[0].as_py())
    if isinstance(other, _TEXTS):
        return text if isinstance(constant.type, _TEXTS) else None
    for kind, name in _CASTS:
        if isinstance(constant.type, kind):
            is_number = isinstance(constant.type, types.NumericType) and isinstance(other, types.NumericType)
            return f"{text}::{name}" if is_number or isinstance(other, kind) else None
    return None
