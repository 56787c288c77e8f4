"""Bounds on the number of rows of a plan, whatever its tables contain.

Flink's planner has the same bounds: after a condition or a join, zero rows are possible. An aggregate of all rows has
one row. In a stream this row is emitted with the first row of the input, but EXISTS, which is evaluated at planning
time, does not need input.
"""

from __future__ import annotations

from math import prod

from penstock.table.plan.logical import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    JoinType,
    Node,
    Over,
    Project,
    SetOperation,
    Sort,
    Values,
)
from penstock.table.typed.nodes import Constant


def least_rows(plan: Node) -> int:
    """Return the minimum number of rows of a plan, whatever its tables contain."""
    match plan:
        case Values(rows=rows):
            return len(rows)
        case Project(input=below) | Over(input=below):
            return least_rows(below)
        case Filter(input=below, condition=Constant(value=True)):
            return least_rows(below)
        case Aggregate(keys=(), sets=()):
            return 1
        case Aggregate(input=below) | Distinct(input=below):
            return min(least_rows(below), 1)
        case Sort(input=below, offset=offset, fetch=fetch):
            left = max(least_rows(below) - offset, 0)
            return left if fetch is None else min(left, fetch)
        case SetOperation(operator="UNION", parts=parts):
            return sum(map(least_rows, parts))
        case _:
            return 0


def most_rows(plan: Node) -> int | None:
    """Return the maximum number of rows of a plan, whatever its tables contain; None if unbounded."""
    match plan:
        case Values(rows=rows):
            return len(rows)
        case Aggregate(keys=(), sets=()):
            return 1
        case Project(input=below) | Over(input=below) | Filter(input=below) | Distinct(input=below):
            return most_rows(below)
        case Aggregate(input=below, sets=()):
            return most_rows(below)
        case Sort(input=below, offset=offset, fetch=fetch):
            most = most_rows(below)
            if most is None:
                return fetch
            left = max(most - offset, 0)
            return left if fetch is None else min(left, fetch)
        case SetOperation(operator="UNION", parts=parts):
            counts = [most_rows(part) for part in parts]
            known = [count for count in counts if count is not None]
            return sum(known) if len(known) == len(counts) else None
        case SetOperation(parts=parts):
            return most_rows(parts[0])
        case Join(join_type=JoinType.INNER, left=left_side, right=right_side):
            sides = most_rows(left_side), most_rows(right_side)
            known = [count for count in sides if count is not None]
            return prod(known) if len(known) == len(sides) or 0 in known else None
        case Join(join_type=JoinType.SEMI | JoinType.ANTI, left=left_side):
            return most_rows(left_side)
        case _:
            return None
