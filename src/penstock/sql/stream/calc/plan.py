"""Plans steps that process rows one by one: filters, projections, table functions, repeated rows, and unions."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias, TypeGuard

from penstock.sql.logical.explain import calc_text
from penstock.sql.logical.nodes import (
    INSERTS,
    ChangelogNormalize,
    Changes,
    Correlate,
    Expand,
    Filter,
    Node,
    Project,
    Replicate,
    SetOperation,
)
from penstock.sql.optimizer.pushdown import is_identity
from penstock.sql.stream.calc.operators import CalcOperator, CorrelateOperator, ExpandOperator
from penstock.sql.stream.changelog.operators import ReplicateOperator
from penstock.sql.stream.changelog.plan import asks_key_alone, normalized
from penstock.sql.stream.planning.options import Optimization
from penstock.sql.stream.planning.rule import Planning, Rule, Stream, name_columns

CalcNode: TypeAlias = Project | Filter


class CalcRule(Rule[CalcNode]):
    """Consecutive filters and projections, as one step."""

    nodes = (Project, Filter)

    def changes(self, node: CalcNode, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(planning.extract_calc(node).input)

    def asks_before(self, node: CalcNode, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates of a filter's input: the previous row may pass although the new row does
        not.
        """
        is_of_table = _completes_upserts(planning.extract_calc(node).input, planning)
        return wants_before or (isinstance(node, Filter) and planning.updates(node.input) and not is_of_table)

    def stream(self, node: CalcNode, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        calc = planning.extract_calc(node)
        condition, rows = calc.condition, calc.input
        if not _completes_upserts(rows, planning) or condition is None or not planning.updates(rows):
            inner = planning.stream(rows, wants_before or (condition is not None and planning.updates(rows)))
        elif asks_key_alone(condition, rows.key):
            inner = planning.stream(rows, wants_before)
        else:
            # The normalize step evaluates the filter, and does not store rows that fail it.
            inner, condition = normalized(rows, planning, wants_before, condition), None
        if condition is None and (calc.expressions is None or is_identity(calc.expressions, rows.schema)):
            return Stream(inner.upstreams, node.schema, inner.changes, inner.has_before)
        operator = partial(CalcOperator, condition, calc.expressions, name_columns(node.schema), planning.session)
        text = calc_text(rows, condition, calc.expressions, node.schema)
        upstreams = planning.step("Calc", operator, inner.upstreams, inner.changes != INSERTS, description=text)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)


def _completes_upserts(node: Node, planning: Planning) -> TypeGuard[ChangelogNormalize]:
    """Return whether a node completes upserts and can evaluate the filter above it."""
    return isinstance(node, ChangelogNormalize) and planning.options.allows(Optimization.FILTERED_UPSERTS)


class CorrelateRule(Rule[Correlate]):
    """Each row with the rows that a table function returns for it."""

    nodes = (Correlate,)

    def changes(self, node: Correlate, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def asks_before(self, node: Correlate, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates: the new row may yield other or fewer rows, so the previous rows are
        retracted.
        """
        return wants_before or planning.updates(node.input)

    def stream(self, node: Correlate, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        inner = planning.stream(node.input, self.asks_before(node, planning, wants_before))
        operator = partial(CorrelateOperator, node, name_columns(node.schema), planning.session)
        upstreams = planning.step("Correlate", operator, inner.upstreams, inner.changes != INSERTS)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)


class UnionRule(Rule[SetOperation]):
    """UNION ALL; `relational` has rewritten the other set operations to joins and groups."""

    nodes = (SetOperation,)

    def changes(self, node: SetOperation, planning: Planning) -> Changes:
        """See `Rule`."""
        changes = INSERTS
        for part in node.parts:
            changes |= planning.changes(part)
        return changes

    def stream(self, node: SetOperation, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        parts = [planning.stream(part, wants_before) for part in node.parts]
        has_before = any(part.has_before for part in parts)
        upstreams = tuple(upstream for part in parts for upstream in part.upstreams)
        return Stream(upstreams, node.schema, planning.changes(node), has_before)


class ExpandRule(Rule[Expand]):
    """Rows repeated once for each of several sets of keys."""

    nodes = (Expand,)

    def changes(self, node: Expand, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def stream(self, node: Expand, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        inner = planning.stream(node.input, wants_before)
        operator = partial(ExpandOperator, node.projections, name_columns(node.schema), planning.session)
        upstreams = planning.step("Expand", operator, inner.upstreams, inner.changes != INSERTS)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)


class ReplicateRule(Rule[Replicate]):
    """Rows repeated as often as a column says."""

    nodes = (Replicate,)

    def changes(self, node: Replicate, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def asks_before(self, node: Replicate, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates, because the new row may be repeated less often."""
        return planning.updates(node.input)

    def stream(self, node: Replicate, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        inner = planning.stream(node.input, self.asks_before(node, planning, wants_before))
        operator = partial(ReplicateOperator, name_columns(node.schema))
        upstreams = planning.step("Replicate", operator, inner.upstreams, inner.changes != INSERTS)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)
