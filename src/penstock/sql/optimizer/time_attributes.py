"""Time attributes of plans: processing time of rows that are updated or deleted, and columns that are still event time.

**Processing time.** PROCTIME() of a row that is updated or deleted returns one time for the insert and another for the
retraction. A step that keeps rows would not find the retracted row, and would keep it forever. So its rows carry a
constant instead of the time, and the time is computed where it is read, after the steps that keep rows.

Ordering by such a time means arrival order. It then matters which row is retracted, even among rows that are equal in
all columns that are read. So a top-N in this order gets all columns.

**Event time.** During analysis, columns keep their event time wherever they may have it, but execution decides.
`with_settled_times` determines the columns of a rewritten plan that are still event time. The rows of a group, or of a
join that keeps rows, are emitted when other rows arrive, so they are late for watermarks that have passed them. Only
window aggregates, window joins and interval joins emit rows ahead of the watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.select import find_join_window_edges, group_keys, group_window_edges
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import INSERTS, Changes, Filter, Node, Project, RowSchema, TimeAttribute
from penstock.sql.logical.properties import find_input, with_inputs
from penstock.sql.optimizer.pruning import collect_columns, columns_of_calls
from penstock.sql.optimizer.pushdown import find_interval
from penstock.sql.tables.tables import TableReader
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, transformed

#: the indexes of columns whose time is not computed yet
Places: TypeAlias = frozenset[int]

_NONE: Final[Places] = frozenset()
#: nodes whose output is append-only if their inputs are
_PLAIN: Final = (
    logical.Values,
    logical.ArrowRows,
    Project,
    Filter,
    logical.WatermarkAssigner,
    logical.WindowTable,
    logical.Correlate,
    logical.MLPredictTableFunction,
    logical.VectorSearchTableFunction,
    logical.Over,
    logical.TemporalJoin,
    logical.LookupJoin,
)


def with_late_processing_time(plan: Node, calls: Calls, changes: Callable[[Node], Changes]) -> Node:
    """Rewrite a plan so that no step keeps such times. Parts that keep none stay the same objects."""
    return _Rewriter(calls, changes).with_times(plan)


def orders_by_arrival(node: logical.Rank | logical.Sort, table: Callable[[logical.Scan], TableReader]) -> bool:
    """Return whether a top-N is ordered by a processing time and its input may have retractions.

    Groups, and joins other than INNER and SEMI, are assumed to have them.
    """
    order = node.order if isinstance(node, logical.Rank) else node.keys
    times = {node.input.schema[key.index].time for key in order}
    return TimeAttribute.PROCTIME in times and not _only_comes(node.input, table)


def _only_comes(node: Node, table: Callable[[logical.Scan], TableReader]) -> bool:
    match node:
        case logical.Scan():
            return table(node).changes == INSERTS
        case logical.StreamRows():
            return node.changes == INSERTS
        case logical.Join():
            is_plain = node.join_type in (logical.JoinType.INNER, logical.JoinType.SEMI)
        case logical.SetOperation():
            is_plain = node.is_all
        case _:
            is_plain = isinstance(node, _PLAIN)
    return is_plain and all(_only_comes(child, table) for child in node.inputs())


class _Part(NamedTuple):
    """A part of a plan whose columns `late` hold a constant.

    `known`: the same part with times in all columns, as long as no step in it keeps rows with such times; else None.
    """

    node: Node
    late: Places = _NONE
    known: Node | None = None


class _Rewriter:
    def __init__(self, calls: Calls, changes: Callable[[Node], Changes]) -> None:
        self._now = calls.call("PROCTIME", [])
        self._changes = changes

    def with_times(self, node: Node) -> Node:
        """Rewrite a part of a plan to have times in all columns."""
        return self._with_times(self._part(node))

    def _with_times(self, part: _Part) -> Node:
        if part.known is not None:
            return part.known
        if not part.late:
            return part.node
        schema = part.node.schema
        expressions = tuple(self._now if index in part.late else field for index, field in enumerate(schema.fields()))
        return Project(schema=schema, input=part.node, expressions=expressions)

    def _part(self, node: Node) -> _Part:
        match node:
            case Project():
                return self._project(node, self._part(node.input))
            case Filter():
                inner = self._part(node.input)
                condition = self._read(node.condition, inner.late)
                return self._passing(node, replace(node, input=inner.node, condition=condition), [inner])
            case logical.SetOperation():
                parts = [self._part(part) for part in node.parts]
                return self._passing(node, with_inputs(node, [part.node for part in parts]), parts)
            case logical.Rank() | logical.Sort():
                # Ordering by a late time means arrival order, see `RankRule`.
                read = frozenset(node.partition) if isinstance(node, logical.Rank) else _NONE
                return self._keeping(node, [self._part(node.input)], read)
            case logical.Over():
                read = frozenset((*node.partition, *(key.index for key in node.order))) | columns_of_calls(node.calls)
                return self._keeping(node, [self._part(node.input)], read)
            case logical.Join() | logical.TemporalJoin():
                sides = [self._part(side) for side in node.inputs()]
                time = (node.time,) if isinstance(node, logical.TemporalJoin) else ()
                return self._keeping(node, sides, collect_columns([node.condition, *time]))
            case _:
                rewritten = with_inputs(node, [self.with_times(child) for child in node.inputs()])
                return _Part(rewritten, _NONE, rewritten)

    def _read(self, expression: Typed, late: Places) -> Typed:
        """Rewrite an expression to compute the times that it reads."""
        if not late:
            return expression
        return transformed(expression, lambda node: self._now if _is_among(node, late) else node)

    # --- steps that keep no rows --------------------------------------------------------------------------------------

    def _project(self, node: Project, inner: _Part) -> _Part:
        changing = self._changes(node.input) != INSERTS
        late: set[int] = set()
        expressions: list[Typed] = []
        for index, expression in enumerate(node.expressions):
            is_time = node.schema[index].time is TimeAttribute.PROCTIME
            if is_time and (_is_among(expression, inner.late) or (changing and isinstance(expression, FunctionCall))):
                late.add(index)
                expressions.append(expression if isinstance(expression, Field) else Constant(expression.type, 0))
            else:
                expressions.append(self._read(expression, inner.late))
        known = None if inner.known is None else with_inputs(node, [inner.known])
        return _Part(replace(node, input=inner.node, expressions=tuple(expressions)), frozenset(late), known)

    def _passing(self, node: Node, rewritten: Node, parts: list[_Part]) -> _Part:
        """Rewrite a node that passes rows on unchanged."""
        known = [part.known for part in parts if part.known is not None]
        return _Part(
            rewritten,
            frozenset().union(*(part.late for part in parts)),
            with_inputs(node, known) if len(known) == len(parts) else None,
        )

    # --- steps that keep rows -----------------------------------------------------------------------------------------

    def _keeping(self, node: Node, sides: list[_Part], read: Iterable[int]) -> _Part:
        """Rewrite a node that keeps the rows of its inputs and uses the columns `read` of all of them."""
        inputs: list[Node] = []
        late: set[int] = set()
        begin = 0
        for side, part in zip(node.inputs(), sides, strict=True):
            indices = {begin + index for index in part.late}
            if not indices or indices & set(read):
                inputs.append(self._with_times(part))
            else:
                inputs.append(part.node)
                late |= indices
            begin += len(side.schema)
        rewritten = with_inputs(node, inputs)
        # The result of a semi or an anti join has no columns of the right side.
        visible = frozenset(index for index in late if index < len(node.schema))
        return _Part(rewritten, visible, None if late else rewritten)


def _is_among(expression: Typed, indices: Places) -> bool:
    return isinstance(expression, Field) and expression.index in indices


_WINDOW_TIME: Final = 2
#: nodes that pass on the columns of their inputs
_PASSING: Final = (
    logical.Filter,
    logical.WatermarkAssigner,
    logical.WindowTable,
    logical.Over,
    logical.Rank,
    logical.Sort,
    logical.Correlate,
    logical.MLPredictTableFunction,
    logical.VectorSearchTableFunction,
    logical.TemporalJoin,
)


def with_settled_times(plan: Node) -> Node:
    """Remove event time from a plan where rows are late for it. Unchanged parts stay the same objects."""
    node = with_inputs(plan, [with_settled_times(child) for child in plan.inputs()])
    times = [index for index, column in enumerate(node.schema) if column.time is TimeAttribute.ROWTIME]
    lost = {index for index in times if not _is_time(node, index)}
    if not lost:
        return node
    columns = [replace(column, time=None) if index in lost else column for index, column in enumerate(node.schema)]
    return replace(node, schema=RowSchema(tuple(columns)))


def _is_time(node: Node, column: int) -> bool:
    match node:
        case logical.Project(expressions=expressions):
            return _is_event_time_expression(node, expressions[column])
        case logical.Expand():
            return all(_is_event_time_expression(node, row[column]) for row in node.projections)
        case logical.Aggregate() | logical.Distinct():
            keys = group_keys(node)
            edges = group_window_edges(node.input, keys) or {}
            return edges.get(keys[column]) == _WINDOW_TIME and _is_event_time(node.input, keys[column])
        case logical.WindowTable() if column >= len(node.input.schema):
            return _is_event_time(node.input, node.time)
        case logical.WatermarkAssigner() if column == node.column:
            return True
        case logical.SetOperation():
            return all(_is_event_time(part, column) for part in node.parts)
        case logical.Join():
            return _keeps_times(node) and _is_time_below(node, column)
        case _ if isinstance(node, _PASSING):
            return _is_time_below(node, column)
        case _:
            return True


def _keeps_times(join: logical.Join) -> bool:
    """Return whether the rows of a join are ahead of the watermark."""
    return find_interval(join) is not None or find_join_window_edges(join) is not None


def _is_time_below(node: Node, column: int) -> bool:
    source = find_input(node, column)
    return source is not None and _is_event_time(*source)


def _is_event_time_expression(node: logical.Project | logical.Expand, expression: Typed) -> bool:
    return not isinstance(expression, Field) or _is_event_time(node.input, expression.index)


def _is_event_time(node: Node, column: int) -> bool:
    return node.schema[column].time is TimeAttribute.ROWTIME
