"""Rewriting of syntax expressions: replaces some of their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from penstock.table.data.errors import ValidationError
from penstock.table.sql.syntax import Expression, Query

#: returns the replacements of a node; for None, the node stays and its children are visited
Change = Callable[[Expression], Iterable[Expression] | None]


def rewritten(node: Expression, change: Change) -> list[Expression]:
    """Return the replacements of an expression. Queries in it are left unchanged."""
    replacements = change(node)
    return [_rebuilt(node, change)] if replacements is None else list(replacements)


def _rebuilt(value: Any, change: Change) -> Any:
    if isinstance(value, tuple):
        return tuple(expression for part in value for expression in _parts(part, change))
    if isinstance(value, Query) or not _is_node(value):
        return value
    changes = {}
    for field in fields(value):
        before = getattr(value, field.name)
        after = _only(before, change) if isinstance(before, Expression) else _rebuilt(before, change)
        if after is not before and after != before:
            changes[field.name] = after
    return replace(value, **changes) if changes else value


def _is_node(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _parts(part: Any, change: Change) -> list[Any]:
    return list(rewritten(part, change)) if isinstance(part, Expression) else [_rebuilt(part, change)]


def _only(node: Expression, change: Change) -> Expression:
    expressions = rewritten(node, change)
    if len(expressions) != 1:
        raise ValidationError(f"{len(expressions)} columns stand where there must be one expression")
    return expressions[0]
