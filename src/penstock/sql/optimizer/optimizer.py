"""All rewrites of a plan, in order, and a check before them.

`check_windows` checks OVER before plans are rewritten: streams reject calls over different windows in one query.
"""

from __future__ import annotations

from penstock.sql.analyzer.calls import Calls
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import Node, Over, Project
from penstock.sql.optimizer import pushdown
from penstock.sql.optimizer.lookup_join import with_lookup_joins
from penstock.sql.optimizer.pruning import IsWhole, never, without_unread_columns, without_unread_fields
from penstock.sql.optimizer.time_attributes import with_settled_times
from penstock.sql.optimizer.top_n import with_ranks
from penstock.sql.tables.tables import NO_PUSH_DOWN, PushDown


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


def rewritten(plan: Node, calls: Calls, tables: PushDown = NO_PUSH_DOWN, is_whole: IsWhole = never) -> Node:
    """Rewrite a plan for execution. Filters move down first, because they may form a top-N with the node below.

    `is_whole`: see `without_unread_columns`.

    Raises `ValidationError` and `UnsupportedError` for queries that streams do not support.
    """
    plan = with_lookup_joins(with_ranks(pushdown.with_early_filters(plan, calls), calls), calls)
    check_windows(plan)
    plan = pushdown.with_pushed_filters(plan, calls, tables)
    plan = without_unread_fields(without_unread_columns(plan, tables.narrowed, is_whole), tables)
    return pushdown.with_pushed_limits(pushdown.with_few_projections(with_settled_times(plan)), tables)
