"""From a logical plan to transformations: which changes each step sends, and its operator.

First each node says which changes its rows are (`changes`), from the leaves up. Then, from the sinks down, each step is
asked whether its updates have to come with the row as it was before. What cannot be planned is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.core.operators.sink.sink import SinkOperator
from penstock.core.operators.source.source import SourceOperator
from penstock.plan.transformation import Transformation, Upstream
from penstock.table.analyser.calls import Calls
from penstock.table.connectors.tables import TableReader, TableWriter
from penstock.table.data.errors import ValidationError
from penstock.table.plan import logical
from penstock.table.plan.changes import ALL, INSERTS, Changes, shown
from penstock.table.plan.row_schema import RowSchema
from penstock.table.plan.text import node_text
from penstock.table.streaming.planning import plan_joins, plan_sinks
from penstock.table.streaming.planning.calc import Calc, calc_of
from penstock.table.streaming.planning.plan_aggregates import AggregateRule
from penstock.table.streaming.planning.plan_normalize import DUPLICATES, NormalizeRule, with_normalizers
from penstock.table.streaming.planning.plan_over import OverRule
from penstock.table.streaming.planning.plan_ranks import RankRule, SortRule
from penstock.table.streaming.planning.plan_rows import CalcRule, ExpandRule, ReplicateRule, UnionRule, WatermarkRule
from penstock.table.streaming.planning.plan_sources import ArrowRowsRule, ScanRule, ValuesRule
from penstock.table.streaming.planning.plan_windows import WindowTableRule
from penstock.table.streaming.planning.ranks import with_ranks
from penstock.table.streaming.planning.relational import with_relations
from penstock.table.streaming.planning.rule import Factory, Rule
from penstock.table.streaming.planning.streams import Stream
from penstock.table.streaming.planning.upsert_keys import UpsertKeys
from penstock.table.streaming.rows.rows_operator import ToRowsOperator
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.sinks.sink_options import sink_options

RULES: Final[tuple[Rule[Any], ...]] = (
    ValuesRule(),
    ArrowRowsRule(),
    ScanRule(),
    NormalizeRule(),
    CalcRule(),
    WatermarkRule(),
    UnionRule(),
    ExpandRule(),
    ReplicateRule(),
    WindowTableRule(),
    AggregateRule(),
    plan_joins.JoinRule(),
    RankRule(),
    SortRule(),
    OverRule(),
)
_BY_NODE: Final[Mapping[type[logical.Node], Rule[Any]]] = {kind: rule for rule in RULES for kind in rule.nodes}


def _rule_of(node: logical.Node) -> Rule[Any]:
    found = _BY_NODE.get(type(node))
    if found is None:
        raise UnsupportedError(f"{type(node).__name__} is not supported in streams yet: {node_text(node)}")
    return found


class StreamPlanner:
    """Plans one job, with the `options` of the session.

    `add` takes its transformations, and `reader` knows the tables that are read.
    """

    def __init__(
        self,
        add: Callable[[Transformation], None],
        reader: Callable[[logical.Scan], TableReader],
        session: StreamSession,
        calls: Calls,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.add = add
        self._reader = reader
        self.session = session
        self.calls = calls
        #: by the id of a node; the node is kept too, because ids of nodes that are gone come again
        self._readers: dict[int, tuple[logical.Scan, TableReader]] = {}
        self._changes: dict[int, tuple[logical.Node, Changes]] = {}
        self._calcs: dict[int, tuple[logical.Node, Calc]] = {}
        self.by_key: set[int] = set()
        self.has_duplicates = (options or {}).get(DUPLICATES, "").lower() == "true"
        self._sink_options = sink_options(options or {})
        self.upsert_keys = UpsertKeys(lambda scan: self.table(scan).key, self.calc_of, calls)
        #: each node, and what is planned in its place
        self._rewritten: dict[int, tuple[logical.Node, logical.Node]] = {}

    def _rewritten_of(self, node: logical.Node) -> logical.Node:
        """The plan of a node as streams have it, see `relational` and `ranks`."""
        known = self._rewritten.get(id(node))
        if known is not None:
            return known[1]
        found = with_normalizers(with_relations(node, self.calls), self.table, self.has_duplicates)
        found = with_ranks(found, self.calls)
        self._rewritten[id(node)] = (node, found)
        waiting = [found]
        while waiting:
            one = waiting.pop()
            self._rewritten[id(one)] = (one, one)
            waiting += one.inputs()
        return found

    # --- which changes ------------------------------------------------------------------------------------------------

    def changes(self, node: logical.Node) -> Changes:
        """Which changes the rows of a node are."""
        node = self._rewritten_of(node)
        found = self._changes.get(id(node))
        if found is None:
            found = self._changes[id(node)] = (node, _rule_of(node).changes(node, self))
        return found[1]

    def updates(self, node: logical.Node) -> bool:
        """Whether rows of a node are updated."""
        return Changes.UPDATE in self.changes(node)

    def table(self, node: logical.Scan) -> TableReader:
        """How a table is read."""
        found = self._readers.get(id(node))
        if found is None:
            found = self._readers[id(node)] = (node, self._reader(node))
        return found[1]

    def explained(self, node: logical.Node, wants_before: bool = True, depth: int = 0) -> str:
        """A plan as text, a node a line, with the changes that each sends."""
        if isinstance(node, logical.Write):
            lines = [node_text(node)]
            inputs, asked = node.inputs(), wants_before
        else:
            node = self._rewritten_of(node)
            changes = self.changes(node)
            mode = shown(changes, wants_before)
            lines = ["  " * depth + f"{node_text(node).removesuffix(')')}, changelogMode={mode})"]
            inputs, asked = node.inputs(), _rule_of(node).asks_before(node, self, wants_before)
        return "\n".join([*lines, *(self.explained(one, asked, depth + 1) for one in inputs)])

    # --- operators ----------------------------------------------------------------------------------------------------

    def stream(self, node: logical.Node, wants_before: bool) -> Stream:
        """The stream of a node. `wants_before`: whether updates have to come with the row as it was before."""
        node = self._rewritten_of(node)
        return _rule_of(node).stream(node, self, wants_before)

    def sink(self, write: logical.Write, writer: TableWriter) -> None:
        """Write rows into a table. Raises `ValidationError` where changes come that the sink does not take."""
        sink, upstreams = writer.sink, self.written(write, writer)
        operator = partial(SinkOperator, sink)
        name = f"Sink {'.'.join(write.path)}"
        self.add(Transformation("Sink", operator, upstreams, name=name, is_stateful=True, sink=sink))

    def written(self, write: logical.Write, writer: TableWriter) -> tuple[Upstream, ...]:
        """The rows that go into a table one by one, see `plan_sinks` and `ToRowsOperator`."""
        write = replace(write, input=self._rewritten_of(write.input))
        upstreams = plan_sinks.written(write, writer, self._sink_options, self)
        return self.step("Rows", partial(ToRowsOperator, write.input.schema.types, writer.takes_text), upstreams)

    def rows(self, node: logical.Node, accepts: Changes, wants_before: bool, title: str) -> tuple[Upstream, ...]:
        """The rows of a node one by one, see `ToRowsOperator`."""
        changes = self.changes(node)
        self.accept(f"Table sink '{title}'", node, accepts)
        upstreams = self.stream(node, wants_before and Changes.UPDATE in changes).upstreams
        return self.step("Rows", partial(ToRowsOperator, node.schema.types), upstreams)

    def accept(self, consumer: str, node: logical.Node, accepts: Changes) -> None:
        """Raise `ValidationError` where a node sends changes that its consumer does not take."""
        refused = self.changes(node) & ~accepts
        if refused:
            is_both = refused == ALL & ~INSERTS
            what = "update and delete" if is_both else "update" if Changes.UPDATE in refused else "delete"
            raise ValidationError(
                f"{consumer} doesn't support consuming {what} changes which is produced by node "
                f"{node_text(_source_of(self._rewritten_of(node), refused, self.changes))}"
            )

    def step(
        self,
        kind: str,
        operator: Factory,
        inputs: Sequence[Upstream],
        **more: Any,
    ) -> tuple[Upstream, ...]:
        """Add a step of the job. `more`: see `Transformation`."""
        transformation = Transformation(kind, operator, tuple(inputs), **more)
        self.add(transformation)
        return (Upstream(transformation),)

    def calc_of(self, node: logical.Node) -> Calc:
        """The filters and projections from a node down, as far as they are one step."""
        found = self._calcs.get(id(node))
        if found is None:
            calc = calc_of(node, self.calls)
            if isinstance(calc.input, logical.Join):
                calc = plan_joins.above_join(calc, calc.input, self.calls)
            found = self._calcs[id(node)] = node, calc
        return found[1]

    def source(self, title: str, source: Any, schema: RowSchema, changes: Changes, has_before: bool) -> Stream:
        """Add a step that reads a source of columns."""
        strategy = WatermarkStrategy.no_watermarks()
        operator = partial(SourceOperator, source, strategy)
        upstreams = self.step(
            "Source",
            operator,
            (),
            name=title,
            is_stateful=True,
            parallelism_limit=source.max_parallelism(),
            source=source,
        )
        return Stream(upstreams, schema, changes, has_before)


def _source_of(node: logical.Node, refused: Changes, changes: Callable[[logical.Node], Changes]) -> logical.Node:
    """The lowest node that sends changes which nobody takes."""
    for inner in node.inputs():
        if changes(inner) & refused:
            return _source_of(inner, refused, changes)
    return node
