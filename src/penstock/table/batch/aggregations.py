"""Groups and their aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.table.analyser.window_properties import is_of_windows
from penstock.table.batch.aggregates import Over, gathered, gathered_type, native_aggregate
from penstock.table.batch.kernels import Accumulated
from penstock.table.batch.map_keys import group_text, has_maps, value_text
from penstock.table.batch.planning import BatchPlanner, Source, column, select, with_maps
from penstock.table.batch.stored import spark_type
from penstock.table.data.logical_types import DataType
from penstock.table.functions.signatures import BIGINT
from penstock.table.plan import logical
from penstock.table.plan.logical import AggregateCall
from penstock.table.plan.row_schema import RowSchema
from penstock.table.streaming.planning.plan_windows import below_window
from penstock.table.streaming.rewrites.calc import extract_calc
from penstock.table.typed.nodes import Constant, Typed


def aggregate(planner: BatchPlanner, node: logical.Aggregate) -> str:
    """Return a row for each group, or for each group of every grouping set."""
    if () in node.groupings:
        return planner.query(_by_group_id(node))
    node = _of_sessions(planner, node)
    source = project_operands(planner, planner.query(node.input), node.input.schema, node.calls, node.keys)
    texts, gathered_calls = render_calls(node.calls, source.texts, Over())
    kinds = [node.input.schema[key].type.nullable() for key in node.keys]
    keys = [group_text(column(key), kind) for key, kind in zip(node.keys, kinds, strict=True)]
    groupings = [_grouping(node, keys, grouping) for grouping in node.groupings]
    query = select([*_shown(node, keys, kinds), *groupings, *texts], source.query, _groups(node, keys))
    if any(map(has_maps, kinds)):
        columns = map(column, range(len(kinds) + len(groupings) + len(texts)))
        query = select([value_text(next(columns), kind) for kind in kinds] + list(columns), query)
    result = accumulated(planner, query, [*kinds, *(BIGINT for _ in groupings)], node.calls, gathered_calls)
    if not groupings:
        return result
    # The columns of the groupings come after the columns of the calls.
    first, last = len(kinds), len(kinds) + len(groupings)
    order = [*range(first), *range(last, last + len(node.calls)), *range(first, last)]
    return select(list(map(column, order)), result)


def _is_used(node: logical.Aggregate, key: int) -> bool:
    """Return whether some grouping set has a key. Spark knows no other keys."""
    return not node.sets or any(key in grouping_set for grouping_set in node.sets)


def _shown(node: logical.Aggregate, keys: Sequence[str], kinds: Sequence[DataType]) -> list[str]:
    return [
        text if _is_used(node, key) else f"CAST(NULL AS {spark_type(kind)})"
        for key, (text, kind) in enumerate(zip(keys, kinds, strict=True))
    ]


def _grouping(node: logical.Aggregate, keys: Sequence[str], grouping: Sequence[int]) -> str:
    """Return GROUPING of keys: one bit per key, which is 1 if a set omits the key."""
    bits = [
        f"shiftleft({f'CAST(grouping({keys[key]}) AS BIGINT)' if _is_used(node, key) else '1L'}, {bit})"
        for bit, key in enumerate(reversed(grouping))
    ]
    return f"({' + '.join(bits)})"


def _by_group_id(node: logical.Aggregate) -> logical.Node:
    """Rewrite groups with GROUP_ID, which Spark lacks: first the groups of sets with the id 0, then 1, and so on."""
    ids, width = node.group_ids(), len(node.keys) + len(node.calls)
    grouping_indexes = [position for position, keys in enumerate(node.groupings) if keys]
    columns = [*node.schema.columns[:width], *(node.schema[width + position] for position in grouping_indexes)]
    parts: list[logical.Node] = []
    for group_id in range(max(ids) + 1):
        groups = replace(
            node,
            schema=RowSchema(tuple(columns)),
            sets=tuple(grouping_set for grouping_set, its in zip(node.sets, ids, strict=True) if its == group_id),
            groupings=tuple(node.groupings[position] for position in grouping_indexes),
        )
        expressions: list[Typed] = list(groups.schema.fields()[:width])
        for index in range(len(node.groupings)):
            is_id = index not in grouping_indexes
            expressions.append(
                Constant(BIGINT.not_null(), group_id)
                if is_id
                else groups.schema.field(width + grouping_indexes.index(index))
            )
        parts.append(logical.Project(schema=node.schema, input=groups, expressions=tuple(expressions)))
    return logical.SetOperation(schema=node.schema, operator="UNION", parts=tuple(parts), is_all=True)


def distinct(planner: BatchPlanner, node: logical.Distinct) -> str:
    """Return each distinct row once."""
    types = node.schema.types
    grouped = logical.Aggregate(schema=node.schema, input=node.input, keys=tuple(range(len(types))), calls=())
    if (of_sessions := _of_sessions(planner, grouped)) is not grouped:
        return aggregate(planner, of_sessions)
    texts = [group_text(column(index), kind) for index, kind in enumerate(types)]
    select_list = ", ".join(f"{text} AS {column(index)}" for index, text in enumerate(texts))
    return with_maps(f"SELECT DISTINCT {select_list or 'c0'} FROM ({planner.query(node.input)})", types)


def _of_sessions(planner: BatchPlanner, node: logical.Aggregate) -> logical.Aggregate:
    """Move the filters of a session aggregate below the sessions, as in streams; return other nodes unchanged."""
    if not is_of_windows(node):
        return node
    calc = extract_calc(node.input, planner.calls)
    if not isinstance(calc.input, logical.WindowTable) or calc.input.kind != "SESSION" or calc.condition is None:
        return node
    return below_window(node, calc) or node


def _groups(node: logical.Aggregate, keys: Sequence[str]) -> str:
    if node.sets:
        sets = ", ".join("(" + ", ".join(keys[key] for key in grouping_set) + ")" for grouping_set in node.sets)
        return f" GROUP BY GROUPING SETS ({sets})"
    return f" GROUP BY {', '.join(keys)}" if keys else ""


def project_operands(
    planner: BatchPlanner, query: str, schema: RowSchema, calls: Sequence[AggregateCall], kept: Sequence[int]
) -> Source:
    """Return the operands and conditions of all calls, one after another."""
    expressions: list[Typed] = []
    for call in calls:
        expressions += [*call.operands, *([] if call.condition is None else [call.condition])]
    return planner.over(query, schema, expressions, kept)


def render_calls(calls: Sequence[AggregateCall], texts: Sequence[str], over: Over) -> tuple[list[str], list[int]]:
    """Return the text of each call, and the indexes of the calls that gather their operands."""
    rest = iter(texts)
    call_texts: list[str] = []
    gathered_calls: list[int] = []
    for number, call in enumerate(calls):
        operands = [next(rest) for _ in call.operands]
        condition = None if call.condition is None else next(rest)
        text = native_aggregate(call, operands, condition, over)
        if text is None:
            text = gathered(call, operands, condition, over)
            gathered_calls.append(number)
        call_texts.append(text)
    return call_texts, gathered_calls


def accumulated(
    planner: BatchPlanner,
    query: str,
    before: Sequence[DataType],
    calls: Sequence[AggregateCall],
    gathered_calls: Sequence[int],
) -> str:
    """Return a query with the columns `before` and one column per call, with the gathered operands aggregated."""
    if not gathered_calls:
        return query
    width = len(before)
    takes = [
        *before,
        *(gathered_type(call) if number in gathered_calls else call.type for number, call in enumerate(calls)),
    ]
    work = Accumulated(tuple((width + number, calls[number]) for number in gathered_calls), planner.session)
    return f"SELECT * FROM {planner.step(query, work, takes, [*before, *(call.type for call in calls)])}"
