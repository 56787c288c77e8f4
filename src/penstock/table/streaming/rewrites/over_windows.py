"""Checks OVER before plans are rewritten: streams reject calls over different windows in one query."""

from __future__ import annotations

from penstock.table.data.errors import ValidationError
from penstock.table.plan.logical import Node, Over, Project


def check_windows(plan: Node) -> None:
    """Raise `ValidationError` for a query with calls over different windows."""
    if isinstance(plan, Over) and _has_other_window(plan):
        raise ValidationError(
            "Over Agg: Unsupported use of OVER windows. All aggregates must be computed on the same window. please "
            "re-check the over window statement."
        )
    for inner in plan.inputs():
        check_windows(inner)


def _has_other_window(node: Over) -> bool:
    """Return whether the same query has calls over another window, directly below."""
    below = node.input
    if isinstance(below, Project):
        added = below.schema.names[len(below.input.schema) :]
        if not added or not all(name.startswith("$o") for name in added):
            return False
        below = below.input
    return isinstance(below, Over)
