"""From a logical plan to transformations: which changes each step sends, and its operator.

First each node says which changes its rows are (`changes`), from the leaves up. Then, from the sinks down, each step is
asked whether its updates have to come with the row as it was before. What cannot be planned is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.columns import ColumnsSource
from penstock.core.columns.keys import ColumnKey
from penstock.core.operators.base import StreamOperator
from penstock.core.operators.sink.sink import SinkOperator
from penstock.core.operators.source.source import SourceOperator
from penstock.core.task.channels.partitioners import GlobalPartitioner, HashPartitioner, Partitioner
from penstock.plan.transformation import Transformation, Upstream
from penstock.table.analyser.calls import Calls
from penstock.table.connectors.tables import TableReader, TableWriter
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import ValidationError
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.plan import logical
from penstock.table.plan.changes import ALL, INSERTS, Changes, shown
from penstock.table.plan.row_schema import RowSchema
from penstock.table.plan.text import node_text
from penstock.table.streaming import plan_joins, plan_ranks, plan_windows
from penstock.table.streaming.accumulators import check_unbounded
from penstock.table.streaming.calc import Calc, calc_of
from penstock.table.streaming.calc_operator import CalcOperator
from penstock.table.streaming.group_aggregate_operator import GroupAggregateOperator
from penstock.table.streaming.normalize_operator import ChangelogNormalizeOperator
from penstock.table.streaming.not_null_operator import NotNullOperator
from penstock.table.streaming.plan_over import over_changes, over_operator
from penstock.table.streaming.ranks import with_ranks
from penstock.table.streaming.rows_operator import ToRowsOperator
from penstock.table.streaming.sessions import StreamSession
from penstock.table.streaming.upsert_keys import UpsertKeys
from penstock.table.streaming.watermark_operator import WatermarkAssignerOperator


@dataclass(frozen=True, slots=True)
class Stream:
    """What a step gives: where its rows are read, which changes they are, and whether updates come with both rows."""

    upstreams: tuple[Upstream, ...]
    schema: RowSchema
    changes: Changes
    has_before: bool


def names_of(schema: RowSchema) -> list[str]:
    """The names that columns have in streams: their places, because the names of a schema may be there twice."""
    return [f"c{index}" for index in range(len(schema))]


class StreamPlanner:
    """Plans one job. `add` takes its transformations, and `reader` knows the tables that are read."""

    def __init__(
        self,
        add: Callable[[Transformation], None],
        reader: Callable[[logical.Scan], TableReader],
        session: StreamSession,
        calls: Calls,
    ) -> None:
        self._add = add
        self._reader = reader
        self._session = session
        self._calls = calls
        #: by the id of a node; the node is kept too, because ids of nodes that are gone come again
        self._readers: dict[int, tuple[logical.Scan, TableReader]] = {}
        self._changes: dict[int, tuple[logical.Node, Changes]] = {}
        self._calcs: dict[int, tuple[logical.Node, Calc]] = {}
        self.upsert_keys = UpsertKeys(lambda scan: self._table(scan).key, self._calc_of, calls)
        #: each node, and what is planned in its place
        self._rewritten: dict[int, tuple[logical.Node, logical.Node]] = {}

    def _with_ranks(self, node: logical.Node) -> logical.Node:
        """The plan of a node with its top-Ns, see `ranks`."""
        known = self._rewritten.get(id(node))
        if known is not None:
            return known[1]
        found = with_ranks(node, self._calls)
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
        node = self._with_ranks(node)
        found = self._changes.get(id(node))
        if found is None:
            found = self._changes[id(node)] = (node, self._changes_of(node))
        return found[1]

    def _changes_of(self, node: logical.Node) -> Changes:
        match node:
            case logical.Values() | logical.ArrowRows():
                return INSERTS
            case logical.Scan():
                return self._table(node).changes
            case logical.Project() | logical.Filter():
                return self.changes(self._calc_of(node).input)
            case logical.WatermarkAssigner() | logical.WindowTable():
                return self.changes(node.input)
            case logical.Aggregate() if plan_windows.is_of_windows(node):
                return INSERTS
            case logical.Join():
                return plan_joins.changes(node, self.changes)
            case logical.SetOperation(operator="UNION", parts=parts):
                found = INSERTS
                for part in parts:
                    found |= self.changes(part)
                return found
            case logical.Aggregate():
                return INSERTS | Changes.UPDATE if self.changes(node.input) == INSERTS else ALL
            case logical.Distinct():
                return INSERTS if self.changes(node.input) == INSERTS else ALL
            case logical.Rank():
                return plan_ranks.rank_changes(node, self.changes)
            case logical.Sort():
                return plan_ranks.sort_changes(node, self.changes)
            case logical.Over():
                return over_changes(node)
            case _:
                raise UnsupportedError(f"{type(node).__name__} is not supported in streams yet: {node_text(node)}")

    def _table(self, node: logical.Scan) -> TableReader:
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
            node = self._with_ranks(node)
            changes = self.changes(node)
            mode = shown(changes, wants_before)
            lines = ["  " * depth + f"{node_text(node).removesuffix(')')}, changelogMode={mode})"]
            inputs, asked = node.inputs(), self._asks(node, wants_before)
        return "\n".join([*lines, *(self.explained(one, asked, depth + 1) for one in inputs)])

    def _asks(self, node: logical.Node, wants_before: bool) -> bool:
        """Whether a node needs the rows before updates of its inputs."""
        match node:
            case logical.Filter():
                return wants_before or self._updates(node.input)
            case logical.Aggregate() | logical.Distinct():
                return self._updates(node.input)
            case logical.Rank() | logical.Sort():
                return plan_ranks.rank_asks_before(node, self.changes)
            case _:
                return wants_before

    # --- operators ----------------------------------------------------------------------------------------------------

    def stream(self, node: logical.Node, wants_before: bool) -> Stream:
        """The stream of a node. `wants_before`: whether updates have to come with the row as it was before."""
        node = self._with_ranks(node)
        match node:
            case logical.Project() | logical.Filter():
                return self._calc(node, wants_before)
            case logical.Values():
                return self._values(node)
            case logical.ArrowRows():
                return self._rows(node)
            case logical.Scan():
                return self._scan(node, wants_before)
            case logical.SetOperation(operator="UNION", is_all=True):
                return self._union(node, wants_before)
            case logical.WatermarkAssigner():
                return self._watermarks(node, wants_before)
            case logical.WindowTable():
                return self._window_table(node, wants_before)
            case logical.Aggregate() if plan_windows.is_of_windows(node):
                return self._window_aggregate(node)
            case logical.Join():
                return self._join(node, wants_before)
            case logical.Aggregate():
                return self._aggregate(node, wants_before)
            case logical.Distinct():
                keys = tuple(range(len(node.schema)))
                return self._aggregate(
                    logical.Aggregate(schema=node.schema, input=node.input, keys=keys, calls=()), wants_before
                )
            case logical.Rank():
                return self._rank(node, wants_before)
            case logical.Sort():
                return self._sort(node, wants_before)
            case logical.Over():
                return self._over(node)
            case _:
                raise UnsupportedError(f"{type(node).__name__} is not supported in streams yet: {node_text(node)}")

    def sink(self, write: logical.Write, writer: TableWriter, drops_null: bool) -> None:
        """Write rows into a table. Raises `ValidationError` where changes come that the sink does not take.

        `drops_null`: whether rows with NULL where the table has none are dropped; else they fail the job.
        """
        title = ".".join(write.path)
        upstreams = self.rows(
            write.input, writer.accepts, writer.wants_before, title, writer.takes_text, (write.schema, drops_null)
        )
        sink = writer.sink
        operator = partial(SinkOperator, sink)
        self._add(Transformation("Sink", operator, upstreams, name=f"Sink {title}", is_stateful=True, sink=sink))

    def rows(
        self,
        node: logical.Node,
        accepts: Changes,
        wants_before: bool,
        title: str,
        as_text: bool = False,
        target: tuple[RowSchema, bool] | None = None,
    ) -> tuple[Upstream, ...]:
        """The rows of a node one by one, see `ToRowsOperator`; `target`: the table they are for, see `sink`."""
        changes = self.changes(node)
        self._accept(f"Table sink '{title}'", node, accepts)
        upstreams = self.stream(node, wants_before and Changes.UPDATE in changes).upstreams
        if target is not None:
            schema, drops_null = target
            pairs = enumerate(zip(node.schema, schema, strict=True))
            checked = [place for place, (one, other) in pairs if one.type.is_nullable and not other.type.is_nullable]
            if checked:
                names = [schema[place].name for place in checked]
                upstreams = self._step("Not Null", partial(NotNullOperator, checked, names, drops_null), upstreams)
        return self._step("Rows", partial(ToRowsOperator, node.schema.types, as_text), upstreams)

    def _accept(self, consumer: str, node: logical.Node, accepts: Changes) -> None:
        """Raise `ValidationError` where a node sends changes that its consumer does not take."""
        refused = self.changes(node) & ~accepts
        if refused:
            is_both = refused == ALL & ~INSERTS
            what = "update and delete" if is_both else "update" if Changes.UPDATE in refused else "delete"
            raise ValidationError(
                f"{consumer} doesn't support consuming {what} changes which is produced by node "
                f"{node_text(_source_of(self._with_ranks(node), refused, self.changes))}"
            )

    def _step(
        self,
        kind: str,
        node: Callable[[], StreamOperator],
        inputs: Sequence[Upstream],
        **more: Any,
    ) -> tuple[Upstream, ...]:
        transformation = Transformation(kind, node, tuple(inputs), **more)
        self._add(transformation)
        return (Upstream(transformation),)

    def _calc_of(self, node: logical.Node) -> Calc:
        found = self._calcs.get(id(node))
        if found is None:
            calc = calc_of(node, self._calls)
            if isinstance(calc.input, logical.Join):
                calc = plan_joins.above_join(calc, calc.input, self._calls)
            found = self._calcs[id(node)] = node, calc
        return found[1]

    def _calc(self, node: logical.Node, wants_before: bool) -> Stream:
        calc = self._calc_of(node)
        inner = self.stream(calc.input, wants_before or (calc.condition is not None and self._updates(calc.input)))
        if calc.condition is None and calc.expressions is None:
            return inner
        names = names_of(node.schema)
        operator = partial(CalcOperator, calc.condition, calc.expressions, names, self._session)
        return Stream(self._step("Calc", operator, inner.upstreams), node.schema, inner.changes, inner.has_before)

    def _updates(self, node: logical.Node) -> bool:
        return Changes.UPDATE in self.changes(node)

    def _source(self, title: str, source: Any, schema: RowSchema, changes: Changes, has_before: bool) -> Stream:
        strategy = WatermarkStrategy.no_watermarks()
        operator = partial(SourceOperator, source, strategy)
        upstreams = self._step(
            "Source",
            operator,
            (),
            name=title,
            is_stateful=True,
            parallelism_limit=source.max_parallelism(),
            source=source,
        )
        return Stream(upstreams, schema, changes, has_before)

    def _values(self, node: logical.Values) -> Stream:
        names = names_of(node.schema)
        if not names:
            # A query without FROM reads one row that has a column nobody asks for.
            batch = pa.RecordBatch.from_arrays([pa.nulls(len(node.rows))], ["c0"])
            return self._source("Values", ColumnsSource(batch), node.schema, INSERTS, False)
        session = self._calls.session
        rows = [Evaluator(row, session)(Columns((), 1)) for row in node.rows]
        arrays = [
            pa.concat_arrays([row[index] for row in rows]) if rows else pa.array([], arrow_type(column.type))
            for index, column in enumerate(node.schema)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, names)
        return self._source("Values", ColumnsSource(batch), node.schema, INSERTS, False)

    def _rows(self, node: logical.ArrowRows) -> Stream:
        data = node.data.combine_chunks()
        arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in data.itercolumns()]
        batch = pa.RecordBatch.from_arrays(arrays, names_of(node.schema))
        return self._source("Rows", ColumnsSource(batch), node.schema, INSERTS, False)

    def _scan(self, node: logical.Scan, wants_before: bool) -> Stream:
        table = self._table(node)
        title = ".".join(node.path)
        if table.source is None:
            raise ValidationError(f"table '{title}' is read by Spark, in batch only: its connector has no source")
        found = self._source(title, table.source, node.schema, table.changes, table.has_before)
        if not table.is_upsert and (table.has_before or not wants_before or Changes.UPDATE not in table.changes):
            return found
        if not table.key:
            raise ValidationError(
                f"Table '{title}' produces a changelog stream that contains UPDATE_AFTER but no UPDATE_BEFORE. This "
                "requires defining primary key constraint on the table."
            )
        operator = partial(
            ChangelogNormalizeOperator, table.key, node.schema.types, names_of(node.schema), wants_before
        )
        upstreams = self._step("Changelog Normalize", operator, by_columns(found, table.key), is_stateful=True)
        return Stream(upstreams, node.schema, table.changes, wants_before)

    def _watermarks(self, node: logical.WatermarkAssigner, wants_before: bool) -> Stream:
        inner = self.stream(node.input, wants_before)
        operator = partial(WatermarkAssignerOperator, node.column, node.expression, self._session)
        upstreams = self._step("Watermark Assigner", operator, inner.upstreams)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)

    def _window_table(self, node: logical.WindowTable, wants_before: bool) -> Stream:
        operator = plan_windows.window_table(node, names_of(node.schema), self._session)
        inner = self.stream(node.input, wants_before)
        upstreams = self._step(f"Window Table {node.kind}", operator, inner.upstreams)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)

    def _window_aggregate(self, node: logical.Aggregate) -> Stream:
        retracts = self.changes(node.input) != INSERTS
        inner = self.stream(node.input, retracts)
        operator, groups = plan_windows.window_aggregate(node, names_of(node.schema), retracts, self._session)
        limit = None if groups else 1
        inputs = by_columns(inner, groups)
        upstreams = self._step("Window Aggregate", operator, inputs, is_stateful=True, parallelism_limit=limit)
        return Stream(upstreams, node.schema, INSERTS, False)

    def _union(self, node: logical.SetOperation, wants_before: bool) -> Stream:
        parts = [self.stream(part, wants_before) for part in node.parts]
        has_before = any(part.has_before for part in parts)
        upstreams = tuple(one for part in parts for one in part.upstreams)
        return Stream(upstreams, node.schema, self.changes(node), has_before)

    def _join(self, node: logical.Join, wants_before: bool) -> Stream:
        ids = None if wants_before else self.upsert_keys.least
        plan = plan_joins.planned(node, names_of(node.schema), self._session, self._calls, self.changes, ids)
        sides = [self.stream(one, plan.has_before and self._updates(one)) for one in plan.inputs]
        inputs = [
            replace(upstream, input_index=index)
            for index, side in enumerate(sides)
            for upstream in by_columns(side, plan.keys[index])
        ]
        limit = None if plan.keys[0] else 1
        upstreams = self._step(plan.title, plan.operator, inputs, is_stateful=True, parallelism_limit=limit)
        return Stream(upstreams, node.schema, self.changes(node), plan.has_before)

    def _aggregate(self, node: logical.Aggregate, wants_before: bool) -> Stream:
        if node.sets:
            raise UnsupportedError("GROUPING SETS, ROLLUP and CUBE are not supported in streams yet")
        for call in node.calls:
            check_unbounded(call)
        retracts = self.changes(node.input) != INSERTS
        inner = self.stream(node.input, retracts)
        inputs = by_columns(inner, node.keys)
        operator = partial(
            GroupAggregateOperator,
            node.keys,
            node.calls,
            node.input.schema.types,
            names_of(node.schema),
            retracts,
            wants_before,
        )
        limit = None if node.keys else 1
        upstreams = self._step("Group Aggregate", operator, inputs, is_stateful=True, parallelism_limit=limit)
        return Stream(upstreams, node.schema, self.changes(node), wants_before)

    def _rank(self, node: logical.Rank, wants_before: bool) -> Stream:
        operator = plan_ranks.rank_operator(node, names_of(node.schema), self.changes, wants_before, self._session)
        inner = self.stream(node.input, plan_ranks.rank_asks_before(node, self.changes))
        groups = plan_ranks.rank_groups(node, self.changes)
        inputs, limit = by_columns(inner, groups), None if groups else 1
        upstreams = self._step("Rank", operator, inputs, is_stateful=True, parallelism_limit=limit)
        return Stream(upstreams, node.schema, self.changes(node), wants_before)

    def _sort(self, node: logical.Sort, wants_before: bool) -> Stream:
        if node.fetch == 0:
            return self._values(logical.Values(schema=node.schema, rows=()))
        if plan_ranks.has_limit(node):
            found = self._rank(plan_ranks.limit_of(node), wants_before)
            return Stream(found.upstreams, node.schema, self.changes(node), wants_before)
        operator = plan_ranks.sort_operator(node, names_of(node.schema), self.changes)
        inner = self.stream(node.input, False)
        if operator is None:
            return inner
        upstreams = self._step("Sort", operator, by_columns(inner, ()), is_stateful=True, parallelism_limit=1)
        return Stream(upstreams, node.schema, INSERTS, False)

    def _over(self, node: logical.Over) -> Stream:
        operator = over_operator(node, names_of(node.schema))
        changes = self.changes(node)
        if changes == INSERTS:
            self._accept("OverAggregate", node.input, INSERTS)
        inner = self.stream(node.input, self._updates(node.input))
        inputs = by_columns(inner, node.partition)
        limit = None if node.partition else 1
        upstreams = self._step("Over Aggregate", operator, inputs, is_stateful=True, parallelism_limit=limit)
        # As in Flink, changes come with the row as it was before even where nobody asks for it.
        return Stream(upstreams, node.schema, changes, changes != INSERTS)


def by_columns(stream: Stream, columns: Sequence[int]) -> list[Upstream]:
    """A stream whose rows go to subtasks by these columns; to the only one without any."""
    partitioner: Partitioner = GlobalPartitioner()
    if columns:
        names = names_of(stream.schema)
        partitioner = HashPartitioner(ColumnKey(tuple(names[column] for column in columns)))
    return [Upstream(one.transformation, partitioner, one.side_tag) for one in stream.upstreams]


def _source_of(node: logical.Node, refused: Changes, changes: Callable[[logical.Node], Changes]) -> logical.Node:
    """The lowest node that sends changes which nobody takes."""
    for inner in node.inputs():
        if changes(inner) & refused:
            return _source_of(inner, refused, changes)
    return node
