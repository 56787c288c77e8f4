"""Groups and their aggregates."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.table.analyser.window_properties import is_of_windows
from penstock.table.batch.aggregates import Over, gathered, gathered_type, native_aggregate
from penstock.table.batch.kernels import Accumulated
from penstock.table.batch.planning import BatchPlanner, Source, column, select
from penstock.table.data.logical_types import DataType
from penstock.table.plan import logical
from penstock.table.plan.logical import AggregateCall
from penstock.table.plan.row_schema import RowSchema
from penstock.table.streaming.planning.plan_windows import below_window
from penstock.table.streaming.rewrites.calc import calc_of
from penstock.table.typed.nodes import Typed


def aggregate(planner: BatchPlanner, node: logical.Aggregate) -> str:
    """A row for each group, of each set of keys if there are several."""
    node = _of_sessions(planner, node)
    source = operands_of(planner, planner.query(node.input), node.input.schema, node.calls, node.keys)
    texts, places = texts_of(node.calls, source.texts, Over())
    query = select([*map(column, node.keys), *texts], source.query, _groups(node))
    kinds = [node.input.schema[key].type.nullable() for key in node.keys]
    return accumulated(planner, query, kinds, node.calls, places)


def distinct(planner: BatchPlanner, node: logical.Distinct) -> str:
    """Each row once."""
    keys = tuple(range(len(node.schema)))
    grouped = logical.Aggregate(schema=node.schema, input=node.input, keys=keys, calls=())
    if (of_sessions := _of_sessions(planner, grouped)) is not grouped:
        return aggregate(planner, of_sessions)
    columns = ", ".join(map(column, keys))
    return f"SELECT DISTINCT {columns or 'c0'} FROM ({planner.query(node.input)})"


def _of_sessions(planner: BatchPlanner, node: logical.Aggregate) -> logical.Aggregate:
    """An aggregate of sessions with its filters ahead of the sessions, as in streams; others as they are."""
    if not is_of_windows(node):
        return node
    calc = calc_of(node.input, planner.calls)
    if not isinstance(calc.input, logical.WindowTable) or calc.input.kind != "SESSION" or calc.condition is None:
        return node
    return below_window(node, calc) or node


def _groups(node: logical.Aggregate) -> str:
    if node.sets:
        sets = ", ".join("(" + ", ".join(column(node.keys[key]) for key in one) + ")" for one in node.sets)
        return f" GROUP BY GROUPING SETS ({sets})"
    return f" GROUP BY {', '.join(map(column, node.keys))}" if node.keys else ""


def operands_of(
    planner: BatchPlanner, query: str, schema: RowSchema, calls: Sequence[AggregateCall], kept: Sequence[int]
) -> Source:
    """The operands and conditions of all calls, one after another."""
    expressions: list[Typed] = []
    for call in calls:
        expressions += [*call.operands, *([] if call.condition is None else [call.condition])]
    return planner.over(query, schema, expressions, kept)


def texts_of(calls: Sequence[AggregateCall], texts: Sequence[str], over: Over) -> tuple[list[str], list[int]]:
    """The text of each call, and which of them gather their operands."""
    rest = iter(texts)
    found: list[str] = []
    places: list[int] = []
    for number, call in enumerate(calls):
        operands = [next(rest) for _ in call.operands]
        condition = None if call.condition is None else next(rest)
        text = native_aggregate(call, operands, condition, over)
        if text is None:
            text = gathered(call, operands, condition, over)
            places.append(number)
        found.append(text)
    return found, places


def accumulated(
    planner: BatchPlanner,
    query: str,
    before: Sequence[DataType],
    calls: Sequence[AggregateCall],
    places: Sequence[int],
) -> str:
    """The query whose columns are those `before` and a column for each call, with what the gathered ones give."""
    if not places:
        return query
    width = len(before)
    takes = [
        *before,
        *(gathered_type(call) if number in places else call.type for number, call in enumerate(calls)),
    ]
    work = Accumulated(tuple((width + number, calls[number]) for number in places), planner.session)
    return f"SELECT * FROM {planner.step(query, work, takes, [*before, *(call.type for call in calls)])}"
