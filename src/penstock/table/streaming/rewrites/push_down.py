"""Pushes filters and limits down into tables that support them, so that fewer rows are read.

A table that is read in several places is scanned once, so only what all places have in common is pushed down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.table.analyser.calls import Calls
from penstock.table.analyser.subqueries import conjoin
from penstock.table.connectors.push_down import PushDown, PushedFilter
from penstock.table.evaluation.stability import is_stable
from penstock.table.plan.inputs import with_inputs
from penstock.table.plan.logical import Filter, Node, Project, Scan, Sort
from penstock.table.streaming.rewrites.columns import ScanKey, collect_columns, scan_key
from penstock.table.typed.nodes import Typed, conjuncts


def with_pushed_filters(plan: Node, calls: Calls, tables: PushDown) -> Node:
    """Push filters, already moved down, into tables. Conditions that a table applies are removed."""
    conditions = _asked_everywhere(plan)
    pushed_filters: dict[ScanKey, PushedFilter | None] = {}

    def pushed(node: Node) -> Node:
        scan = node.input if isinstance(node, Filter) else node
        if not isinstance(scan, Scan):
            return with_inputs(node, [pushed(child) for child in node.inputs()])
        key = scan_key(scan)
        if not conditions[key]:
            return node
        if key not in pushed_filters:
            pushed_filters[key] = tables.filtered(scan, conditions[key], calls.session)
        pushed_filter = pushed_filters[key]
        if pushed_filter is None:
            return node
        assert isinstance(node, Filter)
        accepted = [condition for condition in conditions[key] if condition not in pushed_filter.remaining]
        rest = [condition for condition in conjuncts(node.condition) if condition not in accepted]
        return replace(node, input=pushed_filter.scan, condition=conjoin(rest, calls)) if rest else pushed_filter.scan

    return pushed(plan)


def asked_of_tables(plan: Node) -> dict[ScanKey, list[Typed]]:
    """Return the conditions that apply directly above each table, wherever a plan reads it."""
    return _asked_everywhere(plan)


def _asked_everywhere(plan: Node) -> dict[ScanKey, list[Typed]]:
    conditions: dict[ScanKey, list[Typed]] = {}
    for scan, filtered in _scans(plan):
        mine = (
            [] if filtered is None else [condition for condition in conjuncts(filtered.condition) if _may_go(condition)]
        )
        before = conditions.get(scan_key(scan))
        conditions[scan_key(scan)] = (
            mine if before is None else [condition for condition in before if condition in mine]
        )
    return conditions


def _may_go(condition: Typed) -> bool:
    return is_stable(condition) and bool(collect_columns([condition]))


def _scans(node: Node, above: Node | None = None) -> Iterator[tuple[Scan, Filter | None]]:
    """Yield the tables of a plan, each with the filter directly above it."""
    if isinstance(node, Scan):
        yield node, above if isinstance(above, Filter) else None
    for child in node.inputs():
        yield from _scans(child, node)


def with_pushed_limits(plan: Node, tables: PushDown) -> Node:
    """Push LIMIT without ORDER BY into the tables below, so that they end early."""
    times = Counter(scan_key(scan) for scan, _ in _scans(plan))

    def pushed(node: Node) -> Node:
        if isinstance(node, Sort) and not node.keys and node.fetch is not None:
            count = node.offset + node.fetch
            return with_inputs(node, [_limited(node.input, lambda scan: limited(scan, count))])
        return with_inputs(node, [pushed(child) for child in node.inputs()])

    def limited(scan: Scan, count: int) -> Scan | None:
        return tables.limited(scan, count) if times[scan_key(scan)] == 1 else None

    def _limited(node: Node, change: Callable[[Scan], Scan | None]) -> Node:
        if isinstance(node, Project):
            return with_inputs(node, [_limited(node.input, change)])
        if isinstance(node, Scan):
            return change(node) or node
        return pushed(node)

    return pushed(plan)
