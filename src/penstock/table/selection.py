"""The Table API's select list: resolves fields to columns and names them.

Unnamed columns get Flink's names: `_c0` with the index of the column, `a-INT` for a cast of `a`, `a$b` for a field of
it, and `EXPR$0` for the first aggregate of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from penstock.base.errors import WrongTypeError
from penstock.table.analyser.aggregation import is_aggregate
from penstock.table.analyser.calls import Calls
from penstock.table.analyser.rewriting import rewritten
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType, RowType
from penstock.table.methods.aggregates import WINDOW_PARTS
from penstock.table.methods.operand import Operand
from penstock.table.plan.levels import allow_expression
from penstock.table.sql import syntax, to_sql
from penstock.table.sql.relations import SelectItem

#: returns the type of an expression over the table's columns
TypeOf = Callable[[syntax.Expression], DataType]
_RANGES: Final = ("$RANGE", "$WITH_COLUMNS", "$WITHOUT_COLUMNS")


def to_operand(field: object) -> Operand:
    """Return a field as an expression. A string is a column name."""
    if isinstance(field, str):
        return Operand(syntax.Star() if field == "*" else syntax.Reference((field,)))
    if not isinstance(field, Operand):
        raise WrongTypeError(f"a field must be an expression such as col('a'), or the name of a column, not {field!r}")
    allow_expression(field._node)
    return field


def selected(fields: Sequence[object], names: list[str], type_of: TypeOf, calls: Calls) -> list[SelectItem]:
    """Resolve fields to columns of a table with these column names. `calls` knows the functions.

    Raises `ValidationError` for an unknown column in a range, and for duplicate names.
    """
    items: list[SelectItem] = []
    for field in map(to_operand, fields):
        if len(field._names) > 1:
            raise ValidationError(f"{field}: a column has one name; only table functions give several")
        expansion = list(_expanded(field._node, names, type_of))
        if field._names and len(expansion) > 1:
            raise ValidationError(f"{field}: one name is given to {len(expansion)} columns")
        items += [SelectItem(item.expression, field._names[0]) if field._names else item for item in expansion]
    return _named(items, calls)


def expanded(fields: Sequence[object], names: list[str]) -> list[Operand]:
    """Like `selected`, but leave unnamed columns without a name; for grouping keys."""
    return [
        Operand(node, field._names) for field in map(to_operand, fields) for node in _without_ranges(field._node, names)
    ]


# --- several columns at once -----------------------------------------------------------------------------------------


def _expanded(node: syntax.Expression, names: list[str], type_of: TypeOf) -> Iterator[SelectItem]:
    if isinstance(node, syntax.FieldAccess) and node.name == "*":
        row = type_of(node.operand)
        if not isinstance(row, RowType):
            raise ValidationError(f"flatten takes a row apart, and {to_sql(node.operand)} is {row}")
        prefix = _transitive_name(node.operand)
        for name in row.field_names():
            access = syntax.FieldAccess(node.operand, name)
            yield SelectItem(access, name if prefix is None else f"{prefix}${name}")
        return
    for expression in _without_ranges(node, names):
        yield SelectItem(expression)


def _without_ranges(node: syntax.Expression, names: list[str]) -> list[syntax.Expression]:
    """Expand the column ranges in an expression."""

    def change(one: syntax.Expression) -> Iterable[syntax.Expression] | None:
        if isinstance(one, syntax.Star):
            return [syntax.Reference((name,)) for name in names] if one is node else None
        is_range = isinstance(one, syntax.Call) and one.name in _RANGES
        return [syntax.Reference((name,)) for name in _columns(one, names)] if is_range else None

    return rewritten(node, change)


def _columns(node: syntax.Expression, names: list[str]) -> list[str]:
    """Return the names of the columns in a column reference or range."""
    match node:
        case syntax.Reference() | syntax.NumberLiteral():
            return [names[_place(node, names)]]
        case syntax.Star():
            return names
        case syntax.Call(name="$RANGE", operands=(start, end)):
            begin, last = _place(start, names), _place(end, names)
            if begin > last:
                raise ValidationError(f"the range of columns ends with {names[last]!r}, before {names[begin]!r}")
            return names[begin : last + 1]
        case syntax.Call(name="$WITH_COLUMNS", operands=operands):
            return [name for operand in operands for name in _columns(operand, names)]
        case syntax.Call(name="$WITHOUT_COLUMNS", operands=operands):
            left_out = {name for operand in operands for name in _columns(operand, names)}
            return [name for name in names if name not in left_out]
        case _:
            raise ValidationError(f"with_columns and without_columns take columns and ranges, not {to_sql(node)}")


def _place(node: syntax.Expression, names: list[str]) -> int:
    if isinstance(node, syntax.NumberLiteral):
        if not 1 <= int(node.text) <= len(names):
            raise ValidationError(f"there is no column {node.text}: there are {len(names)}")
        return int(node.text) - 1
    if not isinstance(node, syntax.Reference) or node.path[0] not in names:
        raise ValidationError(f"Cannot resolve field [{to_sql(node)}], input field list:[{', '.join(names)}].")
    return names.index(node.path[0])


# --- names -----------------------------------------------------------------------------------------------------------


def _named(items: Sequence[SelectItem], calls: Calls) -> list[SelectItem]:
    aggregates: list[syntax.Expression] = []
    named: list[SelectItem] = []
    for index, item in enumerate(items):
        _collect_aggregates(item.expression, aggregates, calls)
        name = item.alias or _derive_column_name(item.expression, index, aggregates)
        if any(other.alias == name for other in named):
            raise ValidationError(f"Ambiguous column name: {name}; give one of them another with alias")
        named.append(SelectItem(item.expression, name))
    return named


def _derive_column_name(node: syntax.Expression, index: int, aggregates: list[syntax.Expression]) -> str:
    if node in aggregates:
        return f"EXPR${aggregates.index(node)}"
    if isinstance(node, syntax.Cast) and not node.is_try:
        inner = _transitive_name(node.operand)
        return f"_c{index}" if inner is None else f"{inner}-{node.to}"
    return _transitive_name(node) or f"_c{index}"


def _transitive_name(node: syntax.Expression) -> str | None:
    if isinstance(node, syntax.Reference):
        return "$".join(node.path)
    if isinstance(node, syntax.FieldAccess):
        inner = _transitive_name(node.operand)
        return None if inner is None else f"{inner}${node.name}"
    return None


def _collect_aggregates(node: syntax.Expression, aggregates: list[syntax.Expression], calls: Calls) -> None:
    """Collect the aggregates and window properties in an expression, except for aggregates over a window."""

    def change(one: syntax.Expression) -> Iterable[syntax.Expression] | None:
        if isinstance(one, syntax.Over):
            return (one,)
        if is_aggregate(one, calls) or (isinstance(one, syntax.Call) and one.name in WINDOW_PARTS):
            if one not in aggregates:
                aggregates.append(one)
            return (one,)
        return None

    rewritten(node, change)
