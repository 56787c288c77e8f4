"""Steps that look at one row after the other: filters, projections, watermarks, and streams put together."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from penstock.base.errors import UnsupportedError
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.logical import Correlate, Filter, Project, SetOperation, WatermarkAssigner
from penstock.table.plan.text import node_text
from penstock.table.streaming.planning.plan_records import watermarks
from penstock.table.streaming.planning.rule import Planning, Rule
from penstock.table.streaming.planning.streams import Stream, names_of
from penstock.table.streaming.rewrites.calc import is_identity
from penstock.table.streaming.rows.calc_operator import CalcOperator
from penstock.table.streaming.rows.correlate_operator import CorrelateOperator

CalcNode: TypeAlias = Project | Filter


class CalcRule(Rule[CalcNode]):
    """Filters and projections that follow one another, as one step."""

    nodes = (Project, Filter)

    def changes(self, node: CalcNode, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(planning.calc_of(node).input)

    def asks_before(self, node: CalcNode, planning: Planning, wants_before: bool) -> bool:
        """A filter has to know of the row as it was: perhaps it passed, and the new one does not."""
        return wants_before or (isinstance(node, Filter) and planning.updates(node.input))

    def stream(self, node: CalcNode, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        calc = planning.calc_of(node)
        asks = wants_before or (calc.condition is not None and planning.updates(calc.input))
        inner = planning.stream(calc.input, asks)
        if calc.condition is None and (calc.expressions is None or is_identity(calc.expressions, calc.input.schema)):
            return Stream(inner.upstreams, node.schema, inner.changes, inner.has_before)
        operator = partial(CalcOperator, calc.condition, calc.expressions, names_of(node.schema), planning.session)
        upstreams = planning.step("Calc", operator, inner.upstreams, inner.changes != INSERTS)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)


class WatermarkRule(Rule[WatermarkAssigner]):
    """How far event time has come."""

    nodes = (WatermarkAssigner,)

    def changes(self, node: WatermarkAssigner, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def stream(self, node: WatermarkAssigner, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        inner = planning.stream(node.input, wants_before)
        operator = watermarks(node, planning)
        upstreams = planning.step("Watermark Assigner", operator, inner.upstreams, inner.changes != INSERTS)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)


class CorrelateRule(Rule[Correlate]):
    """Each row with the rows that a table function makes of it."""

    nodes = (Correlate,)

    def changes(self, node: Correlate, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def asks_before(self, node: Correlate, planning: Planning, wants_before: bool) -> bool:
        """An update may make other rows, and fewer of them, so it takes back those that the row made before."""
        return wants_before or planning.updates(node.input)

    def stream(self, node: Correlate, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        inner = planning.stream(node.input, self.asks_before(node, planning, wants_before))
        operator = partial(CorrelateOperator, node, names_of(node.schema), planning.session)
        upstreams = planning.step("Correlate", operator, inner.upstreams, inner.changes != INSERTS)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)


class UnionRule(Rule[SetOperation]):
    """UNION ALL."""

    nodes = (SetOperation,)

    def changes(self, node: SetOperation, planning: Planning) -> Changes:
        """See `Rule`."""
        if node.operator != "UNION" or not node.is_all:
            raise UnsupportedError(f"{node.operator} is not supported in streams yet: {node_text(node)}")
        found = INSERTS
        for part in node.parts:
            found |= planning.changes(part)
        return found

    def stream(self, node: SetOperation, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        parts = [planning.stream(part, wants_before) for part in node.parts]
        has_before = any(part.has_before for part in parts)
        upstreams = tuple(one for part in parts for one in part.upstreams)
        return Stream(upstreams, node.schema, planning.changes(node), has_before)
