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
    found = change(node)
    return [_rebuilt(node, change)] if found is None else list(found)


def _rebuilt(value: Any, change: Change) -> Any:
    if isinstance(value, tuple):
        return tuple(one for part in value for one in _parts(part, change))
    if isinstance(value, Query) or not _is_node(value):
        return value
    changes = {}
    for one in fields(value):
        before = getattr(value, one.name)
        after = _only(before, change) if isinstance(before, Expression) else _rebuilt(before, change)
        if after is not before and after != before:
            changes[one.name] = after
    return replace(value, **changes) if changes else value


def _is_node(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _parts(part: Any, change: Change) -> list[Any]:
    return list(rewritten(part, change)) if isinstance(part, Expression) else [_rebuilt(part, change)]


def _only(node: Expression, change: Change) -> Expression:
    found = rewritten(node, change)
    if len(found) != 1:
        raise ValidationError(f"{len(found)} columns stand where there must be one expression")
    return found[0]
