"""Translates logical plans to transformations: the changes that each step emits, and its operator.

First each node determines its changelog mode (`changes`), from the sources to the sinks. Then, from the sinks to the
sources, each step determines whether its updates must include UPDATE_BEFORE. A plan that is not supported raises an
error with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from penstock.base.errors import UnsupportedError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collect import CollectSink
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.operators.connector import CommittableWriterOperator, GlobalCommit, SinkOperator, SourceOperator
from penstock.runtime.task.channels.result_partition import GlobalPartitioner
from penstock.sql.analyzer.calls import Calls
from penstock.sql.catalogs.ddl import NULL_TIME_TABLE
from penstock.sql.data.errors import ValidationError
from penstock.sql.expressions.evaluator import is_stable
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.explain import node_text
from penstock.sql.logical.nodes import ALL, INSERTS, Changes, RowSchema, shown
from penstock.sql.logical.properties import COMMITTER, SINK, SOURCE, Known, collect_expressions, rows_text, state_id
from penstock.sql.logical.stored_plans import CompiledQueries, list_nodes
from penstock.sql.optimizer.optimizer import rewritten
from penstock.sql.optimizer.pruning import ScanKey, scan_key
from penstock.sql.optimizer.pushdown import Calc, extract_calc
from penstock.sql.optimizer.time_attributes import orders_by_arrival, with_late_processing_time
from penstock.sql.stream import bridge
from penstock.sql.stream import sinks as plan_sinks
from penstock.sql.stream.calc import (
    CalcRule,
    CorrelateRule,
    ExpandRule,
    ReplicateRule,
    UnionRule,
    VectorSearchRule,
)
from penstock.sql.stream.changelog import (
    FromChangelogRule,
    NormalizeRule,
    ToChangelogRule,
    deleted_by_key,
    with_before,
    with_normalizers,
)
from penstock.sql.stream.groups.plan import AggregateRule, TableAggregateRule, is_distinct_already
from penstock.sql.stream.joins import plan as plan_joins
from penstock.sql.stream.joins.temporal import TemporalJoinRule
from penstock.sql.stream.lookups.plan import LookupJoinRule
from penstock.sql.stream.match.operator import MatchRule
from penstock.sql.stream.models.predict import MLPredictRule
from penstock.sql.stream.over.operators import OverRule
from penstock.sql.stream.planning.options import (
    DEFAULTS,
    Lookups,
    Optimization,
    PlanOptions,
    of_connector,
    read_parallelism,
)
from penstock.sql.stream.planning.rule import Factory, Rule, Stream, parallelism_in_order, with_relations
from penstock.sql.stream.planning.upsert_keys import UpsertKeys
from penstock.sql.stream.process.plan import ProcessRule, is_by_key
from penstock.sql.stream.ranking.plan import RankRule, SortRule
from penstock.sql.stream.rows.rows import ToRowsOperator
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.stream.windows.plan import WindowTableRule
from penstock.sql.tables.tables import NO_PUSH_DOWN, PushDown, TableReader, TableWriter

RULES: Final[tuple[Rule[Any], ...]] = (
    bridge.ValuesRule(),
    bridge.ArrowRowsRule(),
    bridge.ScanRule(),
    bridge.StreamRowsRule(),
    bridge.RejectedRowsRule(),
    NormalizeRule(),
    CalcRule(),
    CorrelateRule(),
    VectorSearchRule(),
    bridge.WatermarkRule(),
    UnionRule(),
    ExpandRule(),
    ReplicateRule(),
    WindowTableRule(),
    AggregateRule(),
    TableAggregateRule(),
    plan_joins.JoinRule(),
    RankRule(),
    SortRule(),
    OverRule(),
    MatchRule(),
    FromChangelogRule(),
    ToChangelogRule(),
    ProcessRule(),
    TemporalJoinRule(),
    LookupJoinRule(),
    MLPredictRule(),
)
_BY_NODE: Final[Mapping[type[logical.Node], Rule[Any]]] = {kind: rule for rule in RULES for kind in rule.nodes}


def _find_rule(node: logical.Node) -> Rule[Any]:
    rule = _BY_NODE.get(type(node))
    if rule is None:
        raise UnsupportedError(f"{type(node).__name__} is not supported in streams yet: {node_text(node)}")
    return rule


class Planned(NamedTuple):
    """A node whose steps are being added, and whether its updates include UPDATE_BEFORE."""

    node: logical.Node
    wants_before: bool


class StreamPlanner:
    """Plans one job. `add` receives its transformations, and `reader` returns the readers of its tables.

    `shares`: whether parts of plans that produce the same rows become one part of the job. `is_taken`: whether another
    step of the program has an id. `tables`: the push-down into tables; `lookups`: access to lookup tables. `writer`:
    returns the writers of tables that rejected rows are routed to.
    """

    def __init__(
        self,
        add: Callable[[Transformation], None],
        reader: Callable[[logical.Scan], TableReader],
        session: StreamSession,
        calls: Calls,
        shares: bool = True,
        options: PlanOptions = DEFAULTS,
        is_taken: Callable[[str], bool] = lambda _: False,
        tables: PushDown = NO_PUSH_DOWN,
        lookups: Lookups | None = None,
        writer: Callable[[logical.Write], TableWriter] | None = None,
    ) -> None:
        self.add = add
        self._reader = reader
        self.session = session
        self.calls = calls
        self.options = options
        self.lookups = lookups or Lookups()
        #: by the id of a node; the node is kept as well, because ids of deleted nodes are reused
        self._readers: dict[int, tuple[logical.Scan, TableReader]] = {}
        self._changes: dict[int, tuple[logical.Node, Changes]] = {}
        self._calcs: dict[int, tuple[logical.Node, Calc]] = {}
        self.by_key: set[int] = set()
        self.upsert_keys = UpsertKeys(
            self._find_row_key,
            self.extract_calc,
            calls,
            lambda node: is_distinct_already(node, self),
            lambda node: is_by_key(node, self),
        )
        #: by the id of a query: the query, and its rewritten plan
        self._queries: dict[int, tuple[logical.Node, logical.Node]] = {}
        #: by the id of a node of such plans: the node, and the node that is planned in its place
        self._run_nodes: dict[int, tuple[logical.Node, logical.Node]] = {}
        self._shares = shares
        self._streams: dict[tuple[str, bool, tuple[bool, ...]], Stream] = {}
        self._is_taken = is_taken
        self._tables = tables
        self._writer = writer
        #: the rejected rows of each table, by its path and options
        self._rejected: dict[ScanKey, Stream] = {}
        #: the routes whose sinks are not planned yet
        self._routes: list[logical.Write] = []
        #: the tables whose routes are explained already
        self._explained: set[ScanKey] = set()
        #: the nodes whose steps are being added, the innermost last; and the ids of added steps
        self._planned: list[Planned] = []
        self._stable: dict[int, tuple[logical.Node, bool]] = {}
        self._rows_texts: Known = {}
        self._state_texts: Known = {}
        self._ids: set[str] = set()
        #: the added steps, and the node of each
        self.steps: list[tuple[Transformation, Planned]] = []
        #: the ids of states that a compiled plan has, and its nodes, each by its `id()`
        self._stored_ids: dict[tuple[int, str], list[str]] = {}
        self._stored_nodes: dict[int, logical.Node] = {}
        #: the writes whose sinks have been planned; and each id of a state, with the nodes that were being planned
        self._writes: list[logical.Write] = []
        self._made_ids: list[tuple[logical.Write | None, tuple[logical.Node, ...], str, str]] = []

    # --- compiled plans -----------------------------------------------------------------------------------------------

    def compiled(self, configuration: Mapping[str, str]) -> CompiledQueries:
        """Return the rewritten queries of the sinks that have been planned, and the ids of their states."""
        writes = [replace(write, input=self.rewritten(write.input)) for write in self._writes]
        nodes = {id(node): node for node in list_nodes(writes)}
        sinks = {id(write): stored for write, stored in zip(self._writes, writes, strict=True)}
        ids: dict[tuple[int, str], list[str]] = {}
        for write, planned, kind, step_id in self._made_ids:
            anchor = next((node for node in reversed(planned) if id(node) in nodes), sinks.get(id(write)))
            if anchor is not None:
                ids.setdefault((id(anchor), kind), []).append(step_id)
        return CompiledQueries(tuple(writes), configuration, ids)

    def restore(self, queries: CompiledQueries) -> None:
        """Plan these queries as they are when their sinks are added, with the ids of states that they have."""
        for write in queries.writes:
            self._queries[id(write.input)] = (write.input, write.input)
            self._keep(write.input)
        self._stored_nodes = {id(node): node for node in queries.nodes()}
        self._stored_ids = {key: list(ids) for key, ids in queries.state_ids.items()}

    def _state_id(self, kind: str) -> str | None:
        """Return the id of the state of a step of the current node: that of the compiled plan, if there is one."""
        planned = tuple(entry.node for entry in self._planned)
        write = self._writes[-1] if self._writes else None
        anchor = next((node for node in reversed(planned) if id(node) in self._stored_nodes), write)
        stored = self._stored_ids.get((id(anchor), kind))
        if stored:
            step_id: str | None = stored.pop(0)
            self._ids.add(str(step_id))
        else:
            step_id = self._id(kind)
        if step_id is not None:
            self._made_ids.append((write, planned, kind, step_id))
        return step_id

    def rewritten(self, query: logical.Node) -> logical.Node:
        """Return the rewritten plan of a whole query, see `planning.rule`, `changelog` and `optimizer`.

        Each query of a job is rewritten as a whole, because queries may share nodes: two INSERTs read one view, or a
        table is both a query and an input of the next query.
        """
        known = self._queries.get(id(query))
        if known is not None:
            return known[1]
        run = with_normalizers(with_relations(query, self.calls), self.table, self.options.has_duplicates)
        tables = self._tables if self.options.allows(Optimization.PUSH_DOWN) else NO_PUSH_DOWN
        run = self._with_times(rewritten(run, self.calls, tables, partial(orders_by_arrival, table=self.table)))
        self._queries[id(query)] = (query, run)
        self._queries[id(run)] = (run, run)
        return run

    def _run_form(self, node: logical.Node) -> logical.Node:
        """Return a node of a rewritten query unchanged, or rewrite a node that a rule adds above such nodes."""
        known = self._run_nodes.get(id(node))
        if known is None:
            known = self._run_nodes[id(node)] = (node, self._with_times(node))
        return known[1]

    def _with_times(self, plan: logical.Node) -> logical.Node:
        self._keep(plan)
        plan = with_late_processing_time(plan, self.calls, self.changes)
        self._keep(plan)
        return plan

    def _keep(self, plan: logical.Node) -> None:
        """Register all nodes of a plan as rewritten."""
        self._run_nodes[id(plan)] = (plan, plan)
        for inner in plan.inputs():
            self._keep(inner)

    # --- which changes ------------------------------------------------------------------------------------------------

    def changes(self, node: logical.Node) -> Changes:
        """Return the changelog mode of a node of a rewritten query."""
        node = self._run_form(node)
        cached = self._changes.get(id(node))
        if cached is None:
            cached = self._changes[id(node)] = (node, _find_rule(node).changes(node, self))
        return cached[1]

    def updates(self, node: logical.Node) -> bool:
        """Return whether a node emits updates."""
        return Changes.UPDATE in self.changes(node)

    def table(self, node: logical.Scan) -> TableReader:
        """Return the reader of a table."""
        cached = self._readers.get(id(node))
        if cached is None:
            cached = self._readers[id(node)] = (node, self._reader(of_connector(node)))
        return cached[1]

    def _find_row_key(self, node: logical.Scan) -> Sequence[int]:
        """Return the columns that identify rows of a table. Append-only tables may have many rows of a declared key."""
        table = self.table(node)
        return table.key or (node.key if table.changes != INSERTS else ())

    def explained(
        self, node: logical.Node, wants_before: bool = True, depth: int = 0, advice: list[str] | None = None
    ) -> str:
        """Return a plan as text, one node per line, each with its changelog mode.

        `advice`: advice on steps is added here, and its number shown with the step; None for no advice.
        """
        if isinstance(node, logical.Write):
            lines, input_wants_before = [node_text(node)], wants_before
            inputs: tuple[logical.Node, ...] = (self.rewritten(node.input),)
        else:
            node = self._run_form(node) if depth else self.rewritten(node)
            changes = self.changes(node)
            mode, text = shown(changes, wants_before), node_text(node)
            opened, rule = f"{text[:-1]}, " if text.endswith(")") else f"{text}(", _find_rule(node)
            if advice is not None and (given := rule.advice(node, self, wants_before)) is not None:
                advice += [] if given in advice else [given]
                opened = opened.replace("(", f"(advice=[{advice.index(given) + 1}], ", 1)
            lines = ["  " * depth + f"{opened}changelogMode={mode})"]
            inputs, input_wants_before = node.inputs(), rule.asks_before(node, self, wants_before)
        lines += [self.explained(child, input_wants_before, depth + 1, advice) for child in inputs]
        if not depth:
            routes = [route for root in inputs for route in self._unexplained_routes(root)]
            lines += [self.explained(route, advice=advice) for route in routes]
        return "\n".join(lines)

    def _unexplained_routes(self, node: logical.Node) -> Iterator[logical.Write]:
        """Yield the routes of the plan's tables that are not in an explained plan yet."""
        if isinstance(node, logical.WatermarkAssigner) and node.route is not None:
            key = _routed_table(node.route)
            if key not in self._explained:
                self._explained.add(key)
                yield node.route
        for child in node.inputs():
            yield from self._unexplained_routes(child)

    # --- operators ----------------------------------------------------------------------------------------------------

    def query(self, node: logical.Node, wants_before: bool) -> Stream:
        """Return the stream of a whole query, see `rewritten` and `stream`."""
        return self.stream(self.rewritten(node), wants_before)

    def stream(self, node: logical.Node, wants_before: bool) -> Stream:
        """Return the stream of a node of a rewritten query. `wants_before`: whether updates include UPDATE_BEFORE."""
        node = self._run_form(node)
        by_key_flags = tuple(id(normalizer) in self.by_key for normalizer in _normalizers(node))
        key = (rows_text(node, self._rows_texts), wants_before, by_key_flags)
        stream = self._streams.get(key) if self._shares else None
        if stream is None:
            with self._planning(node, wants_before):
                stream = _find_rule(node).stream(node, self, wants_before)
            if self._is_stable(node):
                self._streams[key] = stream
        return stream

    def _is_stable(self, node: logical.Node) -> bool:
        """Return whether a node and all its inputs produce the same rows if they are computed again."""
        cached = self._stable.get(id(node))
        if cached is None:
            is_stable_alone = all(user.is_deterministic for user in logical.list_user_functions(node)) and all(
                map(is_stable, collect_expressions(node))
            )
            cached = self._stable[id(node)] = node, is_stable_alone and all(map(self._is_stable, node.inputs()))
        return cached[1]

    @contextmanager
    def _planning(self, node: logical.Node, wants_before: bool = True) -> Iterator[None]:
        self._planned.append(Planned(node, wants_before))
        try:
            yield
        finally:
            self._planned.pop()

    def _id(self, role: str) -> str | None:
        """Return the id of a step of the current node. Repeated steps are numbered."""
        if not self._planned:
            return None
        for number in count(1):
            step_id = state_id(self._planned[-1].node, f"{role} {number}", self._state_texts)
            if step_id not in self._ids and not self._is_taken(step_id):
                self._ids.add(step_id)
                return step_id
        raise AssertionError

    def sink(self, write: logical.Write, writer: TableWriter) -> None:
        """Write rows to a table. Raises `ValidationError` for changes that the sink does not accept."""
        self._writes.append(write)
        self._sink(write, writer)
        self._add_routes()

    def _sink(self, write: logical.Write, writer: TableWriter) -> None:
        title = ".".join(write.path)
        upstreams, sink = self.written(write, writer), writer.sink
        parallelism, changes = read_parallelism(write), self.changes(self.rewritten(write.input))
        if parallelism is not None and changes != INSERTS and not write.key:
            raise UnsupportedError(
                f"option 'sink.parallelism' of table {title} is not supported where rows are updated or deleted and "
                "the table has no primary key, by which the changes of a row would stay in order: declare one, or "
                "leave the option out"
            )
        operator = CommittableWriterOperator if sink.commits_globally else SinkOperator
        with self._planning(write):
            (written,) = self.step(
                SINK,
                partial(operator, sink),
                upstreams,
                changes != INSERTS,
                name=f"Sink {write.path[-1]}",
                parallelism=parallelism,
                is_stateful=True,
                sink=sink,
            )
            if sink.commits_globally:
                self.step(
                    COMMITTER,
                    partial(SinkOperator, GlobalCommit(sink)),
                    (Upstream(written.transformation, GlobalPartitioner()),),
                    name=f"Sink {write.path[-1]}: Committer",
                    parallelism=1,
                    is_stateful=True,
                    sink=sink,
                )

    def written(self, write: logical.Write, writer: TableWriter) -> tuple[Upstream, ...]:
        """Return the input of a table's sink, see `plan_sinks`: columns, or single rows, see `ToRowsOperator`."""
        write = replace(write, input=self.rewritten(write.input))
        with self._planning(write):
            try:
                upstreams = plan_sinks.written(write, writer, self)
            finally:
                self.by_key = set()
            if writer.takes_columns:
                return upstreams
            operator = partial(ToRowsOperator, write.input.schema.types, writer.takes_text)
            is_by_key = any(upstream.partitioner is not None for upstream in upstreams)
            parallelism = read_parallelism(write) if is_by_key else None
            are_changes = self.changes(write.input) != INSERTS
            return self.step("Rows", operator, upstreams, are_changes, parallelism=parallelism)

    def rows(self, node: logical.Node, accepts: Changes, wants_before: bool, title: str) -> tuple[Upstream, ...]:
        """Return the rows of a query one by one, in the order of each subtask, see `ToRowsOperator`."""
        node = self.rewritten(node)
        stream = self._for_client(node, accepts, wants_before, title)
        if plan_sinks.may_overflow(node):
            stream = plan_sinks.checked(stream, node.schema, self)
        operator = partial(ToRowsOperator, node.schema.types, False)
        upstreams = self.step("Rows", operator, stream.upstreams, are_changes=True)
        self._add_routes()
        return upstreams

    def shown(self, node: logical.Node) -> None:
        """Add the steps that send the rows of a node to the client, for plans that are only shown."""
        upstreams = self.rows(node, ALL, True, "collect")
        sink = CollectSink(True)
        self.step("Collect", partial(SinkOperator, sink), upstreams, sink=sink, parallelism=1)

    def records(self, target: bridge.RecordTarget) -> tuple[Upstream, ...]:
        """Return the rows of a table as records of a stream."""
        plan = self.rewritten(target.plan)
        target.check_key(self.changes(plan), lambda: self.upsert_keys.of(plan))
        stream = self._for_client(plan, target.accepts, target.wants_before, target.title)
        checked = plan_sinks.checked(stream, target.schema, self)
        operator = target.operator(self.session)
        upstreams = self.step("To Records", operator, checked.upstreams, self.changes(plan) != INSERTS)
        self._add_routes()
        return upstreams

    def _for_client(self, node: logical.Node, accepts: Changes, wants_before: bool, title: str) -> Stream:
        changes = self.changes(node)
        self.accept(f"Table sink '{title}'", node, accepts)
        return self.stream(node, wants_before and Changes.UPDATE in changes)

    # --- rows that leave a stream -------------------------------------------------------------------------------------

    def route(self, write: logical.Write, rows: Callable[[], Stream]) -> None:
        """See `Planning`."""
        table = _routed_table(write)
        if table not in self._rejected:
            self._rejected[table] = rows()
            self._routes.append(write)

    def rejected(self, node: logical.RejectedRows) -> Stream:
        """See `Planning`."""
        return self._rejected[scan_key(node.table)]

    def _add_routes(self) -> None:
        """Add the sinks of the routes. Called after a query is planned, because each sink is a query of its own."""
        while self._routes:
            write = self._routes.pop(0)
            assert self._writer is not None
            try:
                self._sink(write, self._writer(write))
            except (ValidationError, UnsupportedError) as error:
                no_key = " A route has no ON CONFLICT: declare the table without PRIMARY KEY." if write.key else ""
                where = f"option '{NULL_TIME_TABLE.key()}' of table {'.'.join(_routed_table(write)[0])}"
                raise type(error)(
                    f"{where}: rows with a NULL event time cannot be written into table {'.'.join(write.path)}. "
                    f"{error}{no_key}"
                ) from error

    # --- steps --------------------------------------------------------------------------------------------------------

    def accept(self, consumer: str, node: logical.Node, accepts: Changes) -> None:
        """Raise `ValidationError` if a node emits changes that its consumer does not accept."""
        refused = self.changes(node) & ~accepts
        if refused:
            is_both = refused == ALL & ~INSERTS
            kinds = "update and delete" if is_both else "update" if Changes.UPDATE in refused else "delete"
            raise ValidationError(
                f"{consumer} doesn't support consuming {kinds} changes which is produced by node "
                f"{node_text(_find_change_source(self._run_form(node), refused, self.changes))}"
            )

    def step(
        self,
        kind: str,
        operator: Factory,
        inputs: Sequence[Upstream],
        are_changes: bool = False,
        **more: Any,
    ) -> tuple[Upstream, ...]:
        """See `Planning`."""
        if more.get("parallelism") is None:
            more["parallelism"] = parallelism_in_order(inputs, are_changes)
        uid = more.get("uid")
        if uid is None:
            more["uid_hash"] = self._state_id(kind) if more.get("is_stateful") else self._id(kind)
        elif any(other.uid == uid for other, _ in self.steps):
            raise ValidationError(
                f"Duplicate unique identifier '{uid}' detected among process table functions. Make sure that all PTF "
                "calls have an identifier defined that is globally unique. Please provide a custom identifier using "
                "the implicit `uid` argument. For example: myFunction(..., uid => 'my-id')"
            )
        transformation = Transformation(kind, operator, tuple(inputs), **more)
        if self._planned:
            transformation.description = transformation.description or node_text(self._planned[-1].node)
            self.steps.append((transformation, self._planned[-1]))
        self.add(transformation)
        return (Upstream(transformation),)

    def with_before(self, stream: Stream, key: Sequence[int]) -> Stream:
        """See `Planning`."""
        return with_before(stream, key, self)

    def deleted_by_key(self, node: logical.Node) -> set[int]:
        """See `Planning`."""
        return deleted_by_key(node, self)

    def extract_calc(self, node: logical.Node) -> Calc:
        """Return the filters and projections from a node down that form one step."""
        cached = self._calcs.get(id(node))
        if cached is None:
            calc = extract_calc(node, self.calls)
            if isinstance(calc.input, logical.Join):
                calc = plan_joins.above_join(calc, calc.input, self.calls)
            cached = self._calcs[id(node)] = node, calc
        return cached[1]

    def source(self, title: str, table: TableReader, schema: RowSchema, parallelism: int | None = None) -> Stream:
        """See `Planning`."""
        upstreams = self.step(
            SOURCE,
            partial(SourceOperator, table.source, table.strategy),
            (),
            name=title,
            parallelism=parallelism,
            is_stateful=True,
            parallelism_limit=table.source.max_parallelism(),
            source=table.source,
            alignment=table.strategy.alignment,
        )
        return Stream(upstreams, schema, table.changes, table.has_before)

    def timed(self, node: logical.Scan, strategy: WatermarkStrategy, wants_before: bool) -> Stream | None:
        """See `Planning`."""
        table = self._tables.timed(of_connector(node), strategy)
        if table is None:
            return None
        with self._planning(node, wants_before):
            return bridge.ScanRule.read(node, table, self, wants_before)


def _routed_table(write: logical.Write) -> ScanKey:
    """Return the path and options of the table whose rejected rows a route writes."""
    rejected = logical.rejected_rows(write)
    assert rejected is not None
    return scan_key(rejected.table)


def _find_change_source(
    node: logical.Node, refused: Changes, changes: Callable[[logical.Node], Changes]
) -> logical.Node:
    """Return the lowest node that emits the refused changes."""
    for inner in node.inputs():
        if changes(inner) & refused:
            return _find_change_source(inner, refused, changes)
    return node


def _normalizers(node: logical.Node) -> Iterator[logical.Node]:
    """Yield the normalize steps in a node and its inputs."""
    if isinstance(node, logical.ChangelogNormalize):
        yield node
    for inner in node.inputs():
        yield from _normalizers(inner)
