"""Moves filters down, so that fewer rows are sent, kept and joined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from penstock.table.analyser.calls import Calls
from penstock.table.analyser.subqueries import TRUE, conjoin
from penstock.table.evaluation.stability import is_stable
from penstock.table.plan import logical
from penstock.table.plan.inputs import with_inputs
from penstock.table.plan.logical import Node
from penstock.table.streaming.joins.join_conditions import settled, split_condition
from penstock.table.streaming.rewrites.columns import collect_columns
from penstock.table.typed.nodes import Constant, Field, Typed, conjuncts, transformed


def with_early_filters(plan: Node, calls: Calls) -> Node:
    """Move the filters of a plan down as far as its rows stay the same. Unchanged parts stay the same objects."""
    return _Pusher(calls).node(plan, [])


class _Pusher:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def node(self, node: Node, conditions: Sequence[Typed]) -> Node:
        """Rewrite a part of a plan to produce only the rows that satisfy all of `conditions`."""
        match node:
            case logical.Filter():
                return self._filter(node, conditions)
            case logical.Project():
                return self._below(node, conditions, lambda part: _through_project(part, node.expressions))
            case logical.WindowTable():
                return self._below(node, conditions, lambda part: _within(part, _free_columns(node)))
            case logical.Aggregate(sets=()):
                return self._below(node, conditions, lambda part: _through_keys(part, node.keys))
            case logical.Over() | logical.Rank():
                return self._below(node, conditions, lambda part: _within(part, node.partition))
            case logical.Distinct() | logical.Sort(fetch=None, offset=0):
                return self._below(node, conditions, lambda part: part)
            case logical.SetOperation(operator="UNION", is_all=True):
                stays, goes = _split(conditions, lambda part: part)
                return self._above(with_inputs(node, [self.node(part, goes) for part in node.parts]), stays)
            case logical.Join():
                return self._join(node, conditions)
            case logical.TemporalJoin():
                return self._temporal_join(node, conditions)
            case _:
                return self._above(with_inputs(node, [self.node(child, []) for child in node.inputs()]), conditions)

    def _filter(self, node: logical.Filter, conditions: Sequence[Typed]) -> Node:
        rewritten = self.node(node.input, [*conjuncts(node.condition), *conditions])
        return node if rewritten == node else rewritten

    def _below(self, node: logical.Unary, conditions: Sequence[Typed], moved: Callable[[Typed], Typed | None]) -> Node:
        stays, goes = _split(conditions, moved)
        return self._above(with_inputs(node, [self.node(node.input, goes)]), stays)

    def _join(self, node: logical.Join, conditions: Sequence[Typed]) -> Node:
        join, rest = settled(node, conjoin(conditions, self._calls), self._calls)
        if join == node:
            join = node
        rewritten = with_inputs(join, [self.node(child, []) for child in join.inputs()])
        return self._above(rewritten, [] if rest == TRUE else conjuncts(rest))

    def _temporal_join(self, node: logical.TemporalJoin, conditions: Sequence[Typed]) -> Node:
        """Move filters down, except to the right side, where an older version would replace a dropped row."""
        columns = range(len(node.left.schema))
        is_inner = node.join_type is logical.JoinType.INNER
        stays, left = _split(conditions, lambda part: _within(part, columns))
        within = split_condition(node.condition)
        if is_inner:
            within, mine = _split(within, lambda part: _within(part, columns))
            left = [*left, *mine]
            stays, both = _split(stays, lambda part: part)
            within = [*within, *both]
        if within != split_condition(node.condition):
            node = replace(node, condition=conjoin(within, self._calls))
        return self._above(with_inputs(node, [self.node(node.left, left), self.node(node.right, [])]), stays)

    def _above(self, node: Node, conditions: Sequence[Typed]) -> Node:
        if not conditions:
            return node
        return logical.Filter(schema=node.schema, input=node, condition=conjoin(conditions, self._calls))


def _split(conditions: Sequence[Typed], moved: Callable[[Typed], Typed | None]) -> tuple[list[Typed], list[Typed]]:
    """Split conditions into ones that must stay above a node and ones that go below it, rewritten by `moved`."""
    stays, goes = [], []
    for part in conditions:
        below = moved(part) if is_stable(part) and collect_columns([part]) else None
        if below is None:
            stays.append(part)
        else:
            goes.append(below)
    return stays, goes


def _within(part: Typed, columns: Collection[int]) -> Typed | None:
    return part if collect_columns([part]) <= set(columns) else None


def _free_columns(node: logical.WindowTable) -> Collection[int]:
    """Return the columns that a filter below a window table may use. Any row may be part of a session."""
    return node.partition if node.kind == "SESSION" else range(len(node.input.schema))


def _through_keys(part: Typed, keys: Sequence[int]) -> Typed | None:
    if _within(part, range(len(keys))) is None:
        return None
    return transformed(
        part,
        lambda expression: (
            replace(expression, index=keys[expression.index]) if isinstance(expression, Field) else expression
        ),
    )


def _through_project(part: Typed, expressions: Sequence[Typed]) -> Typed | None:
    """Rewrite a condition over a projection for its input. None if something would be computed twice."""
    if not all(isinstance(expressions[index], Field | Constant) for index in collect_columns([part])):
        return None
    return transformed(
        part, lambda expression: expressions[expression.index] if isinstance(expression, Field) else expression
    )
