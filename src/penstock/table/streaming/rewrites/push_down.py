"""Pushes filters and limits down into tables that support them, so that fewer rows are read.

A table that is read in several places is scanned once, so only what all places have in common is pushed down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.table.analyser.calls import Calls
from penstock.table.analyser.subqueries import all_of
from penstock.table.connectors.push_down import PushDown, PushedFilter
from penstock.table.evaluation.stability import is_stable
from penstock.table.plan.inputs import with_inputs
from penstock.table.plan.logical import Filter, Node, Project, Scan, Sort
from penstock.table.streaming.rewrites.columns import ScanKey, columns_in, scan_key
from penstock.table.typed.nodes import Typed, conjuncts


def with_pushed_filters(plan: Node, calls: Calls, tables: PushDown) -> Node:
    """Push filters, already moved down, into tables. Conditions that a table applies are removed."""
    asked = _asked_everywhere(plan)
    found: dict[ScanKey, PushedFilter | None] = {}

    def pushed(node: Node) -> Node:
        scan = node.input if isinstance(node, Filter) else node
        if not isinstance(scan, Scan):
            return with_inputs(node, [pushed(one) for one in node.inputs()])
        key = scan_key(scan)
        if not asked[key]:
            return node
        if key not in found:
            found[key] = tables.filtered(scan, asked[key], calls.session)
        made = found[key]
        if made is None:
            return node
        assert isinstance(node, Filter)
        taken = [one for one in asked[key] if one not in made.remaining]
        rest = [one for one in conjuncts(node.condition) if one not in taken]
        return replace(node, input=made.scan, condition=all_of(rest, calls)) if rest else made.scan

    return pushed(plan)


def asked_of_tables(plan: Node) -> dict[ScanKey, list[Typed]]:
    """Return the conditions that apply directly above each table, wherever a plan reads it."""
    return _asked_everywhere(plan)


def _asked_everywhere(plan: Node) -> dict[ScanKey, list[Typed]]:
    asked: dict[ScanKey, list[Typed]] = {}
    for scan, filtered in _scans(plan):
        mine = [] if filtered is None else [one for one in conjuncts(filtered.condition) if _may_go(one)]
        before = asked.get(scan_key(scan))
        asked[scan_key(scan)] = mine if before is None else [one for one in before if one in mine]
    return asked


def _may_go(condition: Typed) -> bool:
    return is_stable(condition) and bool(columns_in([condition]))


def _scans(node: Node, above: Node | None = None) -> Iterator[tuple[Scan, Filter | None]]:
    """Yield the tables of a plan, each with the filter directly above it."""
    if isinstance(node, Scan):
        yield node, above if isinstance(above, Filter) else None
    for one in node.inputs():
        yield from _scans(one, node)


def with_pushed_limits(plan: Node, tables: PushDown) -> Node:
    """Push LIMIT without ORDER BY into the tables below, so that they end early."""
    times = Counter(scan_key(scan) for scan, _ in _scans(plan))

    def pushed(node: Node) -> Node:
        if isinstance(node, Sort) and not node.keys and node.fetch is not None:
            count = node.offset + node.fetch
            return with_inputs(node, [_limited(node.input, lambda scan: limited(scan, count))])
        return with_inputs(node, [pushed(one) for one in node.inputs()])

    def limited(scan: Scan, count: int) -> Scan | None:
        return tables.limited(scan, count) if times[scan_key(scan)] == 1 else None

    def _limited(node: Node, change: Callable[[Scan], Scan | None]) -> Node:
        if isinstance(node, Project):
            return with_inputs(node, [_limited(node.input, change)])
        if isinstance(node, Scan):
            return change(node) or node
        return pushed(node)

    return pushed(plan)
