"""Rewrites set operations and grouping sets to joins, groups and repeated rows.

INTERSECT and EXCEPT become a semi or anti join in which NULL equals NULL. With ALL, the rows are counted on each side
and repeated accordingly.

Grouping sets repeat each row once per set, with NULL for keys that are not in the set. The number of the set is also a
key, so that a NULL of the data and a NULL of the set form two groups.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.subqueries import conjoin, shifted
from penstock.sql.functions.definition import BIGINT
from penstock.sql.logical.nodes import (
    Aggregate,
    AggregateCall,
    Distinct,
    Expand,
    Filter,
    Join,
    JoinType,
    Node,
    PlanColumn,
    Project,
    Replicate,
    RowSchema,
    SetOperation,
)
from penstock.sql.logical.properties import with_inputs
from penstock.sql.typed import Constant, Field, Typed, transformed

_COUNT = BIGINT.not_null()


def with_relations(plan: Node, calls: Calls) -> Node:
    """Rewrite a plan without INTERSECT, EXCEPT and grouping sets. Unchanged parts remain the same objects."""
    plan = with_inputs(plan, [with_relations(part, calls) for part in plan.inputs()])
    if isinstance(plan, Aggregate) and plan.sets:
        return _expanded(plan)
    if isinstance(plan, SetOperation) and plan.operator != "UNION":
        return _counted(plan, calls) if plan.is_all else _matched(plan, calls)
    return plan


def _matched(node: SetOperation, calls: Calls) -> Node:
    """Rewrite INTERSECT and EXCEPT: the rows of the first part that the others have, or do not have, each once."""
    width = len(node.schema)
    kind = JoinType.SEMI if node.operator == "INTERSECT" else JoinType.ANTI

    def joined(left: Node, right: Node) -> Node:
        rights = [shifted(other, width) for other in right.schema.fields()]
        same = [_same(left_field, other, calls) for left_field, other in zip(left.schema.fields(), rights, strict=True)]
        return Join(schema=left.schema, left=left, right=right, join_type=kind, condition=conjoin(same, calls))

    return Distinct(schema=node.schema, input=reduce(joined, node.parts))


def _same(column: Typed, other: Typed, calls: Calls) -> Typed:
    """Return the condition that two columns are equal: `=` if neither is nullable, so that window joins match."""
    has_nulls = column.type.is_nullable or other.type.is_nullable
    return calls.call("IS NOT DISTINCT FROM" if has_nulls else "=", [column, other])


def _counted(node: SetOperation, calls: Calls) -> Node:
    """Rewrite INTERSECT ALL and EXCEPT ALL: count the copies of each row."""
    width, is_intersection = len(node.schema), node.operator == "INTERSECT"
    sides = len(node.parts) if is_intersection else 1
    numbers = tuple(PlanColumn(f"$count{index}", _COUNT) for index in range(sides))
    marked = RowSchema((*node.schema.columns, *numbers))

    def numbered(position: int, part: Node) -> Node:
        sign = -1 if position else 1
        marks = [int(index == position) for index in range(sides)] if is_intersection else [sign]
        expressions = (*part.schema.fields(), *(Constant(_COUNT, mark) for mark in marks))
        return Project(schema=marked, input=part, expressions=expressions)

    parts = tuple(numbered(position, part) for position, part in enumerate(node.parts))
    union = SetOperation(schema=marked, operator="UNION", parts=parts, is_all=True)
    sums = tuple(AggregateCall("$SUM0", (marked.field(width + index),), _COUNT) for index in range(sides))
    counted = Aggregate(schema=marked, input=union, keys=tuple(range(width)), calls=sums)
    counts: list[Typed] = list(marked.fields()[width:])
    times = counts[0] if len(counts) == 1 else calls.call("LEAST", counts)
    filtered = Filter(schema=marked, input=counted, condition=calls.call(">", [times, Constant(_COUNT, 0)]))
    schema = RowSchema((*node.schema.columns, PlanColumn("$times", _COUNT)))
    rows = Project(schema=schema, input=filtered, expressions=(*marked.fields()[:width], times))
    return Replicate(schema=node.schema, input=rows)


def _expanded(node: Aggregate) -> Node:
    """Rewrite the groups of several sets as groups of rows that are repeated once for each set."""
    rows, width = node.input, len(node.keys)
    used = sorted({field.index for call in node.calls for field in _fields(call)})
    number = PlanColumn("$set", _COUNT)
    groupings = node.schema.columns[width + len(node.calls) :]
    columns = (*node.schema.columns[:width], *(rows.schema[index] for index in used), number, *groupings)
    expanded = Expand(
        schema=RowSchema(columns),
        input=rows,
        projections=tuple(_projection(node, set_index, used) for set_index in range(len(node.sets))),
    )
    keys = (*range(width), *range(width + len(used), len(columns)))
    mapping = {index: width + position for position, index in enumerate(used)}
    calls = tuple(_moved(call, mapping) for call in node.calls)
    results = node.schema.columns[width : width + len(calls)]
    schema = RowSchema((*(columns[key] for key in keys), *results))
    grouped = Aggregate(schema=schema, input=expanded, keys=keys, calls=calls, state_ttl_ms=node.state_ttl_ms)
    order = (*range(width), *range(len(keys), len(schema)), *range(width + 1, len(keys)))
    return Project(schema=node.schema, input=grouped, expressions=tuple(schema.field(index) for index in order))


def _projection(node: Aggregate, set_index: int, used: list[int]) -> tuple[Typed, ...]:
    """Return the expressions of a set for a row: keys, aggregated columns, the set's number, and GROUPING values."""
    rows, among = node.input.schema, node.sets[set_index]
    keys: list[Typed] = []
    for number, key in enumerate(node.keys):
        keys.append(rows.field(key) if number in among else Constant(node.schema[number].type, None))
    groupings = []
    for grouping in node.groupings:
        bits = "".join("0" if key in among else "1" for key in grouping)
        groupings.append(Constant(_COUNT, int(bits, 2) if bits else node.group_ids()[set_index]))
    return (*keys, *(rows.field(index) for index in used), Constant(_COUNT, set_index), *groupings)


def _fields(call: AggregateCall) -> list[Field]:
    parts = call.operands if call.condition is None else (*call.operands, call.condition)
    return [expression for part in parts for expression in part.walk() if isinstance(expression, Field)]


def _moved(call: AggregateCall, mapping: dict[int, int]) -> AggregateCall:
    def change(expression: Typed) -> Typed:
        return replace(expression, index=mapping[expression.index]) if isinstance(expression, Field) else expression

    condition = None if call.condition is None else transformed(call.condition, change)
    order = tuple(replace(key, index=mapping.get(key.index, key.index)) for key in call.order)
    return replace(
        call,
        operands=tuple(transformed(operand, change) for operand in call.operands),
        condition=condition,
        order=order,
    )
