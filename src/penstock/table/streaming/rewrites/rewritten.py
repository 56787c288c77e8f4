"""All rewrites, in order."""

from __future__ import annotations

from penstock.table.analyser.calls import Calls
from penstock.table.connectors.push_down import NO_PUSH_DOWN, PushDown
from penstock.table.plan.logical import Node
from penstock.table.streaming.rewrites.columns import IsWhole, never, without_unread_columns
from penstock.table.streaming.rewrites.filters import with_early_filters
from penstock.table.streaming.rewrites.leaves import without_unread_fields
from penstock.table.streaming.rewrites.lookup_joins import with_lookup_joins
from penstock.table.streaming.rewrites.over_windows import check_windows
from penstock.table.streaming.rewrites.projections import with_few_projections
from penstock.table.streaming.rewrites.push_down import with_pushed_filters, with_pushed_limits
from penstock.table.streaming.rewrites.ranks import with_ranks
from penstock.table.streaming.rewrites.times import with_settled_times


def rewritten(plan: Node, calls: Calls, tables: PushDown = NO_PUSH_DOWN, is_whole: IsWhole = never) -> Node:
    """Rewrite a plan for execution. Filters move down first, because they may form a top-N with the node below.

    `is_whole`: see `without_unread_columns`.

    Raises `ValidationError` and `UnsupportedError` for queries that streams do not support.
    """
    plan = with_lookup_joins(with_ranks(with_early_filters(plan, calls), calls), calls)
    check_windows(plan)
    plan = with_pushed_filters(plan, calls, tables)
    plan = without_unread_fields(without_unread_columns(plan, tables.narrowed, is_whole), tables)
    return with_pushed_limits(with_few_projections(with_settled_times(plan)), tables)
