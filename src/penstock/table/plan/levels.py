"""Limits the depth of plans and expressions, measured without recursion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from penstock.base.deep_calls import NESTING_MAX, SHALLOW_LEVELS, allow_deep_calls
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType
from penstock.table.plan.logical import Node
from penstock.table.sql import syntax

#: the maximum depth of a plan
STEPS_MAX: Final = 1_000
_LEAVES: Final = (syntax.NumberLiteral, syntax.TextLiteral, syntax.Reference, syntax.Query, DataType)


def allow_plans(plans: Sequence[Node]) -> None:
    """Prepare the process to plan these. Raises `ValidationError` if they are too deep."""
    levels: dict[int, int] = {}
    waiting = list(plans)
    while waiting:
        node = waiting[-1]
        missing = [upstream for upstream in node.inputs() if id(upstream) not in levels]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        levels[id(node)] = 1 + max((levels[id(upstream)] for upstream in node.inputs()), default=0)
    deepest = max(levels.values(), default=0)
    if deepest > STEPS_MAX:
        raise ValidationError(
            f"{deepest:,} steps of a query follow one another, and at most {STEPS_MAX:,} may: write a part of it "
            "into a table"
        )
    if deepest > SHALLOW_LEVELS:
        allow_deep_calls()


def allow_expression(expression: syntax.Expression) -> None:
    """Prepare the process to plan an expression. Raises `ValidationError` if it is nested too deeply."""
    deepest = 0
    waiting: list[tuple[Any, int]] = [(expression, 1)]
    while waiting:
        value, level = waiting.pop()
        deepest = max(deepest, level)
        if isinstance(value, tuple):
            waiting += [(item, level) for item in value if is_dataclass(item) or isinstance(item, tuple)]
        elif is_dataclass(value) and not isinstance(value, _LEAVES):
            waiting += [(getattr(value, field.name), level + 1) for field in fields(value)]
    if deepest > NESTING_MAX:
        raise ValidationError(
            f"an expression nests more than {NESTING_MAX} levels deep: compute a part of it in a column before, with "
            "add_columns"
        )
    if deepest > SHALLOW_LEVELS:
        allow_deep_calls()
